//! Reports the result of a call that sends a gradient, even if the call is dropped.

use ata_record::RefusalKind;
use ata_types::VectorId;
use ata_wire::{Receipt, SessionToken};
use tokio::sync::mpsc;
use tonic::Status;

use super::{UploadError, over};
use crate::driver::{DriverCommand, GAVE_UP};

/// Reports a failure if the call that sends a gradient is dropped before the driver knows the result.
pub(super) struct UploadGuard {
    driver: mpsc::Sender<DriverCommand>,
    session: SessionToken,
    vector: VectorId,
    is_armed: bool,
}

impl UploadGuard {
    pub(super) fn new(driver: mpsc::Sender<DriverCommand>, session: SessionToken, vector: VectorId) -> Self {
        Self { driver, session, vector, is_armed: true }
    }

    fn failed(&self, kind: RefusalKind, reason: String) -> DriverCommand {
        DriverCommand::VectorFailed { session: self.session, vector: self.vector, kind, reason }
    }

    pub(super) async fn settle(&mut self, result: DriverCommand) -> Result<(), Status> {
        self.driver.send(result).await.map_err(|_| over())?;
        self.disarm();
        Ok(())
    }

    /// Reports a failure to the driver, so that other workers can compute the tasks right away. Returns the response of the call.
    pub(super) async fn fail(&mut self, error: UploadError) -> Result<Receipt, Status> {
        let (kind, reason) = (error.kind(), error.to_string());
        self.settle(self.failed(kind, reason.clone())).await?;
        match error {
            UploadError::Receive(error) if kind == RefusalKind::NotReceived => Err(error.into()),
            _ => Ok(Receipt::Refused { reason }),
        }
    }

    pub(super) fn disarm(&mut self) {
        self.is_armed = false;
    }
}

impl Drop for UploadGuard {
    fn drop(&mut self) {
        if self.is_armed {
            let (driver, failed) = (self.driver.clone(), self.failed(RefusalKind::NotReceived, GAVE_UP.to_owned()));
            // If the driver is gone, the run is over.
            tokio::spawn(async move { driver.send(failed).await.unwrap_or(()) });
        }
    }
}
