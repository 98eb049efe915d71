//! The phase in which the run is finished or aborted.

use crate::engine::event::{AbortReason, Effect};
use crate::engine::limits::FinishReason;
use crate::engine::shared::Shared;
use ata_types::Iteration;

/// The end of a run, which can still be saved and continued.
pub(in crate::engine) struct Over {
    /// The iteration to continue with.
    pub(in crate::engine) next: Iteration,
    /// The rule that ended the run; `None` if it was aborted.
    pub(in crate::engine) finished: Option<FinishReason>,
}

impl Over {
    /// Ends the run as finished.
    pub(super) fn finish(shared: &mut Shared, next: Iteration, reason: FinishReason) -> Self {
        shared.effects.push(Effect::Finish { reason });
        Self { next, finished: Some(reason) }
    }

    /// Ends the run as aborted.
    pub(in crate::engine) fn abort(shared: &mut Shared, next: Iteration, reason: AbortReason) -> Self {
        shared.effects.push(Effect::Abort { reason });
        Self { next, finished: None }
    }
}
