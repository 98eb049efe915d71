//! Schedules checkpoints and models, and keeps track of what was saved.

use std::sync::Arc;
use std::sync::mpsc as std_mpsc;

use ata_record::{PROGRAM_VERSION, RecordError, RunEvent, RunState};
use ata_scheduler::SavedEngine;
use ata_sums::TrainingState;
use ata_types::Iteration;

use super::sessions::Names;
use crate::checkpoint::{Cadence, Progress, SaveJob, SaveResult, VERSION};
use crate::training::StepOrder;

/// The facts about a run that every checkpoint includes.
pub(super) struct CheckpointedRun {
    pub(super) run_id: String,
    /// The number of times that the run was resumed.
    pub(super) epoch: u64,
    pub(super) task_batch: u32,
    /// The training data; see [`crate::SplitData::identity`].
    pub(super) data: String,
    pub(super) settings: String,
}

pub(super) struct Checkpoints {
    /// The queue of the saver thread, which ends when this is dropped.
    jobs: std_mpsc::Sender<SaveJob>,
    cadence: Cadence,
    run: CheckpointedRun,
    /// The time at which the last checkpoint was begun, in seconds.
    last_s: f64,
    /// The number of jobs that the thread has not reported on.
    pub(super) pending_jobs: usize,
    /// Whether a checkpoint is being written; it may still wait for the training thread.
    is_under_way: bool,
    /// The next step, if it waits for the checkpoint that is being written.
    pub(super) waiting: Option<StepOrder>,
    /// The iteration after whose checkpoint the run goes on, if it waits for one.
    pub(super) proceeds_after: Option<Iteration>,
    /// The last iteration of the newest checkpoint; 0 if there is none.
    pub(super) saved: Iteration,
    /// The reason why the last checkpoint could not be written, if it failed.
    pub(super) failed: Option<String>,
    pub(super) model_failed: Option<RecordError>,
}

impl Checkpoints {
    /// Creates the checkpoints of a run that resumes from the checkpoint of `saved`, if that is not 0.
    pub(super) fn new(
        jobs: std_mpsc::Sender<SaveJob>,
        cadence: Cadence,
        run: CheckpointedRun,
        saved: Iteration,
        now_s: f64,
    ) -> Self {
        Self {
            jobs,
            cadence,
            run,
            last_s: now_s,
            pending_jobs: 0,
            is_under_way: false,
            waiting: None,
            proceeds_after: None,
            saved,
            failed: None,
            model_failed: None,
        }
    }

    pub(super) fn is_due(&self, now_s: f64, iteration: Iteration) -> bool {
        // A checkpoint that is due by time waits while another one is written.
        let is_late = self.is_under_way && matches!(self.cadence, Cadence::Seconds(_));
        !is_late && self.cadence.is_due(iteration.number(), now_s, self.last_s)
    }

    /// Returns whether the run has checkpoints.
    pub(super) fn are_written(&self) -> bool {
        self.cadence != Cadence::Never
    }

    /// Returns the step if it may be taken now, and keeps it otherwise. If checkpoints are due by iterations, a step waits for the
    /// checkpoint that is being written, so that a crash never loses more steps than there are between two checkpoints.
    pub(super) fn admit(&mut self, step: StepOrder) -> Option<StepOrder> {
        if self.is_under_way && matches!(self.cadence, Cadence::Iterations(_)) {
            let replaced = self.waiting.take();
            self.waiting = Some(step.replacing(replaced));
            return None;
        }
        Some(step)
    }

    /// Writes a checkpoint while the next iterations run. No step may be under way; `training` and `past` receive the state after the last
    /// one.
    pub(super) fn save(
        &mut self,
        now_s: f64,
        engine: SavedEngine,
        names: &Names,
        best_accuracy: Option<f64>,
        training: std_mpsc::Receiver<TrainingState>,
        past: std_mpsc::Receiver<RunState>,
    ) {
        let iteration = Iteration(engine.next_iteration().since(Iteration::FIRST));
        let progress = Progress {
            version: VERSION,
            written_by: PROGRAM_VERSION.into(),
            run_id: self.run.run_id.clone(),
            iteration,
            epoch: self.run.epoch,
            time_s: now_s,
            samples: engine.tasks_applied().saturating_mul(self.run.task_batch.into()),
            best_accuracy,
            workers: names
                .by_departure()
                .map(|(worker, of)| (worker, of.name.to_string(), of.machine.clone()))
                .collect(),
            excluded: names.excluded.iter().cloned().collect(),
            engine,
            data: self.run.data.clone(),
            settings: self.run.settings.clone(),
        };
        self.last_s = now_s;
        self.is_under_way = true;
        self.send(SaveJob::Checkpoint { training, past, progress: Box::new(progress) });
    }

    /// If the run waits for a checkpoint and this is its result, returns whether it was written.
    pub(super) fn take_awaited(&mut self, result: &SaveResult) -> Option<bool> {
        let SaveResult::Checkpoint { iteration, saved } = result else { return None };
        self.proceeds_after.take_if(|awaited| awaited == iteration).map(|_| saved.is_ok())
    }

    /// Records the result of a job. Returns the event to publish, and the step that waited for the checkpoint.
    pub(super) fn finish(&mut self, now_s: f64, result: SaveResult) -> (Option<RunEvent>, Option<StepOrder>) {
        self.pending_jobs = self.pending_jobs.saturating_sub(1);
        let event = match result {
            SaveResult::Checkpoint { iteration, saved } => {
                self.is_under_way = false;
                Some(match saved {
                    Ok((path, seconds)) => {
                        (self.saved, self.failed) = (iteration, None);
                        RunEvent::Checkpoint { time_s: now_s, iteration, path, seconds }
                    }
                    Err(reason) => {
                        tracing::warn!(
                            "no checkpoint after iteration {iteration}: {reason}; earlier checkpoints are kept"
                        );
                        self.failed = Some(reason.clone());
                        RunEvent::CheckpointFailed { time_s: now_s, iteration, reason }
                    }
                })
            }
            SaveResult::Model { path, written: Ok(()) } => {
                self.model_failed.take_if(|failed| failed.path == path);
                None
            }
            SaveResult::Model { path, written: Err(cause) } => {
                tracing::warn!("cannot write {}: {cause}", path.display());
                self.model_failed = Some(RecordError { path, cause: Arc::new(cause) });
                None
            }
        };
        (event, if self.is_under_way { None } else { self.waiting.take() })
    }

    pub(super) fn send(&mut self, job: SaveJob) {
        // The thread outlives this handle.
        if self.jobs.send(job).is_ok() {
            self.pending_jobs += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::parameters::{ParameterSet, SetWriter};
    use ata_types::WireFormat;

    fn order(tasks: u64, writer: Option<SetWriter>) -> StepOrder {
        let (iteration, vectors) = (Iteration(3), Vec::new());
        StepOrder { iteration, tasks, vectors, learning_rate: 0.1, with_product: false, writer }
    }

    fn checkpoints() -> Checkpoints {
        let (run_id, data, settings) = (String::new(), String::new(), String::new());
        let run = CheckpointedRun { run_id, epoch: 0, task_batch: 1, data, settings };
        Checkpoints::new(std_mpsc::channel().0, Cadence::Iterations(1), run, Iteration(1), 0.0)
    }

    #[test]
    fn only_the_checkpoint_that_the_run_waits_for_lets_it_go_on() {
        let result = |iteration, saved: Result<(), &str>| {
            let saved = saved.map(|()| (String::new(), 0.0)).map_err(String::from);
            SaveResult::Checkpoint { iteration: Iteration(iteration), saved }
        };
        let mut checkpoints = checkpoints();
        assert_eq!(checkpoints.take_awaited(&result(3, Ok(()))), None);
        for (written, is_saved) in [(Ok(()), true), (Err("the disk is full"), false)] {
            checkpoints.proceeds_after = Some(Iteration(3));
            assert_eq!(checkpoints.take_awaited(&result(2, Ok(()))), None);
            assert_eq!(checkpoints.take_awaited(&result(3, written)), Some(is_saved));
            assert_eq!(checkpoints.take_awaited(&result(3, written)), None);
        }
    }

    /// Only the first order for a step has a writer for the next parameters, so it must be passed on.
    #[test]
    fn an_order_that_is_replaced_while_it_waits_leaves_its_writer() {
        let mut checkpoints = checkpoints();
        checkpoints.is_under_way = true;
        let (_set, writer) = ParameterSet::begin(Iteration(4), 1, WireFormat::F32Exact);
        assert!(checkpoints.admit(order(5, Some(writer))).is_none() && checkpoints.admit(order(6, None)).is_none());
        let saved = SaveResult::Checkpoint { iteration: Iteration(2), saved: Ok((String::new(), 0.0)) };
        let step = checkpoints.finish(1.0, saved).1.expect("it waited");
        assert!(step.tasks == 6 && step.writer.is_some());
    }
}
