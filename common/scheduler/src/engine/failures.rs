//! Failures of all workers. If nothing succeeds any more, the engine spaces out the attempts, and eventually gives up.
//!
//! A failure that workers share, such as the restart of a file server, passes after a while. A failure of the tasks, such as
//! training that has diverged, does not. If workers can report that the tasks are to blame, the run ends soon; otherwise only time
//! can distinguish the two.

use std::collections::BTreeSet;

use smallvec::SmallVec;

use super::{AbortReason, EngineConfig, Shared};
use ata_types::{Iteration, MachineId, TaskRange, WorkerId};

/// The number of failed attempts at the same tasks, on as many machines, before a run is given up. One machine may be broken, and a
/// second one as well; if three fail, the cause is shared by the workers or is in the tasks. Attempts are spaced out after the same
/// number of failures in a row.
const MAX_FAILURES: usize = 3;

/// The number of workers on which the same tasks must have failed if their machines cannot be distinguished, as behind one address.
/// The same tasks are tried about this often in the two minutes that the program allows for an outage; with twice as many, a run with 51
/// workers at one address would continue for 14 minutes.
const ENOUGH_WORKERS: usize = 8;

/// The share of [`EngineConfig::outage_s`] after which the run is given up if workers report that the tasks are to blame: 10 s in the
/// program. One worker may be wrong about that, so the time must allow several attempts, spaced out so that a worker that joins can
/// try as well. With twice the time, eight workers at one address would be expelled before all of them have failed.
const UNCOMPUTABLE_SHARE: f64 = 1.0 / 12.0;

/// The longest pause, as a share of that time: eight workers at one address need as many attempts.
const UNCOMPUTABLE_PAUSE_SHARE: f64 = 1.0 / 4.0;

#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Blame {
    pub(super) attempts: u32,
    /// The workers on which they failed, each once; the most recent one is last.
    pub(super) workers: SmallVec<[WorkerId; 4]>,
}

impl Blame {
    pub(super) fn add(&mut self, worker: WorkerId) {
        self.attempts += 1;
        self.workers.retain(|before| *before != worker);
        self.workers.push(worker);
    }
}

/// The failures of all workers since the last result.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct FailureStreak {
    count: usize,
    first_s: f64,
    last_s: f64,
    /// Whether the workers reported for all of them that the tasks are to blame.
    is_uncomputable: bool,
    pub(super) paused_until_s: Option<f64>,
}

impl FailureStreak {
    /// Adds a failure. After a few failures in a row, nothing is handed out for as long as they have lasted, so that
    /// an outage costs a run at most twice its own time, and there are few attempts during a long one.
    pub(super) fn add(&mut self, now_s: f64, config: &EngineConfig, uncomputable: bool) {
        if self.count == 0 {
            (self.first_s, self.is_uncomputable) = (now_s, true);
        }
        self.is_uncomputable &= uncomputable;
        self.count += 1;
        self.last_s = now_s;
        let share = if self.is_uncomputable { UNCOMPUTABLE_PAUSE_SHARE } else { 1.0 };
        let longest_s = config.rest_s.max(self.patience_s(config) * share);
        let pause_s = (now_s - self.first_s).clamp(config.rest_s, longest_s);
        if self.count >= MAX_FAILURES && pause_s > 0.0 {
            self.paused_until_s = Some(now_s + pause_s);
        }
    }

    /// Ends the streak because of a result. Returns whether the engine had paused.
    pub(super) fn end(&mut self) -> bool {
        std::mem::take(self).is_pause()
    }

    pub(super) fn is_pause(&self) -> bool {
        self.paused_until_s.is_some()
    }

    /// Lets a worker that joined try soon, however long the others have failed. It still waits for `rest_s` after the last
    /// failure, because it may be a broken machine that joins again and again.
    pub(super) fn shorten_pause(&mut self, rest_s: f64) {
        if let Some(until_s) = &mut self.paused_until_s {
            *until_s = until_s.min(self.last_s + rest_s);
        }
    }

    fn lasted_s(&self) -> f64 {
        self.last_s - self.first_s
    }

    /// Returns the seconds for which failures must continue before the run is given up.
    fn patience_s(&self, config: &EngineConfig) -> f64 {
        config.outage_s * if self.is_uncomputable { UNCOMPUTABLE_SHARE } else { 1.0 }
    }
}

impl Shared {
    /// Returns the reason to end the run, if these tasks failed so often, for so long and on so many workers that no worker is to blame.
    pub(super) fn reason_to_abort(&self, iteration: Iteration, tasks: TaskRange, blame: &Blame) -> Option<AbortReason> {
        let is_hopeless = self.failures.count > 0
            && blame.attempts as usize >= MAX_FAILURES
            && self.failures.lasted_s() >= self.failures.patience_s(&self.config)
            && self.is_no_fault_of_workers(blame)
            && !self.others_are_at_work(blame);
        is_hopeless.then(|| AbortReason::TasksFailed {
            iteration,
            tasks,
            attempts: blame.attempts,
            workers: blame.workers.len(),
            lasted_s: self.failures.lasted_s(),
        })
    }

    /// Returns whether tasks failed on enough machines or, if there are fewer, on each of them and on enough of their workers. Only
    /// the workers that count are considered.
    fn is_no_fault_of_workers(&self, blame: &Blame) -> bool {
        let counts = self.roster.counts();
        let failed: SmallVec<[WorkerId; 4]> = blame.workers.iter().copied().filter(&counts).collect();
        let machines: BTreeSet<MachineId> = failed.iter().map(|worker| self.roster.machine_of(*worker)).collect();
        let present = || self.roster.present.iter().filter(&counts);
        machines.len() >= MAX_FAILURES
            || failed.len() >= ENOUGH_WORKERS
                && present().all(|worker| machines.contains(&self.roster.machine_of(worker)))
            || present().all(|worker| failed.contains(&worker))
    }

    /// Returns whether a worker that did not fail these tasks is still computing what it began before the streak of failures, or sending
    /// what it has computed.
    fn others_are_at_work(&self, blame: &Blame) -> bool {
        let computes = |worker| {
            !self.leases.is_free(worker)
                && self.leases.elapsed_s(self.now_s, worker) > self.now_s - self.failures.first_s
        };
        let sends = |worker| self.sent.keys().any(|(sender, _)| *sender == worker);
        self.roster.present.iter().any(|worker| !blame.workers.contains(&worker) && (computes(worker) || sends(worker)))
    }
}
