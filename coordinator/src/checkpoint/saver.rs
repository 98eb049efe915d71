//! The thread that writes checkpoints and models, while the next iterations run.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::sync::mpsc;
use std::time::Instant;

use ata_learn::{Metadata, ParameterTable, encode_model, hex, sha256_of_parameters};
use ata_record::write_atomically;

use super::newest::{iterations, name_of};
use super::{Checkpoint, Retention, Store};
use crate::parameters::ParameterSet;

/// Work for the thread.
pub(crate) enum Job {
    /// Keep a checkpoint, and drop old ones.
    Checkpoint(Box<Checkpoint>),
    /// Write a model to a file.
    Model { path: PathBuf, parameters: ParameterSet, metadata: Metadata },
}

impl Job {
    /// Where a model goes.
    fn path(&self) -> Option<PathBuf> {
        match self {
            Self::Checkpoint(_) => None,
            Self::Model { path, .. } => Some(path.clone()),
        }
    }

    /// The last iteration that a checkpoint or a model holds.
    fn iteration(&self) -> u64 {
        match self {
            Self::Checkpoint(checkpoint) => checkpoint.progress.iteration,
            Self::Model { parameters, .. } => parameters.iteration - 1,
        }
    }
}

/// The thread's report on a job.
#[derive(Debug)]
pub(crate) enum Saved {
    /// A checkpoint is durable.
    Checkpoint { iteration: u64, place: String, seconds: f64 },
    /// A checkpoint could not be written; those before it are still there.
    CheckpointFailed { iteration: u64, reason: String },
    /// A model was written, or could not be.
    Model { path: PathBuf, result: std::io::Result<()> },
}

/// What the thread knows of the run.
pub(crate) struct Saver {
    pub(crate) store: Box<dyn Store>,
    pub(crate) retention: Retention,
    pub(crate) table: ParameterTable,
    /// What all models of the run carry.
    pub(crate) metadata: Metadata,
}

impl Saver {
    /// Starts the thread, which ends when the returned sender is dropped. It reports each job, in order.
    pub(crate) fn spawn(self, report: impl Fn(Saved) + Send + 'static) -> mpsc::Sender<Job> {
        let (jobs, received) = mpsc::channel::<Job>();
        std::thread::Builder::new()
            .name("saver".into())
            .spawn(move || {
                for job in received {
                    let (path, iteration) = (job.path(), job.iteration());
                    // The panic is printed, and the run must not wait forever for the report.
                    let saved = catch_unwind(AssertUnwindSafe(|| self.save(job)));
                    report(saved.unwrap_or_else(|_| match path {
                        Some(path) => Saved::Model { path, result: Err(std::io::Error::other("the saver panicked")) },
                        None => Saved::CheckpointFailed { iteration, reason: "the saver panicked".into() },
                    }));
                }
            })
            .expect("a thread can be started");
        jobs
    }

    fn save(&self, job: Job) -> Saved {
        match job {
            Job::Checkpoint(checkpoint) => self.checkpoint(&checkpoint),
            Job::Model { path, parameters, metadata } => {
                let metadata = self.metadata_of(parameters.iteration - 1, parameters.values(), metadata);
                let file = encode_model(&self.table, parameters.values(), &metadata);
                let result = write_atomically(&path, &file);
                Saved::Model { path, result }
            }
        }
    }

    fn checkpoint(&self, checkpoint: &Checkpoint) -> Saved {
        let began = Instant::now();
        let iteration = checkpoint.progress.iteration;
        let metadata = self.metadata_of(iteration, checkpoint.training.parameters(), Metadata::new());
        let name = name_of(iteration);
        match self.store.put(&name, &checkpoint.encode(&self.table, &metadata)) {
            Ok(()) => {
                self.drop_old(iteration);
                let place = self.store.describe(&name);
                Saved::Checkpoint { iteration, place, seconds: began.elapsed().as_secs_f64() }
            }
            Err(cause) => {
                let reason = format!("cannot write {}: {cause}", self.store.describe(&name));
                Saved::CheckpointFailed { iteration, reason }
            }
        }
    }

    fn drop_old(&self, current: u64) {
        for iteration in self.retention.dropped(iterations(&*self.store).unwrap_or_default(), current) {
            let name = name_of(iteration);
            if let Err(cause) = self.store.remove(&name) {
                tracing::warn!("cannot remove the old checkpoint {}: {cause}", self.store.describe(&name));
            }
        }
    }

    fn metadata_of(&self, step: u64, parameters: &[f32], more: Metadata) -> Metadata {
        let own = [("step", step.to_string()), ("sha256", hex(&sha256_of_parameters(parameters)))];
        let own = own.map(|(key, value)| (key.to_owned(), value));
        self.metadata.clone().into_iter().chain(own).chain(more).collect()
    }
}
