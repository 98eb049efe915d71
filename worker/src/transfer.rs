//! Gradients out.

use ata_wire::{Connection, GradientHeader, Receipt, SessionToken};

use crate::compute::Computed;
use crate::error::SessionError;

/// Sends a computed lease. Returns whether its gradient counts.
pub(crate) async fn submit(
    connection: Connection,
    session: SessionToken,
    computed: Computed,
) -> Result<bool, SessionError> {
    let Computed { lease: held, sum, busy_s, outlasted } = computed;
    let (assignment, span) = (held.assignment, held.uploads());
    let header = GradientHeader {
        session,
        lease: assignment.lease,
        iteration: assignment.iteration,
        busy_s,
        loss_sum: sum.loss,
        outlasted,
    };
    let lease = assignment.lease;
    let answer = connection.submit_gradient(header, sum.gradient).await;
    let receipt = answer.map_err(SessionError::receive)?;
    drop(span);
    held.answered(&receipt);
    match &receipt {
        Receipt::Accepted => tracing::debug!(lease, "gradient accepted"),
        Receipt::NotHeld { .. } => tracing::debug!(lease, "gradient not accepted: the lease is no longer held"),
        Receipt::Refused { reason } => tracing::warn!(lease, reason, "gradient refused"),
    }
    Ok(receipt == Receipt::Accepted)
}
