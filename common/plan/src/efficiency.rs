//! What a second achieves with noisy gradients, compared with the fastest machine alone.

use ata_scheduler::progress;
use serde::Serialize;

use crate::runs::Runs;
use crate::sizes::LEAST_GAIN;
use crate::{MAX_PLANNED_BUDGET, Machine, PlanError, PlanSpec, StepCost, cluster};

/// What a second of ata's steps on all machines achieves, relative to one of the machine that is best alone, which takes as many tasks per
/// step as suit it.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct PlannedEfficiency {
    /// What a second achieves with the given number of tasks per step.
    pub speed_up: f64,
    /// The sum of the speeds of all machines, relative to that of the machine alone: the most that the speed-up can be.
    pub speeds: f64,
    /// The number of tasks per step with which a second achieves most, if it is at least a twentieth more.
    pub budget: Option<u64>,
    /// What a second achieves with that number.
    pub best_speed_up: f64,
}

/// The numbers of tasks per step that are tried, relative to the given one.
const FACTORS: [f64; 6] = [0.125, 0.25, 0.5, 2.0, 4.0, 8.0];
/// The most tasks per step that are tried for a machine alone.
const MOST_ALONE: u64 = 1024;

/// Returns what a second achieves if the gradient noise scale is `noise` tasks, and a step costs `given`.
pub(super) fn of(
    spec: &PlanSpec,
    noise: f64,
    given: &StepCost,
    runs: Runs<'_>,
) -> Result<PlannedEfficiency, PlanError> {
    let law = cluster::laws(&spec.machines, 1.0, 0.0);
    let mut tried = Vec::new();
    for budget in FACTORS.map(|factor| spec.budget as f64 * factor) {
        if budget.fract() == 0.0 && budget <= MAX_PLANNED_BUDGET as f64 {
            let run = Runs { budget: budget as u64, ..runs }.of(cluster::ATA, &law, &[given.machines])?;
            tried.push((budget as u64, progress(budget, noise) / run[0].cost.step_s));
        }
    }
    let of_alone = |machine: &&Machine| alone(machine, noise);
    let fastest = spec.machines.iter().max_by(|a, b| of_alone(a).total_cmp(&of_alone(b))).expect("there is a machine");
    let alone = of_alone(&fastest);
    let achieved = progress(spec.budget as f64, noise) / given.step_s;
    let best = tried
        .into_iter()
        .max_by(|(_, a), (_, b)| a.total_cmp(b))
        .filter(|(_, best)| *best >= (1.0 + LEAST_GAIN) * achieved);
    let speed = |machine: &Machine| f64::from(machine.count) * fastest.task_s / machine.task_s;
    Ok(PlannedEfficiency {
        speed_up: achieved / alone,
        speeds: spec.machines.iter().map(speed).sum(),
        budget: best.map(|(budget, _)| budget),
        best_speed_up: best.map_or(achieved, |(_, best)| best) / alone,
    })
}

/// Returns the most that a second of a machine alone achieves.
fn alone(machine: &Machine, noise: f64) -> f64 {
    let achieved = |tasks: u64| {
        let tasks = tasks as f64;
        progress(tasks, noise) / (machine.batch_s.unwrap_or(0.0) + tasks * machine.task_s)
    };
    (1..=MOST_ALONE).map(achieved).fold(0.0, f64::max)
}

#[cfg(test)]
mod tests {
    use ata_policies::build_policy;

    use super::*;
    use crate::tests::spec;

    fn efficiency(machines: &[&str], budget: u64, noise: f64) -> PlannedEfficiency {
        let spec = PlanSpec { noise: Some(noise), ..spec(machines, budget) };
        spec.run(build_policy, &|_| {}).unwrap().efficiency.unwrap()
    }

    /// A step on 60 tasks takes 640 ms and achieves 2/3 if N = 30, one on 15 takes 160 ms and achieves 1/3, and one on a single task takes
    /// 20 ms and achieves 1/31.
    #[test]
    fn fewer_tasks_achieve_more_where_noise_is_small() {
        let found = efficiency(&["d=160ms", "c=80ms", "b=40ms", "a=20ms"], 60, 30.0);
        let alone = 1.0 / 31.0 / 0.02;
        assert!((found.speed_up - 2.0 / 3.0 / 0.64 / alone).abs() < 0.03 && found.speeds == 1.875, "{found:?}");
        assert_eq!(found.budget, Some(15));
        assert!((found.best_speed_up - 1.0 / 3.0 / 0.16 / alone).abs() < 0.03, "{found:?}");
    }

    /// With very much noise, speeds add up, and the machine alone takes large batches as well.
    #[test]
    fn many_tasks_achieve_most_where_noise_is_large() {
        let found = efficiency(&["2xgpu=15ms+1ms"], 512, 1e6);
        assert!((found.speed_up - (512.0 / 271.0) / (1024.0 / 1039.0)).abs() < 0.02, "{found:?}");
        assert_eq!(found.speeds, 2.0);
    }
}
