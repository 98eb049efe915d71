//! The phases of a run, one file each. State that exists only in one phase is in its type; state that all phases share is in
//! [`Shared`].
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

pub(super) use between::Between;
pub(super) use collecting::{Collecting, CollectingEnd, Flow};
pub(super) use committing::Committing;

use super::{AbortReason, Effect, FinishReason, Shared};
use ata_types::Iteration;

pub(super) enum Phase {
    Between(Between),
    Collecting(Box<Collecting>),
    Committing(Committing),
    /// The run is finished or aborted, and can still be saved and continued.
    Over {
        next: Iteration,
        /// The rule that ended the run; `None` if it was aborted.
        finished: Option<FinishReason>,
    },
}

impl Phase {
    /// Returns the first iteration that is not committed.
    pub(super) fn next_iteration(&self) -> Iteration {
        match self {
            Self::Between(between) => between.next,
            Self::Collecting(collecting) => collecting.number,
            Self::Committing(committing) => committing.number,
            Self::Over { next, .. } => *next,
        }
    }

    fn finish(shared: &mut Shared, next: Iteration, reason: FinishReason) -> Self {
        shared.effects.push(Effect::Finish { reason });
        Self::Over { next, finished: Some(reason) }
    }

    pub(super) fn abort(shared: &mut Shared, next: Iteration, reason: AbortReason) -> Self {
        shared.effects.push(Effect::Abort { reason });
        Self::Over { next, finished: None }
    }
}
