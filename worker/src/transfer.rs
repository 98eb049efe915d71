//! Parameters in, gradients out.

use ata_wire::proto::ParametersRequest;
use ata_wire::{Connection, GradientHeader, Receipt, SessionToken, gradient_parts, receive_tensor};
use tonic::Code;

use crate::compute::Computed;
use crate::error::SessionError;

/// Fetches the parameters of an iteration; `None` if the coordinator has moved on.
pub(crate) async fn parameters(
    mut connection: Connection,
    session: SessionToken,
    iteration: u64,
    expected: u64,
) -> Result<Option<Vec<f32>>, SessionError> {
    let request = ParametersRequest { session: session.to_wire(), iteration };
    let mut parts = match connection.parameters(request).await {
        Ok(response) => response.into_inner(),
        Err(status) if status.code() == Code::NotFound => return Ok(None),
        Err(status) => return Err(SessionError::call(&status)),
    };
    receive_tensor(&mut parts, expected).await.map(Some).map_err(SessionError::receive)
}

/// Sends a computed lease. Returns whether its gradient counts.
pub(crate) async fn submit(
    mut connection: Connection,
    session: SessionToken,
    computed: Computed,
) -> Result<bool, SessionError> {
    let Computed { assignment, sum, busy_s, outlasted } = computed;
    let header = GradientHeader {
        session,
        lease: assignment.lease,
        iteration: assignment.iteration,
        busy_s,
        loss_sum: sum.loss,
        outlasted,
    };
    let lease = assignment.lease;
    let answer = connection.submit_gradient(gradient_parts(header.into(), sum.gradient)).await;
    let receipt = Receipt::from(answer.map_err(|status| SessionError::call(&status))?.into_inner());
    match &receipt {
        Receipt::Accepted => tracing::debug!(lease, "gradient accepted"),
        Receipt::NotHeld { .. } => tracing::debug!(lease, "gradient not accepted: the lease is no longer held"),
        Receipt::Refused { reason } => tracing::warn!(lease, reason, "gradient refused"),
    }
    Ok(receipt == Receipt::Accepted)
}
