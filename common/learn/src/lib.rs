//! Models, data and optimizer: the only crate that depends on burn.
//!
//! # Layout
//! - `device`: [`DeviceChoice`], the hardware that computes
//! - `problem`: [`Problem`], what is trained: a burn module, its samples, its loss
//! - `model`: [`Model`], a problem as coordinator and workers see it; the built-in ones, which classify images
//! - `data`: where samples come from, and which of them a task gets; packed images, CIFAR-100 and a synthetic stand-in
//! - `flat`: parameters and gradients as one flat `f32` vector; `table`: the names and shapes of its parts
//! - [`nn`]: layers with operations of our own for the CPU, for the built-in networks and yours
//! - `process`: memory and threads of a process that computes
//! - `learner`: the gradient of a task; `evaluator`: loss and accuracy on a data set
//! - `exact`: sums of gradients in integers, which do not depend on the order of summation
//! - `codec`: sums and parameters as bytes; `model_file`: models and optimizer state as safetensors
//! - `optimizer`: Adam, AdamW, SGD and learning rates; `state`: what training changes, and a step of it
//! - `agreement`: whether two workers computed the same
//! - `spread`: work on large vectors, on several threads

mod agreement;
mod cache;
mod codec;
mod data;
mod device;
mod evaluation_threads;
mod evaluator;
mod exact;
mod flat;
mod learner;
mod model;
mod model_file;
pub mod nn;
mod optimizer;
mod precision;
mod problem;
mod process;
mod sift;
mod spread;
mod state;
mod table;

pub use agreement::TaskResult;
pub use cache::default_cache_dir;
pub use codec::{
    CodecError, apply_differences, decode_parameters, decode_sums, encode_differences, encode_parameters, encode_sums,
};
pub use data::{
    Augmentation, BadImage, CHANNELS, CLASS_NAMES, CLASSES, Channels, DEFAULT_SIZE, DataError, DataFile, DataSource,
    FileState, IMAGE_BYTES, ImageBatch, ImageChecksummer, ImageChecksums, ImageInfo, ImageInput, Images, LabelledImage,
    MAX_CLASSES, MAX_SIZE, PackProgress, PackedFile, Packing, RECORD_BYTES, Record, RecordFile, Shard, ShardFile,
    ShardIndex, ShardStore, ShardedFile, Split, Synthetic, TaskSample, TaskSampler, Tasks, Unpacked, extract_archive,
    find_split, hex, is_size, sha256_of_file,
};
pub use device::{DeviceChoice, DeviceError, OpenDevice, limit_threads};
pub use evaluation_threads::{BatchResult, EvaluationOrder, EvaluationThreads, MeasuringError};
pub use evaluator::{ClassCount, Evaluation, EvaluationBatches, EvaluationSum, Evaluator};
pub use exact::{GradientSum, NotFinite, Quantizer, TensorSizes, Units, UnitsError, add_sums, maxima};
pub use flat::with_parameters;
pub use learner::{Learner, LearnerError, TaskGradient, finite};
pub use model::{
    Cnn, CnnWidths, Dataset, DescribedModel, ImageClassifier, ImageParameters, ImageShape, Model, ModelError,
    ModelResolver, Network, ResNet18, ResNet20, builtin_model, model,
};
pub use model_file::{
    Metadata, ModelFileError, decode_metadata, decode_model, decode_vectors, encode_model, encode_vectors,
    sha256_of_parameters,
};
pub use nn::{MixedLabels, Targets, cross_entropy, cross_entropy_of_targets};
pub use optimizer::{LearningRate, Optimizer, Rule, RuleName, Schedule, ScheduleName};
pub use precision::{Precision, PrecisionError};
pub use problem::{Adapted, Batch, DeviceSamples, Measurement, Metrics, Problem, Samples};
pub use process::{keep_freed_memory, keep_large_blocks, on_one_thread, thread_count, with_own_threads};
pub use sift::{Sifted, sift};
pub use state::{StepOutcome, SteppedChunk, TrainingConfig, TrainingState};
pub use table::{ParameterTable, TensorEntry};
