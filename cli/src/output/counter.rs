//! Progress counters.

use std::sync::Mutex;
use std::time::Instant;

use indicatif::{DecimalBytes, ProgressBar};

use super::progress::style;
use super::{LINE_INTERVAL, is_live};
use crate::output::note;

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
