//! The command `ata replay`: computes what each policy would have cost on the times that a run recorded.

use ata_figures::{Axis, Curve, Figure, Mark, Plot, Point, Report, Table};
use ata_observe::PolicyCost;
use ata_simulator::MAX_BUDGET;
use ata_types::seconds;
use serde::Serialize;

use crate::Extensions;
use crate::args::ReplayArgs;
use crate::failure::{Failure, require};
use crate::output::{Counter, note, print, render_table};
use crate::run::counterfactual::Replay;
use crate::run::recorded;
use crate::run::registry::candidates;
use crate::settings::policy_list;

/// A policy's mean cost over seeds. Some policies' steps take fewer than B tasks, so costs are per B applied tasks.
#[derive(Debug, Serialize)]
struct Row {
    #[serde(flatten)]
    cost: PolicyCost,
    budget: u64,
    workers: usize,
    seeds: u64,
}

const LEGEND: &str =
    "\nbootstrapped: tasks beyond those recorded for their worker; their times are drawn again from its own\n";

pub(crate) fn run(args: &ReplayArgs, extensions: Extensions) -> Result<(), Failure> {
    let events = candidates(&args.events).into_iter().find(|path| path.exists());
    let recorded = recorded::read(events.as_deref().unwrap_or(&args.events))?;
    let policies = policy_list::parse(&args.policies, &["adaptive-k-sync", "clairvoyant"])?;
    let workers = recorded.times.iter().filter(|times| !times.tasks_s.is_empty()).count();
    if workers < recorded.times.len() {
        let none = recorded.times.len() - workers;
        note!("{none} worker(s) completed no task in that run and are left out");
    }
    let budget = args.budget.unwrap_or(recorded.state.budget).max(1);
    require(budget <= MAX_BUDGET, || {
        format!("that run has {budget} tasks per iteration, and a replay at most {MAX_BUDGET}: add --budget B")
    })?;
    let iterations = args.iterations.unwrap_or(recorded.iterations);
    let replay = Replay::new(&recorded.times, budget, iterations)
        .ok_or_else(|| Failure::data("that run recorded no task times"))?;
    let progress = Counter::new("policies", policies.len() as u64);
    let mut rows = Vec::new();
    for policy in &policies {
        let seeds = (0..args.seeds).map(|index| args.seed.wrapping_add(index));
        let costs = seeds.map(|seed| replay.cost(policy, extensions.policies, seed)).collect::<Result<Vec<_>, _>>()?;
        rows.push(Row { cost: mean(&costs), budget, workers, seeds: costs.len() as u64 });
        progress.add(1);
    }
    progress.finish();
    let title = format!("per {budget} applied tasks; {workers} workers, {iterations} iterations, {} seeds", args.seeds);
    let table = table(title, &rows);
    if let Some(folder) = &args.out {
        let intro = "Each worker's tasks take the times that the run recorded for it, in that order; if a policy asks \
                     for more, times are drawn again from its own (bootstrapped). Assignments take the median of what they took in the run.";
        let (title, intro) = (format!("Replay of {}", args.events.display()), vec![intro.into()]);
        Report { title, intro, tables: vec![table.clone()], figures: vec![figure(&rows)] }.write(folder)?;
        note!("report and figure: {}", folder.join("report.html").display());
    }
    print(args.json, &rows, || render_table(&table, usize::MAX) + LEGEND)
}

fn mean(costs: &[PolicyCost]) -> PolicyCost {
    let mean = |of: fn(&PolicyCost) -> f64| costs.iter().map(of).sum::<f64>() / costs.len() as f64;
    PolicyCost {
        iteration_s: mean(|cost| cost.iteration_s),
        worker_time_s: mean(|cost| cost.worker_time_s),
        wasted: mean(|cost| cost.wasted),
        bootstrapped: mean(|cost| cost.bootstrapped),
        ..costs[0].clone()
    }
}

fn table(title: String, rows: &[Row]) -> Table {
    let header = ["policy", "runtime", "worker time", "wasted tasks", "bootstrapped"];
    let row = |Row { cost, .. }: &Row| {
        let (runtime, worker_time) = (seconds(cost.iteration_s), seconds(cost.worker_time_s));
        let (wasted, drawn) = (format!("{:.1}", cost.wasted), format!("{:.0} %", cost.bootstrapped * 100.0));
        vec![cost.policy.clone(), runtime, worker_time, wasted, drawn]
    };
    Table { title, header: header.map(String::from).into(), rows: rows.iter().map(row).collect() }
}

fn figure(rows: &[Row]) -> Figure {
    let curve = |Row { cost, .. }: &Row| {
        let mark = Mark { label: cost.policy.clone(), point: Point::new(cost.iteration_s, cost.worker_time_s) };
        Curve { name: cost.policy.clone(), marks: vec![mark] }
    };
    Figure {
        name: "replay".into(),
        title: "Runtime against total worker time".into(),
        caption: format!("Per {} applied tasks, on the times that the run recorded.", rows[0].budget),
        x: Axis::log("runtime (s)"),
        y: Axis::log("total worker time (s)"),
        plot: Plot::Frontier(rows.iter().map(curve).collect()),
    }
}
