//! A view that listens to a run.

use ata_record::{Listener, RunEvent};
use tokio::sync::watch;

use crate::view::{Prices, View};

/// Keeps a [`View`] up to date.
pub struct Live(watch::Sender<View>);

impl Live {
    /// The listener, and the view that it keeps.
    pub fn new(prices: Prices) -> (Self, watch::Receiver<View>) {
        let (sender, view) = watch::channel(View::new(prices));
        (Self(sender), view)
    }
}

impl Listener for Live {
    fn recall(&mut self, event: &RunEvent) {
        self.hear(event);
    }

    fn hear(&mut self, event: &RunEvent) {
        self.0.send_modify(|view| view.apply(event));
    }
}
