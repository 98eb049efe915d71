//! Predicts whether ata helps on given machines, by simulating the engine with their task times.
//!
//! # Layout
//! - here: [`PlanSpec`], the question, and [`Plan`], the answer
//! - `efficiency`: what a second achieves with noisy gradients
//! - `machine`: [`Machine`], as users write it
//! - `rounds`: local steps
//! - `runs`: simulated runs; `cluster`: runs of the fastest 1, 2, 3, … machines; `sizes`: runs with smaller and larger tasks

mod cluster;
mod efficiency;
mod machine;
mod rounds;
mod runs;
mod sizes;

pub use efficiency::PlannedEfficiency;
pub use machine::Machine;
pub use rounds::{PlannedRounds, RoundSteps};
pub use sizes::TaskSize;

use std::collections::BTreeSet;

use ata_scheduler::{PolicyError, PolicyResolver};
use ata_simulator::{LawError, LinksSpec, SettingError, SimulationError};
use serde::Serialize;

use runs::Runs;

/// The question: the machines that are available, and the work they are to do.
#[derive(Clone, Debug)]
pub struct PlanSpec {
    /// The machines, in any order.
    pub machines: Vec<Machine>,
    /// Tasks per step, B.
    pub budget: u64,
    /// The links between machines and coordinator; without them, vectors take no time.
    pub links: Option<LinksSpec>,
    /// The numbers of local steps that a round may have.
    pub rounds: RoundSteps,
    /// Seconds of each task that do not depend on its number of samples.
    pub task_overhead_s: f64,
    /// The gradient noise scale, in tasks, if it is known.
    pub noise: Option<f64>,
}

/// The cost of a step.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct StepCost {
    /// The number of machines that take part.
    pub machines: u32,
    /// Duration of the step, in seconds.
    pub step_s: f64,
    /// Total time that all machines spend on tasks, in seconds.
    pub worker_time_s: f64,
    /// The share of the step's duration that follows the last computation and is spent on transferring vectors.
    pub transfer_share: f64,
}

/// The benefit of the machines of one kind.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Worth {
    /// The machines.
    #[serde(flatten)]
    pub machine: Machine,
    /// Mean number of tasks per step that ata gives to all of them together.
    pub tasks: f64,
    /// Duration of a step of ata with these and all faster machines, in seconds.
    pub step_s: f64,
    /// The price of [`PRICED_STEPS`] steps with these and all faster machines, if any machine of the plan has a price.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub price: Option<f64>,
    /// The share by which these machines shorten the step; `None` for the fastest kind, with which the plan begins.
    pub gain: Option<f64>,
    /// The number of machines that are worth starting.
    pub start: u32,
}

/// The answer to a [`PlanSpec`].
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Plan {
    /// Tasks per step, B.
    pub budget: u64,
    /// The name of the machine that is fastest alone.
    pub fastest: String,
    /// The cost of a step on that machine without ata, and so without transfers.
    pub alone: StepCost,
    /// The cost of a step with equal shares for all machines.
    pub equal: StepCost,
    /// The cost of a step with the best shares that stay the same in every step, among the best number of the fastest machines.
    pub fixed: StepCost,
    /// The cost of a step with the policy `ata-auto` and all machines.
    pub ata: StepCost,
    /// The machines, the fastest first.
    pub machines: Vec<Worth>,
    /// Duration of a step of ata with the machines that are worth starting, in seconds.
    pub started_step_s: f64,
    /// Another size of tasks with the same samples per step, if it makes steps shorter by at least a twentieth.
    pub task_size: Option<TaskSize>,
    /// What a second achieves, if the noise of gradients is known.
    pub efficiency: Option<PlannedEfficiency>,
    /// Local steps, if there are links.
    pub local_steps: Option<PlannedRounds>,
}

/// The reason why a plan is refused or cannot be computed.
#[derive(Debug, thiserror::Error)]
pub enum PlanError {
    /// A setting is invalid.
    #[error(transparent)]
    Setting(#[from] SettingError),
    /// A machine's times do not form a valid law.
    #[error(transparent)]
    Law(#[from] LawError),
    /// A policy cannot be built.
    #[error(transparent)]
    Policy(#[from] PolicyError),
    /// A run did not reach its end.
    #[error(transparent)]
    Run(#[from] SimulationError),
}

/// The least total share by which machines must shorten a step to be worth starting. Measured speeds are no more precise than this.
pub const WORTHWHILE: f64 = 0.02;

/// The number of steps whose price a plan gives.
pub const PRICED_STEPS: f64 = 1000.0;

/// The most tasks per step: beyond this, a plan takes minutes.
const MAX_PLANNED_BUDGET: u64 = 100_000;
/// The most machines in all: about as many as one coordinator serves well, and few enough for a plan to take seconds.
const MAX_MACHINES: u64 = 1000;
/// The most kinds of machines. Each kind is also simulated alone.
const MAX_KINDS: u64 = 100;

impl PlanSpec {
    /// Checks everything that can be checked without a simulation.
    pub fn check(&self) -> Result<(), PlanError> {
        SettingError::check("machines", &"none", !self.machines.is_empty(), "at least one, as in gpu1=20ms")?;
        let total: u64 = self.machines.iter().map(|machine| u64::from(machine.count)).sum();
        for (found, what, most) in [(self.machines.len() as u64, "kinds", MAX_KINDS), (total, "in all", MAX_MACHINES)] {
            SettingError::check("machines", &format!("{found} {what}"), found <= most, &format!("at most {most}"))?;
        }
        let mut names = BTreeSet::new();
        for Machine { name, task_s, .. } in &self.machines {
            let expected = "a name for each, or a number, as in 2xgpu=20ms";
            SettingError::check(name, &"two machines of this name", names.insert(name), expected)?;
            let found = format!("{}s, and {name} takes {task_s}s", self.task_overhead_s);
            let is_less = (0.0..*task_s).contains(&self.task_overhead_s);
            let expected = "less than the time of a task on every machine";
            SettingError::check("the overhead of a task", &found, is_less, expected)?;
        }
        let expected = format!("a whole number from 1 to {MAX_PLANNED_BUDGET}");
        SettingError::check("budget", &self.budget, (1..=MAX_PLANNED_BUDGET).contains(&self.budget), &expected)?;
        let noise = self.noise.unwrap_or(0.0);
        let is_scale = noise.is_finite() && noise >= 0.0;
        SettingError::check(
            "the noise scale",
            &noise,
            is_scale,
            "a number of tasks, 0 or more, as ata explain shows it",
        )?;
        let RoundSteps { first, most, .. } = self.rounds;
        let is_length = (1..=most).contains(&first) && most <= MAX_PLANNED_BUDGET;
        let expected = format!("1 to {MAX_PLANNED_BUDGET}, and at least the first number");
        SettingError::check("local steps", &format!("{first}, and {most} at most"), is_length, &expected)?;
        self.links.as_ref().map(LinksSpec::links).transpose()?;
        Ok(())
    }

    /// Simulates the alternatives. `progress` is called with the number of iterations that were done, out of
    /// [`Self::total_iterations`].
    pub fn run(&self, policies: PolicyResolver, progress: &(dyn Fn(u64) + Sync)) -> Result<Plan, PlanError> {
        self.check()?;
        let links = self.links.as_ref().map(LinksSpec::links).transpose()?;
        let runs = Runs { budget: self.budget, links, rounds: None, policies, progress };
        let plan = cluster::plan(self, runs)?;
        let efficiency = self.noise.map(|noise| efficiency::of(self, noise, &plan.ata, runs)).transpose()?;
        let local_steps = rounds::of(self, &plan.alone, runs)?;
        Ok(Plan { task_size: sizes::better(self, &plan.ata, runs)?, efficiency, local_steps, ..plan })
    }

    /// Returns roughly how many iterations [`Self::run`] simulates, to display progress.
    pub fn total_iterations(&self) -> u64 {
        let cases = self.machines.len() + 3 * cluster::counts(self.total(), &[], self.budget).len();
        iterations(self.budget) * cases as u64
    }

    fn total(&self) -> u32 {
        self.machines.iter().map(|machine| machine.count).sum()
    }
}

/// Returns the number of iterations of a run: enough for means within a percent, and fewer if an iteration has very many tasks.
fn iterations(budget: u64) -> u64 {
    (2_000_000 / budget).clamp(100, 1000)
}

#[cfg(test)]
mod tests {
    use ata_policies::build_policy;

    use super::*;

    pub(crate) fn spec(machines: &[&str], budget: u64) -> PlanSpec {
        let machines = machines.iter().map(|text| text.parse().unwrap()).collect();
        let rounds = RoundSteps { first: budget, most: 960, difference_bits: 4 };
        PlanSpec { machines, budget, links: None, rounds, task_overhead_s: 0.0, noise: None }
    }

    fn plan(spec: &PlanSpec) -> Plan {
        spec.run(build_policy, &|_| {}).unwrap()
    }

    fn starts(plan: &Plan) -> Vec<(&str, u32)> {
        plan.machines.iter().map(|worth| (worth.machine.name.as_str(), worth.start)).collect()
    }

    fn is_close(found: f64, expected: f64) -> bool {
        (found - expected).abs() < 0.02 * expected
    }

    /// There are 15 tasks and speeds 1, 2, 4 and 8. With equal shares, the slowest machine takes 4 or 3 tasks of 160 ms each; the
    /// best shares are 8, 4, 2, 1.
    #[test]
    fn costs_are_those_of_the_laws() {
        let plan = plan(&spec(&["d=160ms", "c=80ms", "b=40ms", "a=20ms"], 15));
        assert_eq!((plan.fastest.as_str(), plan.alone.step_s), ("a", 0.3));
        assert!((0.48..=0.64).contains(&plan.equal.step_s), "{plan:?}");
        assert_eq!((plan.fixed.step_s, plan.fixed.machines), (0.16, 4));
        assert!(is_close(plan.fixed.worker_time_s, 0.64) && is_close(plan.ata.step_s, 0.16), "{plan:?}");
        assert_eq!(starts(&plan), [("a", 1), ("b", 1), ("c", 1), ("d", 1)]);
        assert!(is_close(plan.machines[0].tasks, 8.0) && plan.machines[0].gain.is_none(), "{plan:?}");
        assert!(is_close(plan.machines[1].step_s, 0.2) && is_close(plan.machines[1].gain.unwrap(), 1.0 / 3.0));
        assert_eq!(plan.ata.transfer_share, 0.0);
    }

    #[test]
    fn machines_that_gain_nothing_are_not_started() {
        let plan = plan(&spec(&["gpu=1ms", "3xcpu=900ms"], 64));
        assert_eq!(starts(&plan), [("gpu", 1), ("cpu", 0)]);
        assert!(plan.machines[1].tasks < 0.1 && is_close(plan.ata.step_s, 0.064), "{plan:?}");
    }

    #[test]
    fn only_as_many_of_a_kind_are_started_as_gain_something() {
        let plan = plan(&spec(&["9xcpu=10ms"], 4));
        assert_eq!(starts(&plan), [("cpu", 4)]);
        assert!(is_close(plan.started_step_s, 0.01), "{plan:?}");
    }

    /// A gradient of 100 MB takes 0.8 s on these links, longer than any machine computes.
    #[test]
    fn a_slow_network_leaves_one_machine() {
        let mut spec = spec(&["a=20ms", "3xb=25ms"], 16);
        spec.links = Some(LinksSpec::new("1Gbit".into(), "100MB".into()));
        let plan = plan(&spec);
        assert!(is_close(plan.alone.step_s, 0.32) && plan.alone.transfer_share == 0.0, "{plan:?}");
        assert!(plan.ata.step_s > plan.alone.step_s && plan.ata.transfer_share > 0.5, "{plan:?}");
        assert_eq!(starts(&plan)[0], ("a", 1));
    }

    /// A batch of 12 tasks takes 20 ms + 12 · 1 ms; a task on the CPU takes 30 ms.
    #[test]
    fn a_machine_that_computes_batches_gets_most_tasks() {
        let plan = plan(&spec(&["2xcpu=30ms", "gpu=20ms+1ms"], 14));
        assert_eq!(plan.fastest, "gpu");
        assert!(is_close(plan.alone.step_s, 0.034) && is_close(plan.fixed.step_s, 0.032), "{plan:?}");
        assert!(plan.machines[0].tasks > 11.0, "{plan:?}");
    }

    /// The vectors of a round take 445 and 178 ms on these links, and messages 120 ms, while workers go on: at 93.75 steps a second, that is two
    /// fifths of 174 steps. Of equal steps, machines compute 25 a second.
    #[test]
    fn rounds_hide_slow_links() {
        let rounds = |link: &str, round_trip: &str, machines: &[&str]| {
            let mut spec = spec(machines, 23);
            let mut links = LinksSpec::new(link.into(), "8.9MB".into());
            (links.head_link, links.round_trip) = (Some("10Gbit".into()), Some(round_trip.into()));
            links.wire = "compact".parse().unwrap();
            spec.links = Some(links);
            plan(&spec).local_steps.unwrap()
        };
        let four = ["a=20ms", "b=40ms", "c=80ms", "d=160ms"];
        let far = rounds("20Mbit:100Mbit", "60ms", &four);
        assert!((150.0..=190.0).contains(&far.steps) && is_close(far.tasks_per_s, 0.98 * 93.75), "{far:?}");
        assert!(is_close(far.steps / far.round_s, far.tasks_per_s) && far.is_worth_it, "{far:?}");
        assert!((24.0..25.2).contains(&far.equal_tasks_per_s), "{far:?}");
        // At any rate, a step of 23 tasks takes about 0.26 s, and its messages 60 ms. Rounds wait for neither.
        assert_eq!(far.not_worth_it_at, None);
        let closer = rounds("20Mbit:100Mbit", "1ms", &four);
        assert!((8.0..=256.0).contains(&closer.not_worth_it_at.unwrap()), "{closer:?}");
        let near = rounds("10Gbit", "60ms", &["a=200ms", "b=400ms"]);
        assert!(!near.is_worth_it && near.not_worth_it_at.is_none(), "{near:?}");
        // Inner steps of 15 + 1 ms are taken one after the other.
        let batches = rounds("20Mbit:100Mbit", "60ms", &["2xgpu=15ms+1ms"]);
        assert!((0.96..1.0).contains(&(batches.tasks_per_s / 125.0)), "{batches:?}");
    }

    #[test]
    fn nonsense_is_refused() {
        let many: Vec<String> = (0..101).map(|kind| format!("m{kind}=1ms")).collect();
        let many: Vec<&str> = many.iter().map(String::as_str).collect();
        for (spec, message) in [
            (spec(&[], 1), "machines: none, expected at least one"),
            (spec(&["a=1ms", "a=2ms"], 1), "a: two machines of this name, expected a name for each"),
            (spec(&["a=1ms"], 0), "budget: 0, expected a whole number from 1 to 100000"),
            (spec(&["a=1ms"], 100_001), "budget: 100001"),
            (spec(&["999xa=1ms", "2xb=1ms"], 1), "machines: 1001 in all, expected at most 1000"),
            (spec(&many, 1), "machines: 101 kinds, expected at most 100"),
            (
                PlanSpec { task_overhead_s: 0.002, ..spec(&["b=3ms", "a=1ms"], 1) },
                "the overhead of a task: 0.002s, and a takes 0.001s, expected less than the time of a task",
            ),
            (
                PlanSpec { rounds: RoundSteps { first: 9, most: 8, difference_bits: 4 }, ..spec(&["a=1ms"], 1) },
                "local steps: 9, and 8 at most, expected 1 to 100000, and at least the first",
            ),
            (PlanSpec { noise: Some(-1.0), ..spec(&["a=1ms"], 1) }, "the noise scale: -1, expected a number of tasks"),
            (
                PlanSpec { links: Some(LinksSpec::new("1".into(), "1MB".into())), ..spec(&["a=1ms"], 1) },
                "links.link: 1, expected a rate",
            ),
        ] {
            let error = spec.run(build_policy, &|_| {}).unwrap_err().to_string();
            assert!(error.contains(message), "{error}");
        }
    }
}
