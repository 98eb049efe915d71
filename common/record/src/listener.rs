//! Listeners to a run's events.

use crate::event::RunEvent;

/// Receives every event of a run, in order. Events wait for the call to return, so a slow listener delays the others and the journal.
pub trait Listener: Send {
    /// Handles an event.
    fn on_event(&mut self, event: &RunEvent);
}

/// The listeners of a run.
#[derive(Default)]
pub struct Listeners(Vec<Box<dyn Listener>>);

impl Listeners {
    /// Adds a listener.
    pub fn add(&mut self, listener: impl Listener + 'static) {
        self.0.push(Box::new(listener));
    }

    pub(crate) fn on_event(&mut self, event: &RunEvent) {
        self.0.iter_mut().for_each(|listener| listener.on_event(event));
    }
}
