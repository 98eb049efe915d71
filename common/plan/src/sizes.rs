//! Runs with smaller and larger tasks but the same samples per step, for finer shares or fewer overheads.

use ata_simulator::MAX_BUDGET;
use serde::Serialize;

use crate::runs::Runs;
use crate::{PlanError, PlanSpec, StepCost, cluster};

/// Another size of tasks.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct TaskSize {
    /// Samples of a task, relative to the given tasks.
    pub size: f64,
    /// The number of tasks per step.
    pub budget: u64,
    /// Duration of a step, in seconds.
    pub step_s: f64,
}

/// The sizes that are tried, relative to the given one. Tasks of an eighth of the size allow shares that are rounded to an eighth
/// of a task.
const SIZES: [f64; 6] = [0.5, 0.25, 0.125, 2.0, 4.0, 8.0];
/// The least gain that is worth another setting.
pub(crate) const LEAST_GAIN: f64 = 0.05;
/// The tolerance around the best size, as a share of its step time: of the sizes within it, the one nearest to the given size is proposed.
const NEAR: f64 = 0.02;

/// Returns the size to use instead of the given one, whose step costs `given`, if that is worth it.
pub(super) fn better(spec: &PlanSpec, given: &StepCost, runs: Runs<'_>) -> Result<Option<TaskSize>, PlanError> {
    let mut sizes = Vec::new();
    for size in SIZES {
        let budget = spec.budget as f64 / size;
        if budget.fract() != 0.0 || budget > MAX_BUDGET as f64 || (size > 1.0 && spec.task_overhead_s == 0.0) {
            continue;
        }
        let budget = budget as u64;
        let law = cluster::laws(&spec.machines, size, spec.task_overhead_s);
        let run = Runs { budget, ..runs }.of(cluster::ATA, &law, &[given.machines])?;
        sizes.push(TaskSize { size, budget, step_s: run[0].cost.step_s });
    }
    let best = sizes.iter().map(|size| size.step_s).fold(f64::INFINITY, f64::min);
    let is_worth_it =
        |size: &TaskSize| size.step_s <= best * (1.0 + NEAR) && size.step_s < given.step_s * (1.0 - LEAST_GAIN);
    let distance = |size: &TaskSize| size.size.log2().abs();
    Ok(sizes.into_iter().filter(is_worth_it).min_by(|a, b| distance(a).total_cmp(&distance(b))))
}

#[cfg(test)]
mod tests {
    use ata_policies::build_policy;

    use super::*;
    use crate::tests::spec;

    fn size(machines: &[&str], budget: u64, task_overhead_s: f64) -> Option<TaskSize> {
        PlanSpec { task_overhead_s, ..spec(machines, budget) }.run(build_policy, &|_| {}).unwrap().task_size
    }

    /// Three equal machines divide four tasks into 2, 1 and 1; eight into 3, 3 and 2; sixteen into 6, 5 and 5.
    #[test]
    fn few_tasks_are_made_smaller() {
        let size = size(&["3xa=120ms"], 4, 0.0).unwrap();
        assert_eq!((size.size, size.budget), (0.125, 32));
        assert!((size.step_s - 0.165).abs() < 0.003, "{size:?}");
    }

    #[test]
    fn tasks_that_divide_well_stay_as_they_are() {
        assert_eq!(size(&["4xa=20ms"], 16, 0.0), None);
    }

    /// Half of each task is overhead: 64 tasks of two samples cost 3/4 of 128 tasks of one.
    #[test]
    fn tasks_with_an_overhead_are_made_larger() {
        let size = size(&["4xa=2ms"], 128, 0.001).unwrap();
        assert_eq!((size.size, size.budget), (8.0, 16));
        assert!((size.step_s - 0.036).abs() < 0.001, "{size:?}");
    }
}
