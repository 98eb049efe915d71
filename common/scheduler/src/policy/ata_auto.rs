//! ATA-Auto: ATA without a constant to tune.
//!
//! The policy learns how long each worker takes for a task, and allocates the budget so that, by the mean times seen,
//! the last worker finishes as early as possible. A worker that looks too slow gets no tasks, but it may have been
//! unlucky or may have become faster. So it sometimes gets a probe, a task that no step waits for, if the likely gain
//! exceeds the cost. If a worker's speed has changed, the policy forgets everything and learns the speeds again.
//!
//! The policy is not from the ATA paper (arXiv 2502.00775), but keeps its allocation rule RAS. A KL-UCB index
//! (Garivier, Cappé, "The KL-UCB Algorithm for Bounded Stochastic Bandits and Beyond", COLT 2011) for gamma times
//! decides about probes, with an exploration function that weighs the gain of a probe against its cost, and falls with
//! the number of workers as in MOSS (Audibert, Bubeck, COLT 2009). The test of [`super::change`] finds changes of
//! speed. docs/ata-auto.md has the rule, its reasons and measurements.

use rand::RngExt;
use rand::seq::IndexedRandom;

use super::change::ChangeDetector;
use super::entry::{PolicyEntry, PolicyKind};
use super::sharing::share;
use super::speed::{Speed, squared_variation};
use super::trial::Trial;
use super::{
    Arguments, Collect, Decision, Policy, PolicyError, PolicyState, Round, SchedulerRng, from_state, to_state,
};
use crate::allocation::Rule;
use crate::batches::Line;
use crate::ids::WorkerId;
use crate::statistics::WorkerStatistics;

pub(super) const ENTRY: PolicyEntry = PolicyEntry {
    name: "ata-auto",
    about: "ATA without a constant to tune, for speeds that may change",
    parameters: "track=on|off (default: on; learn the speeds again when one has changed)",
    kind: PolicyKind::Barrier,
    build: |arguments| Ok(Box::new(AtaAuto::from_arguments(arguments)?)),
};

/// The share of worker time spent on probing workers that are not expected to help: they may have become faster.
const INSURANCE: f64 = 0.01;

/// Allocates by the mean times seen, as if they were the true ones, with two precautions: a worker with few
/// observations counts as slower than it looked, and a worker without tasks sometimes gets a probe, a task that no step
/// waits for, to see whether it is faster than thought. How often depends on what the worker could be worth.
///
/// - If no worker was observed yet, all race for the tasks.
/// - Let c be the squared coefficient of variation of task times, pooled over workers, at most 1. A worker's mean time
///   is m_i = (T_i + c·E_i)/K_i, with E_i the time spent on tasks that were cancelled. RAS allocates by the more
///   cautious b_i = m_i·(1 + 4c/K_i). No worker gets more tasks than it has done before, unless the budget cannot be
///   placed otherwise.
/// - A worker that computes its share as one batch costs o_i + a_i·s_i, the line that fits its batches best. Until
///   batches of two sizes were seen, s_i = 0, so that it soon gets larger ones.
/// - Let A of the n workers be used, l the longest planned time o_i + a_i·m_i, W all planned time,
///   r = max(1, (o_i + m_i)/l), or max(1, E_i/l) if K_i = 0, s = max(1, K_i)/c. An idle worker i is probed in iteration
///   k if it never computed, or if the expected gain exceeds the cost:
///   k·A/(2·n·B) · min(exp(−s(r − 1 − ln r)) / (e·s·(r − 1)), 1/(2√s)) > l/W.
/// - One of the other idle workers, chosen at random, is probed with probability W/(100·l).
/// - Once a worker's speed is found to have changed, everything observed before is forgotten, for all workers, and k
///   restarts.
#[derive(Clone, Debug)]
pub struct AtaAuto {
    detector: Option<ChangeDetector>,
    /// Iterations before the last change.
    before: u64,
    /// What was observed since the last change, by slot; `None` before the first one. Differences of the engine's
    /// statistics would not do: they may hold a prior, which fades.
    since: Option<Vec<WorkerStatistics>>,
    /// Whether a worker's task in the iteration under way is a probe or part of a race, by slot.
    probed: Vec<bool>,
    /// By slot: what batches of a size that was tried before should take in the iteration under way.
    expected: Vec<Option<(Line, u64)>>,
}

impl AtaAuto {
    /// `track` tells whether to look for changes of the workers' speeds.
    pub fn new(track: bool) -> Self {
        Self {
            detector: track.then(ChangeDetector::default),
            before: 0,
            since: None,
            probed: Vec::new(),
            expected: Vec::new(),
        }
    }

    /// Reads `track`.
    fn from_arguments(arguments: &mut Arguments<'_>) -> Result<Self, PolicyError> {
        Ok(Self::new(arguments.switch("track")?.unwrap_or(true)))
    }

    /// What is known about each available worker, and the squared coefficient of variation of their times.
    fn speeds(&self, round: &Round<'_>) -> (Vec<Speed>, f64) {
        let none = WorkerStatistics::default();
        let of = |i: usize| {
            let times = match &self.since {
                None => round.of(i),
                Some(since) => since.get(round.workers[i].slot()).unwrap_or(&none),
            };
            Speed::new(times, round.of(i).mean_overhead_s(), round.fuses(i))
        };
        let mut speeds: Vec<Speed> = (0..round.workers.len()).map(of).collect();
        let variation = squared_variation(&speeds);
        for speed in &mut speeds {
            speed.weigh(variation);
        }
        (speeds, variation)
    }

    /// Forgets everything if a worker's speed has changed.
    fn follow_changes(&mut self, round: &Round<'_>) {
        if self.detector.as_mut().is_some_and(ChangeDetector::take_change) {
            self.before = round.iteration - 1;
            self.since = Some(vec![WorkerStatistics::default(); round.statistics.len()]);
        }
    }

    /// Tells the detector what to expect of the workers that were given tasks.
    fn expect(&mut self, round: &Round<'_>, speeds: &[Speed], allocation: &[u64], variation: f64) {
        let Some(detector) = &mut self.detector else { return };
        detector.set_workers(round.statistics.len());
        self.expected.clear();
        self.expected.resize(round.statistics.len(), None);
        let employed = (0..speeds.len()).filter(|&i| allocation[i] > 0);
        for i in employed {
            let worker = round.workers[i];
            self.expected[worker.slot()] = speeds[i].known_line();
            // Of batches, the detector gets the ratio of the time to the expected one.
            let mean_s = if round.fuses(i) { 1.0 } else { speeds[i].mean_s };
            detector.expect(worker, mean_s, speeds[i].variation(variation));
        }
    }

    /// Whether what a worker computes now may tell of a change: of races and probes, those that finish are the short
    /// ones.
    fn is_searched(&self, worker: WorkerId) -> bool {
        !self.probed.get(worker.slot()).is_some_and(|&probed| probed)
    }

    /// A worker's statistics since the last change, if there was one.
    fn since(&mut self, worker: WorkerId) -> Option<&mut WorkerStatistics> {
        let since = self.since.as_mut()?;
        since.resize(since.len().max(worker.slot() + 1), WorkerStatistics::default());
        Some(&mut since[worker.slot()])
    }
}

impl Policy for AtaAuto {
    fn name(&self) -> &'static str {
        "ata-auto"
    }

    fn observe(&mut self, worker: WorkerId, busy_s: f64) {
        let is_searched = self.is_searched(worker);
        if let Some(detector) = self.detector.as_mut().filter(|_| is_searched) {
            detector.observe(worker, busy_s);
        }
        if let Some(since) = self.since(worker) {
            since.observe(busy_s);
        }
    }

    fn observe_batch(&mut self, worker: WorkerId, tasks: u64, busy_s: f64) {
        let expected = self.expected.get(worker.slot()).copied().flatten().filter(|_| self.is_searched(worker));
        if let (Some(detector), Some((line, largest))) = (&mut self.detector, expected)
            && tasks <= largest
        {
            detector.observe(worker, busy_s / line.at_s(tasks).max(1e-100));
        }
        if let Some(since) = self.since(worker) {
            since.observe_batch(tasks, busy_s);
        }
    }

    fn censored(&mut self, worker: WorkerId, elapsed_s: f64) {
        if let Some(since) = self.since(worker) {
            since.observe_cut(elapsed_s);
        }
    }

    fn forget(&mut self, worker: WorkerId) {
        if let Some(detector) = &mut self.detector {
            detector.forget(worker);
        }
        if let Some(since) = self.since(worker) {
            *since = WorkerStatistics::default();
        }
    }

    fn decide(&mut self, round: &Round<'_>, rng: &mut SchedulerRng) -> Decision {
        self.follow_changes(round);
        let (speeds, variation) = self.speeds(round);
        let decision = allocate(&speeds, round.iteration - self.before, round.budget, variation, rng);
        self.expect(round, &speeds, &decision.allocation, variation);
        self.probed.clear();
        self.probed.resize(round.statistics.len(), matches!(decision.collect, Collect::Race { .. }));
        for &probed in &decision.probes {
            self.probed[round.workers[probed].slot()] = true;
        }
        decision
    }

    fn save(&self) -> PolicyState {
        to_state(&(&self.detector, self.before, &self.since))
    }

    fn restore(&mut self, state: PolicyState) -> Result<(), String> {
        let (detector, before, since) =
            from_state::<(Option<ChangeDetector>, u64, Option<Vec<WorkerStatistics>>)>(state)?;
        // The run's settings, not the saved state, say whether to look for changes.
        if let (Some(own), Some(saved)) = (&mut self.detector, detector) {
            *own = saved;
        }
        (self.before, self.since) = (before, since);
        Ok(())
    }
}

/// The decision for one iteration.
fn allocate(speeds: &[Speed], k: u64, budget: u64, variation: f64, rng: &mut SchedulerRng) -> Decision {
    let known: Vec<usize> = (0..speeds.len()).filter(|&i| speeds[i].observed > 0).collect();
    if known.is_empty() {
        let rule = Rule::WarmUp { never_observed: speeds.len(), zero_score: 0 };
        return Decision::new(vec![1; speeds.len()], Collect::Race { tasks: budget }, rule);
    }
    let allocation = share(speeds, &known, budget, rng);
    let trial = Trial::new(speeds, &allocation, k, budget, variation);
    let idle = (0..speeds.len()).filter(|&i| allocation[i] == 0);
    let (mut probes, others): (Vec<usize>, Vec<usize>) = idle.partition(|&i| trial.pays(&speeds[i]));
    if let Some(&one) = others.choose(rng)
        && rng.random_bool((INSURANCE / trial.cost).min(1.0))
    {
        probes.push(one);
    }
    let scores = speeds.iter().zip(&allocation).map(|(speed, &tasks)| speed.per_task_s(tasks)).collect();
    Decision { probes, ..Decision::barrier(allocation, scores, Rule::Ras) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::speed::tests::speed;
    use crate::policy::tests::decide;
    use crate::policy::{PolicyContext, build_policy};
    use proptest::prelude::*;
    use rand::SeedableRng;

    fn decision_of(speeds: &[Speed], k: u64, budget: u64) -> Decision {
        allocate(speeds, k, budget, 1.0, &mut SchedulerRng::seed_from_u64(3))
    }

    fn allocation_of(speeds: &[Speed], k: u64, budget: u64) -> Vec<u64> {
        decision_of(speeds, k, budget).allocation
    }

    /// "RAS on the mean times".
    #[test]
    fn well_known_workers_share_by_their_means() {
        let decision = decide(&mut AtaAuto::new(true), 500, 7, &[(500, 500.0), (500, 1000.0), (500, 2000.0)]);
        assert_eq!((decision.allocation, decision.rule), (vec![4, 2, 1], Rule::Ras));
        assert_eq!(decision.scores, [1.0, 2.0, 4.0]);
    }

    /// "No worker gets more tasks than it has done before": one lucky draw does not get a worker the whole budget.
    #[test]
    fn trust_grows_with_the_tasks_done() {
        let speeds = [speed(2, 0.01, 0.0), speed(50, 1.0, 0.0), speed(50, 1.0, 0.0)];
        assert_eq!(allocation_of(&speeds, 30, 10), [2, 4, 4]);
        let few = [speed(2, 0.01, 0.0), speed(1, 1.0, 0.0)];
        assert_eq!(allocation_of(&few, 2, 10).iter().sum::<u64>(), 10, "unless no other worker is left");
    }

    /// c_i(a) = o_i·[a>0] + a·m_i.
    #[test]
    fn overheads_count_once_per_iteration() {
        let speeds = [speed(100, 1.0, 0.0), speed(100, 1.0, 10.0)];
        assert_eq!(allocation_of(&speeds, 100, 4), [4, 0]);
        assert_eq!(allocation_of(&speeds, 100, 30), [20, 10]);
    }

    /// "If no worker was observed yet, all race for the tasks."
    #[test]
    fn strangers_race() {
        let decision = decide(&mut AtaAuto::new(true), 1, 2, &[(0, 0.0); 3]);
        assert_eq!((decision.allocation, decision.collect), (vec![1; 3], Collect::Race { tasks: 2 }));
    }

    #[test]
    fn a_newcomer_is_probed() {
        let decision = decision_of(&[speed(900, 1.0, 0.0), speed(900, 2.0, 0.0), speed(0, 0.0, 0.0)], 2, 7);
        assert_eq!((decision.allocation, decision.probes), (vec![5, 2, 0], vec![2]));
    }

    /// The rule of [`AtaAuto`], computed by hand: three tasks on worker 1, l = W = 3, A/(n·B) = 1/6, r = 2; s = 2, or 1
    /// for the one that never finished.
    #[test]
    fn an_idle_worker_is_probed_when_that_pays() {
        let mut cut = speed(0, 0.0, 0.0);
        cut.cut_s = 6.0;
        for (idle, shape) in [(speed(2, 6.0, 0.0), 2.0), (cut, 1.0)] {
            let speeds = [speed(1000, 1.0, 0.0), idle];
            let gain = (-shape * (1.0 - 2.0_f64.ln())).exp() / (std::f64::consts::E * shape);
            let due = (12.0 / gain) as u64;
            assert!(due > 10);
            assert_eq!((allocation_of(&speeds, due, 3), decision_of(&speeds, due, 3).probes), (vec![3, 0], vec![]));
            assert_eq!(
                (allocation_of(&speeds, due + 1, 3), decision_of(&speeds, due + 1, 3).probes),
                (vec![3, 0], vec![1])
            );
        }
    }

    /// "One of the other idle workers, chosen at random, is probed with probability W/(100·l)": l = W/2 here.
    #[test]
    fn one_of_whom_nothing_is_expected_is_probed_now_and_then() {
        let speeds = [speed(1000, 1.0, 0.0), speed(1000, 1.0, 0.0), speed(1000, 99.0, 0.0)];
        let mut rng = SchedulerRng::seed_from_u64(9);
        let probed = (0..10_000).filter(|_| allocate(&speeds, 9, 2, 1.0, &mut rng).probes == [2]).count();
        assert!((150..250).contains(&probed), "{probed} of 200");
    }

    /// A probe that finished was one of the faster tasks: that alone is not a change.
    #[test]
    fn probes_and_races_are_not_searched_for_changes() {
        let mut policy = AtaAuto::new(true);
        let observed = [(100, 100.0), (100, 1000.0), (0, 0.0)];
        assert_eq!(decide(&mut policy, 101, 3, &observed).probes, [2]);
        for time_s in [9.0; 100].into_iter().chain([1.0; 10]) {
            policy.observe(WorkerId::from_slot(2), time_s);
        }
        assert_eq!(decide(&mut policy, 102, 3, &observed).allocation, [3, 0, 0]);
    }

    /// "Once a worker's speed is found to have changed, everything observed before is forgotten."
    #[test]
    fn a_change_starts_anew() {
        let observed = [(100, 100.0), (100, 1000.0), (100, 2000.0)];
        for (spec, tried) in [("ata-auto", [1, 1, 1]), ("ata-auto:track=off", [3, 0, 0])] {
            let mut policy = build_policy(spec, &PolicyContext::default()).unwrap();
            assert_eq!(decide(&mut *policy, 101, 3, &observed).allocation, [3, 0, 0]);
            for time_s in [1.0; 100].into_iter().chain([8.0; 10]) {
                policy.observe(WorkerId::from_slot(0), time_s);
            }
            assert_eq!(decide(&mut *policy, 102, 3, &observed).allocation, tried, "{spec}");
        }
    }

    proptest! {
        /// Whatever is observed, the whole budget is allocated.
        #[test]
        fn the_budget_is_given_out(
            observed in prop::collection::vec((0u64..5, prop_oneof![Just(0.0), Just(1e-300), 1e-9f64..1e9]), 1..20),
            iteration in 1u64..1_000_000,
            budget in 1u64..40,
        ) {
            let observed: Vec<_> = observed.into_iter().map(|(k, mean)| (k, k as f64 * mean)).collect();
            let decision = decide(&mut AtaAuto::new(true), iteration, budget, &observed);
            if observed.iter().any(|&(k, _)| k > 0) {
                prop_assert_eq!(decision.allocation.iter().sum::<u64>(), budget);
                prop_assert!(decision.probes.iter().all(|&i| decision.allocation[i] == 0));
            } else {
                prop_assert_eq!(decision.collect, Collect::Race { tasks: budget });
            }
        }
    }

    #[test]
    fn track_is_on_or_off() {
        let error = build_policy("ata-auto:track=maybe", &PolicyContext::default()).err().unwrap();
        assert_eq!(error.to_string(), "policy parameter track=maybe: expected 'on' or 'off'");
    }
}
