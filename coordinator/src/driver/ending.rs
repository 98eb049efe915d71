//! The end of a run: the last checkpoint, the final evaluation, the model and the workers' Farewell.

use std::future::Future;
use std::pin::Pin;
use std::time::Instant;

use ata_record::{EMA_MODEL_FILE, EndState, MODEL_FILE, RecordError, RunEvent};
use ata_sums::Metadata;
use ata_types::WorkerId;
use ata_wire::FarewellReason;
use tokio::sync::mpsc;

use super::{Driver, DriverCommand, Ending};
use crate::checkpoint::SaveJob;
use crate::report::{RunError, RunReport, StopReason};
use crate::training::Work;

impl Driver {
    pub(super) async fn finish(
        mut self,
        ending: Ending,
        mut commands: mpsc::Receiver<DriverCommand>,
        stop: Pin<&mut impl Future<Output = ()>>,
    ) -> RunReport {
        self.is_ending = true;
        let finished = match ending {
            Ok(reason @ StopReason::Finished(_)) if self.evaluations.by_workers => Some(reason),
            _ => None,
        };
        if finished.is_none() {
            self.take_leave(&ending);
        }
        self.write_refusals(true);
        // Only complete steps are saved, and the workers that could complete this one have left.
        if self.steps.is_under_way {
            self.steps.give(Work::Abandon);
        }
        self.settle(&mut commands, |driver| !driver.steps.is_under_way).await;
        self.save_last(&mut commands).await;
        let mut ended = ending;
        // The reason of a failed optimizer may arrive after the failure.
        if let Some(Err(error)) = self.take_ending()
            && matches!(ended, Ok(_) | Err(RunError::Training))
        {
            ended = Err(error);
        }
        if let Ok(reason @ StopReason::Finished(_)) = ended {
            let evaluated = self.evaluate_last(&mut commands, stop).await;
            ended = evaluated.map(|is_done| if is_done { reason } else { StopReason::Stopped });
        }
        if let Some(reason) = finished {
            // The training succeeded, even if the evaluation did not. An interrupted evaluation may be resumed later.
            let is_stopped = matches!(ended, Ok(StopReason::Stopped));
            self.take_leave(&Ok(if is_stopped { StopReason::Stopped } else { reason }));
        }
        let written = self.write_model(&mut commands).await;
        self.report(ended.and_then(|reason| written.map(|()| reason).map_err(RunError::from)))
    }

    /// Writes the last event, and collects the results.
    fn report(mut self, ended: Ending) -> RunReport {
        let (state, reason) = match &ended {
            Ok(StopReason::Finished(reason)) => (EndState::Finished, reason.name().to_owned()),
            Ok(StopReason::Stopped) => (EndState::Stopped, "it was told to stop".to_owned()),
            Err(error) => (EndState::Failed, error.to_string()),
        };
        self.publisher.publish(RunEvent::End { time_s: self.now_s, state, reason });
        let of = |worker: WorkerId| self.engine.statistics().get(worker.slot()).copied().unwrap_or_default();
        let names = self.sessions.names.by_departure();
        let statistics = names.map(|(worker, identity)| (identity.name.to_string(), of(worker))).collect();
        let parameters_sha256 = self.steps.trained().sha256();
        let (state, written) = self.publisher.finish();
        RunReport {
            ended: written.map_err(RunError::from).and(ended),
            state,
            statistics,
            not_saved: self.checkpoints.failed,
            parameters: self.sizes.values(),
            parameters_sha256,
        }
    }

    /// Handles the messages of the run's own threads until `is_done`, and the requests that workers make to evaluate the final parameters.
    /// The senders of vectors are told that these come too late. All other requests are rejected, since the run is over.
    async fn settle(&mut self, commands: &mut mpsc::Receiver<DriverCommand>, is_done: impl Fn(&Self) -> bool) {
        let (since_s, since) = (self.now_s, Instant::now());
        while !is_done(self) {
            let received = tokio::time::timeout(self.tick(), commands.recv()).await;
            self.now_s = since_s + since.elapsed().as_secs_f64();
            match received {
                Ok(Some(command)) if command.matters_at_end(self.evaluations.by_workers) => self.command(command),
                Ok(Some(command)) => command.answer_late(),
                Ok(None) => return,
                // Only time has passed.
                Err(_) => {}
            }
            self.check_sessions();
            self.carry_out_all();
        }
    }

    /// Ends all sessions, and sends each worker the reason.
    pub(super) fn take_leave(&mut self, ending: &Ending) {
        let (reason, detail) = match ending {
            Ok(StopReason::Finished(_)) => (FarewellReason::Finished, "the run is finished"),
            Ok(StopReason::Stopped) => (FarewellReason::Stopping, "the coordinator was told to stop"),
            Err(_) => (FarewellReason::Failed, "the run failed; see the coordinator's log"),
        };
        for session in self.sessions.close_all() {
            session.farewell(reason, detail);
        }
        // The coordinator's own threads measure the remaining batches.
        self.evaluations.by_workers = false;
    }

    /// Saves the state after the last step, unless it is already saved, and waits until it is durable.
    async fn save_last(&mut self, commands: &mut mpsc::Receiver<DriverCommand>) {
        self.checkpoints.waiting = None;
        let is_idle = |driver: &Self| driver.checkpoints.pending_jobs == 0;
        self.settle(commands, is_idle).await;
        if !self.checkpoints.are_written() {
            return;
        }
        if self.steps.is_ahead() {
            // The next run resumes from an earlier checkpoint.
            let why = "the last step was taken, and some of its tasks were being computed again";
            self.checkpoints.failed = Some(why.into());
        } else if self.checkpoints.saved != self.steps.last_step() {
            self.save();
            self.settle(commands, is_idle).await;
        }
    }

    /// Evaluates the final parameters, unless they are already evaluated. Returns `false` if `stop` resolves first.
    async fn evaluate_last(
        &mut self,
        commands: &mut mpsc::Receiver<DriverCommand>,
        stop: Pin<&mut impl Future<Output = ()>>,
    ) -> Result<bool, RunError> {
        let iteration = self.steps.last_step();
        self.publisher.publish(RunEvent::Evaluating { time_s: self.now_s, iteration });
        let is_idle = |driver: &Self| driver.evaluations.is_idle();
        let evaluate = async {
            // An earlier evaluation may be under way.
            self.settle(commands, is_idle).await;
            if self.evaluations.last != Some(self.steps.last_step()) {
                self.evaluate();
                self.settle(commands, is_idle).await;
            }
        };
        let is_done = tokio::select! {
            () = evaluate => true,
            () = stop => false,
        };
        self.evaluations.failed.take().map_or(Ok(is_done), Err)
    }

    async fn write_model(&mut self, commands: &mut mpsc::Receiver<DriverCommand>) -> Result<(), RecordError> {
        let ema = self.steps.has_ema.then(|| (EMA_MODEL_FILE, self.steps.evaluated()));
        for (file, parameters) in [Some((MODEL_FILE, self.steps.trained())), ema].into_iter().flatten() {
            let path = self.run_folder.join(file);
            self.checkpoints.send(SaveJob::Model { path, parameters, metadata: Metadata::new() });
        }
        self.settle(commands, |driver| driver.checkpoints.pending_jobs == 0).await;
        self.checkpoints.model_failed.take().map_or(Ok(()), Err)
    }
}
