//! Everything a worker must know about the run.

use ata_types::WireFormat;
use bytes::Bytes;

use super::{WireError, array, in_range, invalid, missing, truncated};
use crate::limits::{MAX_BUDGET, MAX_DATA_BYTES, MAX_PARAMETERS, MAX_TASK_BATCH};
use crate::proto;

/// Everything a worker must know about the run.
#[derive(Clone, Debug, PartialEq)]
pub struct RunSpec {
    /// The model, in the form of `--model`.
    pub model: String,
    /// The number of the model's parameters.
    pub parameters: u64,
    /// The seed of the order of samples.
    pub seed: u64,
    /// The budget B, in tasks per iteration.
    pub budget: u64,
    /// The number of samples per task.
    pub task_batch: u32,
    /// Whether samples without a finite loss or gradient are left out of the mean of their task.
    pub skip_bad_samples: bool,
    /// The training data.
    pub data: DataSpec,
    /// The test data.
    pub test_data: DataSpec,
    /// The encoding of vectors.
    pub format: WireFormat,
}

/// One split of a run's data.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DataSpec {
    /// Each worker generates the data from a seed.
    Generated {
        /// The seed.
        seed: u64,
    },
    /// A worker has a copy of the file, or fetches it.
    File {
        /// The SHA-256 of the whole file.
        sha256: [u8; 32],
        /// The size of the file, in bytes.
        bytes: u64,
        /// The URL of the folder in an object store that holds the shards of an index; `None` if they come from the coordinator.
        shards_url: Option<String>,
    },
}

impl From<RunSpec> for proto::RunSpec {
    fn from(run: RunSpec) -> Self {
        Self {
            model: run.model,
            parameters: run.parameters,
            seed: run.seed,
            budget: run.budget,
            task_batch: run.task_batch,
            skip_bad_samples: run.skip_bad_samples,
            data: Some(run.data.into()),
            test_data: Some(run.test_data.into()),
            format: match run.format {
                WireFormat::F32Exact => proto::WireFormat::F32Exact,
                WireFormat::Compact => proto::WireFormat::Compact,
            }
            .into(),
        }
    }
}

impl TryFrom<proto::RunSpec> for RunSpec {
    type Error = WireError;

    fn try_from(run: proto::RunSpec) -> Result<Self, WireError> {
        Ok(Self {
            model: truncated(run.model),
            parameters: in_range("parameters", run.parameters, MAX_PARAMETERS)?,
            seed: run.seed,
            budget: in_range("budget", run.budget, MAX_BUDGET)?,
            task_batch: in_range("task_batch", run.task_batch.into(), MAX_TASK_BATCH.into())? as u32,
            skip_bad_samples: run.skip_bad_samples,
            data: run.data.ok_or_else(|| missing("data"))?.try_into()?,
            test_data: run.test_data.ok_or_else(|| missing("test_data"))?.try_into()?,
            format: format_of(run.format)?,
        })
    }
}

impl From<DataSpec> for proto::DataSpec {
    fn from(data: DataSpec) -> Self {
        use proto::data_spec::Kind;
        let kind = match data {
            DataSpec::Generated { seed } => Kind::Generated(proto::GeneratedData { seed }),
            DataSpec::File { sha256, bytes, shards_url } => Kind::File(proto::FileData {
                sha256: Bytes::copy_from_slice(&sha256),
                bytes,
                shards_url: shards_url.unwrap_or_default(),
            }),
        };
        Self { kind: Some(kind) }
    }
}

impl TryFrom<proto::DataSpec> for DataSpec {
    type Error = WireError;

    fn try_from(data: proto::DataSpec) -> Result<Self, WireError> {
        use proto::data_spec::Kind;
        Ok(match data.kind.ok_or_else(|| missing("data"))? {
            Kind::Generated(proto::GeneratedData { seed }) => Self::Generated { seed },
            Kind::File(file) => Self::File {
                sha256: array("sha256", &file.sha256)?,
                bytes: in_range("bytes", file.bytes, MAX_DATA_BYTES)?,
                shards_url: Some(truncated(file.shards_url)).filter(|url| !url.is_empty()),
            },
        })
    }
}

/// Returns the format that a message names. An unknown one is an error, since no chunk could be decoded.
fn format_of(format: i32) -> Result<WireFormat, WireError> {
    match proto::WireFormat::try_from(format) {
        Ok(proto::WireFormat::F32Exact) => Ok(WireFormat::F32Exact),
        Ok(proto::WireFormat::Compact) => Ok(WireFormat::Compact),
        Ok(proto::WireFormat::Unspecified) | Err(_) => Err(invalid("format", format, "1 or 2")),
    }
}
