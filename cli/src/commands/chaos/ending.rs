//! The end of a run: brought about by a process, in peace or killed, and what must be there then.

use std::path::{Path, PathBuf};
use std::process::Stdio;

use ata_learn::sha256_of_parameters;
use ata_record::{CONFIG_FILE, JOURNAL_FILE, METRICS_FILE, MODEL_FILE, REPORT_FILE, STATISTICS_FILE, SUMMARY_FILE};
use ata_wire::duration;
use rustix::process::{Signal, kill_process_group};
use serde::Deserialize;
use tokio::process::Command;

use super::cluster::{Plan, pid};
use crate::failure::Failure;
use crate::run::model;

/// Seconds in which a process takes the last steps of a run and ends, and more.
const ENDS_WITHIN_S: f64 = 6.0;

/// What a run that is over must have left.
const RESULTS: [&str; 7] =
    [CONFIG_FILE, JOURNAL_FILE, METRICS_FILE, SUMMARY_FILE, STATISTICS_FILE, MODEL_FILE, REPORT_FILE];

/// What two runs must have in common.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Trained {
    pub(super) iterations: u64,
    pub(super) parameters_sha256: String,
    /// That of the parameters in the model's file.
    pub(super) model_sha256: String,
}

/// The part of it that is in `summary.json`.
#[derive(Deserialize)]
struct Summary {
    state: String,
    iterations: u64,
    parameters_sha256: String,
}

impl Plan {
    /// Starts to bring the disturbed run to its end after this iteration, and kills the process and its workers at this share of
    /// the time that it may take.
    pub(super) async fn kill_end(&self, last: u64, moment: f64) -> Result<(), Failure> {
        let mut command = self.up(&["--resume"], &self.disturbed(), last)?;
        let mut child = command.process_group(0).spawn().map_err(Failure::internal)?;
        let group = pid(&child)?;
        // Nothing can be waited for: the moment is the fault.
        tokio::time::sleep(duration(ENDS_WITHIN_S * moment)).await;
        // It may have come to its end by then.
        kill_process_group(group, Signal::KILL).unwrap_or(());
        child.wait().await.map(drop).map_err(Failure::internal)
    }

    /// Brings the disturbed run to its end after this iteration.
    pub(super) async fn end(&self, last: u64) -> Result<Trained, Failure> {
        self.trained(self.up(&["--resume"], &self.disturbed(), last)?, &self.disturbed()).await
    }

    /// Runs as many iterations without faults and without emulated slowness.
    pub(super) async fn undisturbed(&self, iterations: u64) -> Result<Trained, Failure> {
        let folder = self.folder.join("undisturbed");
        let mut command = self.up(&["--checkpoint-every", "never", "--out"], &folder, iterations)?;
        command.arg("--config").arg(&self.file);
        self.trained(command, &folder).await
    }

    /// `ata up` with these arguments and a folder.
    fn up(&self, args: &[&str], folder: &Path, iterations: u64) -> Result<Command, Failure> {
        let mut command = Command::new(std::env::current_exe().map_err(Failure::internal)?);
        command.arg("up").args(args).arg(folder);
        command.args(["--iterations", &iterations.to_string(), "--task-time", "none"]);
        self.prepare(&mut command).stdout(Stdio::null()).stderr(self.log("up.log")?);
        Ok(command)
    }

    /// Runs a command to its end, and returns what it left in the run's folder.
    async fn trained(&self, mut command: Command, folder: &Path) -> Result<Trained, Failure> {
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
        let summary = std::fs::read(folder.join(SUMMARY_FILE)).map_err(Failure::data)?;
        let Summary { state, iterations, parameters_sha256 } =
            serde_json::from_slice(&summary).map_err(Failure::data)?;
        if state != "finished" {
            return Err(Failure::internal(format!("{run} is over, and its summary says that it is {state}")));
        }
        let (parameters, _) = model::read(&folder.join(MODEL_FILE), &self.table)?;
        let model_sha256 = ata_learn::hex(&sha256_of_parameters(&parameters));
        Ok(Trained { iterations, parameters_sha256, model_sha256 })
    }
}
