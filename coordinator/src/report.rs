//! The result of a run.

use std::collections::BTreeMap;

use ata_data::DataError;
use ata_learn::MeasuringError;
use ata_record::{JournalError, RecordError, RunState};
use ata_scheduler::{AbortReason, FinishReason, RestoreError, WorkerStatistics};

/// Why a run ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StopReason {
    /// All iterations are committed, or a limit was reached.
    Finished(FinishReason),
    /// The run was told to stop.
    Stopped,
}

/// The result of a run, however it ended.
#[derive(Debug)]
pub struct RunReport {
    /// Why it ended.
    pub ended: Result<StopReason, RunError>,
    /// The state that its events add up to.
    pub state: RunState,
    /// What was learned about each worker's speed, by name.
    pub statistics: BTreeMap<String, WorkerStatistics>,
    /// Why the last checkpoint could not be written, if it could not.
    pub not_saved: Option<String>,
    /// The number of parameters.
    pub parameters: usize,
    /// SHA-256 of the last flat parameters as little-endian f32.
    pub parameters_sha256: [u8; 32],
}

/// Why parameters could not be evaluated.
#[derive(Debug, thiserror::Error)]
pub(crate) enum EvaluationError {
    /// The coordinator cannot.
    #[error(transparent)]
    Here(MeasuringError),
    /// No worker measured the test data.
    #[error("{0}")]
    Workers(String),
}

impl From<EvaluationError> for RunError {
    fn from(error: EvaluationError) -> Self {
        match error {
            EvaluationError::Here(MeasuringError::Data(error)) => Self::Data(error),
            EvaluationError::Here(MeasuringError::Panicked) => Self::Training,
            EvaluationError::Workers(reason) => Self::Evaluation(reason),
        }
    }
}

/// Why a run failed.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// The run folder cannot be written.
    #[error(transparent)]
    Record(#[from] RecordError),
    /// The test data cannot be read.
    #[error(transparent)]
    Data(#[from] DataError),
    /// The engine aborted the run.
    #[error("{reason}; the last failure: {last_failure}")]
    Aborted {
        /// Why.
        reason: AbortReason,
        /// What the last worker that failed reported, or what was wrong with its result.
        last_failure: String,
    },
    /// No worker could evaluate the final parameters.
    #[error("the final parameters could not be evaluated: {0}")]
    Evaluation(String),
    /// The training or the evaluation panicked.
    #[error("the optimizer step or the evaluation failed; see the log above")]
    Training,
    /// The journal of a run that is resumed cannot be read.
    #[error(transparent)]
    Journal(#[from] JournalError),
    /// The training data of a run that is resumed has another content.
    #[error("cannot resume: the run's training data was {was}; this is {is}")]
    OtherData {
        /// The run's.
        was: String,
        /// What was given now.
        is: String,
    },
    /// The engine cannot continue from a checkpoint.
    #[error("cannot resume: {0}")]
    Restore(#[from] RestoreError),
}
