//! Rounds of local steps, whose length follows the links.

use ata_scheduler::StepOutcome;
use ata_simulator::{Links, LinksSpec, Observer, Step};
use serde::Serialize;

use crate::runs::Runs;
use crate::{Machine, PlanError, PlanSpec, StepCost, cluster};

/// The numbers of local steps that a round may have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RoundSteps {
    /// The number of the first round, and the least.
    pub first: u64,
    /// The largest number.
    pub most: u64,
    /// The number of bits of a value of a compact difference.
    pub difference_bits: u32,
}

/// What all machines compute in rounds of local steps.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct PlannedRounds {
    /// Mean number of steps per round, of one task each.
    pub steps: f64,
    /// Duration of a round, in seconds.
    pub round_s: f64,
    /// The number of tasks per second.
    pub tasks_per_s: f64,
    /// The same if each machine takes as many steps.
    pub equal_tasks_per_s: f64,
    /// Whether that of unequal shares is more than the fastest machine computes alone, and a quarter more than with gradients, from each of
    /// which more is learned.
    pub is_worth_it: bool,
    /// How many times as fast links have to be, about, for local steps not to be worth it any more: a power of two.
    pub not_worth_it_at: Option<f64>,
}

/// The least factor by which local steps must compute more tasks than there would be gradients.
const WORTHWHILE: f64 = 1.25;

/// The largest factor by which faster links are tried.
const FASTEST: f64 = 65536.0;

/// The number of the longest rounds in a run. Those of its first half do not count, in which rounds grow.
const ROUNDS: u64 = 24;

impl RoundSteps {
    /// Returns the number of iterations of the first number of steps that have the tasks of a run.
    pub(crate) fn iterations(self) -> u64 {
        (ROUNDS * self.most).div_ceil(self.first)
    }
}

pub(super) fn of(spec: &PlanSpec, alone: &StepCost, runs: Runs<'_>) -> Result<Option<PlannedRounds>, PlanError> {
    let Some(links) = &spec.links else { return Ok(None) };
    let gradients = links.links()?;
    let differences = LinksSpec { difference_bits: Some(spec.rounds.difference_bits), ..links.clone() }.links()?;
    let law = cluster::laws(&spec.machines, 1.0, 0.0);
    // The steps and the seconds of a round on links that are so many times as fast, and how many times as many tasks as gradients these are.
    let compare = |factor: f64| {
        let (steps, round_s) = mean_round(spec, runs, faster(differences, factor), cluster::ATA)?;
        let step = Runs { links: Some(faster(gradients, factor)), ..runs }.of(cluster::ATA, &law, &[spec.total()])?;
        Ok::<_, PlanError>((steps, round_s, steps / round_s * step[0].cost.step_s / spec.budget as f64))
    };
    let (steps, round_s, gain) = compare(1.0)?;
    let (equal_steps, equal_s) = mean_round(spec, runs, differences, cluster::EQUAL)?;
    let (tasks_per_s, equal_tasks_per_s) = (steps / round_s, equal_steps / equal_s);
    let is_worth_it = gain >= WORTHWHILE && tasks_per_s * alone.step_s > spec.budget as f64;
    let mut not_worth_it_at = None;
    let mut factor = 2.0;
    while is_worth_it && not_worth_it_at.is_none() && factor <= FASTEST {
        not_worth_it_at = (compare(factor)?.2 < WORTHWHILE).then_some(factor);
        factor *= 2.0;
    }
    Ok(Some(PlannedRounds { steps, round_s, tasks_per_s, equal_tasks_per_s, is_worth_it, not_worth_it_at }))
}

fn faster(links: Links, factor: f64) -> Links {
    Links { worker: links.worker.times(factor), head: links.head.times(factor), ..links }
}

/// Returns the mean number of steps and the mean duration of a round whose differences travel on these links.
fn mean_round(spec: &PlanSpec, runs: Runs<'_>, links: Links, policy: &str) -> Result<(f64, f64), PlanError> {
    // Inner steps are taken one after the other.
    let one_by_one = |machine: &Machine| Machine {
        batch_s: None,
        task_s: machine.batch_s.unwrap_or(0.0) + machine.task_s,
        ..machine.clone()
    };
    let machines: Vec<Machine> = spec.machines.iter().map(one_by_one).collect();
    let law = cluster::laws(&machines, 1.0, 0.0);
    let mut ends = RoundEnds::default();
    Runs { links: Some(links), rounds: Some(spec.rounds), ..runs }.simulate(policy, &law, spec.total(), &mut ends)?;
    Ok(ends.means())
}

/// The tasks and the ends of a run's rounds, in milliseconds.
#[derive(Default)]
struct RoundEnds(Vec<(u64, f64)>);

impl Observer for RoundEnds {
    fn step(&mut self, step: &Step<'_>) -> StepOutcome {
        self.0.push((step.leases.iter().map(|lease| lease.tasks.count).sum(), step.now));
        StepOutcome::default()
    }
}

impl RoundEnds {
    /// Returns the mean number of tasks and the mean duration of a round in seconds, in the second half of the run. The last round of all has
    /// the tasks that were left.
    fn means(&self) -> (f64, f64) {
        let whole = &self.0[..self.0.len().saturating_sub(1)];
        let (before, rounds) = whole.split_at(whole.len() / 2);
        let (from, to) = (before.last().map_or(0.0, |last| last.1), rounds.last().map_or(0.0, |last| last.1));
        let tasks: u64 = rounds.iter().map(|(tasks, _)| tasks).sum();
        let number = rounds.len().max(1) as f64;
        (tasks as f64 / number, (to - from) / 1e3 / number)
    }
}
