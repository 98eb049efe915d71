//! Checkpoints and models: when they are written, and what becomes of it.

use std::sync::Arc;
use std::sync::mpsc as std_mpsc;

use ata_learn::Metadata;
use ata_record::{BEST_MODEL_FILE, MODEL_FILE, RecordError, RunEvent};
use ata_types::Iteration;
use tokio::sync::mpsc;

use super::{Command, Owner};
use crate::checkpoint::{Cadence, Job, Progress, Saved, VERSION};
use crate::parameters::ParameterSet;
use crate::training::Work;

/// What every checkpoint of a run says of it.
pub(super) struct Described {
    pub(super) settings: String,
    pub(super) data: String,
}

/// The checkpoints of a run.
pub(super) struct Checkpoints {
    jobs: std_mpsc::Sender<Job>,
    cadence: Cadence,
    epoch: u64,
    described: Described,
    /// When the last one was begun.
    last_s: f64,
    /// How many jobs the thread has not reported on.
    under_way: usize,
    /// Whether one of them is a checkpoint, which may still wait for the training thread.
    is_saving: bool,
    /// The next step, which waits for the checkpoint that is being written.
    waiting: Option<Work>,
    /// The last iteration of the newest one; 0 if there is none.
    saved: u64,
    /// Why the last one could not be written, if it could not.
    pub(super) failed: Option<String>,
    model_failed: Option<RecordError>,
}

impl Checkpoints {
    pub(super) fn new(
        jobs: std_mpsc::Sender<Job>,
        cadence: Cadence,
        epoch: u64,
        described: Described,
        saved: u64,
        now_s: f64,
    ) -> Self {
        Self {
            jobs,
            cadence,
            epoch,
            described,
            last_s: now_s,
            under_way: 0,
            is_saving: false,
            waiting: None,
            saved,
            failed: None,
            model_failed: None,
        }
    }

    fn send(&mut self, job: Job) {
        // The thread ends after this handle.
        if self.jobs.send(job).is_ok() {
            self.under_way += 1;
        }
    }
}

impl Owner {
    /// Saves the run after an iteration if that is due.
    pub(super) fn save_if_due(&mut self, iteration: u64) {
        // One that is due by time can be late.
        let is_late = self.checkpoints.is_saving && matches!(self.checkpoints.cadence, Cadence::Seconds(_));
        if !is_late && self.checkpoints.cadence.is_due(iteration, self.now_s, self.checkpoints.last_s) {
            self.save();
        }
    }

    /// Takes a step. If checkpoints are due by iterations, it waits for the one that is being written: so never more steps
    /// than lie between two of them are lost.
    pub(super) fn step(&mut self, step: Work) {
        if self.checkpoints.is_saving && matches!(self.checkpoints.cadence, Cadence::Iterations(_)) {
            self.checkpoints.waiting = Some(step);
        } else {
            self.train(step);
        }
    }

    /// Has the state after the last step written, beside the iterations. No step may be under way.
    fn save(&mut self) {
        let engine = self.engine.save();
        let iteration = engine.next_iteration().number() - 1;
        let workers = self.sessions.names_by_departure();
        let progress = Progress {
            version: VERSION,
            run_id: self.run_id.clone(),
            iteration,
            epoch: self.checkpoints.epoch,
            time_s: self.now_s,
            samples: iteration * self.run_spec.budget * u64::from(self.run_spec.task_batch),
            best_accuracy: self.evaluations.best.accuracy,
            workers: workers.map(|(worker, name)| (worker, name.to_string())).collect(),
            expelled: self.sessions.expelled().map(|(name, why)| (name.to_string(), why.clone())).collect(),
            engine,
            data: self.checkpoints.described.data.clone(),
            settings: self.checkpoints.described.settings.clone(),
        };
        self.trace.checkpoint_begins(iteration);
        self.checkpoints.last_s = self.now_s;
        self.checkpoints.is_saving = true;
        let (copy, training) = std_mpsc::sync_channel(1);
        self.checkpoints.send(Job::Checkpoint { training, progress: Box::new(progress) });
        self.train(Work::Copy(copy));
    }

    /// Keeps the best model so far.
    pub(super) fn keep_best(&mut self, parameters: ParameterSet, loss: f64, accuracy: Option<f64>) {
        let path = self.run_folder.join(BEST_MODEL_FILE);
        let figures = [("test_loss", Some(loss)), ("test_accuracy", accuracy)];
        let metadata = figures.into_iter().filter_map(|(key, value)| Some((key.to_owned(), value?.to_string())));
        let metadata = metadata.collect();
        self.checkpoints.send(Job::Model { path, parameters, metadata });
    }

    /// Records what became of a checkpoint or a model.
    pub(super) fn saved(&mut self, saved: Saved) {
        self.checkpoints.under_way = self.checkpoints.under_way.saturating_sub(1);
        if !matches!(saved, Saved::Model { .. }) {
            self.checkpoints.is_saving = false;
            let failed = if let Saved::CheckpointFailed { reason, .. } = &saved { Some(reason.as_str()) } else { None };
            self.trace.checkpoint_ends(failed);
        }
        let time_s = self.now_s;
        match saved {
            Saved::Checkpoint { iteration, place, seconds } => {
                (self.checkpoints.saved, self.checkpoints.failed) = (iteration, None);
                self.publisher.publish(RunEvent::Checkpoint {
                    time_s,
                    iteration: Iteration(iteration),
                    path: place,
                    seconds,
                });
            }
            Saved::CheckpointFailed { iteration, reason } => {
                tracing::warn!("no checkpoint after iteration {iteration}: {reason}; those before it are kept");
                self.checkpoints.failed = Some(reason.clone());
                self.publisher.publish(RunEvent::CheckpointFailed { time_s, iteration: Iteration(iteration), reason });
            }
            Saved::Model { path, result: Ok(()) } => {
                self.checkpoints.model_failed.take_if(|failed| failed.path == path);
            }
            Saved::Model { path, result: Err(cause) } => {
                tracing::warn!("cannot write {}: {cause}", path.display());
                self.checkpoints.model_failed = Some(RecordError { path, cause: Arc::new(cause) });
            }
        }
        if !self.checkpoints.is_saving
            && let Some(step) = self.checkpoints.waiting.take()
        {
            self.train(step);
        }
    }

    /// Saves the state after the last step, if that was not done, and waits until it is durable.
    pub(super) async fn save_last(&mut self, commands: &mut mpsc::Receiver<Command>) {
        self.checkpoints.waiting = None;
        let is_idle = |owner: &Self| owner.checkpoints.under_way == 0;
        self.settle(commands, is_idle).await;
        let is_saved = self.checkpoints.saved == self.parameters.steps();
        if self.checkpoints.cadence != Cadence::Never && !is_saved {
            self.save();
            self.settle(commands, is_idle).await;
        }
    }

    /// Writes the model that was trained.
    pub(super) async fn write_model(&mut self, commands: &mut mpsc::Receiver<Command>) -> Result<(), RecordError> {
        let parameters = self.parameters.clone();
        let path = self.run_folder.join(MODEL_FILE);
        self.checkpoints.send(Job::Model { path, parameters, metadata: Metadata::new() });
        self.settle(commands, |owner| owner.checkpoints.under_way == 0).await;
        self.checkpoints.model_failed.take().map_or(Ok(()), Err)
    }
}
