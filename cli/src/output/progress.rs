//! Progress: a live bar on a terminal, plain lines elsewhere.

use std::mem::discriminant;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use ata_record::{Allocation, RunPhase, RunState};
use indicatif::{DecimalBytes, HumanDuration, ProgressBar, ProgressStyle};
use tokio::sync::watch;

use super::{LINE_INTERVAL, is_live};
use crate::output::note;

/// The time between two updates of the bar, which limits its cost at thousands of iterations per second.
const BAR_INTERVAL: Duration = Duration::from_millis(100);
const WORKERS_SHOWN: usize = 12;

/// Creates a line on standard error with a changing message. It is hidden unless standard error is a terminal.
pub fn live_line() -> ProgressBar {
    let line = if is_live() { ProgressBar::no_length() } else { ProgressBar::hidden() };
    line.with_style(style("{elapsed}  {wide_msg}"))
}

fn style(template: &str) -> ProgressStyle {
    ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar())
}

/// Shows progress on standard error until the run is over.
pub(crate) async fn show_progress(mut state: watch::Receiver<RunState>, iterations: u64) {
    if is_live() {
        let bar = ProgressBar::new(iterations);
        bar.set_style(style("{bar:12} {pos}/{len}, {elapsed}{prefix}  {wide_msg}"));
        while state.changed().await.is_ok() {
            {
                let state = state.borrow_and_update();
                bar.set_position(state.progress());
                let left = time_left(state.progress(), iterations, state.runtime_s());
                bar.set_prefix(left.map_or(String::new(), |left| format!(", {left}")));
                bar.set_message(describe(&state));
            }
            tokio::time::sleep(BAR_INTERVAL).await;
        }
        bar.finish_and_clear();
    } else {
        let mut printed = None;
        while state.changed().await.is_ok() {
            let state = state.borrow_and_update();
            let phase = discriminant(&state.phase);
            let due = printed.is_none_or(|(at, last): (Instant, _)| at.elapsed() >= LINE_INTERVAL || phase != last);
            if due && !matches!(state.phase, RunPhase::Over(_)) {
                printed = Some((Instant::now(), phase));
                note!("iteration {}/{iterations}  {}", state.progress(), describe(&state));
            }
        }
    }
}

/// Returns the estimated time of the remaining iterations, such as `5m left`, from the mean so far.
pub(crate) fn time_left(done: u64, all: u64, runtime_s: f64) -> Option<String> {
    let share = all.checked_sub(done).filter(|left| *left > 0 && done > 0)? as f64 / done as f64;
    let left = Duration::try_from_secs_f64(runtime_s * share).ok()?;
    Some(format!("{:#} left", HumanDuration(left)))
}

fn describe(state: &RunState) -> String {
    match state.phase {
        RunPhase::Waiting { needed: 0, .. } => "starting".into(),
        RunPhase::Waiting { present, needed } => format!("waiting for workers: {present} of {needed} present"),
        RunPhase::Training => {
            let loss = state.totals.last_loss.map_or(String::new(), |loss| format!("loss {loss:.3}  "));
            let test = state.evaluation.map_or(String::new(), |(loss, accuracy)| match accuracy {
                Some(accuracy) => format!("accuracy {:.1} %  ", accuracy * 100.0),
                None => format!("test loss {loss:.3}  "),
            });
            format!("{loss}{test}tasks {}  {} workers", allocation(state), state.present())
        }
        RunPhase::Evaluating => "evaluating on the test data".into(),
        RunPhase::Over(_) => "over".into(),
    }
}

/// Formats the tasks of the workers, such as `9 4 2 1`, or the first few of many.
fn allocation(state: &RunState) -> String {
    let Allocation { workers, shares, .. } = &state.allocation;
    // In an asynchronous run, each worker computes one task at a time.
    let shares = shares.values().copied().chain(std::iter::repeat_n(1, workers - shares.len()));
    let tasks: Vec<String> = shares.take(WORKERS_SHOWN).map(|tasks| tasks.to_string()).collect();
    let more = if *workers > WORKERS_SHOWN { " …" } else { "" };
    tasks.join(" ") + more
}

/// A count on standard error: a bar on a terminal, plain lines elsewhere.
pub(crate) struct Counter {
    what: &'static str,
    show: fn(u64) -> String,
    total: Option<u64>,
    bar: ProgressBar,
    printed: Mutex<Instant>,
}

impl Counter {
    pub(crate) fn new(what: &'static str, total: u64) -> Self {
        let template = "{bar:12} {human_pos}/{human_len}, {elapsed}, left {eta}  {wide_msg}";
        Self::start(what, Some(total), template, |count| count.to_string())
    }

    /// Creates a counter of bytes up to a total that may be unknown.
    pub(crate) fn of_bytes(what: &'static str, total: Option<u64>) -> Self {
        let template = if total.is_some() {
            "{bar:12} {decimal_bytes}/{decimal_total_bytes}, {elapsed}, left {eta}  {wide_msg}"
        } else {
            "{decimal_bytes}, {elapsed}  {wide_msg}"
        };
        Self::start(what, total, template, |bytes| DecimalBytes(bytes).to_string())
    }

    fn start(what: &'static str, total: Option<u64>, template: &str, show: fn(u64) -> String) -> Self {
        let bar = match total {
            _ if !is_live() => ProgressBar::hidden(),
            Some(total) => ProgressBar::new(total),
            None => ProgressBar::no_length(),
        };
        bar.set_style(style(template));
        bar.set_message(what);
        Self { what, show, total, bar, printed: Mutex::new(Instant::now()) }
    }

    pub(crate) fn add(&self, done: u64) {
        self.bar.inc(done);
        self.print();
    }

    pub(crate) fn set(&self, done: u64) {
        self.bar.set_position(done);
        self.print();
    }

    /// Prints a plain line, if there is no bar and one is due.
    fn print(&self) {
        if self.bar.is_hidden()
            && let Ok(mut printed) = self.printed.try_lock()
            && printed.elapsed() >= LINE_INTERVAL
        {
            *printed = Instant::now();
            let total = self.total.map_or(String::new(), |total| format!("/{}", (self.show)(total)));
            note!("{}{total} {}", (self.show)(self.bar.position()), self.what);
        }
    }

    pub(crate) fn finish(&self) {
        self.bar.finish_and_clear();
    }
}

/// A count of an operation that is usually short. It is printed only after the operation has taken a while.
pub(crate) struct Counting {
    what: &'static str,
    begun: Instant,
    counter: Option<Counter>,
}

impl Counting {
    pub(crate) fn new(what: &'static str) -> Self {
        Self { what, begun: Instant::now(), counter: None }
    }

    pub(crate) fn set(&mut self, done: u64, total: u64) {
        if self.begun.elapsed() < LINE_INTERVAL {
            return;
        }
        self.counter.get_or_insert_with(|| Counter::new(self.what, total)).set(done);
    }

    pub(crate) fn finish(self) {
        self.counter.iter().for_each(Counter::finish);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_time_left_is_that_of_the_mean_iteration() {
        assert_eq!(time_left(500, 100_000, 18.1).as_deref(), Some("60m left"));
        assert_eq!(time_left(150, 200, 3.0).as_deref(), Some("1s left"));
        for (done, all, runtime_s) in [(0, 9, 1.0), (9, 9, 1.0), (10, 9, 1.0), (1, u64::MAX, f64::MAX)] {
            assert_eq!(time_left(done, all, runtime_s), None);
        }
    }
}
