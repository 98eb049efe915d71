//! The time that vectors take on the links.

use std::fmt;

use ata_types::seconds;
use serde::{Deserialize, Serialize};

use super::RunState;
use crate::event::RunEvent;

/// How long gradients and parameters travel, as a run measured it.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Links {
    /// Seconds that a gradient takes on the coordinator's link; 0 if that is not the narrow part of the way.
    pub up_s: f64,
    /// Seconds that parameters take on the coordinator's link; 0 as above.
    pub down_s: f64,
    /// Seconds that the slower of the two takes on the fastest own link of a worker.
    pub own_s: f64,
}

/// The text goes on after "a vector takes".
impl fmt::Display for Links {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.up_s.max(self.down_s) > 0.0 {
            write!(f, "{} up and {} down on the coordinator's link, ", seconds(self.up_s), seconds(self.down_s))?;
        }
        write!(f, "{} on a worker's own", seconds(self.own_s))
    }
}

impl RunState {
    pub(super) fn measure_links(&mut self, event: &RunEvent) {
        let RunEvent::Links { up_s, down_s, own_s, workers, .. } = event else { return };
        self.links = Some(Links { up_s: *up_s, down_s: *down_s, own_s: *own_s });
        for link in workers {
            self.worker(link.worker).link = Some(*link);
        }
    }
}
