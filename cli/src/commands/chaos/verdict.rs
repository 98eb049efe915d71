//! All that is reported, and the exit code.

use std::process::ExitCode;

use serde::Serialize;

use super::ending::Trained;
use super::outcome::{OfKind, table};
use crate::failure::Failure;
use crate::output::render_table;
use ata_observe::seconds;

/// The result of `ata chaos`, for scripts. Times are in seconds.
#[derive(Debug, Default, Serialize)]
pub(super) struct Verdict {
    pub(super) seed: u64,
    /// Iterations of the run under faults.
    pub(super) iterations: u64,
    pub(super) faults: Vec<OfKind>,
    /// From SIGTERM to the end of the process.
    pub(super) coordinator_stopped_s: f64,
    /// From SIGTERM to the end of the last worker.
    pub(super) workers_stopped_s: f64,
    /// Processes that were left when all had ended.
    pub(super) processes_left: usize,
    /// Of the run under faults.
    pub(super) parameters_sha256: Option<String>,
    /// Of the run without faults.
    pub(super) undisturbed_sha256: Option<String>,
    /// The promises that were broken, in words.
    pub(super) broken: Vec<String>,
}

impl Verdict {
    /// Compares the run under faults with the one without.
    pub(super) fn compare(&mut self, disturbed: Trained, undisturbed: Trained) {
        if disturbed != undisturbed {
            self.broken.push("the parameters are not those of the run without faults".into());
        }
        if disturbed.model_sha256 != disturbed.parameters_sha256 {
            self.broken.push("the model's file does not hold the parameters of the last step".into());
        }
        self.parameters_sha256 = Some(disturbed.parameters_sha256);
        self.undisturbed_sha256 = Some(undisturbed.parameters_sha256);
    }

    /// Prints the result. A broken promise is a failure.
    pub(super) fn finish(mut self, json: bool) -> Result<ExitCode, Failure> {
        if self.processes_left > 0 {
            self.broken.push(format!("{} processes were left", self.processes_left));
        }
        if json {
            println!("{}", serde_json::to_string_pretty(&self).map_err(Failure::internal)?);
        } else {
            print!("{}", self.render());
        }
        if self.broken.is_empty() {
            return Ok(ExitCode::SUCCESS);
        }
        Err(Failure::internal(format!("broken promises: {}", self.broken.join("; "))))
    }

    fn render(&self) -> String {
        let unknown = || "unknown".to_owned();
        let (coordinator, workers) = (seconds(self.coordinator_stopped_s), seconds(self.workers_stopped_s));
        let lines = [
            ("iterations", self.iterations.to_string()),
            ("after SIGTERM", format!("the coordinator ended in {coordinator}, the workers in {workers}")),
            ("processes left", self.processes_left.to_string()),
            ("parameters", self.parameters_sha256.clone().unwrap_or_else(unknown)),
            ("without faults", self.undisturbed_sha256.clone().unwrap_or_else(unknown)),
        ];
        let lines = lines.map(|(name, value)| format!("\n{name:<16}{value}")).concat();
        render_table(&table(&self.faults), usize::MAX) + &lines + "\n"
    }
}
