//! How sessions begin and end.

use ata_record::RunEvent;
use ata_scheduler::Event;
use ata_types::MachineId;
use ata_wire::{FarewellReason, Hello, Peer, SessionToken, ToWorker, Welcome};
use tonic::Status;

use super::Owner;
use crate::session::Session;
use crate::sessions::{Opened, SessionHandle};

/// The device whose results are the same bits on every machine; see [`ata_learn::OpenDevice::is_cpu`].
const CPU: &str = "cpu";

impl Owner {
    pub(super) fn hello(&mut self, hello: &Hello, peer: &Peer) -> Result<SessionHandle, Status> {
        let machine = MachineId(peer.machine());
        let Opened { handle, claim, replaced } = self.sessions.open(self.now_s, hello, machine)?;
        if let Some(session) = replaced {
            self.lost(&session, "it reconnected");
        }
        self.sessions.of_token(handle.token)?.admit(peer);
        if claim.is_taken_over {
            self.tell(Event::WorkerForgotten { worker: claim.worker });
        }
        let welcome = ToWorker::Welcome(Welcome {
            session: handle.token,
            worker: claim.worker,
            run_id: self.run_id.clone(),
            heartbeat_interval_ms: self.patience.heartbeat_interval_ms(),
            idle_heartbeat_interval_ms: self.patience.idle_heartbeat_interval_ms(),
            run: self.run_spec.clone(),
        });
        self.sessions.say(claim.worker, welcome);
        tracing::info!(worker = %claim.worker, name = %hello.name, device = hello.device, "worker connected");
        Ok(handle)
    }

    pub(super) fn heard(&mut self, token: SessionToken) {
        if let Ok(session) = self.sessions.of_token(token) {
            session.heard_s = self.now_s;
        }
    }

    pub(super) fn ready(&mut self, token: SessionToken, fuses: bool) {
        self.heard(token);
        let Ok(session) = self.sessions.of_token(token) else { return };
        if session.is_ready {
            return;
        }
        session.is_ready = true;
        session.is_exact = !fuses && session.device == CPU;
        let (worker, machine) = (session.worker, session.machine);
        let (name, device) = (session.name.to_string(), session.device.clone());
        tracing::info!(%worker, name, fuses, "worker ready");
        let prior = self.warm_start.get(&name).copied().unwrap_or_default();
        self.publisher.publish(RunEvent::Join { time_s: self.now_s, worker, name, device });
        self.tell(Event::WorkerJoined { worker, machine, prior, fuses });
    }

    /// Ends a session whose worker does not do its part.
    pub(super) fn dismiss(&mut self, session: Session, why: &str) {
        self.lost(&session, why);
        session.farewell(FarewellReason::Evicted, why);
    }

    /// Records the end of a session, and tells the engine.
    pub(super) fn lost(&mut self, session: &Session, why: &str) {
        let worker = session.worker;
        tracing::warn!(%worker, name = %session.name, why, "worker lost");
        if session.is_ready {
            self.publisher.publish(RunEvent::Loss { time_s: self.now_s, worker, why: why.into() });
            self.tell(Event::WorkerLost { worker });
        }
    }
}
