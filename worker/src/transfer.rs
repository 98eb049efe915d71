//! Parameters in, gradients out.

use ata_wire::limits::CHUNK_TIMEOUT;
use ata_wire::proto::{
    GradientPart, GradientReceipt, ParametersRequest, TransferPart, gradient_part, transfer_part::Kind,
};
use ata_wire::{Connection, F32Assembler, GradientHeader, SessionToken, chunks, f32_bytes};
use tonic::{Code, Status, Streaming};

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
    let announced = header(&mut parts).await?;
    let mut assembler = F32Assembler::new(announced, expected).map_err(|error| SessionError::transfer(&error))?;
    while let Some(kind) = next_part(&mut parts).await? {
        let Kind::Chunk(chunk) = kind else { return Err(SessionError::protocol("a second header")) };
        assembler.push(&chunk).map_err(|error| SessionError::transfer(&error))?;
    }
    assembler.finish().map(Some).map_err(|error| SessionError::transfer(&error))
}

/// The size that a transfer announces.
pub(crate) async fn header(parts: &mut Streaming<TransferPart>) -> Result<u64, SessionError> {
    match next_part(parts).await? {
        Some(Kind::Header(header)) => Ok(header.bytes),
        _ => Err(SessionError::protocol("a transfer without a header")),
    }
}

/// The next part of a transfer.
pub(crate) async fn next_part(parts: &mut Streaming<TransferPart>) -> Result<Option<Kind>, SessionError> {
    let part = tokio::time::timeout(CHUNK_TIMEOUT, parts.message())
        .await
        .map_err(|_| SessionError::Broken("a transfer from the coordinator stalled".into()))?
        .map_err(|status| SessionError::call(&status))?;
    match part {
        None => Ok(None),
        Some(part) => part.kind.map(Some).ok_or_else(|| SessionError::protocol("an empty part")),
    }
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
    let part = |kind| GradientPart { kind: Some(kind) };
    let first = part(gradient_part::Kind::Header(header.into()));
    let rest = chunks(f32_bytes(sum.gradient)).map(move |chunk| part(gradient_part::Kind::Chunk(chunk)));
    let lease = assignment.lease;
    match connection.submit_gradient(tokio_stream::iter(std::iter::once(first).chain(rest))).await {
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
