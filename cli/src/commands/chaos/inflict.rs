//! Carries out a fault, and waits until the run has recovered.

use std::time::{Duration, Instant};

use ata_coordinator::Cadence;
use ata_fault_proxy::Condition;
use ata_record::JOURNAL_FILE;
use ata_types::WorkerId;
use indicatif::ProgressBar;
use rustix::process::Signal;

use super::STOPS_WITHIN;
use super::cluster::{Cluster, DEADLINE, kill_start};
use super::outcome::Outcome;
use super::schedule::Fault;
use super::seen::Seen;
use crate::args::FaultKind;
use crate::failure::{Failure, RESUMABLE, RUN_FAILED};

/// Time between two looks at the journal: a hundredth of what recovery may take.
const LOOK: Duration = Duration::from_millis(5);

/// Time from a coordinator's end to the first step of the next one, besides what an iteration takes.
const RESUMES_WITHIN_S: f64 = 5.0;

/// What the loss of a worker may cost an iteration, besides the tasks that are computed again.
const REASSIGNS_WITHIN_S: f64 = 0.5;

/// How long an optimizer step is waited for: many iterations.
const AIMS_FOR: Duration = Duration::from_secs(10);

/// The exit code of a coordinator whose disk is full.
const DISK_FULL: i32 = 74;

/// The run under faults.
pub(super) struct Disturbed {
    pub(super) cluster: Cluster,
    pub(super) seen: Seen,
    /// Of the coordinator that runs.
    pub(super) cadence: Cadence,
    pub(super) heartbeat_timeout: Duration,
    /// What is going on, on a terminal.
    pub(super) line: ProgressBar,
}

impl Disturbed {
    /// Waits until all workers are present and some steps are taken.
    pub(super) async fn gets_going(&mut self) -> Result<(), Failure> {
        self.until("the run does not begin", None, |seen| seen.step >= 3).await?;
        self.until("not all workers have joined", None, |_| true).await
    }

    /// Lets the run go on undisturbed.
    pub(super) async fn goes_on(&mut self, time: Duration) -> Result<(), Failure> {
        let began = Instant::now();
        while began.elapsed() < time {
            self.look(None).await?;
        }
        Ok(())
    }

    /// Carries out a fault.
    pub(super) async fn inflict(&mut self, fault: &Fault) -> Result<Outcome, Failure> {
        self.seen.look()?;
        self.until("a worker is lost, and does not come back", None, |_| true).await?;
        self.seen.begin();
        let mut outcome = Outcome::new(fault.kind, self.seen.step + 1);
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
        // All that was lost is back, and what the fault delayed is done.
        let step = self.seen.step;
        let allowed = (fault.kind == FaultKind::FillDisk).then_some(RUN_FAILED);
        self.until("the run does not recover", allowed, |seen| seen.step > step).await?;
        if outcome.worker.is_some() {
            let delay = self.seen.delay();
            outcome.recovery_s = delay.extra_s;
            outcome.allowed_s = outcome.allowed_s.map(|allowed_s| allowed_s + delay.again_s);
        }
        let losses = self.seen.since.take().map_or_else(Vec::new, |since| since.losses);
        let is_wrong = |lost: &&WorkerId| outcome.worker != Some(lost.number()) || fault.kind == FaultKind::SlowLink;
        outcome.lost_wrongly = losses.iter().filter(is_wrong).count() as u64;
        Ok(outcome)
    }

    /// Waits until an optimizer step is under way, if the fault is aimed at one.
    async fn aim(&mut self, fault: &Fault, outcome: &mut Outcome) -> Result<(), Failure> {
        let began = Instant::now();
        let budget = self.cluster.plan.settings.budget;
        while fault.is_aimed && !self.seen.is_stepping(budget) && began.elapsed() < AIMS_FOR {
            self.look(None).await?;
        }
        outcome.in_step = fault.is_aimed && self.seen.is_stepping(budget);
        Ok(())
    }

    async fn kill_coordinator(&mut self, fault: &Fault, outcome: &mut Outcome) -> Result<(), Failure> {
        self.aim(fault, outcome).await?;
        self.cluster.kill_coordinator().await?;
        self.seen.look()?;
        if fault.kind == FaultKind::KillStart {
            for moment in fault.moments {
                kill_start(&self.cluster.plan, &fault.cadence, moment).await?;
            }
        } else {
            outcome.allowed_s = Some(RESUMES_WITHIN_S + self.seen.usual_s());
        }
        self.resume(fault, outcome, None).await
    }

    /// Tells the coordinator to stop, and waits for its end.
    async fn end_coordinator(&mut self, fault: &Fault, outcome: &mut Outcome) -> Result<(), Failure> {
        self.aim(fault, outcome).await?;
        self.cluster.signal_coordinator(Signal::TERM)?;
        let status = self.cluster.coordinator_ends(STOPS_WITHIN).await?;
        self.cluster.forget_coordinator();
        self.seen.look()?;
        if status.code() == Some(RESUMABLE.into()) {
            return Ok(());
        }
        Err(Failure::internal(format!("after SIGTERM the coordinator ended with {status}: expected {RESUMABLE}")))
    }

    /// Brings the run to its end two steps later, by processes of which all but the last are killed.
    async fn kill_end(&mut self, fault: &Fault, outcome: &mut Outcome) -> Result<(), Failure> {
        self.end_coordinator(fault, outcome).await?;
        let last = self.seen.step + 2;
        for moment in fault.moments {
            self.cluster.plan.kill_end(last, moment).await?;
        }
        self.cluster.plan.end(last).await?;
        self.seen.pass_over(&self.cluster.plan.disturbed())?;
        self.resume(fault, outcome, None).await
    }

    async fn fill_disk(&mut self, fault: &Fault, outcome: &mut Outcome) -> Result<(), Failure> {
        self.aim(fault, outcome).await?;
        self.cluster.fill_disk()?;
        let status = self.cluster.coordinator_ends(DEADLINE).await?;
        self.cluster.forget_coordinator();
        self.seen.look()?;
        if status.code() != Some(DISK_FULL) {
            return Err(Failure::internal(format!(
                "the coordinator ended by itself ({status}): expected {DISK_FULL} for a disk that is full"
            )));
        }
        self.resume(fault, outcome, Some(RUN_FAILED)).await
    }

    /// Starts a coordinator in place of one that has ended, and waits for a new step.
    async fn resume(&mut self, fault: &Fault, outcome: &mut Outcome, allowed: Option<u8>) -> Result<(), Failure> {
        let ended = Instant::now();
        let (step, saved) = (self.seen.step, self.seen.saved);
        let journal = self.cluster.plan.disturbed().join(JOURNAL_FILE);
        let bytes = journal.metadata().map_or(0, |journal| journal.len());
        let after = self.cluster.restart_coordinator(&fault.cadence).await?;
        self.seen.resumed_after(after, bytes);
        outcome.steps_again = step.saturating_sub(after);
        outcome.steps_allowed = match (fault.kind, self.cadence) {
            // Whoever ends in peace saves all steps.
            (FaultKind::EndCoordinator | FaultKind::KillEnd, _) => Some(0),
            (FaultKind::KillCoordinator | FaultKind::KillStart, Cadence::Iterations(every)) => Some(every),
            _ => None,
        };
        self.cadence = fault.cadence.parse().map_err(Failure::internal)?;
        outcome.saved_steps_lost = saved.saturating_sub(after);
        let first_step = |seen: &Seen| seen.first_step_after(ended);
        self.until("no new step", allowed, |seen| first_step(seen).is_some()).await?;
        outcome.recovery_s = first_step(&self.seen).unwrap_or_default().as_secs_f64();
        Ok(())
    }

    async fn stop_coordinator(&mut self, fault: &Fault, outcome: &mut Outcome) -> Result<(), Failure> {
        self.cluster.signal_coordinator(Signal::STOP)?;
        // Nothing can be waited for: how long it is stopped is the fault.
        tokio::time::sleep(fault.lasts).await;
        self.seen.look()?;
        self.seen.forget_steps();
        let goes_on = Instant::now();
        self.cluster.signal_coordinator(Signal::CONT)?;
        self.until("no new step", None, |seen| seen.first_step_after(goes_on).is_some()).await?;
        outcome.recovery_s = self.seen.first_step_after(goes_on).unwrap_or_default().as_secs_f64();
        let began = Instant::now();
        while !self.cluster.coordinator_said("stood still") {
            if began.elapsed() > DEADLINE {
                return Err(Failure::internal("the coordinator did not notice that it was stopped"));
            }
            self.look(None).await?;
        }
        Ok(())
    }

    async fn disturb_worker(&mut self, fault: &Fault, outcome: &mut Outcome) -> Result<(), Failure> {
        let worker = fault.worker;
        outcome.worker = Some(worker);
        let at_once_s = REASSIGNS_WITHIN_S;
        let silent_s = self.heartbeat_timeout.as_secs_f64() + REASSIGNS_WITHIN_S;
        match fault.kind {
            FaultKind::KillWorker => {
                outcome.allowed_s = Some(at_once_s);
                self.cluster.replace_worker(worker).await?;
                self.is_lost(worker).await
            }
            FaultKind::CutLink => {
                outcome.allowed_s = Some(at_once_s);
                self.cluster.link(worker).cut();
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
                let before = self.cluster.link(worker).hindered();
                self.cluster.link(worker).set(fault.condition);
                self.goes_on(fault.lasts).await?;
                let lost = if is_stalled { self.is_lost(worker).await } else { Ok(()) };
                self.cluster.link(worker).set(Condition::default());
                if self.cluster.link(worker).hindered() == before {
                    return Err(Failure::internal("nothing was sent over the link meanwhile"));
                }
                lost
            }
        }
    }

    /// Waits until the coordinator has noticed that a worker is gone.
    async fn is_lost(&mut self, worker: u32) -> Result<(), Failure> {
        let began = Instant::now();
        while !self.seen.since.as_ref().is_some_and(|since| since.losses.iter().any(|lost| lost.number() == worker)) {
            if began.elapsed() > DEADLINE {
                return Err(Failure::internal(format!("worker {worker} is gone, and nobody notices")));
            }
            self.look(None).await?;
        }
        Ok(())
    }

    /// Waits until `is_so` holds, and all workers are present.
    async fn until(&mut self, what: &str, allowed: Option<u8>, is_so: impl Fn(&Seen) -> bool) -> Result<(), Failure> {
        let began = Instant::now();
        while !is_so(&self.seen) || self.seen.present.len() < self.cluster.plan.settings.workers.count as usize {
            if began.elapsed() > DEADLINE {
                return Err(Failure::internal(format!("{what} within {} s", DEADLINE.as_secs())));
            }
            self.look(allowed).await?;
        }
        Ok(())
    }

    /// Looks at the journal and the processes, after a moment.
    async fn look(&mut self, allowed: Option<u8>) -> Result<(), Failure> {
        tokio::time::sleep(LOOK).await;
        self.cluster.tend(allowed)?;
        self.seen.look()?;
        self.line.set_message(format!("iteration {}  {} workers", self.seen.step, self.seen.present.len()));
        Ok(())
    }
}
