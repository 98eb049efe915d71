//! The costs of policies on the task times that a run recorded. The replay of the run's own policy shows how accurate the others are.

use ata_figures::Table;
use ata_observe::PolicyCost;
use ata_policies::{POLICIES, build_policy};
use ata_record::{RunState, WorkerState};
use ata_scheduler::{Engine, EngineConfig, Ledger, PolicyContext, PolicyKind, PolicyResolver, StepOutcome};
use ata_simulator::{RecordedTimes, Simulation, Step};
use ata_types::seconds;

use crate::escape::escaped;
use crate::failure::Failure;
use crate::output::render_table;

#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct WorkerTimes {
    /// The times of the completed tasks, in order, in seconds.
    pub(crate) tasks_s: Vec<f64>,
    /// The times of its assignments that were not computation (transport, and waiting for the coordinator), in seconds.
    pub(crate) overheads_s: Vec<f64>,
}

impl WorkerTimes {
    /// Returns the mean time of a task; `None` if none was completed.
    fn mean_task_s(&self) -> Option<f64> {
        let mean_s = self.tasks_s.iter().sum::<f64>() / self.tasks_s.len() as f64;
        (!self.tasks_s.is_empty()).then_some(mean_s.max(f64::MIN_POSITIVE))
    }

    /// Returns the median overhead of an assignment; 0 if none was timed. First transfers would distort a mean.
    fn overhead_s(&self) -> f64 {
        let mut overheads_s = self.overheads_s.clone();
        overheads_s.sort_by(f64::total_cmp);
        overheads_s.get(overheads_s.len() / 2).copied().unwrap_or(0.0)
    }
}

fn label(policy: &str) -> &str {
    match policy {
        "fta" => "best for known speeds (fta)",
        "ema" => "by moving means (ema)",
        "pull" => "from a queue (pull)",
        "gta" => "greedy (gta)",
        "uta" => "uniform (uta)",
        other => other,
    }
}

fn replayed(own: &str) -> String {
    format!("{own}, replayed")
}

/// Returns the replay of the run's own policy, which is the first entry, if it could be replayed.
pub(crate) fn own_replay(costs: &[PolicyCost]) -> Option<&PolicyCost> {
    costs.first().filter(|cost| cost.label == replayed(&cost.policy))
}

/// Renders costs, of which the first was measured, as a table with the remarks on its rows.
pub(crate) fn cost_text(title: String, costs: &[PolicyCost]) -> String {
    let own = costs.get(1..).and_then(own_replay);
    let row = |(at, cost): (usize, &PolicyCost)| {
        let (runtime, worker_time) = (seconds(cost.iteration_s), seconds(cost.worker_time_s));
        let ratio = own.filter(|_| at > 0).map(|own| format!("{:.2}x", cost.iteration_s / own.iteration_s));
        vec![cost.label.clone(), runtime, ratio.unwrap_or_default(), worker_time, format!("{:.1}", cost.wasted)]
    };
    let header = ["policy", "runtime", "of replay", "worker time", "wasted tasks"].map(String::from).into();
    let mut text =
        render_table(&Table { title, header, rows: costs.iter().enumerate().map(row).collect() }, usize::MAX);
    for PolicyCost { policy, note, .. } in costs.iter().filter(|cost| !cost.note.is_empty()) {
        text.extend([&*escaped(policy), ": ", &*escaped(note), "\n"]);
    }
    text
}

pub(crate) fn recorded(run: &RunState) -> Vec<WorkerTimes> {
    let times = |worker: &WorkerState| WorkerTimes {
        tasks_s: worker.times_s.iter().copied().collect(),
        overheads_s: worker.overheads_s.iter().copied().collect(),
    };
    run.workers.values().map(times).collect()
}

pub(crate) fn other_costs(run: &RunState) -> Vec<PolicyCost> {
    counterfactuals(&recorded(run), run.budget.max(1), run.iterations, run.seed, &run.policy)
}

/// The number of simulated iterations: their mean is accurate to well within a percent.
const ITERATIONS: u64 = 1000;
/// The largest number of simulated tasks, which take half a second. With many per iteration, fewer iterations are as accurate.
const TASKS: u64 = 500_000;
/// The policies that a run is compared with: the oracle that knows the means, the simplest adaptive rule, a queue, greedy and uniform.
const OTHERS: [&str; 5] = ["fta", "ema", "pull", "gta", "uta"];

/// Returns the number of iterations to simulate; `None` if even one exceeds [`TASKS`]. Greedy policies start a task on every worker.
fn simulated(workers: usize, budget: u64) -> Option<u64> {
    let iterations = TASKS / budget.max(workers as u64).max(1);
    (iterations > 0).then_some(iterations.min(ITERATIONS))
}

/// The largest product of workers and tasks under the run's own policy, which may examine each worker at each result.
const OWN_WORK: u64 = 20_000_000;
/// With fewer iterations under the run's own policy, the first one, in which it has learned little, would have too much weight.
const LEAST_OWN_ITERATIONS: u64 = 20;

/// Returns the number of iterations to simulate under the run's own policy; `None` if they are too few.
fn simulated_own(workers: usize, budget: u64) -> Option<u64> {
    let workers = workers.max(1) as u64;
    let iterations = (OWN_WORK / workers / budget.max(workers)).min(ITERATIONS);
    (iterations >= LEAST_OWN_ITERATIONS).then_some(iterations)
}

/// Returns the costs of the run's `own` policy and of [`OTHERS`], with remarks for a run of `run_iterations`; empty if nothing was recorded,
/// or the iterations are too large. The run's own policy is omitted if it cannot be built from its name, or takes too long.
pub(crate) fn counterfactuals(
    workers: &[WorkerTimes],
    budget: u64,
    run_iterations: u64,
    seed: u64,
    own: &str,
) -> Vec<PolicyCost> {
    let Some(iterations) = simulated(workers.len(), budget) else { return Vec::new() };
    let Some(replay) = Replay::new(workers, budget, iterations) else { return Vec::new() };
    let own_iterations = if OTHERS.contains(&own) { Some(iterations) } else { simulated_own(workers.len(), budget) };
    let own_replay = own_iterations.map(|iterations| Replay { iterations, ..replay.clone() });
    let own_cost = own_replay.and_then(|replay| replay.noisy_cost(own, build_policy, seed).ok());
    let others = OTHERS.into_iter().filter(|policy| *policy != own);
    let mut costs: Vec<_> = others.filter_map(|policy| replay.noisy_cost(policy, build_policy, seed).ok()).collect();
    if let Some((mut cost, deviation_s)) = own_cost {
        for (other, other_deviation_s) in &mut costs {
            let margin_s = CONFIDENCE * deviation_s.hypot(*other_deviation_s) / (run_iterations.max(1) as f64).sqrt();
            other.note = remark(other, &cost, margin_s, run_iterations);
        }
        cost.label = replayed(own);
        costs.insert(0, (cost, deviation_s));
    }
    costs.into_iter().map(|(cost, _)| cost).collect()
}

/// The number of standard deviations that 95 % of normally distributed differences do not exceed.
const CONFIDENCE: f64 = 1.96;

/// Returns a remark on a policy whose runtime is next to that of the run's own policy, or on an oracle that is slower.
fn remark(cost: &PolicyCost, own: &PolicyCost, margin_s: f64, run_iterations: u64) -> String {
    let difference_s = cost.iteration_s - own.iteration_s;
    let own = &own.policy;
    if difference_s.abs() <= margin_s {
        format!("within the noise of {run_iterations} iterations, which cannot tell its runtime from that of {own}")
    } else if cost.policy == "fta" && difference_s > 0.0 {
        format!(
            "slower than {own}, because its shares are fixed before each iteration, by the mean times of tasks: it does not \
             know their noise and transfers, and gives nothing that is late to others"
        )
    } else {
        String::new()
    }
}

#[derive(Clone)]
pub(crate) struct Replay {
    /// The task times of each worker, in seconds; workers without any are omitted.
    tasks_s: Vec<Vec<f64>>,
    /// The overheads of an assignment of the same workers, in seconds.
    overheads_s: Vec<Vec<f64>>,
    context: PolicyContext,
    budget: u64,
    iterations: u64,
}

impl Replay {
    /// Prepares a replay; `None` if no times were recorded.
    pub(crate) fn new(workers: &[WorkerTimes], budget: u64, iterations: u64) -> Option<Self> {
        let (means, timed): (Vec<f64>, Vec<&WorkerTimes>) =
            workers.iter().filter_map(|worker| Some((worker.mean_task_s()?, worker))).unzip();
        let tasks_s: Vec<Vec<f64>> = timed.iter().map(|worker| worker.tasks_s.clone()).collect();
        let overheads_s = timed.iter().map(|worker| vec![worker.overhead_s()]).collect();
        let context =
            PolicyContext { means: Some(means), workers: Some(timed.len() as u32), ..PolicyContext::default() };
        (!timed.is_empty()).then_some(Self { tasks_s, overheads_s, context, budget, iterations })
    }

    /// Returns the cost of a policy. An iteration stands for B applied tasks, even if the policy's steps have fewer.
    pub(crate) fn cost(&self, policy: &str, policies: PolicyResolver, seed: u64) -> Result<PolicyCost, Failure> {
        self.noisy_cost(policy, policies, seed).map(|(cost, _)| cost)
    }

    /// Returns the cost of a policy, and the standard deviation of the runtime of an iteration.
    fn noisy_cost(&self, policy: &str, policies: PolicyResolver, seed: u64) -> Result<(PolicyCost, f64), Failure> {
        let (ledger, bootstrapped, deviation_s) = self.simulate(policy, policies, seed)?;
        let iterations = ledger.tasks_applied.max(1) as f64 / self.budget as f64;
        let cost = PolicyCost {
            policy: policy.into(),
            label: label(policy).into(),
            iteration_s: ledger.iteration_time_s / iterations,
            worker_time_s: ledger.total_worker_time_s / iterations,
            wasted: ledger.tasks_wasted as f64 / iterations,
            bootstrapped,
            note: String::new(),
        };
        Ok((cost, deviation_s))
    }

    /// Returns a policy's ledger, the share of resampled times, and the standard deviation of the runtime of the steps that apply B tasks.
    /// An asynchronous policy takes as many steps as the iterations of others have tasks.
    fn simulate(&self, policy: &str, policies: PolicyResolver, seed: u64) -> Result<(Ledger, f64, f64), Failure> {
        let steps_per_iteration = if POLICIES.kind(policy) == PolicyKind::Asynchronous { self.budget } else { 1 };
        let policy = policies(policy, &self.context)?;
        let workers = self.tasks_s.len();
        let config = EngineConfig {
            budget: self.budget,
            iterations: self.iterations * steps_per_iteration,
            min_workers: workers,
            seed,
            ..EngineConfig::default()
        };
        let mut engine = Engine::new(config, policy);
        let recorded =
            |times_s: &Vec<Vec<f64>>| RecordedTimes::new(times_s.clone(), seed).expect("each worker has some");
        let mut simulation = Simulation::new(workers as u32, recorded(&self.tasks_s));
        simulation.overhead = Some(recorded(&self.overheads_s));
        let (mut last, mut times_s) = ((0.0, 0), Vec::new());
        let mut observe = |step: &Step<'_>| {
            let (so_far_s, applied) = (step.ledger.iteration_time_s, step.ledger.tasks_applied);
            if applied - last.1 >= self.budget {
                times_s.push((so_far_s - last.0) * self.budget as f64 / (applied - last.1) as f64);
                last = (so_far_s, applied);
            }
            StepOutcome::default()
        };
        simulation.run(&mut engine, &mut observe).map_err(Failure::internal)?;
        let ledger = engine.ledger().clone();
        let tasks = ledger.tasks_applied + ledger.tasks_wasted;
        Ok((ledger, simulation.times.bootstrapped as f64 / tasks.max(1) as f64, deviation(&times_s)))
    }
}

fn deviation(numbers: &[f64]) -> f64 {
    let count = numbers.len() as f64;
    let mean = numbers.iter().sum::<f64>() / count;
    let squares: f64 = numbers.iter().map(|number| (number - mean).powi(2)).sum();
    if count < 2.0 { 0.0 } else { (squares / (count - 1.0)).sqrt() }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn workers<const N: usize>(times_s: [(Vec<f64>, f64); N]) -> [WorkerTimes; N] {
        times_s.map(|(tasks_s, overhead_s)| WorkerTimes { tasks_s, overheads_s: vec![overhead_s; 2] })
    }

    /// The constant times are 1 and 3, and B = 4. The oracle allocates (3, 1), and so does `ema` after one (2, 2); uniform allocates (2,
    /// 2); greedy takes the first four results; and a queue ends with worker 2's only task. Each assignment takes no time, or 1.
    #[test]
    fn constant_times() {
        for overhead_s in [0.0, 1.0] {
            let recorded = workers([(vec![1.0; 5], overhead_s), (vec![], overhead_s), (vec![3.0; 5], overhead_s)]);
            let costs = counterfactuals(&recorded, 4, 5, 1, "uta");
            assert_eq!((costs[0].label.as_str(), costs.len()), ("uta, replayed", OTHERS.len()), "none is there twice");
            let close = |policy, (a, b): (f64, f64)| {
                let cost = costs.iter().find(|cost| cost.policy == policy).unwrap();
                let (runtime_s, worker_time_s) = (cost.iteration_s - overhead_s, cost.worker_time_s);
                assert!((runtime_s - a).abs() < 1e-9 && (worker_time_s - b).abs() < 1e-9, "{policy}: {cost:?}");
            };
            close("fta", (3.0, 6.0));
            close("ema", (3.003, 6.002));
            close("uta", (6.0, 8.0));
            if overhead_s == 0.0 {
                close("pull", (3.0, 6.0));
                close("gta", (3.0, 6.0));
            }
        }
    }

    /// Of noisy times, a run of two iterations cannot tell policies apart, and a long one can. An oracle that is slower says why.
    #[test]
    fn rows_say_what_noise_hides_and_why_an_oracle_is_slower() {
        let noisy = |scale: f64| (0..200).map(|k| scale * [0.2, 0.5, 1.0, 3.3][k * 7 % 4]).collect::<Vec<f64>>();
        let recorded = workers([(noisy(1.0), 0.1), (noisy(2.0), 0.1), (noisy(4.0), 0.1)]);
        for (iterations, is_hidden) in [(2, true), (1_000_000_000_000, false)] {
            let costs = counterfactuals(&recorded, 8, iterations, 1, "ata-auto");
            let own_s = own_replay(&costs).unwrap().iteration_s;
            let oracle = costs.iter().find(|cost| cost.policy == "fta").unwrap();
            assert_eq!(oracle.note.starts_with("within the noise of"), is_hidden, "{costs:?}");
            assert!(oracle.iteration_s < own_s || !oracle.note.is_empty(), "{costs:?}");
        }
        let cost = |policy: &str, iteration_s| PolicyCost {
            policy: policy.into(),
            label: policy.into(),
            iteration_s,
            worker_time_s: 1.0,
            wasted: 0.0,
            bootstrapped: 0.0,
            note: String::new(),
        };
        for (policy, iteration_s, expected) in [
            ("fta", 2.0, "slower than ema, because"),
            ("fta", 1.05, "within the noise"),
            ("fta", 0.5, ""),
            ("uta", 2.0, ""),
        ] {
            let note = remark(&cost(policy, iteration_s), &cost("ema", 1.0), 0.1, 9);
            assert!(note.starts_with(expected) && note.is_empty() == expected.is_empty(), "{policy}: {note}");
        }
    }

    /// The cost of a simulation does not grow with the budget or the number of workers, and memory does not depend on a budget in a file.
    /// A policy that examines all workers at each result is simulated for fewer iterations, or not at all.
    #[test]
    fn simulations_of_larger_runs_do_not_grow() {
        for (workers, budget, iterations, own) in [
            (4, 16, Some(1000), Some(1000)),
            (500, 500, Some(1000), Some(80)),
            (1000, 1000, Some(500), Some(20)),
            (5000, 16, Some(100), None),
            (4, 1 << 24, None, None),
        ] {
            let found = (simulated(workers, budget), simulated_own(workers, budget));
            assert_eq!(found, (iterations, own), "{workers} workers, B = {budget}");
        }
        assert_eq!(counterfactuals(&[WorkerTimes::default()], 4, 5, 1, "uta"), []);
    }

    /// Every result of an asynchronous policy is a step. In total it applies as many tasks as the others.
    #[test]
    fn asynchronous_policies_take_as_many_tasks() {
        let replay = Replay::new(&workers([(vec![1.0; 3], 0.0), (vec![2.0; 3], 0.0)]), 4, 10).unwrap();
        for policy in ["asgd", "ringmaster:R=9", "uta"] {
            assert_eq!(replay.simulate(policy, build_policy, 1).unwrap().0.tasks_applied, 40, "{policy}");
        }
        assert!(replay.cost("uta", build_policy, 1).unwrap().bootstrapped > 0.5);
    }
}
