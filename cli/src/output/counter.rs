//! Progress as a counter.

use std::io::IsTerminal;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use indicatif::{ProgressBar, ProgressStyle};

use super::LINE_INTERVAL;

/// Shows a count on standard error: as a bar on a terminal, as plain lines elsewhere.
pub(crate) struct Counter {
    what: &'static str,
    total: u64,
    done: AtomicU64,
    bar: ProgressBar,
    shown: Mutex<Instant>,
}

impl Counter {
    pub(crate) fn new(what: &'static str, total: u64) -> Self {
        let bar = if std::io::stderr().is_terminal() { ProgressBar::new(total) } else { ProgressBar::hidden() };
        let style = ProgressStyle::with_template("{bar:30} {human_pos}/{human_len} {msg}, {elapsed} (left: {eta})");
        bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
        bar.set_message(what);
        Self { what, total, done: AtomicU64::new(0), bar, shown: Mutex::new(Instant::now()) }
    }

    pub(crate) fn add(&self, done: u64) {
        let sum = self.done.fetch_add(done, Ordering::Relaxed) + done;
        self.bar.set_position(sum);
        if self.bar.is_hidden()
            && let Ok(mut shown) = self.shown.try_lock()
            && shown.elapsed() >= LINE_INTERVAL
        {
            *shown = Instant::now();
            eprintln!("{sum}/{} {}", self.total, self.what);
        }
    }

    pub(crate) fn finish(&self) {
        self.bar.finish_and_clear();
    }
}
