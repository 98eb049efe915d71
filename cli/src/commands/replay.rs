//! `ata replay`: what each policy would have cost on the times that a run recorded.

use std::process::ExitCode;

use ata_experiments::MAX_BUDGET;
use ata_figures::{Axis, Curve, Figure, Mark, Plot, Point, Report, Table};
use serde::Serialize;

use crate::Extensions;
use crate::args::ReplayArgs;
use crate::failure::Failure;
use crate::output::{Counter, print_json, render_table};
use crate::run::counterfactual::{Cost, Replay};
use crate::run::recorded;
use crate::settings::policy_list;
use ata_observe::seconds;

/// A policy's mean costs over seeds. Some policies' steps take fewer than B tasks, so costs are per B applied tasks.
#[derive(Debug, Serialize)]
struct Line {
    policy: String,
    budget: u64,
    workers: usize,
    seeds: u64,
    runtime_s: f64,
    total_worker_time_s: f64,
    tasks_wasted: f64,
    /// Share of tasks whose time was drawn again because the run recorded fewer tasks of the worker.
    bootstrapped: f64,
}

pub(crate) fn run(args: &ReplayArgs, extensions: Extensions) -> Result<ExitCode, Failure> {
    let recorded = recorded::read(&args.events)?;
    let policies = policy_list::parse(&args.policies, &["adaptive-k-sync", "clairvoyant"])?;
    let workers = recorded.times.iter().filter(|times| !times.tasks_s.is_empty()).count();
    if workers < recorded.times.len() {
        let none = recorded.times.len() - workers;
        eprintln!("{none} worker(s) completed no task in that run and are left out");
    }
    let budget = args.budget.unwrap_or(recorded.state.budget).max(1);
    if budget > MAX_BUDGET {
        return Err(Failure::usage(format!(
            "that run has {budget} tasks per iteration, and a replay at most {MAX_BUDGET}: add --budget B"
        )));
    }
    let iterations = args.iterations.unwrap_or(recorded.state.iterations);
    let replay = Replay::new(&recorded.times, budget, iterations)
        .ok_or_else(|| Failure::data("that run recorded no task times"))?;
    let progress = Counter::new("policies", policies.len() as u64);
    let mut lines = Vec::new();
    for policy in &policies {
        let seeds = args.seed..args.seed.saturating_add(args.seeds);
        let costs = seeds.map(|seed| replay.cost(policy, extensions.policies, seed)).collect::<Result<Vec<_>, _>>()?;
        lines.push(Line::new(policy, budget, workers, &costs));
        progress.add(1);
    }
    progress.finish();
    let title = format!("per {budget} applied tasks; {workers} workers, {iterations} iterations, {} seeds", args.seeds);
    let table = table(title, &lines);
    if let Some(folder) = &args.out {
        let intro = "Each worker's tasks take the times that the run recorded for it, in that order; if a policy asks \
                     for more, times are drawn again from its own (bootstrapped). Assignments take the median of what they took in the run.";
        let (title, intro) = (format!("Replay of {}", args.events.display()), vec![intro.into()]);
        Report { title, intro, tables: vec![table.clone()], figures: vec![figure(&lines)] }.write(folder)?;
        eprintln!("report and figure: {}", folder.join("report.html").display());
    }
    if args.json {
        print_json(&lines)?;
    } else {
        print!("{}", render_table(&table, usize::MAX));
        println!(
            "\nbootstrapped: tasks beyond those recorded for their worker; their times are drawn again from its own"
        );
    }
    Ok(ExitCode::SUCCESS)
}

impl Line {
    fn new(policy: &str, budget: u64, workers: usize, costs: &[Cost]) -> Self {
        let mean = |of: &dyn Fn(&Cost) -> f64| costs.iter().map(of).sum::<f64>() / costs.len() as f64;
        let per_budget = |cost: &Cost| budget as f64 / cost.ledger.tasks_applied.max(1) as f64;
        Self {
            policy: policy.into(),
            budget,
            workers,
            seeds: costs.len() as u64,
            runtime_s: mean(&|cost| cost.ledger.iteration_time_s * per_budget(cost)),
            total_worker_time_s: mean(&|cost| cost.ledger.total_worker_time_s * per_budget(cost)),
            tasks_wasted: mean(&|cost| cost.ledger.tasks_wasted as f64 * per_budget(cost)),
            bootstrapped: mean(&|cost| cost.bootstrapped),
        }
    }
}

fn table(title: String, lines: &[Line]) -> Table {
    let header = ["policy", "runtime", "worker time", "wasted tasks", "bootstrapped"];
    let row = |line: &Line| {
        let (runtime, worker_time) = (seconds(line.runtime_s), seconds(line.total_worker_time_s));
        let (wasted, drawn) = (format!("{:.1}", line.tasks_wasted), format!("{:.0} %", line.bootstrapped * 100.0));
        vec![line.policy.clone(), runtime, worker_time, wasted, drawn]
    };
    Table { title, header: header.map(String::from).into(), rows: lines.iter().map(row).collect() }
}

fn figure(lines: &[Line]) -> Figure {
    let curve = |line: &Line| {
        let mark = Mark { label: line.policy.clone(), point: Point::new(line.runtime_s, line.total_worker_time_s) };
        Curve { name: line.policy.clone(), marks: vec![mark] }
    };
    Figure {
        name: "replay".into(),
        title: "Runtime against total worker time".into(),
        caption: format!("Per {} applied tasks, on the times that the run recorded.", lines[0].budget),
        x: Axis::log("runtime (s)"),
        y: Axis::log("total worker time (s)"),
        plot: Plot::Frontier(lines.iter().map(curve).collect()),
    }
}
