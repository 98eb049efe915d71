//! The result of a chaos run.

use serde::Serialize;

use crate::chaos::KindSummary;
use crate::chaos::ending::RunResult;

/// The result of a chaos run. Times are in seconds.
#[derive(Debug, Default, Serialize)]
pub(crate) struct Verdict {
    /// The seed of the faults and of the run.
    pub(crate) seed: u64,
    /// The number of iterations of the run under faults.
    pub(crate) iterations: u64,
    /// The outcomes, by kind of fault.
    pub(crate) faults: Vec<KindSummary>,
    /// Seconds from SIGTERM to the exit of the coordinator.
    pub(crate) coordinator_stopped_s: f64,
    /// Seconds from SIGTERM to the exit of the last worker.
    pub(crate) workers_stopped_s: f64,
    /// The number of processes that were still running at the end.
    pub(crate) processes_left: usize,
    /// The digest of the parameters of the run under faults.
    pub(crate) parameters_sha256: Option<String>,
    /// The digest of the parameters of the run without faults.
    pub(crate) undisturbed_sha256: Option<String>,
    /// Descriptions of the promises that were broken.
    pub(crate) broken: Vec<String>,
}

impl Verdict {
    /// Compares the run under faults with the one without.
    pub(crate) fn compare(&mut self, disturbed: RunResult, undisturbed: RunResult) {
        if disturbed != undisturbed {
            self.broken.push("the parameters are not those of the run without faults".into());
        }
        if disturbed.model_sha256 != disturbed.parameters_sha256 {
            self.broken.push("the model's file does not hold the parameters of the last step".into());
        }
        self.parameters_sha256 = Some(disturbed.parameters_sha256);
        self.undisturbed_sha256 = Some(undisturbed.parameters_sha256);
    }
}
