//! Policies, which choose the allocation of each iteration. Each has a file, named as in its paper. Policies that serve only for
//! comparison are in `research/policies`.

mod affine;
mod ata_auto;
mod controller;
mod decision;
mod ema;
mod gta;
mod proportional;
mod pull;
mod registry;
mod shares;
mod uta;

pub use decision::{Collect, Decision};
pub use registry::{
    Arguments, PolicyContext, PolicyEntry, PolicyError, PolicyKind, PolicyResolver, Registry, Truth, entries,
};

use rand::rngs::ChaCha8Rng;
use serde::de::DeserializeOwned;
use serde::{Serialize, Serializer};

pub use crate::engine::{Actions, Activity, IterationView};
use crate::statistics::WorkerStatistics;
use crate::topology::LinkTimes;
use ata_types::{GradientSquares, Iteration, WorkerId};

/// The only source of randomness in the scheduler: seeded, and the same on every platform.
pub type SchedulerRng = ChaCha8Rng;

/// A policy's own state, apart from the engine's statistics, as plain data; null if it has none. It must contain no
/// infinite number, which JSON cannot represent.
pub type PolicyState = serde_json::Value;

/// Chooses how many tasks each worker computes in an iteration.
pub trait Policy: Send {
    /// Returns the policy's name, as `--policy` takes it.
    fn name(&self) -> &'static str;

    /// Returns the allocation for one iteration.
    fn decide(&mut self, round: &Round<'_>, rng: &mut SchedulerRng) -> Decision;

    /// Decides what to do next within an iteration of [`Collect::InParts`]. Called as the iteration begins, after each result, when
    /// a worker is lost, fails, joins or has rested, and at [`Actions::ask_again_s`]. If no worker computes and
    /// none is to begin, the engine hands out the tasks that are left like lost ones.
    fn replan(&mut self, _view: &IterationView<'_>, _actions: &mut Actions) {}

    /// Provides what an earlier run, or another policy, learned about a worker that this policy has not observed. It may fade, and is
    /// reset once observations of others contradict it. [`Round::statistics`] contains it as well.
    fn learned(&mut self, _worker: WorkerId, _earlier: &WorkerStatistics) {}

    /// Observes that a task took `busy_s` seconds, for policies that keep more than the engine's statistics.
    fn observe(&mut self, _worker: WorkerId, _busy_s: f64) {}

    /// Observes what an assignment cost a worker apart from computation, except for its first one.
    fn overhead(&mut self, _worker: WorkerId, _overhead_s: f64) {}

    /// Returns the seconds that the next task of a worker is expected to take, if the policy knows better than the engine's
    /// statistics, which never forget. Used for tasks that were lost.
    fn expected_s(&self, _worker: WorkerId) -> Option<f64> {
        None
    }

    /// Observes that a worker computed a lease of `tasks` tasks as one batch, in `busy_s` seconds. By default, each task counts as one
    /// that took an equal share.
    fn observe_batch(&mut self, worker: WorkerId, tasks: u64, busy_s: f64) {
        for _ in 0..tasks {
            self.observe(worker, busy_s / tasks as f64);
        }
    }

    /// Observes that a worker that steps together with others, in a [`Lockstep`](crate::Lockstep), computed its whole share as one
    /// batch. Its shares hardly differ in size, so the fixed cost of a batch cannot be derived from them.
    fn observe_share(&mut self, worker: WorkerId, tasks: u64, busy_s: f64) {
        self.observe_batch(worker, tasks, busy_s);
    }

    /// Observes that a worker's lease of `tasks` tasks was cancelled, such as a probe or the loser of a race: it would have taken more
    /// than `elapsed_s` seconds.
    fn censored(&mut self, _worker: WorkerId, _tasks: u64, _elapsed_s: f64) {}

    /// Observes that a worker failed, or was evicted because it hung, after `lost_s` seconds. It now rests, and is not part of a
    /// [`Round`] until its rest is over, unless all workers rest.
    fn failed(&mut self, _worker: WorkerId, _lost_s: f64) {}

    /// Forgets a worker, whose number will be given to another worker.
    fn forget(&mut self, _worker: WorkerId) {}

    /// Returns whether the policy looks at [`StepOutcome::gradient_product`], which takes a pass over all parameters.
    fn wants_gradient_product(&self) -> bool {
        false
    }

    /// Observes the step that the last decision led to.
    fn stepped(&mut self, _step: &StepOutcome) {}

    /// Returns the policy's state between two iterations, for [`Self::restore`]. Its parameters are not part of it.
    fn save(&self) -> PolicyState {
        PolicyState::Null
    }

    /// Continues from a state that a policy of the same name saved; an error says what is wrong with it.
    fn restore(&mut self, state: PolicyState) -> Result<(), String> {
        if state.is_null() { Ok(()) } else { Err("the policy keeps no state, but some was saved".into()) }
    }
}

/// Returns a policy without a state: each of its decisions is a function of the round.
pub fn stateless(
    name: &'static str,
    decide: impl Fn(&Round<'_>, &mut SchedulerRng) -> Decision + Send + 'static,
) -> Box<dyn Policy> {
    struct Stateless<F>(&'static str, F);

    impl<F: Fn(&Round<'_>, &mut SchedulerRng) -> Decision + Send> Policy for Stateless<F> {
        fn name(&self) -> &'static str {
            self.0
        }

        fn decide(&mut self, round: &Round<'_>, rng: &mut SchedulerRng) -> Decision {
            (self.1)(round, rng)
        }
    }

    Box::new(Stateless(name, decide))
}

/// Converts the state of a policy to plain data, for [`Policy::save`].
pub fn to_state(state: &impl Serialize) -> PolicyState {
    serde_json::to_value(state).expect("names and numbers can be written")
}

/// Returns a list by slot without the default values at its end, so that saved states do not grow with forgotten workers.
fn trimmed<T: Default + PartialEq>(by_slot: &[T]) -> &[T] {
    let end = by_slot.iter().rposition(|item| *item != T::default()).map_or(0, |last| last + 1);
    &by_slot[..end]
}

/// Serializes a field of a state without the default values at its end.
fn save_trimmed<T: Default + PartialEq + Serialize, S: Serializer>(by_slot: &[T], to: S) -> Result<S::Ok, S::Error> {
    trimmed(by_slot).serialize(to)
}

/// Converts plain data to the state of a policy, for [`Policy::restore`].
pub fn from_state<T: DeserializeOwned>(state: PolicyState) -> Result<T, String> {
    serde_json::from_value(state).map_err(|error| error.to_string())
}

/// The outcome of an optimizer step, as far as it is known.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct StepOutcome {
    /// Mean loss of the step's tasks, in nats; `None` if nothing is learned.
    pub loss: Option<f64>,
    /// The inner product ⟨g_k, g_{k−1}⟩ of the mean gradients of this step and the previous one.
    pub gradient_product: Option<f64>,
    /// The squares of the gradients, if they are measured.
    pub squares: Option<GradientSquares>,
    /// Accuracy of the last evaluation on the test data, if there was one. It may be of earlier parameters.
    pub accuracy: Option<f64>,
}

/// The input of a policy's decision.
#[derive(Clone, Copy, Debug)]
pub struct Round<'a> {
    /// The iteration k, from 1.
    pub iteration: Iteration,
    /// The number of tasks to allocate: B, or more if the run overcommits.
    pub budget: u64,
    /// The workers that can be given tasks, at least one, ascending: the present workers that are not resting after a failure
    /// or, if all rest, all that are present.
    pub workers: &'a [WorkerId],
    /// Statistics of every worker of the run, by [`WorkerId::slot`].
    pub statistics: &'a [WorkerStatistics],
    /// Whether each worker computes its whole share as one batch, at a cost of o + a·s, by slot. Workers beyond the end do not.
    pub fuses: &'a [bool],
    /// The time that vectors take on the links.
    pub links: &'a LinkTimes,
}

impl Round<'_> {
    /// Returns statistics of the i-th of [`Self::workers`].
    pub fn of(&self, i: usize) -> &WorkerStatistics {
        &self.statistics[self.workers[i].slot()]
    }

    /// Returns whether the i-th of [`Self::workers`] computes its whole share as one batch.
    pub fn fuses(&self, i: usize) -> bool {
        self.fuses.get(self.workers[i].slot()).is_some_and(|&fuses| fuses)
    }

    /// Returns a bound for each of [`Self::workers`]: `bound(m_i, K_i)` if it was observed, otherwise `unknown`.
    pub fn bounds(&self, unknown: f64, bound: impl Fn(f64, f64) -> f64) -> Vec<f64> {
        let of = |i| {
            let statistics: &WorkerStatistics = self.of(i);
            statistics.mean_s().map_or(unknown, |mean_s| bound(mean_s, statistics.observed as f64))
        };
        (0..self.workers.len()).map(of).collect()
    }

    /// Returns the largest mean of any of [`Self::workers`], in seconds; 0 if none was observed.
    pub fn largest_mean_s(&self) -> f64 {
        (0..self.workers.len()).filter_map(|i| self.of(i).mean_s()).fold(0.0, f64::max)
    }
}

#[cfg(test)]
mod tests {
    use super::entries::{AFFINE, ATA_AUTO, CONTROLLER, EMA, PROPORTIONAL, UTA};
    use super::*;
    use rand::{RngExt, SeedableRng};

    pub(crate) fn built(text: &str) -> Box<dyn Policy> {
        const POLICIES: Registry = Registry(&[ATA_AUTO, UTA, EMA, PROPORTIONAL, CONTROLLER, AFFINE]);
        POLICIES.build(text, &PolicyContext::default()).unwrap()
    }

    /// Returns what `policy` decides in iteration `iteration` for workers with these (K_i, T_i).
    pub(crate) fn decide(policy: &mut dyn Policy, iteration: u64, budget: u64, observed: &[(u64, f64)]) -> Decision {
        with_round(iteration, budget, observed, |round| policy.decide(round, &mut SchedulerRng::seed_from_u64(5)))
    }

    pub(crate) fn with_round<T>(
        iteration: u64,
        budget: u64,
        observed: &[(u64, f64)],
        run: impl FnOnce(&Round<'_>) -> T,
    ) -> T {
        let statistics: Vec<_> = observed
            .iter()
            .map(|&(observed, total_s)| WorkerStatistics { observed, total_s, ..Default::default() })
            .collect();
        let workers: Vec<_> = (0..observed.len()).map(WorkerId::from_slot).collect();
        let (iteration, links) = (Iteration(iteration), LinkTimes::default());
        run(&Round { iteration, budget, workers: &workers, statistics: &statistics, fuses: &[], links: &links })
    }

    /// By its own forecast, no policy that minimizes the end of an iteration could end it sooner by moving a task, unless the workers may be
    /// equally fast.
    #[test]
    fn no_task_more_or_less_is_better_by_the_policys_own_forecast() {
        let (mut rng, mut equal) = (SchedulerRng::seed_from_u64(3), 0);
        for (name, round) in
            ["ata-auto", "ema", "affine"].into_iter().flat_map(|name| (0..40).map(move |at| (name, at)))
        {
            let mut policy = built(name);
            let mut observed = vec![(0, 0.0); 6];
            for (slot, (count, total_s)) in observed.iter_mut().enumerate() {
                for _ in 0..rng.random_range(2..9) {
                    let busy_s = (slot + 1) as f64 * rng.random_range(0.5..1.5);
                    policy.observe(WorkerId::from_slot(slot), busy_s);
                    (*count, *total_s) = (*count + 1, *total_s + busy_s);
                }
            }
            policy.stepped(&StepOutcome::default());
            let decision = decide(&mut *policy, 9, 16, &observed);
            let shares = (0..6).map(|i| decision.allocation.at(i));
            if shares.clone().max().unwrap() <= shares.min().unwrap() + 1 {
                equal += 1;
                continue;
            }
            let finish_s: Vec<_> = (0..6).filter_map(|i| decision.expected_finish_s(i)).collect();
            let end_s = |of: &dyn Fn(usize) -> f64| (0..finish_s.len()).map(of).fold(0.0, f64::max);
            let planned_s = end_s(&|i| finish_s[i][1]);
            assert!(planned_s > 0.0 && finish_s.len() > 3, "{name} {round}: {finish_s:?}");
            for (from, to) in (0..finish_s.len()).flat_map(|from| (0..finish_s.len()).map(move |to| (from, to))) {
                if from != to && finish_s[from][1] > 0.0 {
                    let moved_s = end_s(&|i| finish_s[i][1 + usize::from(i == to) - usize::from(i == from)]);
                    assert!(moved_s >= planned_s, "{name} {round}, from {from} to {to}: {finish_s:?}");
                }
            }
        }
        assert!(equal < 20, "{equal} of 120 shares are equal");
    }

    #[test]
    fn a_saved_state_is_checked() {
        for (policy, state, is_good) in [
            ("ema", "[1.5, null]", true),
            ("ema", "[-1.5]", false),
            ("ema", "null", false),
            // A state that was saved under other parameters can be continued.
            ("proportional:window=2", "[[1.5], []]", true),
            ("proportional:window=2", "[[1], [[1, -1]]]", false),
            ("controller", r#"{"shares": [2.5, null], "done": [[1, 2.0]]}"#, true),
            ("controller", r#"{"shares": [0.0], "done": []}"#, false),
            ("controller", r#"{"shares": [1e300], "done": []}"#, false),
            ("controller", r#"{"shares": [1.0], "done": [[1, -2.0]]}"#, false),
            ("affine", r#"{"shares": [], "done": [[1, 2.0]]}"#, true),
            ("affine", r#"{"shares": [], "done": [[1, -1.0]]}"#, false),
            ("uta", "[1]", false),
        ] {
            let mut policy = built(policy);
            assert_eq!(policy.restore(serde_json::from_str(state).unwrap()).is_ok(), is_good, "{state}");
        }
        for (total_s, is_good) in [(2.0, true), (-2.0, false)] {
            let mut policy = built("affine");
            let mut share = crate::batches::BatchStatistics::default();
            share.observe(1, total_s);
            let state = serde_json::json!({"shares": [share], "done": []});
            assert_eq!(policy.restore(state).is_ok(), is_good, "{share:?}");
        }
    }
}
