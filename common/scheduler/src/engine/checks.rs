//! Spot checks: of some leases, a result is taken only once two workers on different machines agree on it.
//!
//! A lease that is drawn is split into subtrees, so that any worker can compute them, and each is given to a second worker
//! as well. The driver compares the results, which the engine does not see. If two differ, further workers are asked, one at
//! a time, until two agree: whoever differs from them has lied. If no further worker is there, all that differ are struck,
//! and the tasks are computed again. Each is on a machine of its own, because one that lies could confirm itself under another
//! name. Only if all workers are on one machine do two of them confirm each other. A machine that has delivered nothing yet, or
//! rests because it failed, is not counted there, or one that is broken would hold up all the others.

use smallvec::SmallVec;

use super::blame::Blame;
use super::event::{Effect, WaitReason};
use super::iteration::Taken;
use super::random::draw;
use super::{Engine, Phase};
use ata_types::{Lease, LeaseId, TaskOutcome, TaskRange, WorkerId};

/// Spot checks.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Verify {
    /// The share of leases that are checked, from 0 to 1.
    pub share: f64,
    /// Determines, with the iteration, which leases these are. Workers must not know it.
    pub secret: u64,
}

/// Results that are compared before the tasks count as disputed: of five that all differ, at least four are wrong, and each of
/// them keeps a gradient in memory.
const MAX_RESULTS: usize = 5;

/// Tasks whose result must be confirmed.
#[derive(Debug)]
pub(super) struct Check {
    tasks: TaskRange,
    /// Who computes them.
    held: SmallVec<[(WorkerId, LeaseId); 2]>,
    /// What arrived, each from another worker.
    results: SmallVec<[Taken; 2]>,
    /// How many pairs of results were found to differ, in the order of [`pair`].
    differing: usize,
    /// Whether the next pair is being compared.
    is_comparing: bool,
    blame: Blame,
}

/// The pairs of results, in the order in which they are compared: (0, 1), (0, 2), (1, 2), (0, 3), …
fn pair(number: usize) -> (usize, usize) {
    let (mut earlier, mut later) = (number, 1);
    while earlier >= later {
        earlier -= later;
        later += 1;
    }
    (earlier, later)
}

impl Check {
    fn new(tasks: TaskRange, blame: Blame) -> Self {
        let (held, results) = (SmallVec::new(), SmallVec::new());
        Self { tasks, held, results, differing: 0, is_comparing: false, blame }
    }

    /// How many results the next comparison needs.
    fn needs(&self) -> usize {
        pair(self.differing).1 + 1
    }

    /// How many more workers have to be asked.
    fn lacks(&self) -> usize {
        self.needs().saturating_sub(self.results.len() + self.held.len())
    }

    /// Who has a part in it.
    fn involved(&self) -> impl Iterator<Item = WorkerId> {
        let answered = self.results.iter().map(|taken| taken.worker);
        answered.chain(self.held.iter().map(|(holder, _)| *holder))
    }

    /// The leases to be compared next, if their results are there.
    fn next_pair(&self) -> Option<(LeaseId, LeaseId)> {
        let (earlier, later) = pair(self.differing);
        Some((self.results.get(earlier)?.lease.id, self.results.get(later)?.lease.id))
    }
}

impl Engine {
    /// Assigns tasks, to be checked if they are drawn; [`Self::continue_checks`] finds the second workers.
    pub(super) fn entrust(
        &mut self,
        now_s: f64,
        worker: WorkerId,
        tasks: TaskRange,
        blame: Option<Box<Blame>>,
        effects: &mut Vec<Effect>,
    ) {
        if !self.is_drawn(tasks) {
            self.assign(now_s, worker, tasks, blame, effects);
            return;
        }
        let blame = blame.map_or_else(Blame::default, |blame| *blame);
        for tasks in tasks.subtrees() {
            let Phase::Collecting(iteration) = &mut self.phase else { return };
            iteration.checks.insert(tasks.first, Check::new(tasks, blame.clone()));
            self.ask(now_s, worker, tasks, effects);
        }
    }

    fn is_drawn(&self, tasks: TaskRange) -> bool {
        let (Some(Verify { share, secret }), Phase::Collecting(iteration)) = (self.config.verify, &self.phase) else {
            return false;
        };
        iteration.mode.wants(tasks) && draw(secret, iteration.number, tasks.first) < share
    }

    /// Has a worker compute tasks that are checked.
    fn ask(&mut self, now_s: f64, worker: WorkerId, tasks: TaskRange, effects: &mut Vec<Effect>) {
        let Some(check) = self.check(tasks) else { return };
        let blame = (check.blame.attempts > 0).then(|| Box::new(check.blame.clone()));
        let lease = self.assign(now_s, worker, tasks, blame, effects);
        if let (Some(lease), Some(check)) = (lease, self.check(tasks)) {
            check.held.push((worker, lease.id));
        }
    }

    fn check(&mut self, tasks: TaskRange) -> Option<&mut Check> {
        let Phase::Collecting(iteration) = &mut self.phase else { return None };
        iteration.checks.get_mut(&tasks.first)
    }

    /// Whether a result must be confirmed.
    pub(super) fn must_be_confirmed(&mut self, lease: &Lease) -> bool {
        let check = self.config.verify.and_then(|_| self.check(lease.tasks));
        check.is_some_and(|check| check.held.iter().any(|(_, id)| *id == lease.id))
    }

    /// A lease ended without a result; tells whether it was under check, which then asks another worker. `blamed` tells
    /// whether its worker may be at fault.
    pub(super) fn is_asked_again(&mut self, worker: WorkerId, lease: &Lease, blamed: bool) -> bool {
        if !self.must_be_confirmed(lease) {
            return false;
        }
        if let Some(check) = self.check(lease.tasks) {
            check.held.retain(|(_, id)| *id != lease.id);
            if blamed {
                check.blame.add(worker);
            }
        }
        true
    }

    /// A result that must be confirmed arrived.
    pub(super) fn unconfirmed(&mut self, now_s: f64, taken: Taken, effects: &mut Vec<Effect>) {
        let Taken { worker, lease, .. } = taken;
        if let Some(check) = self.check(lease.tasks) {
            check.held.retain(|(_, id)| *id != lease.id);
            check.results.push(taken);
        }
        if self.leases.is_free(worker) {
            self.roster.release(worker);
        }
        self.compare_next(lease.tasks, effects);
        self.continue_check(now_s, lease.tasks, effects);
    }

    fn compare_next(&mut self, tasks: TaskRange, effects: &mut Vec<Effect>) {
        if let Some(check) = self.check(tasks)
            && !check.is_comparing
            && let Some((first, second)) = check.next_pair()
        {
            check.is_comparing = true;
            effects.push(Effect::Compare { tasks, first, second });
        }
    }

    /// Two results were compared.
    pub(super) fn compared(
        &mut self,
        now_s: f64,
        tasks: TaskRange,
        leases: (LeaseId, LeaseId),
        agree: bool,
        effects: &mut Vec<Effect>,
    ) {
        let Some(check) = self.check(tasks).filter(|check| check.is_comparing && check.next_pair() == Some(leases))
        else {
            return;
        };
        check.is_comparing = false;
        if agree {
            self.confirm(now_s, tasks, effects);
        } else {
            check.differing += 1;
            self.compare_next(tasks, effects);
        }
        if matches!(&self.phase, Phase::Collecting(iteration) if iteration.mode.is_complete()) {
            self.step(now_s, effects);
        } else {
            self.recover(now_s, effects);
        }
    }

    /// Two results agree: one is taken, and those that differ are lies.
    fn confirm(&mut self, now_s: f64, tasks: TaskRange, effects: &mut Vec<Effect>) {
        let Phase::Collecting(iteration) = &mut self.phase else { return };
        let Some(check) = iteration.checks.remove(&tasks.first) else { return };
        debug_assert!(check.held.is_empty(), "no more workers are asked than needed");
        let (taken, confirming) = pair(check.differing);
        let mut liars: SmallVec<[Taken; 2]> = SmallVec::new();
        for (at, result) in check.results.into_iter().enumerate() {
            let outcome = match at {
                _ if at == taken => TaskOutcome::Applied,
                _ if at == confirming => TaskOutcome::Ignored,
                _ => TaskOutcome::Mismatched,
            };
            effects.push(result.end(outcome));
            if at == taken {
                iteration.take(result);
            } else {
                self.waste.add(result.lease.tasks.count, result.busy_s);
            }
            if outcome == TaskOutcome::Mismatched {
                liars.push(result);
            }
        }
        for Taken { worker, busy_s, .. } in liars {
            self.mismatched(now_s, worker, busy_s, effects);
        }
        self.record_success();
    }

    /// A worker's result was refuted: it rests, and others compute what it holds.
    fn mismatched(&mut self, now_s: f64, worker: WorkerId, busy_s: f64, effects: &mut Vec<Effect>) {
        // What came of one fault, as of a bit that flipped in its parameters, counts once.
        if self.strike(now_s, worker, busy_s, effects) {
            self.roster.mismatched(worker);
        }
        if self.expel_if_due(now_s, worker, effects) {
            return;
        }
        for ended in self.leases.revoke_all(now_s, worker) {
            self.cut_short(worker, &ended, effects);
            if !self.is_asked_again(worker, &ended.lease, false) {
                self.orphan(ended.lease.tasks, ended.blame.as_deref());
            }
        }
        self.roster.release(worker);
    }

    /// Asks further workers for the results that checks lack.
    pub(super) fn continue_checks(&mut self, now_s: f64, effects: &mut Vec<Effect>) {
        let (Some(_), Phase::Collecting(iteration)) = (self.config.verify, &self.phase) else { return };
        let lacking = iteration.checks.values().filter(|check| check.lacks() > 0).map(|check| check.tasks);
        for tasks in lacking.collect::<Vec<TaskRange>>() {
            self.continue_check(now_s, tasks, effects);
        }
    }

    fn continue_check(&mut self, now_s: f64, tasks: TaskRange, effects: &mut Vec<Effect>) {
        while let Phase::Collecting(iteration) = &self.phase
            && let Some(check) = iteration.checks.get(&tasks.first).filter(|check| check.lacks() > 0)
        {
            if self.is_hopeless(now_s, &check.blame) {
                let (number, blame) = (iteration.number, check.blame.clone());
                return self.give_up(number, tasks, &blame, effects);
            }
            if self.is_paused() {
                return;
            }
            let (differ, is_waiting) = (check.differing > 0, check.held.is_empty());
            let witness = if check.needs() <= MAX_RESULTS { self.witness(tasks) } else { None };
            if let Some(witness) = witness {
                self.cancel_unneeded(now_s, witness, effects);
                self.ask(now_s, witness, tasks, effects);
            } else if differ {
                self.dispute(now_s, tasks, effects);
            } else {
                if is_waiting {
                    let present = self.roster.present();
                    self.wait(WaitReason::Workers { present, needed: present + 1 }, effects);
                }
                return;
            }
        }
    }

    /// The worker that finishes tasks under check soonest, of those on machines that have no part in the check yet: if possible
    /// one that did not fail them, does not rest, and is known to be sound, in this order.
    fn witness(&mut self, tasks: TaskRange) -> Option<WorkerId> {
        let available = self.roster.available();
        let Phase::Collecting(iteration) = &self.phase else { return None };
        let check = iteration.checks.get(&tasks.first)?;
        let machine = |worker: WorkerId| self.roster.machine_of(worker);
        let counts = self.roster.counts();
        let present = || self.roster.all_present();
        // A worker that rests because others contradict it is sound as far as anybody knows: else a liar could silence it.
        let are_all_failing = present().filter(&counts).all(|worker| self.roster.is_failing(worker));
        let is_sound = |worker: &WorkerId| counts(worker) && (are_all_failing || !self.roster.is_failing(*worker));
        // Whoever has answered has a say: else two workers of one machine could outvote one that has failed meanwhile.
        let answered = check.results.iter().map(|taken| taken.worker);
        let mut machines = present().filter(is_sound).chain(answered).map(machine);
        let is_alone = machines.next().is_none_or(|first| machines.all(|other| other == first));
        let is_same = |a: WorkerId, b: WorkerId| a == b || !is_alone && machine(a) == machine(b);
        let is_new = |worker: &WorkerId| !check.involved().any(|involved| is_same(involved, *worker));
        let has_failed = |worker: &WorkerId| check.blame.workers.contains(worker);
        let rests = |worker: &WorkerId| available.binary_search(worker).is_err();
        let rank = |worker: &WorkerId| (has_failed(worker), rests(worker), !is_sound(worker));
        let best = present().filter(is_new).map(|worker| rank(&worker)).min()?;
        let workers: Vec<WorkerId> = present().filter(|worker| is_new(worker) && rank(worker) == best).collect();
        let expected_s = self.expected_s(&workers);
        let ends_s = |i: usize| (self.needed_tasks(workers[i]) + tasks.count) as f64 * expected_s[i];
        let soonest = (0..workers.len()).map(|i| (ends_s(i), i)).min_by(|a, b| a.0.total_cmp(&b.0));
        soonest.map(|(_, i)| workers[i])
    }

    /// No two results agree, and there is no further worker to ask: all are struck, and the tasks begin anew.
    fn dispute(&mut self, now_s: f64, tasks: TaskRange, effects: &mut Vec<Effect>) {
        let Some(check) = self.check(tasks) else { return };
        let results = std::mem::take(&mut check.results);
        check.differing = 0;
        results.iter().for_each(|taken| check.blame.add(taken.worker));
        for result in results {
            let Taken { worker, lease, busy_s, .. } = result;
            effects.push(result.end(TaskOutcome::Disputed));
            self.waste.add(lease.tasks.count, busy_s);
            if self.strike(now_s, worker, busy_s, effects) {
                self.roster.contested(worker);
            }
            self.expel_if_due(now_s, worker, effects);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_result_is_compared_with_those_before_it() {
        let pairs: Vec<_> = (0..6).map(pair).collect();
        assert_eq!(pairs, [(0, 1), (0, 2), (1, 2), (0, 3), (1, 3), (2, 3)]);
    }
}
