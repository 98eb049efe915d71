//! `ata explain`: why each worker has the tasks that it has.

use std::process::ExitCode;

use ata_figures::Table;
use ata_observe::{Explained, Explanation, Prices, explain, explained_at, seconds, viewed};
use ata_types::{Iteration, WorkerId};

use super::watched::Watched;
use crate::args::ExplainArgs;
use crate::failure::Failure;
use crate::output::{escaped, print_json, render_table};

/// Workers that are explained in words, unless one is chosen.
const WORKERS_SHOWN: usize = 16;

pub(crate) async fn run(args: ExplainArgs) -> Result<ExitCode, Failure> {
    let unknown = |number| Failure::usage(format!("--worker {number}: the run has no worker of that number"));
    let worker = args.worker.map(|number| WorkerId::new(number).ok_or_else(|| unknown(number))).transpose()?;
    let explanation = match Watched::find(&args.of)? {
        Watched::Server(client) => {
            let mut path = "/api/explain?".to_owned();
            path.extend(args.iteration.map(|iteration| format!("iteration={iteration}&")));
            path.extend(args.worker.map(|worker| format!("worker={worker}")));
            serde_json::from_slice(&client.get(&path).await?).map_err(Failure::data)?
        }
        Watched::Folder(folder) => {
            let view = match args.iteration {
                None => viewed(&folder, Prices::default())?,
                Some(iteration) => explained_at(&folder, Iteration(iteration))?.ok_or_else(|| {
                    Failure::data(format!("{}: iteration {iteration} has not begun", folder.display()))
                })?,
            };
            explain(&view, worker.map(|worker| [worker].into()).as_ref())
        }
    };
    if let (Some(number), true) = (args.worker, explanation.workers.is_empty()) {
        return Err(unknown(number));
    }
    if args.json {
        print_json(&explanation)?;
    } else {
        print!("{}", rendered(&explanation, if args.worker.is_some() { usize::MAX } else { WORKERS_SHOWN }));
    }
    Ok(ExitCode::SUCCESS)
}

fn rendered(explanation: &Explanation, most: usize) -> String {
    let Explanation { iteration, policy, rule, budget, expected_s, workers } = explanation;
    let title = format!("iteration {iteration}, policy {policy}, budget {budget}: {rule}");
    let mut text = escaped(&title).into_owned() + "\n";
    text.extend(expected_s.map(|expected_s| format!("expected to take {}\n", seconds(expected_s))));
    let header =
        ["worker", "tasks", "timed", "mean time (95 %)", "bound", "overhead", "done after", "+1 task", "-1 task"];
    let table = Table {
        title: "Workers; the last two columns say how long the iteration would take".into(),
        header: header.map(String::from).into(),
        rows: workers.iter().map(row).collect(),
    };
    text += &render_table(&table, most);
    let why = |of: &Explained| format!("\n{} {}: {}", of.worker, escaped(&of.name), escaped(&of.why));
    text.extend(workers.iter().take(most).map(why));
    text + "\n"
}

fn row(of: &Explained) -> Vec<String> {
    let time = |value: Option<f64>| value.map_or("-".into(), seconds);
    let mean = match (of.mean_s, of.low_s, of.high_s) {
        (Some(mean_s), Some(low_s), Some(high_s)) => {
            format!("{} ({} to {})", seconds(mean_s), seconds(low_s), seconds(high_s))
        }
        (mean_s, ..) => time(mean_s),
    };
    vec![
        format!("{} {}", of.worker, of.name),
        format!("{}{}", of.tasks, if of.probe { " + probe" } else { "" }),
        of.observed.to_string(),
        mean,
        time(of.bound_s),
        seconds(of.overhead_s),
        time(of.finish_s),
        time(of.one_more_s),
        time(of.one_less_s),
    ]
}
