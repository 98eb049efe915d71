//! The command `ata simulate` for suites, such as `--experiment comparison`, whose results are ratios to an oracle.

use std::path::Path;

use ata_experiments::suite::{Suite, SuiteResult};
use ata_figures::Report;

use crate::Extensions;
use crate::args::SimulateArgs;
use crate::failure::Failure;
use crate::output::{Counter, note, print, render_table, write_file};
use crate::settings::policy_list;

/// Runs the suite that `--experiment` names; `None` if it does not name a suite.
pub(super) fn run(args: &SimulateArgs, extensions: Extensions) -> Option<Result<(), Failure>> {
    let name = args.experiment.as_deref()?;
    let suite = Suite::open(name, args.data.as_deref().map(Path::new))?;
    Some(suite.map_err(Failure::from).and_then(|suite| compare(with_flags(suite, args)?, args, extensions)))
}

fn with_flags(mut suite: Suite, args: &SimulateArgs) -> Result<Suite, Failure> {
    let link_flag = args.links.first_given();
    let given = [
        (link_flag.unwrap_or("--link"), link_flag.is_some()),
        ("--task-time", !args.laws.is_empty()),
        ("--workers", !args.workers.is_empty()),
        ("--budget", args.budget.is_some()),
        ("--overhead", args.overhead.is_some()),
        ("--overcommit", !args.overcommit.is_empty()),
        ("--verify", args.verify.is_some()),
        ("--problem", args.problem.is_some()),
    ];
    if let Some((flag, _)) = given.into_iter().find(|(_, is_given)| *is_given) {
        let why = "the cases of a suite have their own; it takes --policy, --seed, --seeds, --iterations and --data";
        return Err(Failure::usage(format!("{flag}: {why}")));
    }
    if !args.policies.is_empty() {
        let policies = policy_list::parse(&args.policies, &["adaptive-k-sync"])?;
        suite = suite.compare(policies.iter().map(String::as_str));
    }
    for case in &mut suite.cases {
        let experiment = &mut case.experiment;
        experiment.iterations = args.iterations.unwrap_or(experiment.iterations);
        experiment.seed = args.seed.unwrap_or(experiment.seed);
        experiment.seeds = args.seeds.unwrap_or(experiment.seeds);
    }
    Ok(suite)
}

fn compare(suite: Suite, args: &SimulateArgs, extensions: Extensions) -> Result<(), Failure> {
    suite.check()?;
    let progress = Counter::new("simulated iterations", suite.total_iterations());
    let result = suite.run(extensions.policies, &|done| progress.add(done))?;
    progress.finish();
    if let Some(folder) = &args.out {
        write(suite, &result, folder)?;
    }
    print(args.json, &result.costs, || result.tables().iter().map(|table| render_table(table, usize::MAX)).collect())
}

fn write(suite: Suite, result: &SuiteResult, folder: &Path) -> Result<(), Failure> {
    let Suite { title, about, .. } = suite;
    let command = format!("ata {}", super::command_line());
    let markdown = result.markdown(&title, &[&about[..], &[format!("Made with: `{command}`")]].concat());
    let intro = [about, vec![format!("Made with: {command}")]].concat();
    Report { title, intro, tables: result.tables(), figures: vec![result.figure()] }.write(folder)?;
    let path = folder.join("comparison.md");
    write_file(&path, markdown.as_bytes())?;
    note!("report: {}; as Markdown: {}", folder.join("report.html").display(), path.display());
    Ok(())
}
