//! The command `ata explain`: explains the allocation of tasks to workers.

use ata_figures::Table;
use ata_observe::{Efficiency, Explanation, WorkerExplanation, explain, read_state, read_state_at};
use ata_record::Prices;
use ata_scheduler::progress;
use ata_types::{Iteration, WorkerId, seconds};

use super::location::RunLocation;
use crate::args::ExplainArgs;
use crate::escape::escaped;
use crate::failure::Failure;
use crate::output::{print, render_table};

const COLUMNS: &str = "worker,tasks,timed,mean time (95 %),bound,overhead,vector,done after,+1 task,-1 task";
const WORKERS_SHOWN: usize = 16;

pub(crate) async fn run(args: ExplainArgs) -> Result<(), Failure> {
    let unknown = |number| Failure::usage(format!("--worker {number}: the run has no worker of that number"));
    let worker = args.worker.map(|number| WorkerId::new(number).ok_or_else(|| unknown(number))).transpose()?;
    let explanation = match RunLocation::find(&args.of).await? {
        RunLocation::Server(client) => {
            let mut path = "/api/explain?".to_owned();
            path.extend(args.iteration.map(|iteration| format!("iteration={iteration}&")));
            path.extend(args.worker.map(|worker| format!("worker={worker}")));
            serde_json::from_slice(&client.get(&path).await?).map_err(Failure::data)?
        }
        RunLocation::Folder(folder) => {
            let state = match args.iteration {
                None => read_state(&folder, Prices::default())?,
                Some(iteration) => read_state_at(&folder, Iteration(iteration))?.ok_or_else(|| {
                    Failure::data(format!("{}: iteration {iteration} has not begun", folder.display()))
                })?,
            };
            explain(&state, worker.map(|worker| [worker].into()).as_ref())
        }
    };
    if let (Some(number), true) = (args.worker, explanation.workers.is_empty()) {
        return Err(unknown(number));
    }
    print(args.json, &explanation, || text(&explanation))
}

fn text(explanation: &Explanation) -> String {
    let Explanation { iteration, policy, rule, budget, workers, .. } = explanation;
    let chosen = explanation.most_tasks.map(|most| format!(", chosen, at most {most}")).unwrap_or_default();
    let title = format!("iteration {iteration}, policy {policy}, budget {budget}{chosen}: {rule}");
    let mut text = escaped(&title).into_owned() + "\n";
    let whose = if explanation.by_policy {
        "by the policy's own forecast, which includes its margin for noise"
    } else {
        "by the measured means; the policy itself uses no forecast"
    };
    text.extend(
        explanation.expected_s.map(|expected_s| format!("expected to take {}, {whose}\n", seconds(expected_s))),
    );
    text.extend(explanation.links.map(|links| format!("a vector takes {links}\n")));
    let more = explanation.hiding_budget.map(|tasks| format!("; with {tasks} tasks an iteration, it would be 90 %"));
    let more = more.unwrap_or_default();
    let percent = |share: f64| format!("workers compute {:.0} % of the time{more}\n", 100.0 * share);
    text.extend(explanation.utilization.map(percent));
    text.extend(explanation.noise_scale.map(|tasks| worth(*budget, tasks)));
    text.extend(explanation.efficiency.map(|of| {
        let Efficiency { with_half, with_twice, .. } = of;
        format!("{of}; {with_half:.2} times as much with half the budget, {with_twice:.2} times with twice\n")
    }));
    let table = Table {
        title: "Workers; the last two columns say how long the iteration would take".into(),
        header: COLUMNS.split(',').map(String::from).collect(),
        rows: workers.iter().map(row).collect(),
    };
    text += &render_table(&table, WORKERS_SHOWN);
    if workers.iter().any(|worker| worker.share.bound_s.is_some()) {
        text += "\nbound: the time of a task that the policy reckons with\n";
    }
    if workers.iter().any(|worker| worker.share.vector_s.is_some()) {
        text += "\noverhead: also waiting for parameters, which the policy does not count\n";
        text += "\nvector: the time that its gradient takes on its own link\n";
    }
    let why = |WorkerExplanation { share, .. }: &WorkerExplanation| {
        format!("\n{} {}: {}", share.number, escaped(&share.name), escaped(&share.why))
    };
    text.extend(workers.iter().take(WORKERS_SHOWN).map(why));
    text + "\n"
}

/// Says what a step on `budget` tasks achieves if the noise of gradients equals them at `noise` tasks.
fn worth(budget: u64, noise: f64) -> String {
    let percent = |tasks: f64| format!("{:.0} %", 100.0 * progress(tasks, noise));
    let [half, own, twice] = [0.5, 1.0, 2.0].map(|factor| percent(factor * budget as f64));
    format!(
        "gradients: noise scale {noise:.1} tasks, so a step achieves {own} of one without noise; {half} with half the budget, {twice} with twice\n"
    )
}

fn row(of: &WorkerExplanation) -> Vec<String> {
    let share = &of.share;
    let time = |value: Option<f64>| value.map_or("-".into(), seconds);
    let mean = match (share.mean_s, share.low_s, share.high_s) {
        (Some(mean_s), Some(low_s), Some(high_s)) => {
            format!("{} ({} to {})", seconds(mean_s), seconds(low_s), seconds(high_s))
        }
        (mean_s, ..) => time(mean_s),
    };
    vec![
        format!("{} {}", share.number, share.name),
        format!("{}{}", share.tasks, if share.probe { " + probe" } else { "" }),
        share.observed.to_string(),
        mean,
        time(share.bound_s),
        seconds(of.overhead_s),
        time(share.vector_s),
        time(of.finish_s),
        time(of.one_more_s),
        time(of.one_less_s),
    ]
}
