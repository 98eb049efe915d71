//! Models, data and optimizer: the only crate that depends on burn.
//!
//! # Layout
//! - `device`: [`DeviceChoice`], the hardware that computes
//! - `data`: CIFAR-100 in its official binary layout, a synthetic stand-in, and which samples a task gets
//! - `model`: [`Network`], the small trait a burn module needs, and the built-in [`Cnn`]
//! - `flat`: parameters and gradients as one flat `f32` vector
//! - `learner`: the gradient of a task; `trainer`: the optimizer step and the evaluation
//! - `reduction`: the fixed tree by which an iteration's gradients are summed

mod cache;
mod data;
mod device;
mod flat;
mod learner;
mod model;
mod reduction;
mod trainer;

pub use cache::default_cache_dir;
pub use data::{
    Batch, CLASSES, DataError, Dataset, IMAGE_BYTES, RECORD_BYTES, Record, RecordFile, Split, Synthetic, TaskData,
    extract_archive, find_split, hex, sha256_of_file,
};
pub use device::{DeviceChoice, DeviceError, OpenDevice, limit_threads};
pub use learner::{Learner, LearnerError, TaskGradient};
pub use model::{Cnn, CnnWidths, Model, ModelError, ModelResolver, Network, builtin_model, model};
pub use reduction::{Partial, Reduction, reduce_in_order};
pub use trainer::{Evaluation, Trainer, TrainerConfig};
