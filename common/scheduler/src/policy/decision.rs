//! Decisions of policies.

use crate::allocation::{PerWorker, Rule};
#[cfg(doc)]
use crate::policy::{Policy, Round};

/// The most tasks that may be allocated in one iteration: a run has at most 2^24, and a sum beyond this limit is a mistake.
const MAX_ALLOCATED: u64 = 1 << 40;

/// An allocation, the way to collect its results, and the reason.
#[derive(Clone, Debug, PartialEq)]
pub struct Decision {
    /// The number of tasks of each of [`Round::workers`]; may be empty for [`Collect::Each`], where all workers compute.
    pub allocation: PerWorker<u64>,
    /// Positions in [`Round::workers`] of the workers that get a probe: one more task, to learn how fast they are. Its
    /// gradient enters no step, the step does not wait for it, and it is cancelled once the step has its tasks.
    pub probes: Vec<usize>,
    /// The results that make the step.
    pub collect: Collect,
    /// The seconds per task on which the allocation is based, parallel to it; empty if the rule uses no speeds, and 0 for
    /// workers that it did not consider.
    pub scores: PerWorker<f64>,
    /// The seconds after which the policy expects each worker to be done with one task less, with its share, and with one task more;
    /// infinite if it never plans so many tasks. Empty if tasks are expected to take their [`Self::scores`] each.
    pub finish_s: PerWorker<[f64; 3]>,
    /// The rule that made the allocation.
    pub rule: Rule,
    /// The factor on the learning rate of this iteration's step.
    pub lr_factor: f64,
}

impl Decision {
    /// Creates a decision that uses no speeds.
    pub fn new(allocation: impl Into<PerWorker<u64>>, collect: Collect, rule: Rule) -> Self {
        let (scores, finish_s) = (PerWorker::from(Vec::new()), PerWorker::from(Vec::new()));
        Self { allocation: allocation.into(), probes: Vec::new(), collect, scores, finish_s, rule, lr_factor: 1.0 }
    }

    /// Creates an allocation whose tasks are all waited for.
    pub fn barrier(allocation: Vec<u64>, scores: Vec<f64>, rule: Rule) -> Self {
        Self { scores: scores.into(), ..Self::new(allocation, Collect::All, rule) }
    }

    /// Returns the [`Self::finish_s`] of the worker at a position; `None` if the policy expects nothing of its speed.
    pub fn expected_finish_s(&self, position: usize) -> Option<[f64; 3]> {
        let (score_s, tasks) = (self.scores.at(position), self.allocation.at(position));
        let finish_s = if self.finish_s.is_empty() {
            let mut finish_s = [tasks.saturating_sub(1), tasks, tasks + 1].map(|tasks| tasks as f64 * score_s);
            if matches!(self.rule, Rule::Fastest { .. }) && tasks > 0 && score_s > 0.0 {
                finish_s[2] = f64::INFINITY;
            }
            finish_s
        } else {
            self.finish_s.at(position)
        };
        (finish_s[2] > 0.0).then_some(finish_s)
    }

    /// Checks that the decision can be carried out with this many workers. Returns how many tasks it allocates, or what is
    /// wrong with it.
    pub(crate) fn check(&self, workers: usize) -> Result<u64, String> {
        let Self { allocation, probes, collect, scores, lr_factor, .. } = self;
        let may_be_empty = matches!(collect, Collect::Each { .. });
        if allocation.len() != workers && !(may_be_empty && allocation.is_empty()) {
            return Err(format!("it has shares for {} workers, and there are {workers}", allocation.len()));
        }
        if !scores.is_empty() && scores.len() != workers {
            return Err(format!("it has scores of {} workers, and there are {workers}", scores.len()));
        }
        let allocated = allocation.some().try_fold(0_u64, |sum, (_, tasks)| sum.checked_add(tasks));
        let allocated =
            allocated.filter(|&sum| sum <= MAX_ALLOCATED).ok_or("its shares add up to more than 2^40 tasks")?;
        if !(lr_factor.is_finite() && *lr_factor >= 0.0) {
            return Err(format!("its learning rate factor is {lr_factor}"));
        }
        if probes.iter().any(|&probe| probe >= workers) {
            return Err("it probes a worker that is not present".into());
        }
        let (possible, some) = (1..=MAX_ALLOCATED, 1..=allocated);
        match *collect {
            Collect::All | Collect::First { refill: true, .. } if allocated == 0 => Err("no worker gets a task".into()),
            Collect::First { refill: true, take: take @ 0 }
            | Collect::First { refill: false, take }
            | Collect::Soonest { take }
                if !some.contains(&take) =>
            {
                Err(format!("the step takes {take} of {allocated} tasks"))
            }
            Collect::InParts { tasks } if !possible.contains(&tasks) => Err(format!("the step takes {tasks} tasks")),
            Collect::Race { tasks } if !possible.contains(&tasks) => Err(format!("the workers race for {tasks} tasks")),
            Collect::Each { max_delay: 0, .. } => Err("every result would be too late".into()),
            Collect::First { .. } | Collect::Race { .. } | Collect::Each { .. } if !probes.is_empty() => {
                Err("it adds probes to a race, where all workers compute".into())
            }
            _ => Ok(allocated),
        }
    }
}

/// The results that make a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Collect {
    /// Barrier: the step waits for every allocated task; a lost one is given to another worker.
    All,
    /// Barrier on the tasks 0..`tasks`, handed out in parts: the allocation is only a plan. [`Policy::replan`] decides which
    /// worker begins how many of them, as the iteration begins and at each result, and may have late tasks computed twice.
    InParts {
        /// The number of tasks, B.
        tasks: u64,
    },
    /// Racing: the first `take` results make the step; the rest is cancelled, and counted as wasted.
    First {
        /// The number of results that make the step.
        take: u64,
        /// Whether a worker whose result has arrived starts another task at once.
        refill: bool,
    },
    /// Racing for certain tasks: every worker always computes one of the tasks 0..B that is not done yet, namely the one that
    /// the fewest workers have begun. The first result of each task enters the step. A worker that computes a lease as one batch begins
    /// with one task, and goes on with equal shares of the rest.
    Race {
        /// The number of tasks, B.
        tasks: u64,
    },
    /// Overcommitted: more tasks are allocated than the step needs. The first `take` results make the step, and the rest is
    /// cancelled; a worker that has finished its share is idle, and costs nothing.
    Soonest {
        /// The number of results that make the step.
        take: u64,
    },
    /// Asynchronous: every worker always computes, with the parameters that were current when it began, and each result makes its
    /// own step. Its delay is the number of steps taken in between.
    Each {
        /// The delay at which a result is ignored, R.
        max_delay: u64,
        /// Whether a computation is cancelled as soon as its delay reaches R.
        cancel: bool,
    },
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The expected times follow from the scores; a rule of one task per worker plans no second one.
    #[test]
    fn times_are_expected_by_scores() {
        let decision = |rule| Decision::barrier(vec![2, 0, 1], vec![3.0, 5.0, 0.0], rule);
        let of = |rule| [0, 1, 2].map(|i| decision(rule).expected_finish_s(i));
        assert_eq!(of(Rule::Ras), [Some([3.0, 6.0, 9.0]), Some([0.0, 0.0, 5.0]), None]);
        let fastest = Rule::Fastest { workers: 2 };
        assert_eq!(of(fastest), [Some([3.0, 6.0, f64::INFINITY]), Some([0.0, 0.0, 5.0]), None]);
        assert_eq!(Decision::new(vec![1], Collect::All, Rule::Uniform).expected_finish_s(0), None);
    }

    #[test]
    fn what_cannot_be_carried_out_is_named() {
        let decision = |allocation: &[u64], collect| Decision::new(Vec::from(allocation), collect, Rule::Uniform);
        let first = |take, refill| Collect::First { take, refill };
        let each = |max_delay| Collect::Each { max_delay, cancel: false };
        for (good, allocated) in [
            (decision(&[2, 0], Collect::All), 2),
            (decision(&[1, 1], first(2, false)), 2),
            (decision(&[1, 1], first(9, true)), 2),
            (decision(&[2, 2], Collect::Soonest { take: 3 }), 4),
            (decision(&[1, 1], Collect::Race { tasks: 5 }), 2),
            (decision(&[], each(1)), 0),
            (Decision { probes: vec![1], ..decision(&[2, 0], Collect::All) }, 2),
        ] {
            assert_eq!(good.check(2), Ok(allocated), "{good:?}");
        }
        for (bad, problem) in [
            (decision(&[0, 0], Collect::All), "no worker gets a task"),
            (decision(&[1], Collect::All), "shares for 1 workers, and there are 2"),
            (decision(&[], Collect::Race { tasks: 5 }), "shares for 0 workers"),
            (decision(&[u64::MAX, 2], Collect::All), "more than 2^40"),
            (decision(&[1, 1], first(3, false)), "takes 3 of 2 tasks"),
            (decision(&[1, 1], first(0, true)), "takes 0 of 2 tasks"),
            (decision(&[0, 0], first(1, true)), "no worker gets a task"),
            (decision(&[1, 1], Collect::Soonest { take: 5 }), "takes 5 of 2 tasks"),
            (decision(&[1, 1], Collect::Race { tasks: 0 }), "race for 0 tasks"),
            (decision(&[], each(0)), "too late"),
            (Decision { probes: vec![2], ..decision(&[2, 0], Collect::All) }, "not present"),
            (Decision { probes: vec![1], ..decision(&[1, 1], Collect::Race { tasks: 2 }) }, "probes to a race"),
            (Decision { scores: vec![1.0].into(), ..decision(&[2, 0], Collect::All) }, "scores of 1 workers"),
            (Decision { lr_factor: f64::NAN, ..decision(&[2, 0], Collect::All) }, "learning rate factor is NaN"),
        ] {
            let found = bad.check(2).unwrap_err();
            assert!(found.contains(problem), "{bad:?}: {found}");
        }
    }
}
