//! Everything a worker has to know of the run.

use bytes::Bytes;

use super::{WireError, array, in_range, missing, truncated};
use crate::limits::{MAX_BUDGET, MAX_DATA_BYTES, MAX_PARAMETERS, MAX_TASK_BATCH};
use crate::proto;

/// Everything a worker has to know of the run.
#[derive(Clone, Debug, PartialEq)]
pub struct RunSpec {
    /// The model, as `--model` takes it.
    pub model: String,
    /// Its number of parameters.
    pub parameters: u64,
    /// Seed of the order of samples.
    pub seed: u64,
    /// B, tasks per iteration.
    pub budget: u64,
    /// Samples per task.
    pub task_batch: u32,
    /// The training data.
    pub data: DataSpec,
}

/// The training data of a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DataSpec {
    /// Made on the spot.
    Synthetic {
        /// From this seed.
        seed: u64,
    },
    /// The training split of CIFAR-100.
    Cifar100 {
        /// SHA-256 of `train.bin`.
        train_sha256: [u8; 32],
        /// Its size in bytes.
        train_bytes: u64,
    },
}

impl From<RunSpec> for proto::RunSpec {
    fn from(run: RunSpec) -> Self {
        use proto::data_spec::Kind;
        let data = match run.data {
            DataSpec::Synthetic { seed } => Kind::Synthetic(proto::SyntheticData { seed }),
            DataSpec::Cifar100 { train_sha256, train_bytes } => {
                Kind::Cifar100(proto::Cifar100Data { train_sha256: Bytes::copy_from_slice(&train_sha256), train_bytes })
            }
        };
        Self {
            model: run.model,
            parameters: run.parameters,
            seed: run.seed,
            budget: run.budget,
            task_batch: run.task_batch,
            data: Some(proto::DataSpec { kind: Some(data) }),
        }
    }
}

impl TryFrom<proto::RunSpec> for RunSpec {
    type Error = WireError;

    fn try_from(run: proto::RunSpec) -> Result<Self, WireError> {
        use proto::data_spec::Kind;
        let data = run.data.and_then(|data| data.kind).ok_or_else(|| missing("data"))?;
        Ok(Self {
            model: truncated(run.model),
            parameters: in_range("parameters", run.parameters, MAX_PARAMETERS)?,
            seed: run.seed,
            budget: in_range("budget", run.budget, MAX_BUDGET)?,
            task_batch: in_range("task_batch", run.task_batch.into(), MAX_TASK_BATCH.into())? as u32,
            data: match data {
                Kind::Synthetic(proto::SyntheticData { seed }) => DataSpec::Synthetic { seed },
                Kind::Cifar100(data) => DataSpec::Cifar100 {
                    train_sha256: array("train_sha256", &data.train_sha256)?,
                    train_bytes: in_range("train_bytes", data.train_bytes, MAX_DATA_BYTES)?,
                },
            },
        })
    }
}
