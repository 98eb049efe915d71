//! How far a run is: a live bar on a terminal, plain lines elsewhere.

use std::io::IsTerminal;
use std::time::{Duration, Instant};

use ata_coordinator::{Progress, ProgressPhase};
use indicatif::{ProgressBar, ProgressStyle};
use tokio::sync::watch;

/// Time between two plain lines.
const LINE_INTERVAL: Duration = Duration::from_secs(2);

/// Shows progress on standard error until the run drops its end.
pub(crate) async fn show(mut progress: watch::Receiver<Progress>, iterations: u64) {
    if std::io::stderr().is_terminal() {
        let bar = ProgressBar::new(iterations);
        let style = "{bar:30} {pos}/{len} iterations, {elapsed} (left: {eta})  {msg}";
        bar.set_style(ProgressStyle::with_template(style).unwrap_or_else(|_| ProgressStyle::default_bar()));
        while progress.changed().await.is_ok() {
            let now = progress.borrow_and_update().clone();
            bar.set_position(now.iterations_done);
            bar.set_message(describe(&now));
        }
        bar.finish_and_clear();
    } else {
        let mut shown: Option<(Instant, ProgressPhase)> = None;
        while progress.changed().await.is_ok() {
            let now = progress.borrow_and_update().clone();
            let due = shown.is_none_or(|(at, phase)| at.elapsed() >= LINE_INTERVAL || phase != now.phase);
            if due {
                shown = Some((Instant::now(), now.phase));
                eprintln!("iteration {}/{iterations}  {}", now.iterations_done, describe(&now));
            }
        }
    }
}

fn describe(progress: &Progress) -> String {
    match progress.phase {
        ProgressPhase::Waiting { present, needed } => format!("waiting for workers: {present} of {needed} present"),
        ProgressPhase::Evaluating => "evaluating on the test data".into(),
        ProgressPhase::Training => {
            let loss = progress.loss.map_or(String::new(), |loss| format!("loss {loss:.3}  "));
            format!("{loss}{} workers  tasks {}", progress.workers, allocation(&progress.allocation))
        }
    }
}

/// `9 4 2 1`, or only the largest shares where there are many workers.
fn allocation(allocation: &[(u32, u64)]) -> String {
    const SHOWN: usize = 12;
    let shares: Vec<String> = allocation.iter().take(SHOWN).map(|(_, tasks)| tasks.to_string()).collect();
    let more = if allocation.len() > SHOWN { " …" } else { "" };
    shares.join(" ") + more
}
