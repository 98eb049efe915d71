//! The phases of a run, one file each. What exists only in a phase is in its type; what all share is in
//! [`Shared`](super::shared::Shared).
//!
//! ```text
//!            Proceed             all results are there          StepCommitted
//! Between ────────────▶ Collecting ────────────▶ Committing ────────────▶ Between
//!    │                      │                        │
//!    └──────────────────────┴──── Finish, Abort ─────┴───▶ Over
//! ```

mod between;
mod collecting;
mod committing;
mod over;

pub(super) use between::Between;
pub(super) use collecting::{Collecting, Exit, Flow};
pub(super) use committing::Committing;
pub(super) use over::Over;

use ata_types::Iteration;

/// Where a run is.
pub(super) enum Phase {
    /// Before the first iteration, or between two.
    Between(Between),
    /// Tasks are assigned, and results awaited.
    Collecting(Box<Collecting>),
    /// The step is being taken.
    Committing(Committing),
    /// Finished or aborted.
    Over(Over),
}

impl Phase {
    /// The first iteration that is not committed.
    pub(super) fn next_iteration(&self) -> Iteration {
        match self {
            Self::Between(between) => between.next,
            Self::Collecting(collecting) => collecting.number,
            Self::Committing(committing) => committing.number,
            Self::Over(over) => over.next,
        }
    }
}
