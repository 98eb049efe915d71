//! The phases of a run, one file each. State that exists only in one phase is in its type; state that all phases share is in
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
pub(super) use collecting::{Collecting, CollectingEnd, Flow};
pub(super) use committing::Committing;
pub(super) use over::Over;

use ata_types::Iteration;

/// The phase of a run.
pub(super) enum Phase {
    /// The run is before its first iteration, or between two.
    Between(Between),
    /// Tasks are assigned, and results awaited.
    Collecting(Box<Collecting>),
    /// The step is being taken.
    Committing(Committing),
    /// The run is finished or aborted.
    Over(Over),
}

impl Phase {
    /// Returns the first iteration that is not committed.
    pub(super) fn next_iteration(&self) -> Iteration {
        match self {
            Self::Between(between) => between.next,
            Self::Collecting(collecting) => collecting.number,
            Self::Committing(committing) => committing.number,
            Self::Over(over) => over.next,
        }
    }
}
