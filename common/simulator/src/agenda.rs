//! What the driver has to do at some virtual time, and a queue of such things.

use ata_scheduler::Event;
use ata_types::WorkerId;

use crate::change::Change;

#[derive(Clone, Copy)]
pub(crate) enum Appointment {
    Change(Change),
    /// A worker that was evicted returns.
    Return(WorkerId),
    /// The step of this order is taken, unless the order was replaced.
    StepEnd(u64),
    /// The wait of the next iteration, as requested by the observer, ends.
    WaitEnd,
    Compared(Event),
    Restart,
}

/// A queue by time, in which entries of the same time keep the order in which they were added.
pub(crate) struct Agenda<T> {
    /// The entries, latest first.
    entries: Vec<(f64, T)>,
}

impl<T> Default for Agenda<T> {
    fn default() -> Self {
        Self { entries: Vec::new() }
    }
}

impl<T> Agenda<T> {
    pub(crate) fn add(&mut self, at: f64, what: T) {
        let place = self.entries.partition_point(|(other, _)| *other > at);
        self.entries.insert(place, (at, what));
    }

    /// Adds an entry before all others of the same time.
    pub(crate) fn add_first(&mut self, at: f64, what: T) {
        let place = self.entries.partition_point(|(other, _)| *other >= at);
        self.entries.insert(place, (at, what));
    }

    pub(crate) fn next_at(&self) -> Option<f64> {
        self.entries.last().map(|(at, _)| *at)
    }

    pub(crate) fn pop(&mut self) -> Option<(f64, T)> {
        self.entries.pop()
    }

    pub(crate) fn retain(&mut self, keep: impl Fn(&T) -> bool) {
        self.entries.retain(|(_, what)| keep(what));
    }
}
