//! The result of a run.

use std::collections::BTreeMap;

use ata_data::DataError;
use ata_learn::MeasuringError;
use ata_record::{JournalError, RecordError, RunState};
use ata_scheduler::{AbortReason, FinishReason, RestoreError, WorkerStatistics};

/// The reason why a run ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StopReason {
    /// All iterations are committed, or a limit was reached.
    Finished(FinishReason),
    /// A stop was requested.
    Stopped,
}

/// The result of a run, however it ended.
#[derive(Debug)]
pub struct RunReport {
    /// The reason why the run ended.
    pub ended: Result<StopReason, RunError>,
    /// The state that results from the run's events.
    pub state: RunState,
    /// The statistics of each worker's speed, by name.
    pub statistics: BTreeMap<String, WorkerStatistics>,
    /// The reason why the last checkpoint could not be written, if it failed.
    pub not_saved: Option<String>,
    /// The number of parameters.
    pub parameters: usize,
    /// The SHA-256 of the last flat parameters as little-endian f32.
    pub parameters_sha256: [u8; 32],
}

/// The error of an evaluation.
#[derive(Debug, thiserror::Error)]
pub(crate) enum EvaluationError {
    /// The coordinator cannot evaluate the parameters.
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

/// The error of a run.
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
        /// The reason for the abort.
        reason: AbortReason,
        /// The reason of the last worker failure, or what was wrong with the worker's result.
        last_failure: String,
    },
    /// No worker could evaluate the final parameters.
    #[error("the final parameters could not be evaluated: {0}")]
    Evaluation(String),
    /// The training or the evaluation panicked.
    #[error("the optimizer step or the evaluation failed; see the log above")]
    Training,
    /// The program's own optimizer failed.
    #[error("the program's own optimizer: {0}")]
    Optimizer(String),
    /// The journal of a resumed run cannot be read.
    #[error(transparent)]
    Journal(#[from] JournalError),
    /// The training data of a resumed run has changed.
    #[error("cannot resume: the run's training data was {0}; this is {1}")]
    OtherData(String, String),
    /// The engine cannot continue from a checkpoint.
    #[error("cannot resume: {0}")]
    Restore(#[from] RestoreError),
}
