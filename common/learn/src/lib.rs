//! Problems, models and devices: the only crate that depends on burn.
//!
//! # Layout
//! - `device`: [`DeviceChoice`], the hardware that computes, and [`Precision`]
//! - `problem`: [`Problem`], a burn module, its samples and its loss
//! - `model`: [`Model`], a problem from the view of coordinator and workers; the built-in models, which classify images
//! - `images`: [`ImageInput`], batches of images, in host memory or on a device
//! - `flat`: parameters and gradients as one flat `f32` vector, and their names and shapes
//! - [`nn`]: layers with our own operations for the CPU, for the built-in networks and for yours
//! - `process`: the memory and the threads of a process that computes
//! - `learner`: the gradient of a task; `evaluator`: loss and accuracy on a data set
//! - `sift`: finds the samples of a task that have no finite gradient; `squares`: tallies the squares of gradients

mod device;
mod evaluation_threads;
mod evaluator;
mod flat;
mod images;
mod learner;
mod model;
pub mod nn;
mod problem;
mod process;
mod sift;
mod squares;

// The methods of a [`Problem`] use these types, so a crate that implements it need not depend on another one.
pub use ata_data::{BadImage, DataError, DataSource, FolderOptions, PackProgress, Split, TaskSample};
pub use ata_sums::{Metadata, ParameterTable};
pub use device::{DeviceChoice, DeviceError, GPU_ARCHIVE, OpenDevice, Precision, limit_threads};
pub use evaluation_threads::{BatchResult, EvaluationOrder, EvaluationThreads, MeasuringError};
pub use evaluator::{ClassCount, Evaluation, EvaluationBatches, EvaluationSum, Evaluator};
pub use flat::with_parameters;
pub use images::{ImageBatch, ImageInput};
pub use learner::{Learner, LearnerError, TaskGradient, finite};
pub use model::{
    BasicBlock, Bottleneck, Cnn, CnnWidths, Dataset, DescribedModel, ImageClassifier, ImageParameters, ImageShape,
    Model, ModelError, ModelResolver, Network, ResNet, builtin_model, model,
};
pub use nn::{MixedLabels, Targets, cross_entropy, cross_entropy_of_targets};
pub use problem::{Adaptation, Adapted, Batch, DeviceSamples, Measurement, Metrics, Problem, Samples};
pub use process::{keep_freed_memory, keep_large_blocks, on_one_thread, thread_count, with_own_threads};
pub use sift::{Sifted, sift};
pub use squares::with_squares;
