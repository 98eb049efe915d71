//! Progress counters.

use std::io::IsTerminal;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use indicatif::{DecimalBytes, ProgressBar, ProgressStyle};

use super::LINE_INTERVAL;
use crate::output::note;

/// A count on standard error: a bar on a terminal, plain lines elsewhere.
pub(crate) struct Counter {
    what: &'static str,
    /// Formats a number in plain lines.
    show: fn(u64) -> String,
    total: Option<u64>,
    done: AtomicU64,
    bar: ProgressBar,
    /// The time at which the last plain line was printed.
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
            _ if !std::io::stderr().is_terminal() => ProgressBar::hidden(),
            Some(total) => ProgressBar::new(total),
            None => ProgressBar::no_length(),
        };
        bar.set_style(ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar()));
        bar.set_message(what);
        Self { what, show, total, done: AtomicU64::new(0), bar, printed: Mutex::new(Instant::now()) }
    }

    pub(crate) fn add(&self, done: u64) {
        let sum = self.done.fetch_add(done, Ordering::Relaxed) + done;
        self.bar.set_position(sum);
        if self.bar.is_hidden()
            && let Ok(mut printed) = self.printed.try_lock()
            && printed.elapsed() >= LINE_INTERVAL
        {
            *printed = Instant::now();
            let total = self.total.map_or(String::new(), |total| format!("/{}", (self.show)(total)));
            note!("{}{total} {}", (self.show)(sum), self.what);
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
    done: u64,
    counter: Option<Counter>,
}

impl Counting {
    pub(crate) fn new(what: &'static str) -> Self {
        Self { what, begun: Instant::now(), done: 0, counter: None }
    }

    /// Sets the count and its total.
    pub(crate) fn set(&mut self, done: u64, total: u64) {
        if self.begun.elapsed() < LINE_INTERVAL {
            return;
        }
        let counter = self.counter.get_or_insert_with(|| Counter::new(self.what, total));
        counter.add(done - self.done);
        self.done = done;
    }

    pub(crate) fn finish(self) {
        self.counter.iter().for_each(Counter::finish);
    }
}
