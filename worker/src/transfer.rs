//! Parameters in, gradients out.

use ata_wire::proto::{GradientReceipt, ParametersRequest};
use ata_wire::{Connection, GradientHeader, SessionToken, gradient_parts, receive_tensor};
use tonic::{Code, Status};

use crate::compute::Computed;
use crate::error::SessionError;

/// The parameters of an iteration; `None` if the coordinator has moved on.
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

/// Sends a computed lease.
pub(crate) async fn submit(
    mut connection: Connection,
    session: SessionToken,
    computed: Computed,
) -> Result<(), SessionError> {
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
    match connection.submit_gradient(gradient_parts(header.into(), sum.gradient)).await {
        Ok(response) => match response.into_inner() {
            GradientReceipt { accepted: true, .. } => tracing::debug!(lease, "gradient accepted"),
            GradientReceipt { reason, .. } => tracing::warn!(lease, reason, "gradient refused"),
        },
        Err(status) if is_late(&status) => tracing::debug!(lease, "gradient came too late"),
        Err(status) => return Err(SessionError::call(&status)),
    }
    Ok(())
}

/// The lease ended while its gradient was on the way.
fn is_late(status: &Status) -> bool {
    status.code() == Code::Aborted
}
