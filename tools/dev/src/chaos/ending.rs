//! The end of a run, whose last process exits normally or is killed, and the files that the run must leave.

use std::path::{Path, PathBuf};
use std::process::Stdio;

use ata::Failure;
use ata_record::{CONFIG_FILE, JOURNAL_FILE, METRICS_FILE, MODEL_FILE, REPORT_FILE, STATISTICS_FILE, SUMMARY_FILE};
use rustix::process::{Signal, kill_process_group};
use serde::Deserialize;
use tokio::process::Command;

use super::cluster::{Plan, duration, pid};

/// Seconds within which a process has always taken the last steps of a run and exited.
const ENDS_WITHIN_S: f64 = 6.0;

/// The files that a run must have left when it is over.
const RESULTS: [&str; 7] =
    [CONFIG_FILE, JOURNAL_FILE, METRICS_FILE, SUMMARY_FILE, STATISTICS_FILE, MODEL_FILE, REPORT_FILE];

/// The part of a run's result that must not depend on faults.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct RunResult {
    pub(crate) iterations: u64,
    pub(crate) tasks_applied: u64,
    pub(crate) parameters_sha256: String,
    /// The digest of the parameters in the model's file.
    pub(crate) model_sha256: String,
}

/// The part of `summary.json` that is compared.
#[derive(Deserialize)]
struct Summary {
    state: String,
    iterations: u64,
    tasks_applied: u64,
    parameters_sha256: String,
}

/// The part of what `ata eval --json` prints that is compared.
#[derive(Deserialize)]
struct Evaluation {
    parameters_sha256: String,
}

impl Plan {
    /// Starts a process that ends the disturbed run after the iteration `last`, and kills it and its workers after the fraction `moment` of
    /// the time that this may take.
    pub(crate) async fn kill_end(&self, last: u64, moment: f64) -> Result<(), Failure> {
        let mut child =
            self.up(&["--resume"], &self.disturbed(), last)?.process_group(0).spawn().map_err(Failure::internal)?;
        let group = pid(&child)?;
        // There is no condition to wait for: the moment is the fault.
        tokio::time::sleep(duration(ENDS_WITHIN_S * moment)).await;
        // The process may have exited by then.
        kill_process_group(group, Signal::KILL).unwrap_or(());
        child.wait().await.map(drop).map_err(Failure::internal)
    }

    /// Ends the disturbed run after the iteration `last`.
    pub(crate) async fn end(&self, last: u64) -> Result<RunResult, Failure> {
        self.result(self.up(&["--resume"], &self.disturbed(), last)?, &self.disturbed()).await
    }

    /// Runs the same number of iterations without faults and without emulated slowness.
    pub(crate) async fn undisturbed(&self, iterations: u64) -> Result<RunResult, Failure> {
        let folder = self.folder.join("undisturbed");
        let mut command = self.up(&["--checkpoint-every", "never", "--out"], &folder, iterations)?;
        command.arg("--config").arg(self.settings());
        self.result(command, &folder).await
    }

    /// Returns the command `ata up` with these arguments and a folder.
    fn up(&self, args: &[&str], folder: &Path, iterations: u64) -> Result<Command, Failure> {
        let mut command = self.command();
        command.arg("up").args(args).arg(folder);
        command.args(["--iterations", &iterations.to_string(), "--task-time", "none"]);
        self.prepare(&mut command).stdout(Stdio::null()).stderr(self.log("up.log")?);
        Ok(command)
    }

    /// Runs a command to completion, and reads its results from the run's folder.
    async fn result(&self, mut command: Command, folder: &Path) -> Result<RunResult, Failure> {
        let status = command.status().await.map_err(Failure::internal)?;
        let run = folder.display();
        if !status.success() {
            return Err(Failure::internal(format!("the end of {run} failed ({status}): see up.log")));
        }
        let missing: Vec<PathBuf> =
            RESULTS.map(|file| folder.join(file)).into_iter().filter(|file| !file.exists()).collect();
        if !missing.is_empty() {
            return Err(Failure::internal(format!("{run} is over and lacks {missing:?}")));
        }
        let path = folder.join(SUMMARY_FILE);
        let summary = std::fs::read(&path).map_err(|cause| cause.to_string());
        let summary = summary.and_then(|text| serde_json::from_slice(&text).map_err(|cause| cause.to_string()));
        let Summary { state, iterations, tasks_applied, parameters_sha256 } =
            summary.map_err(|reason| Failure::data(format!("{}: {reason}", path.display())))?;
        if state != "finished" {
            return Err(Failure::internal(format!("{run} is over, and its summary says that it is {state}")));
        }
        let model_sha256 = self.model_sha256(folder).await?;
        Ok(RunResult { iterations, tasks_applied, parameters_sha256, model_sha256 })
    }

    /// Returns the digest of the parameters in the model's file, as computed by `ata eval`.
    async fn model_sha256(&self, folder: &Path) -> Result<String, Failure> {
        let path = folder.join(MODEL_FILE);
        let mut command = self.command();
        command.arg("eval").arg(&path).args(["--device", "cpu", "--json"]);
        self.prepare(&mut command).stdout(Stdio::piped()).stderr(self.log("eval.log")?);
        let output = command.output().await.map_err(Failure::internal)?;
        if !output.status.success() {
            let (path, status) = (path.display(), output.status);
            return Err(Failure::data(format!("{path}: `ata eval` refuses it ({status}): see eval.log")));
        }
        let wrong = |cause| Failure::data(format!("{}: `ata eval --json` printed: {cause}", path.display()));
        let evaluation: Evaluation = serde_json::from_slice(&output.stdout).map_err(wrong)?;
        Ok(evaluation.parameters_sha256)
    }
}
