//! Simulates the fastest 1, 2, 3, … machines, to find how many are worth starting and what each kind adds.

use crate::runs::{Runs, SimulatedRun};
use crate::{Machine, PRICED_STEPS, Plan, PlanError, PlanSpec, StepCost, WORTHWHILE, Worth};

/// Every number of machines up to this one is simulated; beyond it, each simulated number is about a quarter larger than the last.
const EACH_UP_TO: u32 = 32;
pub(crate) const ATA: &str = "ata-auto";

/// A policy that knows the times of future tasks. A plan's times are constant, so its shares are the best fixed ones.
const FIXED: &str = "clairvoyant";
pub(crate) const EQUAL: &str = "uta";

pub(super) fn plan(spec: &PlanSpec, runs: Runs<'_>) -> Result<Plan, PlanError> {
    let alone = |machine| {
        let run = Runs { links: None, ..runs }.of(EQUAL, &laws([machine], 1.0, 0.0), &[1])?;
        Ok((machine, run[0].cost.clone()))
    };
    let mut alone = spec.machines.iter().map(alone).collect::<Result<Vec<(&Machine, StepCost)>, PlanError>>()?;
    alone.sort_by(|(_, a), (_, b)| a.step_s.total_cmp(&b.step_s));
    let machines: Vec<&Machine> = alone.iter().map(|(machine, _)| *machine).collect();
    let law = laws(machines.iter().copied(), 1.0, 0.0);
    let counts = counts(spec.total(), &machines, spec.budget);
    let equal = runs.of(EQUAL, &law, &[spec.total()])?;
    let fixed = runs.of(FIXED, &law, &counts)?.into_iter().map(|run| run.cost);
    let fixed = fixed.min_by(|a, b| a.step_s.total_cmp(&b.step_s)).expect("there is a machine");
    let ata = runs.of(ATA, &law, &counts)?;
    let all = ata.last().expect("there is a machine");
    let best = ata.iter().map(|run| run.cost.step_s).fold(f64::INFINITY, f64::min);
    let is_near = |run: &&SimulatedRun| run.cost.step_s * (1.0 - WORTHWHILE) <= best;
    let started = &ata.iter().find(is_near).unwrap_or(all).cost;
    Ok(Plan {
        budget: spec.budget,
        fastest: machines[0].name.clone(),
        alone: alone[0].1.clone(),
        equal: equal[0].cost.clone(),
        fixed,
        ata: all.cost.clone(),
        machines: worths(&machines, &ata, started.machines),
        started_step_s: started.step_s,
        task_size: None,
        efficiency: None,
        local_steps: None,
    })
}

/// Returns what each kind of machine adds, given the runs of ata by ascending number of machines, of which `started` are worth it.
fn worths(machines: &[&Machine], ata: &[SimulatedRun], started: u32) -> Vec<Worth> {
    let all = ata.last().expect("there is a machine");
    let are_priced = machines.iter().any(|machine| machine.price_per_hour.is_some());
    let (mut before, mut last_s, mut price_per_hour) = (0, None, 0.0);
    let worth = |machine: &&Machine| {
        let until = before + machine.count;
        let with = ata.iter().find(|run| run.cost.machines == until).expect("each kind's last machine is simulated");
        let step_s = with.cost.step_s;
        let tasks = all.allocation[before as usize..until as usize].iter().sum();
        let gain = last_s.replace(step_s).map(|last_s: f64| 1.0 - step_s / last_s);
        let start = started.saturating_sub(before).min(machine.count);
        before = until;
        price_per_hour += f64::from(machine.count) * machine.price_per_hour.unwrap_or(0.0);
        let price = are_priced.then_some(PRICED_STEPS * step_s * price_per_hour / 3600.0);
        Worth { machine: (*machine).clone(), tasks, step_s, price, gain, start }
    };
    machines.iter().map(worth).collect()
}

/// Returns the time laws of these machines in milliseconds, separated by `;`.
pub(super) fn laws<'a>(machines: impl IntoIterator<Item = &'a Machine>, size: f64, overhead_s: f64) -> String {
    let of = |machine: &Machine| vec![machine.law(size, overhead_s); machine.count as usize];
    machines.into_iter().flat_map(of).collect::<Vec<_>>().join("; ")
}

/// Returns the numbers of machines to simulate. They include the number of tasks and, for each kind, the number of machines up to
/// its last one.
pub(super) fn counts(total: u32, machines: &[&Machine], budget: u64) -> Vec<u32> {
    let mut counts: Vec<u32> = (1..=total.min(EACH_UP_TO)).collect();
    let mut next = EACH_UP_TO + EACH_UP_TO / 4;
    while next < total {
        counts.push(next);
        next += next / 4;
    }
    let lasts = machines.iter().scan(0, |before, machine| {
        *before += machine.count;
        Some(*before)
    });
    counts.extend(lasts.chain([total, budget.min(total.into()) as u32]));
    counts.sort_unstable();
    counts.dedup();
    counts
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn large_numbers_of_machines_are_sampled() {
        let machines: Vec<Machine> = ["37xa=1ms", "63xb=2ms"].iter().map(|text| text.parse().unwrap()).collect();
        let counts = counts(100, &machines.iter().collect::<Vec<_>>(), 64);
        assert_eq!(counts[..3], [1, 2, 3]);
        assert_eq!(counts[30..], [31, 32, 37, 40, 50, 62, 64, 77, 96, 100]);
    }
}
