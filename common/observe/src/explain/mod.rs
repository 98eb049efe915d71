//! Why each worker has the tasks that it has.
//!
//! What a task takes is the policy's bound or estimate if it has one, and else the mean of what was measured. A worker is
//! expected to finish its share after the median overhead of its assignments and that time for each of its tasks; the
//! iteration, when the last one has finished. One task more for a worker is one less for whoever finishes last, and one less
//! goes to whoever finishes it soonest.

mod why;

use std::collections::BTreeSet;

use ata_record::WorkerState;
use ata_types::{Iteration, WorkerId};
use serde::{Deserialize, Serialize};

use crate::view::{Attendance, View};

/// Measured times that its mean and interval are made of: the last ones, as speeds change.
const RECENT: usize = 256;

/// An iteration's allocation, and the reasons for it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Explanation {
    /// k.
    pub iteration: Iteration,
    /// The policy, as `--policy` takes it.
    pub policy: String,
    /// The rule that made the allocation.
    pub rule: String,
    /// B.
    pub budget: u64,
    /// When the last worker is expected to finish, in seconds after the first assignment, if that can be said.
    pub expected_s: Option<f64>,
    /// The workers, by number.
    pub workers: Vec<Explained>,
}

/// What is known of a worker, and what follows for its tasks. Times are in seconds.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Explained {
    /// Its number.
    pub worker: WorkerId,
    /// Its name.
    pub name: String,
    /// Its tasks in this iteration, a probe not counted.
    pub tasks: u64,
    /// Whether it computes one more as a probe.
    pub probe: bool,
    /// Tasks of it that were timed.
    pub observed: u64,
    /// Mean time of the last 256 of them.
    pub mean_s: Option<f64>,
    /// The lower end of the interval that holds the true mean in 95 % of cases, if times are normal.
    pub low_s: Option<f64>,
    /// The upper end.
    pub high_s: Option<f64>,
    /// The policy's bound on its time for a task, or estimate.
    pub bound_s: Option<f64>,
    /// Median time of an assignment that is not computation.
    pub overhead_s: f64,
    /// When it is expected to finish its share.
    pub finish_s: Option<f64>,
    /// When the iteration would end with one task more for it.
    pub one_more_s: Option<f64>,
    /// When it would end with one task less.
    pub one_less_s: Option<f64>,
    /// The same in a sentence or two.
    pub why: String,
}

/// Mean seconds of a task, with a 95 % interval.
#[derive(Clone, Copy, Debug, Default)]
#[expect(clippy::struct_field_names, reason = "units come last")]
pub(crate) struct Measured {
    pub(crate) mean_s: Option<f64>,
    pub(crate) low_s: Option<f64>,
    pub(crate) high_s: Option<f64>,
}

impl Measured {
    pub(crate) fn of(worker: &WorkerState) -> Self {
        let times = || worker.times_s.iter().rev().take(RECENT);
        let count = times().count() as f64;
        if count == 0.0 {
            return Self::default();
        }
        let mean_s = times().sum::<f64>() / count;
        if count == 1.0 {
            return Self { mean_s: Some(mean_s), low_s: None, high_s: None };
        }
        let variance = times().map(|time_s| (time_s - mean_s).powi(2)).sum::<f64>() / (count - 1.0);
        let margin_s = 1.96 * (variance / count).sqrt();
        Self { mean_s: Some(mean_s), low_s: Some((mean_s - margin_s).max(0.0)), high_s: Some(mean_s + margin_s) }
    }
}

/// What a worker is expected to take.
#[derive(Clone, Copy, Debug)]
struct Expected {
    worker: WorkerId,
    task_s: f64,
    finish_s: f64,
    has_tasks: bool,
}

impl Expected {
    fn one_more_s(&self, overhead_s: f64) -> f64 {
        self.task_s + if self.has_tasks { self.finish_s } else { overhead_s }
    }
}

/// What an iteration is expected to take, and what a task more or less would change.
#[derive(Debug, Default)]
struct Course {
    /// Those with tasks whose speed is known, the last to finish first.
    last: Vec<Expected>,
    /// When each would finish one task more, the soonest first.
    soonest: Vec<(f64, WorkerId)>,
}

impl Course {
    fn of(view: &View) -> Self {
        let mut course = Self::default();
        for (number, worker) in view.state.workers.iter().filter(|(_, worker)| worker.present) {
            let Some(expected) = expected(view, *number, worker) else { continue };
            course.soonest.push((expected.one_more_s(overhead_s(worker)), *number));
            if expected.has_tasks {
                course.last.push(expected);
            }
        }
        course.last.sort_by(|a, b| b.finish_s.total_cmp(&a.finish_s));
        course.soonest.sort_by(|a, b| a.0.total_cmp(&b.0));
        course
    }

    /// When all have finished.
    fn end_s(&self) -> f64 {
        self.last.first().map_or(0.0, |last| last.finish_s)
    }

    /// When all but these two have finished.
    fn end_without(&self, one: WorkerId, other: WorkerId) -> f64 {
        let others = self.last.iter().find(|expected| ![one, other].contains(&expected.worker));
        others.map_or(0.0, |expected| expected.finish_s)
    }

    /// When the iteration would end if `worker` finished after `own_s` with one task more.
    fn with_one_more(&self, worker: WorkerId, own_s: f64) -> Option<f64> {
        let giver = self.last.iter().find(|expected| expected.worker != worker)?;
        let left_s = giver.finish_s - giver.task_s;
        Some(self.end_without(worker, giver.worker).max(own_s).max(left_s))
    }

    /// Who would take a task of `worker`, and when the iteration would end then.
    fn with_one_less(&self, worker: &Expected) -> Option<(WorkerId, f64)> {
        let &(taken_s, taker) = self.soonest.iter().find(|(_, other)| *other != worker.worker)?;
        let left_s = worker.finish_s - worker.task_s;
        Some((taker, self.end_without(worker.worker, taker).max(taken_s).max(left_s)))
    }
}

fn overhead_s(worker: &WorkerState) -> f64 {
    let mut last: Vec<f64> = worker.overheads_s.iter().rev().take(RECENT).copied().collect();
    last.sort_by(f64::total_cmp);
    last.get(last.len() / 2).copied().unwrap_or(0.0)
}

/// What a worker's share is expected to take; `None` if nothing is known of its speed.
fn expected(view: &View, number: WorkerId, worker: &WorkerState) -> Option<Expected> {
    let bound_s = view.attendance.get(&number).and_then(|known| known.bound_s);
    let task_s = bound_s.or_else(|| Measured::of(worker).mean_s)?;
    let tasks = view.decided.tasks.get(&number).copied().unwrap_or(0);
    let finish_s = if tasks > 0 { overhead_s(worker) + tasks as f64 * task_s } else { 0.0 };
    Some(Expected { worker: number, task_s, finish_s, has_tasks: tasks > 0 })
}

/// Explains the allocation of the current iteration: of all workers, or of these.
pub fn explain(view: &View, only: Option<&BTreeSet<WorkerId>>) -> Explanation {
    let course = Course::of(view);
    let workers = view.state.workers.iter().filter(|(number, _)| only.is_none_or(|only| only.contains(number)));
    Explanation {
        iteration: view.decided.iteration,
        policy: view.state.policy.clone(),
        rule: view.decided.rule.clone(),
        budget: view.state.budget,
        expected_s: if view.decided.is_race { None } else { course.last.first().map(|last| last.finish_s) },
        workers: workers.map(|(number, worker)| of_worker(view, &course, *number, worker)).collect(),
    }
}

fn of_worker(view: &View, course: &Course, number: WorkerId, worker: &WorkerState) -> Explained {
    let unknown = Attendance::default();
    let attendance = view.attendance.get(&number).unwrap_or(&unknown);
    let Measured { mean_s, low_s, high_s } = Measured::of(worker);
    let expected = expected(view, number, worker).filter(|_| !view.decided.is_race && worker.present);
    let overhead_s = overhead_s(worker);
    let one_less = expected.filter(|known| known.has_tasks).and_then(|known| course.with_one_less(&known));
    let mut explained = Explained {
        worker: number,
        name: worker.name.clone(),
        tasks: view.decided.tasks.get(&number).copied().unwrap_or(0),
        probe: view.decided.probes.contains(&number),
        observed: attendance.completed,
        mean_s,
        low_s,
        high_s,
        bound_s: attendance.bound_s,
        overhead_s,
        finish_s: expected.filter(|known| known.has_tasks).map(|known| known.finish_s),
        one_more_s: expected.and_then(|known| course.with_one_more(number, known.one_more_s(overhead_s))),
        one_less_s: one_less.map(|(_, end_s)| end_s),
        why: String::new(),
    };
    explained.why = why::sentence(view, course, &explained, worker, one_less.map(|(taker, _)| taker));
    explained
}

#[cfg(test)]
mod tests;
