//! Spot checks: the results of some leases are taken only once two workers on different machines agree on them.
//!
//! A lease that was drawn for a check is also given to a second worker, and each worker is asked for a collection of that lease.
//! The driver compares the two, because the engine has no gradients. If two differ, further workers are asked, one at a time, until
//! two agree; results that differ from theirs are mismatched. If there is no further worker to ask, all workers whose results
//! differ get a strike, and the tasks are computed again.
//!
//! The workers of a check run on different machines, because a byzantine machine could confirm itself under another name.
//! Only if all workers run on one machine do two of them confirm each other. A machine that has delivered nothing yet, or
//! rests because it failed, does not count as a machine here: otherwise a broken machine would block all others.

use smallvec::SmallVec;

use super::{Collecting, CollectingEnd, Flow};
use crate::engine::{AcceptedResult, Blame, Effect, Shared};
use ata_types::{CollectionId, Lease, LeaseId, TaskOutcome, TaskRange, WorkerId};

/// The number of results that are compared before the tasks count as disputed: of five that all differ, at least four are wrong, and
/// each of them keeps a gradient in memory.
const MAX_RESULTS: usize = 5;

#[derive(Debug, Default)]
pub(super) struct Check {
    tasks: TaskRange,
    held: SmallVec<[(WorkerId, LeaseId); 2]>,
    /// The results that arrived, each from a different worker.
    results: SmallVec<[AcceptedResult; 2]>,
    /// The number of pairs of results that were found to differ, in the order of [`pair`].
    differing: usize,
    is_comparing: bool,
    blame: Blame,
}

/// Returns the `number`-th pair of results to compare, out of (0, 1), (0, 2), (1, 2), (0, 3), …
fn pair(number: usize) -> (usize, usize) {
    let (mut earlier, mut later) = (number, 1);
    while earlier >= later {
        earlier -= later;
        later += 1;
    }
    (earlier, later)
}

impl Check {
    /// Returns the number of results that the next comparison needs.
    fn needs(&self) -> usize {
        pair(self.differing).1 + 1
    }

    /// Returns the number of further workers that have to be asked.
    fn lacks(&self) -> usize {
        self.needs().saturating_sub(self.results.len() + self.held.len())
    }

    fn involved(&self) -> impl Iterator<Item = WorkerId> {
        let answered = self.results.iter().map(|result| result.worker);
        answered.chain(self.held.iter().map(|(holder, _)| *holder))
    }

    fn next_pair(&self) -> Option<(CollectionId, CollectionId)> {
        let (earlier, later) = pair(self.differing);
        Some((self.results.get(earlier)?.lease.own?, self.results.get(later)?.lease.own?))
    }
}

impl Collecting {
    /// Assigns tasks and starts a check of them if they are drawn for one; [`Self::continue_checks`] finds the second workers.
    pub(super) fn assign_checked(
        &mut self,
        shared: &mut Shared,
        worker: WorkerId,
        tasks: TaskRange,
        blame: Option<Box<Blame>>,
    ) {
        let verify = shared.config.verify;
        let is_drawn = verify.is_some_and(|verify| self.mode.wants(tasks) && verify.draws(self.number, tasks.first));
        if !is_drawn {
            self.assign(shared, worker, tasks, blame);
            return;
        }
        let check = Check { tasks, blame: blame.map(|blame| *blame).unwrap_or_default(), ..Check::default() };
        self.checks.insert(tasks.first, check);
        self.ask_for_check(shared, worker, tasks);
    }

    /// Returns whether a result of the worker is under check, or is expected for a check.
    pub(crate) fn checks(&self, worker: WorkerId) -> bool {
        self.checks.values().any(|check| check.involved().any(|involved| involved == worker))
    }

    fn ask_for_check(&mut self, shared: &mut Shared, worker: WorkerId, tasks: TaskRange) {
        let Some(check) = self.checks.get(&tasks.first) else { return };
        let blame = (check.blame.attempts > 0).then(|| Box::new(check.blame.clone()));
        let lease = self.assign(shared, worker, tasks, blame);
        if let Some(check) = self.checks.get_mut(&tasks.first) {
            check.held.push((worker, lease.id));
        }
    }

    /// Handles a lease that ended without a result. Returns whether it was under check, in which case another worker is asked.
    /// `blamed` is `true` if its worker may be at fault.
    pub(super) fn is_asked_again(&mut self, worker: WorkerId, lease: &Lease, blamed: bool) -> bool {
        let Some(check) = self.checks.get_mut(&lease.tasks.first) else { return false };
        let Some(at) = check.held.iter().position(|(_, id)| *id == lease.id) else { return false };
        check.held.remove(at);
        if blamed {
            check.blame.add(worker);
        }
        true
    }

    pub(super) fn unconfirmed(&mut self, shared: &mut Shared, result: AcceptedResult) -> Flow {
        let lease = result.lease;
        if let Some(check) = self.checks.get_mut(&lease.tasks.first) {
            check.held.retain(|(_, id)| *id != lease.id);
            check.results.push(result);
        }
        self.compare_next(shared, lease.tasks);
        self.continue_check(shared, lease.tasks)
    }

    fn compare_next(&mut self, shared: &mut Shared, tasks: TaskRange) {
        if let Some(check) = self.checks.get_mut(&tasks.first)
            && !check.is_comparing
            && let Some((first, second)) = check.next_pair()
        {
            check.is_comparing = true;
            shared.effects.push(Effect::Compare { tasks, first, second });
        }
    }

    pub(crate) fn compared(
        &mut self,
        shared: &mut Shared,
        tasks: TaskRange,
        collections: (CollectionId, CollectionId),
        agree: bool,
    ) -> Flow {
        let check = self.checks.get_mut(&tasks.first);
        let Some(check) = check.filter(|check| check.is_comparing && check.next_pair() == Some(collections)) else {
            return Flow::Continue(());
        };
        check.is_comparing = false;
        if agree {
            self.confirm(shared, tasks);
        } else {
            check.differing += 1;
            self.compare_next(shared, tasks);
        }
        if self.mode.is_complete() {
            return Flow::Break(CollectingEnd::Complete);
        }
        self.recover(shared)
    }

    /// Takes one of two results that agree; those that differ from them are mismatches.
    fn confirm(&mut self, shared: &mut Shared, tasks: TaskRange) {
        let Some(check) = self.checks.remove(&tasks.first) else { return };
        debug_assert!(check.held.is_empty(), "no more workers are asked than needed");
        let (taken, confirming) = pair(check.differing);
        let mut mismatches: SmallVec<[AcceptedResult; 2]> = SmallVec::new();
        for (at, result) in check.results.into_iter().enumerate() {
            if at == taken {
                self.take_own(result);
            } else if at == confirming {
                shared.discard(&result, TaskOutcome::Ignored);
            } else {
                shared.discard(&result, TaskOutcome::Mismatched);
                mismatches.push(result);
            }
        }
        for AcceptedResult { worker, busy_s, .. } in mismatches {
            self.mismatched(shared, worker, busy_s);
        }
        shared.failures.end();
    }

    /// Handles a worker whose result was mismatched: it rests, and others compute the tasks that it holds.
    fn mismatched(&mut self, shared: &mut Shared, worker: WorkerId, busy_s: f64) {
        // All consequences of one fault, such as a flipped bit in the parameters, count once.
        if shared.strike(worker, busy_s, false) {
            shared.roster.mismatched(worker);
        }
        if self.expel_if_due(shared, worker) {
            return;
        }
        for ended in shared.drop_sent(worker, TaskOutcome::Cancelled) {
            self.is_asked_again(worker, &ended.lease, false);
        }
        for ended in shared.leases.revoke_all(shared.now_s, worker) {
            shared.cancel(worker, &ended);
            self.withdraw(shared, worker, ended.lease.id);
            self.recompute(shared, worker, ended, false);
        }
        shared.roster.release(worker);
    }

    pub(super) fn continue_checks(&mut self, shared: &mut Shared) -> Flow {
        if shared.config.verify.is_none() {
            return Flow::Continue(());
        }
        let lacking = self.checks.values().filter(|check| check.lacks() > 0).map(|check| check.tasks);
        for tasks in lacking.collect::<Vec<TaskRange>>() {
            self.continue_check(shared, tasks)?;
        }
        Flow::Continue(())
    }

    fn continue_check(&mut self, shared: &mut Shared, tasks: TaskRange) -> Flow {
        while let Some(check) = self.checks.get(&tasks.first).filter(|check| check.lacks() > 0) {
            if let Some(reason) = shared.reason_to_abort(self.number, tasks, &check.blame) {
                return Flow::Break(CollectingEnd::Abort(reason));
            }
            if shared.failures.is_pause() {
                break;
            }
            let (differ, is_waiting) = (check.differing > 0, check.held.is_empty());
            let witness = if check.needs() <= MAX_RESULTS { self.witness(shared, tasks) } else { None };
            if let Some(witness) = witness {
                self.cancel_unneeded(shared, witness);
                self.ask_for_check(shared, witness, tasks);
            } else if differ {
                self.dispute(shared, tasks);
            } else {
                if is_waiting {
                    let present = shared.roster.present.len();
                    shared.wait(present, present + 1);
                }
                break;
            }
        }
        Flow::Continue(())
    }

    /// Returns the worker that finishes tasks under check soonest, among those on machines that have no part in the check yet. It prefers
    /// a worker that did not fail them, does not rest, and is known to be correct, in this order.
    fn witness(&self, shared: &mut Shared, tasks: TaskRange) -> Option<WorkerId> {
        let available = shared.roster.available();
        let check = self.checks.get(&tasks.first)?;
        let roster = &shared.roster;
        let machine = |worker: WorkerId| roster.machine_of(worker);
        let counts = roster.counts();
        // A worker that rests because others contradict it is taken to be correct: otherwise a byzantine worker could
        // silence it.
        let are_all_failing = roster.present.iter().filter(&counts).all(|worker| roster.is_failing(worker));
        let is_sound = |worker: &WorkerId| counts(worker) && (are_all_failing || !roster.is_failing(*worker));
        // Workers that have answered count: otherwise two workers of one machine could outvote one that has failed since.
        let answered = check.results.iter().map(|result| result.worker);
        let mut machines = roster.present.iter().filter(is_sound).chain(answered).map(machine);
        let is_alone = machines.next().is_none_or(|first| machines.all(|other| other == first));
        let is_same = |a: WorkerId, b: WorkerId| a == b || !is_alone && machine(a) == machine(b);
        let is_new = |worker: &WorkerId| !check.involved().any(|involved| is_same(involved, *worker));
        let has_failed = |worker: &WorkerId| check.blame.workers.contains(worker);
        let rests = |worker: &WorkerId| available.binary_search(worker).is_err();
        let rank = |worker: &WorkerId| (has_failed(worker), rests(worker), !is_sound(worker));
        let best = roster.present.iter().filter(is_new).map(|worker| rank(&worker)).min()?;
        let is_best = |worker: &WorkerId| is_new(worker) && rank(worker) == best;
        let workers: Vec<WorkerId> = roster.present.iter().filter(is_best).collect();
        let expected_s = shared.expected_s(&workers);
        let ends_s = |i: usize| (self.needed_tasks(shared, workers[i]) + tasks.count) as f64 * expected_s[i];
        // Of equal workers, the next one after the first holder is chosen, so that equal workers check each other in a circle.
        let holder = check.involved().next();
        let is_before = |i: usize| holder.is_some_and(|holder| workers[i] < holder);
        let soonest = (0..workers.len())
            .min_by(|&a, &b| ends_s(a).total_cmp(&ends_s(b)).then_with(|| (is_before(a), a).cmp(&(is_before(b), b))));
        soonest.map(|i| workers[i])
    }

    /// Handles results of which no two agree when there is no further worker to ask: all their workers get a strike, and the tasks begin
    /// anew.
    fn dispute(&mut self, shared: &mut Shared, tasks: TaskRange) {
        let Some(check) = self.checks.get_mut(&tasks.first) else { return };
        let results = std::mem::take(&mut check.results);
        check.differing = 0;
        results.iter().for_each(|result| check.blame.add(result.worker));
        for result in results {
            shared.discard(&result, TaskOutcome::Disputed);
            let AcceptedResult { worker, busy_s, .. } = result;
            if shared.strike(worker, busy_s, false) {
                shared.roster.contested(worker);
            }
            self.expel_if_due(shared, worker);
        }
    }
}
