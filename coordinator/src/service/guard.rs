//! Reports the result of a call that sends a gradient, even if the call is dropped.

use ata_record::RefusalKind;
use ata_wire::Receipt;
use tokio::sync::mpsc;
use tonic::Status;

use super::{UploadError, over};
use crate::driver::{DriverCommand, GAVE_UP};

/// Makes the command that reports a failure, from its kind and reason.
type Failed = Box<dyn FnOnce(RefusalKind, String) -> DriverCommand + Send>;

/// Reports a failure if the call that sends a gradient is dropped before the driver knows the result.
pub(super) struct UploadGuard {
    driver: mpsc::Sender<DriverCommand>,
    failed: Option<Failed>,
}

impl UploadGuard {
    pub(super) fn new(
        driver: mpsc::Sender<DriverCommand>,
        failed: impl FnOnce(RefusalKind, String) -> DriverCommand + Send + 'static,
    ) -> Self {
        Self { driver, failed: Some(Box::new(failed)) }
    }

    /// Sends the result to the driver.
    pub(super) async fn settle(&mut self, result: DriverCommand) -> Result<(), Status> {
        self.driver.send(result).await.map_err(|_| over())?;
        self.disarm();
        Ok(())
    }

    /// Reports a failure to the driver, so that other workers can compute the tasks right away. Returns the response of the call.
    pub(super) async fn fail(&mut self, error: UploadError) -> Result<Receipt, Status> {
        let (kind, reason) = (error.kind(), error.to_string());
        if let Some(failed) = self.failed.take() {
            self.driver.send(failed(kind, reason.clone())).await.map_err(|_| over())?;
        }
        match error {
            UploadError::Receive(error) if kind == RefusalKind::NotReceived => Err(error.into()),
            _ => Ok(Receipt::Refused { reason }),
        }
    }

    /// Disarms the guard, since the driver knows the result.
    pub(super) fn disarm(&mut self) {
        self.failed = None;
    }
}

impl Drop for UploadGuard {
    fn drop(&mut self) {
        if let Some(failed) = self.failed.take() {
            let (driver, failed) = (self.driver.clone(), failed(RefusalKind::NotReceived, GAVE_UP.to_owned()));
            // If the driver is gone, the run is over.
            tokio::spawn(async move { driver.send(failed).await.unwrap_or(()) });
        }
    }
}
