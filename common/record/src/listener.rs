//! Who hears of a run's events besides its journal.

use crate::event::RunEvent;

/// Hears of every event, in order, on the thread that writes the journal: what takes it long holds up the journal.
pub trait Listener: Send {
    /// An event of the run's past, which was resumed.
    fn recall(&mut self, event: &RunEvent) {
        let _ = event;
    }

    /// An event that is just happening.
    fn hear(&mut self, event: &RunEvent);
}

/// All who listen to a run.
#[derive(Default)]
pub struct Listeners(Vec<Box<dyn Listener>>);

impl Listeners {
    /// Adds one.
    pub fn add(&mut self, listener: impl Listener + 'static) {
        self.0.push(Box::new(listener));
    }

    /// Tells all of an event of the past.
    pub fn recall(&mut self, event: &RunEvent) {
        self.0.iter_mut().for_each(|listener| listener.recall(event));
    }

    pub(crate) fn hear(&mut self, event: &RunEvent) {
        self.0.iter_mut().for_each(|listener| listener.hear(event));
    }
}
