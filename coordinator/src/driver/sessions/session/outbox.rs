//! The messages that are queued for a worker.

use ata_wire::{FarewellReason, ToWorker};

use super::Session;

impl Session {
    /// Adds a message to the outbox.
    pub(crate) fn push(&mut self, message: ToWorker) {
        self.outbox.push(message);
    }

    /// Sends the messages of the outbox. Returns `false` if the worker does not read them fast enough, or has left.
    pub(crate) fn flush(&mut self) -> bool {
        self.outbox.drain(..).all(|message| self.messages.try_send(message).is_ok())
    }

    /// Sends a farewell, and ends the session.
    pub(crate) fn farewell(mut self, reason: FarewellReason, detail: impl Into<String>) {
        self.outbox.push(ToWorker::Farewell { reason, detail: detail.into() });
        // The session ends whether or not the worker receives it.
        self.flush();
    }
}
