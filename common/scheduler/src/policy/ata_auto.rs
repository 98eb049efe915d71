//! ATA-Auto: a form of ATA with nothing to set.
//!
//! The policy predicts the time by which each worker finishes a share, from its task times since its speed last changed: their mean,
//! their noise, and the uncertainty of both. It allocates so that the last worker is predicted to finish as early as
//! possible, hands out the shares in parts, and plans again at each result. An idle worker also computes a late task if the
//! time gained is worth it. Idle workers are probed in turn, with tasks that no step waits for, because any of them may have
//! become faster, or have been unlucky.
//!
//! The policy is not from the ATA paper (arXiv 2502.00775), but keeps its allocation rule RAS. The test of [`window`] finds
//! changes of speed. docs/explanation/ata-auto.md has the rule, its reasons and measurements.

mod batch_costs;
mod candidates;
mod estimate;
mod exploration;
mod links;
mod pace;
mod plan;
mod retries;
mod window;
mod worker_model;

use super::{
    Actions, Collect, Decision, IterationView, Policy, PolicyEntry, PolicyKind, PolicyState, Round, SchedulerRng,
    StepOutcome, from_state, to_state, trimmed,
};
use crate::allocation::{PerWorker, Rule};
use crate::statistics::WorkerStatistics;
use crate::topology::OwnTimes;
use ata_types::WorkerId;
use candidates::{Ranking, position};
use estimate::NoisePool;
use exploration::{Exploration, Outline};
use plan::{Preferences, TaskPlan};
use retries::Retries;
use window::Test;
use worker_model::WorkerModel;

/// The policy's entry in the registry.
pub const ENTRY: PolicyEntry = PolicyEntry {
    name: "ata-auto",
    about: "ATA with nothing to set, for speeds that may change",
    parameters: "track=on|off (default: on; follow changes of speed), time_price=W (price of one second of runtime, in \
        worker-seconds; default: what the workers spend per second)",
    kind: PolicyKind::Barrier,
    build: |arguments| {
        let track = arguments.switch("track")?.unwrap_or(true);
        let time_price = arguments.positive("time_price")?;
        Ok(Box::new(AtaAuto { track, time_price, spending: 1.0, ..AtaAuto::default() }))
    },
};

/// The smallest and the largest factor on caution, for a very high or very low price of time.
const CAUTION: std::ops::RangeInclusive<f64> = 0.25..=4.0;

/// Allocates by predicted finish times, and plans again within the iteration. docs/explanation/ata-auto.md has the
/// formulas.
#[derive(Default)]
struct AtaAuto {
    /// Whether changes of the workers' speeds are detected.
    track: bool,
    time_price: Option<f64>,
    /// The model of each worker, by slot.
    models: Vec<WorkerModel>,
    noise: NoisePool,
    /// The sum of all changes of speed so far, V: each counts with |ln| of its factor, at most 1.
    moved: f64,
    /// The number of rounds of workers in use that were tested for a change.
    tested: f64,
    /// Worker-seconds per second in the last plan, W/l.
    spending: f64,
    /// The workers that were observed, by a lower bound on a task's expected time.
    observed: Ranking,
    /// The workers that were not observed, by the time spent on tasks that were cancelled.
    unknown: Ranking,
    exploration: Exploration,
    retries: Retries,
    /// The workers whose task in the current iteration is a probe.
    probed: Vec<WorkerId>,
    fresh: Vec<WorkerId>,
    races: bool,
    plan: TaskPlan,
}

impl AtaAuto {
    fn make_room(&mut self, workers: usize) {
        for slot in self.models.len()..workers {
            self.models.push(WorkerModel::default());
            self.place(slot);
        }
    }

    fn place(&mut self, slot: usize) {
        let model = &self.models[slot];
        let (least_s, censored_s) = (model.least_s(), model.only_censored_s());
        self.observed.set(slot, least_s);
        self.unknown.set(slot, censored_s);
    }

    fn of(&mut self, worker: WorkerId) -> &mut WorkerModel {
        self.make_room(worker.slot() + 1);
        let model = &mut self.models[worker.slot()];
        if !std::mem::replace(&mut model.is_fresh, true) {
            self.fresh.push(worker);
        }
        model
    }

    fn test(&self, worker: WorkerId) -> Test {
        if !self.track || self.races {
            Test::None
        } else if self.models[worker.slot()].is_probed {
            Test::Faster
        } else {
            Test::All
        }
    }

    /// Tests the workers of the iteration that ended for changes, and updates their ranks.
    fn review(&mut self) {
        let mut fresh = std::mem::take(&mut self.fresh);
        if fresh.is_empty() {
            return;
        }
        let hazard = self.hazard();
        let mut moved = 0.0_f64;
        for worker in fresh.drain(..) {
            let (pooled, test) = (self.noise.pooled(), self.test(worker));
            let model = &mut self.models[worker.slot()];
            model.is_fresh = false;
            self.tested += f64::from(u8::from(test == Test::All));
            self.noise.add(model.noise(), -1.0);
            let factor = model.review(pooled, hazard, test).filter(|_| test == Test::All);
            self.noise.add(model.noise(), 1.0);
            if let Some(factor) = factor {
                moved = moved.max(factor.ln().abs().min(1.0));
                self.retries.changed(worker, factor > 1.0);
            }
            self.place(worker.slot());
        }
        // Simultaneous changes are one event.
        self.moved += moved;
        // This keeps the allocated memory.
        self.fresh = fresh;
    }

    /// Returns the hazard: the probability that a worker's speed changes from one round to the next, as if half a change had been seen in
    /// one.
    fn hazard(&self) -> f64 {
        (exploration::PRIOR + self.moved) / (1.0 + self.tested)
    }

    fn replace(&mut self, worker: WorkerId, model: WorkerModel) {
        self.retries.forget(worker);
        self.make_room(worker.slot() + 1);
        let before = std::mem::replace(&mut self.models[worker.slot()], model);
        self.noise.add(before.noise(), -1.0);
        self.noise.add(self.models[worker.slot()].noise(), 1.0);
        self.place(worker.slot());
    }

    /// Returns the number of standard deviations that are added to expected times, β: √(2 ln A) bounds the expected largest of A normal
    /// deviations. W/l stands for A, since a worker that ends long before the last is no risk. The less a second of runtime is worth, the
    /// fewer risks are taken, and the fewer slow workers are used.
    fn caution(&self) -> f64 {
        let factor = self.time_price.map_or(1.0, |price| self.spending / price);
        factor.clamp(*CAUTION.start(), *CAUTION.end()) * (2.0 * self.spending.max(2.0).ln()).sqrt()
    }
}

impl Policy for AtaAuto {
    fn name(&self) -> &'static str {
        "ata-auto"
    }

    fn observe(&mut self, worker: WorkerId, busy_s: f64) {
        self.of(worker).observe(busy_s);
        self.plan.observe(worker, busy_s);
    }

    fn observe_batch(&mut self, worker: WorkerId, tasks: u64, busy_s: f64) {
        self.of(worker).observe_batch(tasks, busy_s);
    }

    /// Observes a share as one time of a task of average cost, which is as noisy as the share.
    fn observe_share(&mut self, worker: WorkerId, tasks: u64, busy_s: f64) {
        self.observe(worker, busy_s / tasks as f64);
    }

    fn censored(&mut self, worker: WorkerId, tasks: u64, elapsed_s: f64) {
        self.make_room(worker.slot() + 1);
        let (pooled, hazard, test) = (self.noise.pooled(), self.hazard(), self.test(worker));
        self.of(worker).censored(tasks, elapsed_s, pooled, hazard, test);
    }

    fn overhead(&mut self, worker: WorkerId, overhead_s: f64) {
        self.of(worker).overhead.observe(overhead_s);
    }

    fn expected_s(&self, worker: WorkerId) -> Option<f64> {
        let model = self.models.get(worker.slot())?;
        model.pace(self.noise.pooled(), self.hazard(), false).map(|pace| pace.mean_s)
    }

    fn learned(&mut self, worker: WorkerId, earlier: &WorkerStatistics) {
        self.replace(worker, WorkerModel::learned(earlier));
    }

    fn forget(&mut self, worker: WorkerId) {
        self.replace(worker, WorkerModel::default());
    }

    fn stepped(&mut self, _step: &StepOutcome) {
        self.review();
    }

    fn decide(&mut self, round: &Round<'_>, rng: &mut SchedulerRng) -> Decision {
        let n = round.workers.len();
        self.make_room(round.statistics.len());
        self.review();
        for worker in self.probed.drain(..) {
            self.models[worker.slot()].is_probed = false;
        }
        let caution = self.caution();
        let candidates = self.candidates(round, caution);
        self.races = candidates.is_empty();
        if self.races {
            let rule = Rule::WarmUp { never_observed: n, zero_score: 0 };
            return Decision::new(vec![1; n], Collect::Race { tasks: round.budget }, rule);
        }
        let outline = Outline::new(&candidates, n, round.links);
        let k = round.iteration.number();
        let allocation =
            PerWorker::sparse(n, candidates.iter().map(|member| (member.position, member.share)).collect());
        let is_idle = |i: &usize| allocation.at(*i) == 0;
        let idle = |worker| position(round, worker).filter(is_idle);
        let mut probed = self.exploration.next(self.models.len(), &outline, (self.moved, k), idle, rng);
        let mut retried = self.retries.due(k, |worker| position(round, worker), |i| !is_idle(&i));
        retried.retain(|i| probed.iter().all(|(explored, _)| explored != i));
        probed.extend(retried.into_iter().map(|i| (i, outline.longest_s)));
        let (probes, limits_s): (Vec<usize>, Vec<f64>) = probed.into_iter().unzip();
        self.probed = probes.iter().map(|&i| round.workers[i]).collect();
        for worker in &self.probed {
            self.models[worker.slot()].is_probed = true;
        }
        let limits_s = self.probed.iter().copied().zip(limits_s);
        let limits_s = limits_s.filter(|(_, limit_s)| *limit_s < outline.longest_s).collect();
        self.spending = if outline.longest_s > 0.0 { outline.all_s / outline.longest_s } else { 1.0 };
        let used: Vec<OwnTimes> =
            candidates.iter().filter(|member| member.share > 0).map(|member| member.own).collect();
        let preferences = Preferences {
            time_price: self.time_price.unwrap_or(self.spending),
            caution,
            fallback_s: round.links.fallback_s(&used),
        };
        let scores = candidates.iter().map(|member| (member.position, member.pace.mean_s)).collect();
        let scores = PerWorker::sparse(n, scores);
        let finish_s = PerWorker::sparse(n, self.finish_s(&candidates, caution, round.links.is_free()));
        let collect = Collect::InParts { tasks: round.budget };
        self.plan = TaskPlan::new(candidates, limits_s, preferences);
        Decision { probes, scores, finish_s, ..Decision::new(allocation, collect, Rule::Ras) }
    }

    fn replan(&mut self, view: &IterationView<'_>, actions: &mut Actions) {
        self.plan.replan(view, actions);
    }

    fn save(&self) -> PolicyState {
        let Self { noise, moved, tested, spending, exploration, retries, .. } = self;
        to_state(&(trimmed(&self.models), noise, moved, tested, spending, exploration, retries))
    }

    fn restore(&mut self, state: PolicyState) -> Result<(), String> {
        (self.models, self.noise, self.moved, self.tested, self.spending, self.exploration, self.retries) =
            from_state(state)?;
        if !self.exploration.is_valid() {
            return Err("a turn of no worker".into());
        }
        for slot in 0..self.models.len() {
            self.place(slot);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::estimate::Pooled;
    use super::pace::Pace;

    /// Returns the noise of all workers, if no part of it is common to an iteration.
    pub(super) fn pooled(variation: f64) -> Pooled {
        Pooled { variation, shared: 0.0 }
    }

    /// Returns the pace of a worker with mean time 2 and K = 8 observations.
    pub(super) fn pace(variation: f64) -> Pace {
        let (overhead_s, doubt) = (1.0, variation / 8.0);
        Pace { overhead_s, mean_s: 2.0, variation, count: 8.0, doubt, hazard: 1e-3, ..Pace::default() }
    }
}
