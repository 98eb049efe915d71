//! Reads the control stream of a worker.

use ata_record::RefusalKind;
use ata_wire::proto::WorkerMessage;
use ata_wire::{FromWorker, SessionToken};
use tokio::sync::mpsc;
use tonic::Streaming;

use crate::driver::{DriverCommand, Presence};

/// Passes a worker's messages to the driver until its stream or its session ends.
pub(super) async fn read(
    driver: mpsc::Sender<DriverCommand>,
    session: SessionToken,
    mut incoming: Streaming<WorkerMessage>,
    presence: Presence,
) {
    let why = loop {
        let message = tokio::select! {
            message = incoming.message() => message,
            () = presence.ended() => return,
        };
        let command = match message {
            Ok(Some(message)) => match FromWorker::try_from(message) {
                Ok(FromWorker::Ready { fuses, peer_address }) => DriverCommand::Ready { session, fuses, peer_address },
                Ok(FromWorker::ExchangeReport(report)) => DriverCommand::ExchangeReported { session, report },
                Ok(FromWorker::Reached { probe, outcome }) => DriverCommand::Reached { session, probe, outcome },
                Ok(FromWorker::Heartbeat { idle }) => {
                    presence.hear_heartbeat(idle);
                    continue;
                }
                Ok(FromWorker::Progress(computed)) => DriverCommand::Progress { session, computed },
                Ok(FromWorker::LeaseFailed { lease, reason, uncomputable }) => {
                    DriverCommand::LeaseFailed { session, lease, kind: kind(uncomputable), reason }
                }
                Ok(FromWorker::VectorFailed { vector, reason, uncomputable }) => {
                    DriverCommand::VectorFailed { session, vector, kind: kind(uncomputable), reason }
                }
                Ok(FromWorker::LinkProbed { bytes, seconds }) => DriverCommand::LinkProbed { session, bytes, seconds },
                Ok(FromWorker::Measured(measured)) => DriverCommand::Measured { session, measured },
                Ok(FromWorker::Hello(_)) => break "it sent Hello twice".into(),
                Err(error) => break error.to_string(),
            },
            Ok(None) => break "it left".into(),
            Err(status) => break format!("its connection broke: {}", status.message()),
        };
        if driver.send(command).await.is_err() {
            return;
        }
    };
    // If the driver is gone, all sessions have ended.
    driver.send(DriverCommand::Left { session, why }).await.unwrap_or(());
}

/// Returns the kind of refusal for a failed computation.
fn kind(is_uncomputable: bool) -> RefusalKind {
    if is_uncomputable { RefusalKind::Uncomputable } else { RefusalKind::NotComputed }
}
