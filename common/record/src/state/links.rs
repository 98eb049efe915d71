//! The time that vectors take on the links.

use std::fmt;

use ata_types::seconds;
use serde::{Deserialize, Serialize};

use super::RunState;
use crate::event::RunEvent;

/// The time that gradients and parameters take, as a run measured it.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct LinkFigures {
    /// Seconds that a gradient takes on the coordinator's link; 0 if that link is not the bottleneck.
    pub up_s: f64,
    /// Seconds that parameters take on the coordinator's link; 0 if that link is not the bottleneck.
    pub down_s: f64,
    /// Seconds that the slower of gradient and parameters takes on the fastest worker's own link.
    pub own_s: f64,
}

/// The text continues a sentence that begins with "a vector takes".
impl fmt::Display for LinkFigures {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.up_s.max(self.down_s) > 0.0 {
            write!(f, "{} up and {} down on the coordinator's link, ", seconds(self.up_s), seconds(self.down_s))?;
        }
        write!(f, "{} on a worker's own link", seconds(self.own_s))
    }
}

impl RunState {
    pub(super) fn measure_links(&mut self, event: &RunEvent) {
        let RunEvent::Links { up_s, down_s, own_s, workers, .. } = event else { return };
        self.totals.links = Some(LinkFigures { up_s: *up_s, down_s: *down_s, own_s: *own_s });
        for link in workers {
            self.worker(link.worker).link = Some(*link);
        }
    }
}
