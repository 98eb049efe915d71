//! The thread that writes checkpoints and models, while the next iterations run.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::sync::mpsc;
use std::time::Instant;

use ata_record::write_atomically;
use ata_sums::{Metadata, ParameterTable, TrainingState};
use ata_types::Iteration;

use super::newest::{iterations, name_of};
use super::{Checkpoint, Progress, Retention, Store, model_file};
use crate::parameters::TrainedParameters;

/// A job for the saver thread.
pub(crate) enum SaveJob {
    /// Writes a checkpoint once the training thread has handed over its part, and drops old ones.
    Checkpoint { training: mpsc::Receiver<TrainingState>, progress: Box<Progress> },
    /// Writes a model to a file.
    Model { path: PathBuf, parameters: TrainedParameters, metadata: Metadata },
}

impl SaveJob {
    /// Returns the path of the model file, if the job writes one.
    fn path(&self) -> Option<PathBuf> {
        match self {
            Self::Checkpoint { .. } => None,
            Self::Model { path, .. } => Some(path.clone()),
        }
    }

    /// Returns the last iteration included in the checkpoint or model.
    fn iteration(&self) -> Iteration {
        match self {
            Self::Checkpoint { progress, .. } => progress.iteration,
            Self::Model { parameters, .. } => parameters.last_step(),
        }
    }
}

/// The result of a job.
#[derive(Debug)]
pub(crate) enum SaveResult {
    /// A checkpoint is durable.
    Checkpoint { iteration: Iteration, place: String, seconds: f64 },
    /// A checkpoint could not be written; earlier ones still exist.
    CheckpointFailed { iteration: Iteration, reason: String },
    /// A model was written, or could not be.
    Model { path: PathBuf, result: std::io::Result<()> },
}

/// Writes checkpoints and models on its own thread.
pub(crate) struct Saver {
    pub(crate) store: Box<dyn Store>,
    pub(crate) retention: Retention,
    pub(crate) table: ParameterTable,
    /// The metadata of all models of the run.
    pub(crate) metadata: Metadata,
}

impl Saver {
    /// Starts the thread, which ends when the returned sender is dropped. It reports each job, in order.
    pub(crate) fn spawn(self, report: impl Fn(SaveResult) + Send + 'static) -> mpsc::Sender<SaveJob> {
        let (jobs, received) = mpsc::channel::<SaveJob>();
        std::thread::Builder::new()
            .name("saver".into())
            .spawn(move || {
                for job in received {
                    let (path, iteration) = (job.path(), job.iteration());
                    // Without a report, the run would wait forever. The panic itself has been printed.
                    let saved = catch_unwind(AssertUnwindSafe(|| self.save(job)));
                    report(saved.unwrap_or_else(|_| match path {
                        Some(path) => {
                            SaveResult::Model { path, result: Err(std::io::Error::other("the saver panicked")) }
                        }
                        None => SaveResult::CheckpointFailed { iteration, reason: "the saver panicked".into() },
                    }));
                }
            })
            .expect("a thread can be started");
        jobs
    }

    fn save(&self, job: SaveJob) -> SaveResult {
        match job {
            SaveJob::Checkpoint { training, progress } => {
                let iteration = progress.iteration;
                let saved = match training.recv() {
                    Ok(training) => self.checkpoint(&Checkpoint { training, progress: *progress }),
                    Err(_) => Err("the optimizer failed".into()),
                };
                saved.unwrap_or_else(|reason| SaveResult::CheckpointFailed { iteration, reason })
            }
            SaveJob::Model { path, parameters, metadata } => {
                let about = self.metadata.clone().into_iter().chain(metadata).collect();
                let file = model_file(&self.table, &about, parameters.last_step(), parameters.values());
                let result = write_atomically(&path, &file);
                SaveResult::Model { path, result }
            }
        }
    }

    /// Writes a checkpoint; an error says why it failed.
    fn checkpoint(&self, checkpoint: &Checkpoint) -> Result<SaveResult, String> {
        let began = Instant::now();
        let (iteration, steps) = (checkpoint.progress.iteration, checkpoint.training.steps());
        if steps != iteration.number() {
            return Err(format!("its parameters are those after step {steps}: please report this"));
        }
        let (name, files) = (name_of(iteration), checkpoint.encode(&self.table, &self.metadata));
        let place = self.store.describe(&name);
        let put = self.store.put(&name, &files).and_then(|()| self.store.set_latest(&name));
        put.map_err(|cause| format!("cannot write {place}: {cause}"))?;
        self.drop_old(iteration);
        Ok(SaveResult::Checkpoint { iteration, place, seconds: began.elapsed().as_secs_f64() })
    }

    fn drop_old(&self, current: Iteration) {
        for iteration in self.retention.dropped(iterations(&*self.store).unwrap_or_default(), current) {
            let name = name_of(iteration);
            if let Err(cause) = self.store.remove(&name) {
                tracing::warn!("cannot remove the old checkpoint {}: {cause}", self.store.describe(&name));
            }
        }
    }
}
