//! Injects a fault, and waits until the run has recovered.

use std::time::{Duration, Instant};

use ata::Failure;
use ata_fault_proxy::Condition;
use ata_record::JOURNAL_FILE;
use ata_types::WorkerId;
use indicatif::ProgressBar;
use rustix::process::Signal;

use super::cluster::{Cluster, DEADLINE, POLL, duration, kill_start};
use super::outcome::Outcome;
use super::progress::RunProgress;
use super::schedule::{Fault, FaultKind};
use super::{RESUMABLE, STOPS_WITHIN};

/// The exit code of a coordinator whose disk is full.
const DISK_FULL: i32 = 74;

/// The exit code of a worker whose run failed.
const RUN_FAILED: i32 = 70;

/// Seconds from a coordinator's end to the first new step, not counting the iterations that are computed until then.
const RESUMES_WITHIN_S: f64 = 5.0;

/// Seconds that the loss of a worker may cost an iteration, not counting the tasks that are computed again.
const REASSIGNS_WITHIN_S: f64 = 0.5;

/// The longest wait for an optimizer step: many iterations.
const AIMS_FOR: Duration = Duration::from_secs(10);

/// The run under faults.
pub(crate) struct DisturbedRun {
    pub(crate) cluster: Cluster,
    pub(crate) progress: RunProgress,
    /// The checkpoint interval of the current coordinator.
    pub(crate) cadence: String,
    /// A live line with the state of the run, on a terminal.
    pub(crate) line: ProgressBar,
}

impl DisturbedRun {
    /// Waits until all workers are present and some steps have been taken.
    pub(crate) async fn gets_going(&mut self) -> Result<(), Failure> {
        self.until("the run does not begin", None, |progress| progress.step >= 3).await?;
        self.until("not all workers have joined", None, |_| true).await
    }

    /// Lets the run continue undisturbed for some time.
    pub(crate) async fn goes_on(&mut self, time: Duration) -> Result<(), Failure> {
        let began = Instant::now();
        while began.elapsed() < time {
            self.watch(None).await?;
        }
        Ok(())
    }

    /// Injects a fault, and waits until the run has recovered.
    pub(crate) async fn inject(&mut self, fault: &Fault) -> Result<Outcome, Failure> {
        self.progress.read()?;
        self.until("a worker is lost, and does not come back", None, |_| true).await?;
        self.progress.begin();
        let mut outcome = Outcome::new(fault.kind, self.progress.step + 1);
        match fault.kind {
            FaultKind::KillCoordinator | FaultKind::KillStart => self.kill_coordinator(fault, &mut outcome).await?,
            FaultKind::EndCoordinator => {
                self.end_coordinator(fault, &mut outcome).await?;
                self.resume(fault, &mut outcome, None).await?;
            }
            FaultKind::KillEnd => self.kill_end(fault, &mut outcome).await?,
            FaultKind::FillDisk => self.fill_disk(fault, &mut outcome).await?,
            FaultKind::StopCoordinator => self.stop_coordinator(fault, &mut outcome).await?,
            _ => self.disturb_worker(fault, &mut outcome).await?,
        }
        // The condition is that the lost workers are back and the iteration that the fault delayed has ended.
        let step = self.progress.step;
        let allowed = (fault.kind == FaultKind::FillDisk).then_some(RUN_FAILED);
        self.until("the run does not recover", allowed, |progress| progress.step > step).await?;
        if outcome.worker.is_some() {
            let delay = self.progress.delay();
            outcome.recovery_s = delay.extra_s;
            outcome.allowed_s = outcome.allowed_s.map(|allowed_s| allowed_s + delay.again_s);
        }
        let losses = self.progress.fault.take().map_or_else(Vec::new, |fault| fault.losses);
        let is_wrong = |lost: &&WorkerId| outcome.worker != Some(lost.number()) || fault.kind == FaultKind::SlowLink;
        outcome.lost_wrongly = losses.iter().filter(is_wrong).count() as u64;
        Ok(outcome)
    }

    /// Waits until an optimizer step is being taken, if the fault is aimed at one.
    async fn aim(&mut self, fault: &Fault, outcome: &mut Outcome) -> Result<(), Failure> {
        let began = Instant::now();
        let budget = self.cluster.plan.run.budget;
        while fault.is_aimed && !self.progress.is_stepping(budget) && began.elapsed() < AIMS_FOR {
            self.watch(None).await?;
        }
        outcome.in_step = fault.is_aimed && self.progress.is_stepping(budget);
        Ok(())
    }

    async fn kill_coordinator(&mut self, fault: &Fault, outcome: &mut Outcome) -> Result<(), Failure> {
        self.aim(fault, outcome).await?;
        self.cluster.kill_coordinator().await?;
        self.progress.read()?;
        if fault.kind == FaultKind::KillStart {
            for moment in fault.moments {
                kill_start(&self.cluster.plan, &fault.cadence, moment).await?;
            }
        }
        self.resume(fault, outcome, None).await
    }

    /// Asks the coordinator to stop, and waits for it to exit.
    async fn end_coordinator(&mut self, fault: &Fault, outcome: &mut Outcome) -> Result<(), Failure> {
        self.aim(fault, outcome).await?;
        self.cluster.signal_coordinator(Signal::TERM)?;
        let status = self.cluster.coordinator_ends(STOPS_WITHIN).await?;
        self.cluster.forget_coordinator();
        self.progress.read()?;
        if status.code() == Some(RESUMABLE) {
            return Ok(());
        }
        Err(Failure::internal(format!("after SIGTERM the coordinator ended with {status}: expected {RESUMABLE}")))
    }

    /// Ends the run two steps later, with several processes of which all but the last are killed.
    async fn kill_end(&mut self, fault: &Fault, outcome: &mut Outcome) -> Result<(), Failure> {
        self.end_coordinator(fault, outcome).await?;
        let last = self.progress.step + 2;
        for moment in fault.moments {
            self.cluster.plan.kill_end(last, moment).await?;
        }
        self.cluster.plan.end(last).await?;
        self.progress.skip(&self.cluster.plan.disturbed())?;
        self.resume(fault, outcome, None).await
    }

    async fn fill_disk(&mut self, fault: &Fault, outcome: &mut Outcome) -> Result<(), Failure> {
        self.aim(fault, outcome).await?;
        self.cluster.fill_disk()?;
        let status = self.cluster.coordinator_ends(DEADLINE).await?;
        self.cluster.forget_coordinator();
        self.progress.read()?;
        if status.code() != Some(DISK_FULL) {
            return Err(Failure::internal(format!(
                "the coordinator ended by itself ({status}): expected {DISK_FULL} for a disk that is full"
            )));
        }
        self.resume(fault, outcome, Some(RUN_FAILED)).await
    }

    /// Starts a coordinator in place of one that has ended, and waits for the first new step.
    async fn resume(&mut self, fault: &Fault, outcome: &mut Outcome, allowed: Option<i32>) -> Result<(), Failure> {
        let ended = Instant::now();
        let (step, saved) = (self.progress.step, self.progress.saved);
        let journal = self.cluster.plan.disturbed().join(JOURNAL_FILE);
        let bytes = journal.metadata().map_or(0, |journal| journal.len());
        // A kill is judged by what steps usually take, and saving takes time as well.
        let cadence = if fault.kind == FaultKind::KillCoordinator { &self.cadence } else { &fault.cadence }.clone();
        let after = self.cluster.restart_coordinator(&cadence).await?;
        self.progress.resumed_after(after, bytes);
        outcome.steps_again = step.saturating_sub(after);
        outcome.steps_allowed = match fault.kind {
            // A coordinator that exits normally saves all steps.
            FaultKind::EndCoordinator | FaultKind::KillEnd => Some(0),
            // An interval in seconds or minutes does not limit the number of steps.
            FaultKind::KillCoordinator | FaultKind::KillStart => self.cadence.parse().ok(),
            _ => None,
        };
        let again_s = self.progress.usual_s() * outcome.steps_again as f64;
        if fault.kind == FaultKind::KillCoordinator {
            outcome.allowed_s = Some(RESUMES_WITHIN_S + self.progress.usual_s() + again_s);
        }
        self.cadence = cadence;
        outcome.saved_steps_lost = saved.saturating_sub(after);
        let first_step = |progress: &RunProgress| progress.first_step_after(ended);
        let within = DEADLINE + duration(again_s);
        self.until_within(within, "no new step", allowed, |progress| first_step(progress).is_some()).await?;
        outcome.recovery_s = first_step(&self.progress).unwrap_or_default().as_secs_f64();
        Ok(())
    }

    async fn stop_coordinator(&mut self, fault: &Fault, outcome: &mut Outcome) -> Result<(), Failure> {
        self.cluster.signal_coordinator(Signal::STOP)?;
        // There is no condition to wait for: the duration is part of the fault.
        tokio::time::sleep(fault.lasts).await;
        if !self.cluster.coordinator_is_stopped()? {
            return Err(Failure::internal("the coordinator did not stop"));
        }
        self.progress.read()?;
        self.progress.forget_steps();
        let goes_on = Instant::now();
        self.cluster.signal_coordinator(Signal::CONT)?;
        self.until("no new step", None, |progress| progress.first_step_after(goes_on).is_some()).await?;
        outcome.recovery_s = self.progress.first_step_after(goes_on).unwrap_or_default().as_secs_f64();
        Ok(())
    }

    async fn disturb_worker(&mut self, fault: &Fault, outcome: &mut Outcome) -> Result<(), Failure> {
        let worker = fault.worker;
        outcome.worker = Some(worker);
        let at_once_s = REASSIGNS_WITHIN_S;
        let silent_s = self.cluster.plan.run.heartbeat_timeout.as_secs_f64() + REASSIGNS_WITHIN_S;
        match fault.kind {
            FaultKind::KillWorker => {
                outcome.allowed_s = Some(at_once_s);
                self.cluster.replace_worker(worker).await?;
                self.is_lost(worker).await
            }
            FaultKind::CutLink => {
                outcome.allowed_s = Some(at_once_s);
                self.cluster.proxy(worker).sever();
                self.is_lost(worker).await
            }
            FaultKind::StopWorker => {
                outcome.allowed_s = Some(silent_s);
                self.cluster.signal_worker(worker, Signal::STOP)?;
                self.goes_on(fault.lasts).await?;
                let lost = self.is_lost(worker).await;
                self.cluster.signal_worker(worker, Signal::CONT)?;
                lost
            }
            _ => {
                let is_stalled = fault.condition.stalled;
                outcome.allowed_s = is_stalled.then_some(silent_s);
                let before = self.cluster.proxy(worker).hindered();
                self.cluster.proxy(worker).set(fault.condition);
                self.goes_on(fault.lasts).await?;
                let lost = if is_stalled { self.is_lost(worker).await } else { Ok(()) };
                self.cluster.proxy(worker).set(Condition::default());
                if self.cluster.proxy(worker).hindered() == before {
                    return Err(Failure::internal("nothing was sent over the link meanwhile"));
                }
                lost
            }
        }
    }

    /// Waits until the coordinator has noticed that a worker is gone.
    async fn is_lost(&mut self, worker: u32) -> Result<(), Failure> {
        let began = Instant::now();
        while !self.progress.fault.as_ref().is_some_and(|fault| fault.losses.iter().any(|lost| lost.number() == worker))
        {
            if began.elapsed() > DEADLINE {
                return Err(Failure::internal(format!("worker {worker} is gone, and the coordinator does not notice")));
            }
            self.watch(None).await?;
        }
        Ok(())
    }

    /// Waits until `condition` holds and all workers are present.
    async fn until(
        &mut self,
        what: &str,
        allowed: Option<i32>,
        condition: impl Fn(&RunProgress) -> bool,
    ) -> Result<(), Failure> {
        self.until_within(DEADLINE, what, allowed, condition).await
    }

    async fn until_within(
        &mut self,
        within: Duration,
        what: &str,
        allowed: Option<i32>,
        condition: impl Fn(&RunProgress) -> bool,
    ) -> Result<(), Failure> {
        let began = Instant::now();
        let workers = self.cluster.plan.run.workers as usize;
        while !condition(&self.progress) || self.progress.present.len() < workers {
            if began.elapsed() > within {
                return Err(Failure::internal(format!("{what} within {} s", within.as_secs())));
            }
            self.watch(allowed).await?;
        }
        Ok(())
    }

    /// Reads the journal and checks the processes, after a moment.
    async fn watch(&mut self, allowed: Option<i32>) -> Result<(), Failure> {
        tokio::time::sleep(POLL).await;
        self.cluster.supervise(allowed)?;
        self.progress.read()?;
        let (step, workers) = (self.progress.step, self.progress.present.len());
        self.line.set_message(format!("iteration {step}  {workers} workers"));
        Ok(())
    }
}
