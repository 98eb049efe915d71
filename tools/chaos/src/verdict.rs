//! The result of a chaos run.

use serde::Serialize;

use crate::KindSummary;
use crate::ending::RunResult;

/// The result of a chaos run. Times are in seconds.
#[derive(Debug, Default, Serialize)]
pub struct Verdict {
    /// Seed of the faults, and of the run.
    pub seed: u64,
    /// Iterations of the run under faults.
    pub iterations: u64,
    /// The outcomes, by kind of fault.
    pub faults: Vec<KindSummary>,
    /// Seconds from SIGTERM to the end of the coordinator.
    pub coordinator_stopped_s: f64,
    /// Seconds from SIGTERM to the end of the last worker.
    pub workers_stopped_s: f64,
    /// Processes that were left when all had ended.
    pub processes_left: usize,
    /// The digest of the parameters of the run under faults.
    pub parameters_sha256: Option<String>,
    /// The digest of the parameters of the run without faults.
    pub undisturbed_sha256: Option<String>,
    /// The promises that were broken, in words.
    pub broken: Vec<String>,
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
