//! Models, data and optimizer: the only crate that depends on burn.
//!
//! # Layout
//! - `device`: [`DeviceChoice`], the hardware that computes
//! - `problem`: [`Problem`], what is trained: a burn module, its samples, its loss
//! - `model`: [`Model`], a problem as coordinator and workers see it; the built-in ones, which classify images
//! - `data`: where samples come from, and which of them a task gets; CIFAR-100 and a synthetic stand-in
//! - `flat`: parameters and gradients as one flat `f32` vector; `table`: the names and shapes of its parts
//! - [`nn`]: layers with operations of our own for the CPU, for the built-in networks and yours
//! - `process`: memory and threads of a process that computes
//! - `learner`: the gradient of a task; `evaluator`: loss and accuracy on a data set
//! - `optimizer`: Adam, AdamW, SGD and learning rates; `state`: what training changes, and a step of it
//! - `model_file`: models and optimizer state as safetensors
//! - `spread`: work on large vectors, on several threads
//! - `reduction`: the fixed tree by which an iteration's gradients are summed; `aggregate`: that, or a robust estimate;
//!   `agreement`: whether two workers computed the same

mod aggregate;
mod agreement;
mod cache;
mod data;
mod device;
mod evaluator;
mod flat;
mod learner;
mod model;
mod model_file;
pub mod nn;
mod optimizer;
mod problem;
mod process;
mod reduction;
mod spread;
mod state;
mod table;

pub use aggregate::{Aggregate, AggregateError, Aggregator, Estimate};
pub use cache::default_cache_dir;
pub use data::{
    CHANNELS, CLASS_NAMES, CLASSES, DataError, DataFile, DataSource, FileState, IMAGE_BYTES, ImageBatch, ImageInput,
    Images, RECORD_BYTES, Record, RecordFile, Split, Synthetic, TaskSampler, Tasks, extract_archive, find_split, hex,
    sha256_of_file,
};
pub use device::{DeviceChoice, DeviceError, OpenDevice, limit_threads};
pub use evaluator::{ClassCount, Evaluation, Evaluator};
pub use flat::with_parameters;
pub use learner::{Learner, LearnerError, TaskGradient};
pub use model::{
    Cnn, CnnWidths, Dataset, ImageClassifier, Model, ModelError, ModelResolver, Network, ResNet20, builtin_model, model,
};
pub use model_file::{
    Metadata, ModelFileError, decode_metadata, decode_model, decode_vectors, encode_model, encode_vectors,
    sha256_of_parameters,
};
pub use nn::cross_entropy;
pub use optimizer::{LearningRate, Optimizer, Rule, RuleName, Schedule, ScheduleName};
pub use problem::{Batch, DeviceSamples, Measurement, Problem, Samples};
pub use process::{in_background, keep_freed_memory, on_one_thread, thread_count, with_own_threads};
pub use reduction::{Partial, Reduction, reduce_in_order};
pub use state::{StepOutcome, TrainingState};
pub use table::{ParameterTable, TensorEntry};
