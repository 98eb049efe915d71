//! Sends the gradient of a lease to the coordinator.

use ata_wire::{Connection, GradientHeader, Receipt, SessionToken};

use crate::compute::ComputedLease;
use crate::error::SessionError;

/// Sends a computed lease. Returns whether its gradient counts.
pub(crate) async fn submit(
    connection: Connection,
    session: SessionToken,
    computed: ComputedLease,
) -> Result<bool, SessionError> {
    let ComputedLease { lease: held, sum, times } = computed;
    let (lease, iteration, span) = (held.id(), held.iteration(), held.upload_span());
    let header = GradientHeader { session, lease, iteration, times, loss_sum: sum.loss };
    let answer = connection.submit_gradient(header, sum.gradient).await;
    let receipt = answer.map_err(SessionError::receive)?;
    drop(span);
    held.record_receipt(&receipt);
    match &receipt {
        Receipt::Accepted => tracing::debug!(%lease, "gradient accepted"),
        Receipt::NotHeld { .. } => tracing::debug!(%lease, "gradient not accepted: the lease is no longer held"),
        Receipt::Refused { reason } => tracing::warn!(%lease, reason, "gradient refused"),
    }
    Ok(receipt == Receipt::Accepted)
}
