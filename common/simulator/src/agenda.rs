//! A queue of future occurrences, in order of time.

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
