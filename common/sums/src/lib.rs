//! Exact sums of gradients, their encoding, and the optimizers that use them: arithmetic on flat vectors.
//!
//! # Layout
//! - `table`: [`ParameterTable`], the names and shapes of a flat vector's parts; `model_file`: models and optimizer state as safetensors
//! - `names`: [`NamePatterns`], which choose tensors by name
//! - `exact`: sums of gradients in integers, which do not depend on the order of summation
//! - `codec`: sums and parameters as bytes
//! - `optimizer`: Adam, AdamW, SGD and learning rates; `state`: the training state, and a step that changes it
//! - `local`: local steps, and the difference that they make
//! - `agreement`: compares two workers' results for the same tasks
//! - `spread`: spreads work on large vectors over several threads

#![allow(
    clippy::inline_always,
    reason = "what a kernel calls is compiled for its instructions only if it is a part of it"
)]

mod agreement;
mod codec;
mod exact;
mod local;
mod model_file;
mod names;
mod optimizer;
mod spread;
mod state;
mod table;

pub use agreement::TaskResult;
pub use codec::{
    CodecError, apply_differences, decode_parameters, decode_sums, encode_differences, encode_parameters, encode_sums,
};
pub use exact::{GradientSum, NotFinite, Quantizer, TensorGradient, TensorSizes, Units, UnitsError, add_sums, maxima};
pub use local::{InnerSteps, LocalParameters, outer_rate};
pub use model_file::{
    Metadata, ModelFileError, decode_metadata, decode_model, decode_model_except, decode_own_state, decode_table,
    decode_vectors, encode_model, encode_vectors, sha256_of_parameters,
};
pub use names::NamePatterns;
pub use optimizer::{
    GroupRule, LearningRate, Optimizer, OwnOptimizer, OwnStep, ParameterGroups, Rule, RuleName, Schedule, ScheduleName,
    TensorGroups,
};
pub use state::{SteppedChunk, TrainingConfig, TrainingOutcome, TrainingState};
pub use table::{ParameterTable, TensorEntry, TensorKind};
