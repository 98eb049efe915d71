//! The command `ata simulate`: simulates policies × time laws in virtual time.

mod cnn_descent;
mod suite;

use std::borrow::Cow;

use ata_data::{FolderOptions, Split, Tasks};
use ata_experiments::suite::SUITES;
use ata_experiments::{BUILTIN_EXPERIMENTS, DescentCache, Experiment, Group, LearningSpec, Row, RunResult};
use ata_figures::{Report, Table};
use ata_learn::DeviceChoice;
use ata_simulator::LinksSpec;
use ata_sums::{Optimizer, TensorSizes, TrainingConfig, TrainingState};
use ata_types::{WireFormat, did_you_mean};
use ata_wire::limits::MAX_TASK_BATCH;

use cnn_descent::CnnDescent;

use crate::Extensions;
use crate::args::{ProblemName, SimulateArgs};
use crate::failure::Failure;
use crate::inputs::{FoundInputs, find};
use crate::output::{Counter, note, print, print_message, print_text, render_table};
use crate::settings::policy_list;
use crate::shell;

pub(crate) fn run(args: &SimulateArgs, extensions: Extensions) -> Result<(), Failure> {
    if args.list {
        return list();
    }
    if let Some(name) = &args.show {
        return show(name);
    }
    if let Some(outcome) = suite::run(args, extensions) {
        return outcome;
    }
    let experiment = experiment(args)?;
    experiment.check()?;
    let learning = learning(&experiment, extensions)?;
    let progress = Counter::new("simulated iterations", experiment.total_iterations());
    let results =
        ata_experiments::run(&experiment, extensions.policies, learning.as_ref(), &|done| progress.add(done))?;
    progress.finish();
    if let Some(folder) = &args.out {
        let words = regret_in_words(&results).trim().to_owned();
        let about = [experiment.about.clone(), format!("Made with: ata {}", command_line()), words];
        let tables = ata_experiments::groups(&results).iter().map(|group| table(&experiment, group)).collect();
        let figures = ata_experiments::figures(&experiment, &results);
        let intro = about.into_iter().filter(|text| !text.is_empty()).collect();
        Report { title: experiment.title.clone(), intro, tables, figures }.write(folder)?;
        note!("report and figures: {}", folder.join("report.html").display());
    }
    print(args.json, &results, || text(&experiment, &results, learning.as_ref()))
}

fn regret_in_words(results: &[RunResult]) -> &'static str {
    const REGRET: &str =
        "\nregret: the expected time of an iteration beyond that of the best allocation for the true means of tasks\n";
    if results.iter().any(|run| run.cumulative_regret.is_some()) { REGRET } else { "" }
}

fn text(experiment: &Experiment, results: &[RunResult], learning: Option<&DescentCache>) -> String {
    let groups = ata_experiments::groups(results);
    let mut text: String = groups.iter().map(|group| render_table(&table(experiment, group), usize::MAX)).collect();
    text += regret_in_words(results);
    text.extend(learning.map(|learning| format!("\n{} distinct optimizer steps were computed\n", learning.computed())));
    text
}

fn list() -> Result<(), Failure> {
    let line = |name: &str, title: &str| format!("{name:<20}{title}\n");
    let titled = |(name, text): &(&str, &str)| Ok(line(name, &Experiment::parse(text, name)?.title));
    let experiments: String = BUILTIN_EXPERIMENTS.iter().map(titled).collect::<Result<_, Failure>>()?;
    let suites: String = SUITES.iter().map(|(name, title)| line(name, title)).collect();
    print_message(&format!(
        "Built-in experiments: ata simulate --experiment NAME; --show NAME prints the file\n\n{experiments}\n\
         Suites of experiments: ata simulate --experiment NAME\n\n{}",
        suites.trim_end()
    ))
}

fn show(name: &str) -> Result<(), Failure> {
    let Some((_, text)) = BUILTIN_EXPERIMENTS.iter().find(|(known, _)| *known == name) else {
        let is_suite = SUITES.iter().any(|(suite, _)| *suite == name);
        let hint = did_you_mean(name, BUILTIN_EXPERIMENTS.iter().map(|(name, _)| *name));
        let why = if is_suite { "a suite of experiments has no file" } else { "no such experiment; see --list" };
        return Err(Failure::usage(format!("--show {name}{hint}: {why}")));
    };
    print_text(text)
}

fn command_line() -> String {
    shell::command(std::env::args().skip(1).map(Cow::Owned))
}

fn experiment(args: &SimulateArgs) -> Result<Experiment, Failure> {
    let mut experiment = args.experiment.as_deref().map_or_else(|| Ok(Experiment::default()), Experiment::open)?;
    if !args.laws.is_empty() {
        experiment.laws.clone_from(&args.laws);
    }
    if !args.workers.is_empty() {
        experiment.workers.clone_from(&args.workers);
    }
    if !args.overcommit.is_empty() {
        experiment.overcommit.clone_from(&args.overcommit);
    }
    experiment.verify = args.verify.unwrap_or(experiment.verify);
    experiment.budget = args.budget.unwrap_or(experiment.budget);
    experiment.iterations = args.iterations.unwrap_or(experiment.iterations);
    experiment.seed = args.seed.unwrap_or(experiment.seed);
    experiment.seeds = args.seeds.unwrap_or(experiment.seeds);
    experiment.overhead = args.overhead.clone().or(experiment.overhead);
    experiment.links = links(args, experiment.links)?;
    if let Some(problem) = args.problem {
        experiment.learning = default_problem(problem);
    }
    if let (Some(given), Some(LearningSpec::Cnn { data, .. })) = (&args.data, &mut experiment.learning) {
        data.clone_from(given);
    }
    if !args.policies.is_empty() {
        // Adaptive k-sync needs gradients.
        let but: &[&str] = if experiment.learning.is_none() { &["adaptive-k-sync"] } else { &[] };
        experiment.policies = policy_list::parse(&args.policies, but)?;
    }
    Ok(experiment)
}

/// Returns the links of the experiment's file, with the flags applied.
fn links(args: &SimulateArgs, file: Option<LinksSpec>) -> Result<Option<LinksSpec>, Failure> {
    let time_unit = args.time_unit.as_ref();
    let Some(flag) = args.links.first_given().or(time_unit.map(|_| "--time-unit")) else { return Ok(file) };
    let links = match (file, &args.links.link, &args.links.model_bytes) {
        (Some(links), ..) => links,
        (None, Some(link), Some(model_bytes)) => LinksSpec::new(link.clone(), model_bytes.clone()),
        _ => {
            let missing = "links need a rate and a size: give both --link and --model-bytes";
            return Err(Failure::usage(format!("{flag}: {missing}")));
        }
    };
    let links = args.links.apply(links)?;
    Ok(Some(LinksSpec { time_unit: time_unit.cloned().unwrap_or(links.time_unit), ..links }))
}

fn default_problem(problem: ProblemName) -> Option<LearningSpec> {
    match problem {
        ProblemName::None => None,
        ProblemName::Quadratic => Some(LearningSpec::Quadratic { dimension: 100, sigma: 0.01, step: 0.1 }),
        ProblemName::LinearRegression => {
            Some(LearningSpec::LinearRegression { samples: 2000, dimension: 100, batch: 40, step: 5e-4 })
        }
        ProblemName::Cnn => {
            Some(LearningSpec::Cnn { data: "synthetic".into(), model: "cnn".into(), task_batch: 1, lr: 1e-3 })
        }
    }
}

fn learning(experiment: &Experiment, extensions: Extensions) -> Result<Option<DescentCache>, Failure> {
    let Some(LearningSpec::Cnn { data, model, task_batch, lr }) = &experiment.learning else {
        return Ok(experiment.learning()?);
    };
    if !(lr.is_finite() && *lr > 0.0 && (1..=MAX_TASK_BATCH).contains(task_batch)) {
        return Err(Failure::usage(format!(
            "learning: lr = {lr}, task_batch = {task_batch}: expected positive numbers, and task_batch at most {MAX_TASK_BATCH}"
        )));
    }
    let FoundInputs { model, data, .. } =
        find((extensions.models)(model)?, data, experiment.seed, FolderOptions::default())?;
    let (device, data) = (DeviceChoice::Cpu.open()?, data.open(&*model, Split::Train)?);
    let (seed, budget, lr) = (experiment.seed, experiment.budget, *lr);
    let (optimizer, sizes, format) = (Optimizer::default(), TensorSizes::from(&model.table()), WireFormat::F32Exact);
    let (tasks, initial) = (Tasks { seed, budget, task_batch: *task_batch }, model.initial_parameters(seed)?);
    let config = TrainingConfig { optimizer, sizes, format, budget };
    Ok(Some(DescentCache::new(move || {
        let state = TrainingState::new(config.clone(), initial.clone());
        Box::new(CnnDescent::new(data.clone().learner(&device, tasks), state, lr))
    })))
}

/// Returns a table of means over seeds, with their ratio to the oracle's if it was run.
fn table(experiment: &Experiment, group: &Group<'_>) -> Table {
    let oracle = group.oracle();
    let has = |of: fn(&RunResult) -> Option<f64>| group.rows.iter().any(|row| row.mean_of(of).is_some());
    let (has_regret, has_loss) = (has(|run| run.cumulative_regret), has(|run| run.final_objective));
    let ratio = |row: &Row<'_>, of: fn(&RunResult) -> f64| {
        oracle.map(|oracle| format!("{:.3}", row.moments(of).0 / oracle.moments(of).0))
    };
    let mean = |row: &Row<'_>, of: fn(&RunResult) -> f64| format!("{:.1}", row.moments(of).0);
    let cells = |row: &Row<'_>| {
        let (time, worker_time) =
            (|run: &RunResult| run.mean_iteration_time, |run: &RunResult| run.mean_total_worker_time);
        let regret =
            || row.mean_of(|run| Some(run.cumulative_regret? / run.iterations as f64)).map_or("-".into(), number);
        let loss = || row.mean_of(|run| run.final_objective).map_or("-".into(), number);
        let cells = [
            Some(row.name.clone()),
            Some(with_deviation(row, time)),
            ratio(row, time),
            Some(with_deviation(row, worker_time)),
            ratio(row, worker_time),
            Some(mean(row, |run| run.tasks_wasted as f64 / run.iterations as f64)),
            Some(mean(row, |run| run.mean_results)),
            has_regret.then(regret),
            has_loss.then(loss),
        ];
        cells.into_iter().flatten().collect()
    };
    let per_oracle = oracle.map(|_| "/ fta");
    let header = [
        Some("policy"),
        Some("iteration time"),
        per_oracle,
        Some("worker time"),
        per_oracle,
        Some("wasted tasks"),
        Some("results sent"),
        has_regret.then_some("regret"),
        has_loss.then_some("loss"),
    ];
    let seeds = if experiment.seeds == 1 { "1 seed".into() } else { format!("{} seeds", experiment.seeds) };
    Table {
        title: format!(
            "times {}, {} workers, budget {}, {} iterations, {seeds}; per iteration",
            group.law, group.workers, experiment.budget, experiment.iterations
        ),
        header: header.into_iter().flatten().map(String::from).collect(),
        rows: group.rows.iter().map(cells).collect(),
    }
}

fn with_deviation(row: &Row<'_>, of: fn(&RunResult) -> f64) -> String {
    let (mean, deviation) = row.moments(of);
    if row.runs.len() > 1 { format!("{} ± {}", number(mean), number(deviation)) } else { number(mean) }
}

fn number(value: f64) -> String {
    match value.abs() {
        size if size >= 1000.0 || size == 0.0 => format!("{value:.0}"),
        size if size >= 100.0 => format!("{value:.1}"),
        size if size >= 0.01 => format!("{value:.3}"),
        _ => format!("{value:.2e}"),
    }
}
