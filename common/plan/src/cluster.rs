//! Simulates the fastest 1, 2, 3, … machines, to find how many are worth starting and what each kind adds.

use ata_scheduler::PolicyResolver;

use crate::runs::{Runs, SimulatedRun};
use crate::{Machine, PlanError, PlanSpec, StepCost, WORTHWHILE, Worth};

/// Every number of machines up to this one is simulated; beyond it, each simulated number is about a quarter larger than the last.
const EACH_UP_TO: u32 = 32;

pub(crate) const ATA: &str = "ata-auto";

/// A policy that knows the times of future tasks. A plan's times are constant, so its shares are the best fixed ones.
const FIXED: &str = "clairvoyant";

const EQUAL: &str = "uta";

/// Simulates one machine of each kind without a network. Returns the kinds, the fastest first.
pub(super) fn alone<'a>(
    spec: &'a PlanSpec,
    policies: PolicyResolver,
    progress: &(dyn Fn(u64) + Sync),
) -> Result<Vec<(&'a Machine, StepCost)>, PlanError> {
    let run = |machine: &'a Machine| {
        let law = machine.law(1.0, 0.0);
        let runs = Runs { links: None, ..spec.runs(spec.budget, &law) }.of(EQUAL, &[1], policies, progress)?;
        Ok((machine, StepCost::of(&runs[0])))
    };
    let mut alone = spec.machines.iter().map(run).collect::<Result<Vec<_>, PlanError>>()?;
    alone.sort_by(|(_, a), (_, b)| a.step_s.total_cmp(&b.step_s));
    Ok(alone)
}

/// The simulated runs of the fastest machines.
pub(super) struct PlannedRuns<'a> {
    /// The machines, the fastest first.
    machines: Vec<&'a Machine>,
    /// The runs of ata, by ascending number of machines.
    ata: Vec<SimulatedRun>,
    costs: Vec<StepCost>,
    fixed: Vec<StepCost>,
    equal: StepCost,
}

impl<'a> PlannedRuns<'a> {
    pub(super) fn run(
        spec: &'a PlanSpec,
        alone: &[(&'a Machine, StepCost)],
        policies: PolicyResolver,
        progress: &(dyn Fn(u64) + Sync),
    ) -> Result<Self, PlanError> {
        let machines: Vec<&Machine> = alone.iter().map(|(machine, _)| *machine).collect();
        let law = laws(&machines, 1.0, 0.0);
        let counts = counts(total(&machines), &machines, spec.budget);
        let runs = spec.runs(spec.budget, &law);
        let run = |counts: &[u32], policy| runs.of(policy, counts, policies, progress);
        let equal = run(&[total(&machines)], EQUAL)?;
        let fixed = run(&counts, FIXED)?;
        let ata = run(&counts, ATA)?;
        let costs = |runs: &[SimulatedRun]| runs.iter().map(StepCost::of).collect::<Vec<_>>();
        Ok(Self { machines, costs: costs(&ata), ata, fixed: costs(&fixed), equal: StepCost::of(&equal[0]) })
    }

    /// Returns the cost of a step of ata with all machines.
    pub(super) fn all(&self) -> &StepCost {
        self.costs.last().expect("there is a machine")
    }

    /// Returns the cost of a step of ata with the fewest machines that come near the best.
    pub(super) fn started(&self) -> &StepCost {
        let best = self.costs.iter().map(|cost| cost.step_s).fold(f64::INFINITY, f64::min);
        let is_near = |cost: &&StepCost| cost.step_s * (1.0 - WORTHWHILE) <= best;
        self.costs.iter().find(is_near).unwrap_or(self.all())
    }

    pub(super) fn equal(&self) -> StepCost {
        self.equal.clone()
    }

    pub(super) fn fixed(&self) -> StepCost {
        let best = self.fixed.iter().min_by(|a, b| a.step_s.total_cmp(&b.step_s));
        best.expect("there is a machine").clone()
    }

    pub(super) fn worths(&self) -> Vec<Worth> {
        let all = self.ata.last().expect("there is a machine");
        let started = self.started().machines;
        let (mut before, mut last_s) = (0, None);
        let worth = |machine: &&Machine| {
            let until = before + machine.count;
            let with =
                self.costs.iter().find(|cost| cost.machines == until).expect("each kind's last machine is simulated");
            let tasks = all.allocation[before as usize..until as usize].iter().sum();
            let gain = last_s.replace(with.step_s).map(|last_s: f64| 1.0 - with.step_s / last_s);
            let start = started.saturating_sub(before).min(machine.count);
            before = until;
            Worth { machine: (*machine).clone(), tasks, step_s: with.step_s, gain, start }
        };
        self.machines.iter().map(worth).collect()
    }
}

fn total(machines: &[&Machine]) -> u32 {
    machines.iter().map(|machine| machine.count).sum()
}

/// Returns the time laws of these machines in milliseconds, separated by `;`.
pub(super) fn laws(machines: &[&Machine], size: f64, overhead_s: f64) -> String {
    let of = |machine: &&Machine| vec![machine.law(size, overhead_s); machine.count as usize];
    machines.iter().flat_map(of).collect::<Vec<_>>().join("; ")
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
