//! The reasons for an allocation, per worker: its measured times, the policy's bound, and how long the iteration would
//! take if the worker had one task more or less, by the policy's own forecast. An additional task comes from the worker that is
//! expected to finish last; a removed task goes to the worker that would finish it soonest.

mod why;

use std::collections::BTreeSet;

use ata_record::{LinkFigures, RunState, WorkerState};
use ata_types::{Iteration, WorkerId};
use serde::{Deserialize, Serialize};

use crate::efficiency::{Efficiency, contributions};
use crate::task_time::{MeanTaskTime, RECENT};

/// The utilization that [`Explanation::hiding_budget`] is to reach.
const HIDDEN: f64 = 0.9;

/// An iteration's allocation, and the reasons for it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Explanation {
    /// The iteration.
    pub iteration: Iteration,
    /// The policy, in the form of `--policy`.
    pub policy: String,
    /// The rule that made the allocation.
    pub rule: String,
    /// The number of tasks of the iteration: the budget B, unless it is chosen as the run goes on.
    pub budget: u64,
    /// The largest number that may be chosen.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub most_tasks: Option<u64>,
    /// The expected time at which the last worker finishes, in seconds after the first assignment, if it can be predicted.
    pub expected_s: Option<f64>,
    /// Whether expected times are the policy's own. Otherwise it uses none, and they follow from measured means.
    #[serde(default)]
    pub by_policy: bool,
    /// The times that vectors take on the links, if they were measured.
    pub links: Option<LinkFigures>,
    /// The time that workers have computed so far, divided by the time that those present would have had; absent before the first step.
    #[serde(default)]
    pub utilization: Option<f64>,
    /// The budget with which the utilization would be 0.9, if it is below: what is not computation takes as long, however many tasks there are.
    #[serde(default)]
    pub hiding_budget: Option<u64>,
    /// The gradient noise scale N, in tasks, if it is measured and known. A step on B tasks gets B/(B + N) of what one along the gradient of
    /// the whole loss would.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub noise_scale: Option<f64>,
    /// What the workers achieve together, if the noise scale is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub efficiency: Option<Efficiency>,
    /// The workers, by number.
    pub workers: Vec<WorkerExplanation>,
}

/// A worker's tasks in an iteration, and the figures on which they depend. Times are in seconds.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct WorkerShare {
    pub number: WorkerId,
    pub name: String,
    /// The number of the worker's tasks in this iteration, not counting a probe.
    pub tasks: u64,
    /// Whether the worker computes one more task as a probe.
    pub probe: bool,
    /// The number of the worker's tasks that were timed.
    pub observed: u64,
    /// The mean time of the last 256 of these tasks.
    pub mean_s: Option<f64>,
    /// The ends of the interval that contains the true mean in 95 % of cases, if times are normally distributed.
    pub low_s: Option<f64>,
    pub high_s: Option<f64>,
    /// The policy's bound on, or estimate of, the worker's time for a task.
    pub bound_s: Option<f64>,
    /// The time that the worker's vector takes on its own link, if it was measured.
    pub vector_s: Option<f64>,
    /// The minimum rate of the worker's link, in bytes per second.
    pub link_bytes_per_s: Option<f64>,
    /// The reasons in a sentence or two.
    pub why: String,
}

/// A worker's share, and its effect on the iteration. Times are in seconds.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct WorkerExplanation {
    /// The tasks of the worker, and the reasons for them.
    #[serde(flatten)]
    pub share: WorkerShare,
    /// The median time of an assignment that is not computation.
    pub overhead_s: f64,
    /// The expected time at which the worker finishes its share.
    pub finish_s: Option<f64>,
    /// The time at which the iteration would end if the worker had one task more.
    pub one_more_s: Option<f64>,
    /// The time at which the iteration would end if the worker had one task less.
    pub one_less_s: Option<f64>,
    /// The share of what a second of the run achieves that would be missing without the worker, if the noise scale is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub contribution: Option<f64>,
}

/// The expected times at which a worker finishes its share, with one task less or more; `None` if it is not to have so many.
#[derive(Clone, Copy, Debug)]
struct Forecast {
    worker: WorkerId,
    one_less_s: f64,
    finish_s: f64,
    one_more_s: Option<f64>,
    has_tasks: bool,
}

impl Forecast {
    /// Returns the policy's forecast of a worker or, if it has none of any worker, one by measured means, if its speed is known.
    fn of(run: &RunState, id: WorkerId, worker: &WorkerState) -> Option<Self> {
        let tasks = tasks(run, id);
        let [one_less_s, finish_s, one_more_s] = if run.allocation.finish_s.is_empty() {
            let (mean_s, overhead_s) = (MeanTaskTime::of(worker).mean_s?, overhead_s(worker));
            let after_s = |tasks: u64| if tasks == 0 { 0.0 } else { overhead_s + tasks as f64 * mean_s };
            [tasks.saturating_sub(1), tasks, tasks + 1].map(|tasks| Some(after_s(tasks)))
        } else {
            run.allocation.finish_s.get(&id).copied().filter(|finish_s| *finish_s != [Some(0.0); 3])?
        };
        let (one_less_s, finish_s) = one_less_s.zip(finish_s)?;
        Some(Self { worker: id, one_less_s, finish_s, one_more_s, has_tasks: tasks > 0 })
    }
}

/// The forecasts of an iteration's workers: its end, and the effect of one task more or less.
#[derive(Debug, Default)]
struct Outlook {
    /// Workers with tasks whose speed is known, the last to finish first.
    last: Vec<Forecast>,
    /// The time at which each worker would finish one task more, the soonest first.
    soonest: Vec<(f64, WorkerId)>,
}

impl Outlook {
    fn of(run: &RunState) -> Self {
        let mut outlook = Self::default();
        for (id, worker) in run.workers.iter().filter(|(_, worker)| worker.present) {
            let Some(forecast) = Forecast::of(run, *id, worker) else { continue };
            outlook.soonest.extend(forecast.one_more_s.map(|one_more_s| (one_more_s, *id)));
            if forecast.has_tasks {
                outlook.last.push(forecast);
            }
        }
        outlook.last.sort_by(|a, b| b.finish_s.total_cmp(&a.finish_s));
        outlook.soonest.sort_by(|a, b| a.0.total_cmp(&b.0));
        outlook
    }

    fn end_s(&self) -> f64 {
        self.last.first().map_or(0.0, |last| last.finish_s)
    }

    /// Returns the time at which all workers except these two have finished.
    fn end_without(&self, one: WorkerId, other: WorkerId) -> f64 {
        let others = self.last.iter().find(|forecast| ![one, other].contains(&forecast.worker));
        others.map_or(0.0, |forecast| forecast.finish_s)
    }

    /// Returns the time at which the iteration would end if `worker` finished after `own_s` with one task more.
    fn with_one_more(&self, worker: WorkerId, own_s: f64) -> Option<f64> {
        let giver = self.last.iter().find(|forecast| forecast.worker != worker)?;
        Some(self.end_without(worker, giver.worker).max(own_s).max(giver.one_less_s))
    }

    /// Returns the worker that would take a task of `worker`, and the time at which the iteration would end then.
    fn with_one_less(&self, worker: &Forecast) -> Option<(WorkerId, f64)> {
        let &(taken_s, taker) = self.soonest.iter().find(|(_, other)| *other != worker.worker)?;
        Some((taker, self.end_without(worker.worker, taker).max(taken_s).max(worker.one_less_s)))
    }
}

fn overhead_s(worker: &WorkerState) -> f64 {
    let mut last: Vec<f64> = worker.overheads_s.iter().rev().take(RECENT).copied().collect();
    last.sort_by(f64::total_cmp);
    last.get(last.len() / 2).copied().unwrap_or(0.0)
}

fn tasks(run: &RunState, id: WorkerId) -> u64 {
    run.allocation.shares.get(&id).copied().unwrap_or(0)
}

/// Explains the allocation of the current iteration for all workers, or only for some.
pub fn explain(run: &RunState, only: Option<&BTreeSet<WorkerId>>) -> Explanation {
    let (outlook, contributions) = (Outlook::of(run), contributions(run));
    let workers = run.workers.iter().filter(|(id, _)| only.is_none_or(|only| only.contains(id)));
    let utilization = utilization(run).filter(|share| !run.allocation.is_race && *share > 0.0);
    let chosen = run.most_tasks.filter(|_| !run.allocation.is_race);
    let mean = run.totals.tasks_applied as f64 / run.iterations.max(1) as f64;
    let hiding = |share: f64| mean * (1.0 / share - 1.0) * HIDDEN / (1.0 - HIDDEN);
    Explanation {
        iteration: run.allocation.iteration,
        policy: run.policy.clone(),
        rule: run.allocation.rule.clone(),
        budget: chosen.map_or(run.budget, |_| run.allocation.shares.values().sum()),
        most_tasks: chosen,
        expected_s: if run.allocation.is_race { None } else { outlook.last.first().map(|last| last.finish_s) },
        by_policy: !run.allocation.finish_s.is_empty(),
        links: run.totals.links,
        utilization,
        hiding_budget: utilization.filter(|share| *share < HIDDEN).map(|share| hiding(share).round() as u64),
        noise_scale: run.totals.noise_scale,
        efficiency: Efficiency::of(run),
        workers: workers
            .map(|(id, worker)| explain_worker(run, &outlook, *id, worker, contributions.get(id).copied()))
            .collect(),
    }
}

fn utilization(run: &RunState) -> Option<f64> {
    let available_s = run.present() as f64 * run.runtime_s();
    (available_s > 0.0).then(|| (run.totals.total_worker_time_s / available_s).min(1.0))
}

fn explain_worker(
    run: &RunState,
    outlook: &Outlook,
    id: WorkerId,
    worker: &WorkerState,
    contribution: Option<f64>,
) -> WorkerExplanation {
    let MeanTaskTime { mean_s, low_s, high_s } = MeanTaskTime::of(worker);
    let forecast = Forecast::of(run, id, worker).filter(|_| !run.allocation.is_race && worker.present);
    let with_tasks = forecast.filter(|forecast| forecast.has_tasks);
    let overhead_s = overhead_s(worker);
    let one_less = with_tasks.and_then(|forecast| outlook.with_one_less(&forecast));
    let mut explanation = WorkerExplanation {
        share: WorkerShare {
            number: id,
            name: worker.name.clone(),
            tasks: tasks(run, id),
            probe: run.allocation.probes.contains(&id),
            observed: worker.usage.completed,
            mean_s,
            low_s,
            high_s,
            bound_s: worker.bound_s,
            vector_s: worker.link.map(|link| link.up_s),
            link_bytes_per_s: worker.link.map(|link| link.bytes_per_s),
            why: String::new(),
        },
        overhead_s,
        finish_s: with_tasks.map(|forecast| forecast.finish_s),
        one_more_s: forecast.and_then(|forecast| outlook.with_one_more(id, forecast.one_more_s?)),
        one_less_s: one_less.map(|(_, end_s)| end_s),
        contribution,
    };
    explanation.share.why = why::sentence(run, outlook, &explanation, worker, one_less.map(|(taker, _)| taker));
    explanation
}

#[cfg(test)]
mod tests;
