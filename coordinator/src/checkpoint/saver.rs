//! The thread that writes checkpoints and models, while the next iterations run.

use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::sync::mpsc;
use std::time::Instant;

use ata_record::{RunState, write_atomically};
use ata_sums::{Metadata, ParameterTable, TrainingState};
use ata_types::Iteration;

use super::store::{iterations, name_of};
use super::{Checkpoint, Progress, Retention, Store, decode_state, model_file};
use crate::parameters::TrainedParameters;

pub(crate) enum SaveJob {
    /// Writes a checkpoint once the threads of training and journal have handed over their parts, and drops old ones.
    Checkpoint { training: mpsc::Receiver<TrainingState>, past: mpsc::Receiver<RunState>, progress: Box<Progress> },
    /// Writes a model to a file.
    Model { path: PathBuf, parameters: TrainedParameters, metadata: Metadata },
}

#[derive(Debug)]
pub(crate) enum SaveResult {
    /// A checkpoint is durable at a place after some seconds, or could not be written; earlier ones still exist.
    Checkpoint { iteration: Iteration, saved: Result<(String, f64), String> },
    /// A model was written, or could not be.
    Model { path: PathBuf, written: io::Result<()> },
}

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
        let (jobs, received) = mpsc::channel();
        std::thread::Builder::new()
            .name("saver".into())
            .spawn(move || {
                for job in received {
                    report(self.save(job));
                }
            })
            .expect("a thread can be started");
        jobs
    }

    /// Does a job. Without a report, the run would wait forever, so panics are caught; they have been printed.
    fn save(&self, job: SaveJob) -> SaveResult {
        match job {
            SaveJob::Checkpoint { training, past, progress } => {
                let iteration = progress.iteration;
                let saved = catch_unwind(AssertUnwindSafe(|| {
                    let training = training.recv().map_err(|_| "the optimizer failed")?;
                    let past = past.recv().map_err(|_| "the journal's thread failed")?;
                    self.checkpoint(&Checkpoint { training, past, progress: *progress })
                }));
                SaveResult::Checkpoint { iteration, saved: saved.unwrap_or_else(|_| Err("the saver panicked".into())) }
            }
            SaveJob::Model { path, parameters, metadata } => {
                let written = catch_unwind(AssertUnwindSafe(|| {
                    let about = self.metadata.clone().into_iter().chain(metadata).collect();
                    let file = model_file(&self.table, &about, parameters.last_step, parameters.values());
                    write_atomically(&path, &file)
                }));
                let written = written.unwrap_or_else(|_| Err(io::Error::other("the saver panicked")));
                SaveResult::Model { path, written }
            }
        }
    }

    /// Writes a checkpoint. Returns its place and the seconds that it took; an error says why it failed.
    fn checkpoint(&self, checkpoint: &Checkpoint) -> Result<(String, f64), String> {
        let began = Instant::now();
        let (iteration, steps) = (checkpoint.progress.iteration, checkpoint.training.steps());
        if steps != iteration.number() {
            return Err(format!("its parameters are those after step {steps}: please report this"));
        }
        let (name, files) = (name_of(iteration), checkpoint.encode(&self.table, &self.metadata));
        // Earlier checkpoints may be dropped for this one.
        decode_state(&files[2].1).map_err(|damage| format!("it could not be read again: {damage}"))?;
        let place = self.store.describe(&name);
        let put = self.store.put(&name, &files).and_then(|()| self.store.set_latest(&name));
        put.map_err(|cause| format!("cannot write {place}: {cause}"))?;
        self.drop_old(iteration);
        Ok((place, began.elapsed().as_secs_f64()))
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
