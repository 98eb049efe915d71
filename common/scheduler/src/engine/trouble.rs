//! What the engine does when nothing succeeds any more: it spaces out the attempts, and in the end it gives up.
//!
//! A failure that workers share, such as a file server that restarts, passes after a while. A failure of the tasks, such as
//! training that has diverged, does not. Only time tells the two apart.

use std::collections::BTreeSet;

use smallvec::SmallVec;

use super::blame::Blame;
use super::event::{AbortReason, Effect};
use super::{Engine, Phase};
use ata_types::{Iteration, MachineId, TaskRange, WorkerId};

/// Attempts at the same tasks that must have failed, on as many machines, before a run is given up: one machine may be broken,
/// and a second one, but with three the workers share the cause, or the tasks are it. Attempts are spaced out after as many
/// failures in a row.
const MAX_FAILURES: usize = 3;

/// Workers on which the same tasks must have failed if their machines cannot be told apart, as behind one address. The same
/// tasks are tried about as often in the two minutes that the program takes for an outage; with twice as many, a run with 51
/// workers at one address would go on for 14 minutes.
const ENOUGH_WORKERS: usize = 8;

/// Failures since the last result.
#[derive(Clone, Copy, Debug)]
pub(super) struct Trouble {
    failures: usize,
    since_s: f64,
    last_s: f64,
    /// Until when nothing is handed out.
    paused_until_s: Option<f64>,
}

impl Engine {
    /// Records that a worker failed. After a few failures in a row, nothing is handed out for as long as they have been going
    /// on. So an outage costs a run at most twice its own time, and there are few attempts during a long one.
    pub(super) fn record_failure(&mut self, now_s: f64) {
        let begun = Trouble { failures: 0, since_s: now_s, last_s: now_s, paused_until_s: None };
        let trouble = self.trouble.get_or_insert(begun);
        trouble.failures += 1;
        trouble.last_s = now_s;
        let longest_s = self.config.rest_s.max(self.config.outage_s);
        let pause_s = (now_s - trouble.since_s).clamp(self.config.rest_s, longest_s);
        if trouble.failures >= MAX_FAILURES && pause_s > 0.0 {
            trouble.paused_until_s = Some(now_s + pause_s);
        }
    }

    /// Records a result, which ends the trouble. Returns whether the engine had paused.
    pub(super) fn record_success(&mut self) -> bool {
        self.trouble.take().is_some_and(|trouble| trouble.paused_until_s.is_some())
    }

    /// Whether nothing is handed out at the moment.
    pub(super) fn is_paused(&self) -> bool {
        self.pause_ends_s().is_some()
    }

    /// When something is handed out again, if nothing is at the moment.
    pub(super) fn pause_ends_s(&self) -> Option<f64> {
        self.trouble.as_ref()?.paused_until_s
    }

    /// Lets a worker that joined try soon, however long the others have failed. It does wait, because it may be a broken
    /// machine that joins again and again.
    pub(super) fn shorten_pause(&mut self) {
        if let Some(Trouble { last_s, paused_until_s: Some(until_s), .. }) = &mut self.trouble {
            *until_s = until_s.min(*last_s + self.config.rest_s);
        }
    }

    /// Hands out tasks again, until the next failure.
    pub(super) fn end_pause(&mut self) {
        if let Some(trouble) = &mut self.trouble {
            trouble.paused_until_s = None;
        }
    }

    /// Counts failures from step to step in an asynchronous iteration, in which no worker retries a task.
    pub(super) fn blame_asynchronously(
        &mut self,
        now_s: f64,
        worker: WorkerId,
        tasks: TaskRange,
        effects: &mut Vec<Effect>,
    ) {
        let (Phase::Collecting(iteration) | Phase::Committing(iteration)) = &mut self.phase else { return };
        if iteration.is_asynchronous() {
            iteration.blame.add(worker);
            let (number, blame) = (iteration.number, iteration.blame.clone());
            if self.is_hopeless(now_s, &blame) {
                self.give_up(number, tasks, &blame, effects);
            }
        }
    }

    /// Whether tasks failed so often, for so long and on so many workers that no worker is to blame.
    pub(super) fn is_hopeless(&self, now_s: f64, blame: &Blame) -> bool {
        let Some(trouble) = &self.trouble else { return false };
        blame.attempts as usize >= MAX_FAILURES
            && trouble.last_s - trouble.since_s >= self.config.outage_s
            && self.is_no_fault_of_workers(blame)
            && !self.others_are_at_work(now_s, blame, trouble.since_s)
    }

    /// Whether tasks failed on enough machines or, if there are fewer, on each of them and on enough of their workers, of the
    /// workers that count.
    fn is_no_fault_of_workers(&self, blame: &Blame) -> bool {
        let counts = self.roster.counts();
        let failed: SmallVec<[WorkerId; 4]> = blame.workers.iter().copied().filter(&counts).collect();
        let machines: BTreeSet<MachineId> = failed.iter().map(|worker| self.roster.machine_of(*worker)).collect();
        let present = || self.roster.all_present().filter(&counts);
        machines.len() >= MAX_FAILURES
            || failed.len() >= ENOUGH_WORKERS
                && present().all(|worker| machines.contains(&self.roster.machine_of(worker)))
            || present().all(|worker| failed.contains(&worker))
    }

    /// Whether a worker that did not fail these tasks still computes what it began before the trouble.
    fn others_are_at_work(&self, now_s: f64, blame: &Blame, since_s: f64) -> bool {
        self.roster.all_present().any(|worker| {
            !self.leases.is_free(worker)
                && self.leases.elapsed_s(now_s, worker) > now_s - since_s
                && !blame.workers.contains(&worker)
        })
    }

    pub(super) fn give_up(&mut self, iteration: Iteration, tasks: TaskRange, blame: &Blame, effects: &mut Vec<Effect>) {
        let (attempts, workers) = (blame.attempts, blame.workers.len());
        let lasted_s = self.trouble.map_or(0.0, |trouble| trouble.last_s - trouble.since_s);
        self.abort(AbortReason::TasksFailed { iteration, tasks, attempts, workers, lasted_s }, effects);
    }
}
