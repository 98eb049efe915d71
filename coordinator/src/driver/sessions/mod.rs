//! The sessions of connected workers.

mod names;
mod resources;
mod session;

pub(crate) use names::{Claim, Names, WorkerIdentity};
pub(crate) use resources::INTERVAL_S as RESOURCES_INTERVAL_S;
pub(crate) use session::{Presence, Session};

use std::collections::{BTreeMap, HashMap};

use ata_record::{ExcludedFrom, WorkerResources};
use ata_sums::Units;
use ata_types::{Iteration, MachineId, WorkerId};
use ata_wire::{Hello, SessionToken, ToWorker};
use rand::TryRng;
use tokio::sync::mpsc;
use tonic::Status;

use crate::config::Timeouts;
use crate::parameters::ParameterSet;

/// The service's side of a session.
#[derive(Debug)]
pub(crate) struct SessionHandle {
    pub(crate) token: SessionToken,
    pub(crate) messages: mpsc::Receiver<ToWorker>,
    pub(crate) presence: Presence,
}

pub(crate) struct OpenedSession {
    pub(crate) handle: SessionHandle,
    pub(crate) claim: Claim,
    /// An earlier session of the same process, if its broken connection had not been noticed.
    pub(crate) replaced: Option<Session>,
}

/// The connected workers. Every lookup takes constant time.
#[derive(Debug, Default)]
pub(crate) struct Sessions {
    by_token: HashMap<SessionToken, Session>,
    by_worker: HashMap<WorkerId, SessionToken>,
    pub(crate) names: Names,
    /// The workers that leave, and whether they have delivered all that they have begun.
    pub(crate) leaving: BTreeMap<WorkerId, bool>,
    /// The workers with a non-empty outbox. May contain duplicates.
    dirty: Vec<WorkerId>,
}

impl Sessions {
    pub(crate) fn restored(names: Names) -> Self {
        Self { names, ..Self::default() }
    }

    /// Opens the session of a worker. `is_clear` says whether nothing counts against a number, so that another machine may have it.
    pub(crate) fn open(
        &mut self,
        now_s: f64,
        hello: &Hello,
        machine: String,
        is_clear: impl Fn(WorkerId) -> bool,
    ) -> Result<OpenedSession, Status> {
        let identity = WorkerIdentity { name: hello.name.clone(), machine };
        let WorkerIdentity { name, machine } = &identity;
        let expelled = self.names.exclusions(&identity).find(|exclusion| exclusion.from == ExcludedFrom::Run);
        if let Some(expelled) = expelled {
            return Err(Status::permission_denied(format!(
                "worker '{name}' at {machine} was expelled from this run: {}; `ata workers forgive {name}` on the \
                 coordinator's machine lets it join again",
                expelled.why
            )));
        }
        let token = random_token()?;
        let session = |worker: &WorkerId| self.by_token.get(self.by_worker.get(worker)?);
        let is_same = |worker: &WorkerId| session(worker).is_some_and(|old| old.instance == hello.instance);
        let same = self.names.present(name).map(|(_, worker)| worker).find(is_same);
        // Workers of the same name on other machines do not matter: otherwise anyone could keep a worker out by taking its name.
        if same.is_none() && self.names.present(name).any(|(at, _)| at == machine) {
            let text = format!("another worker named '{name}' is connected from {machine}: choose another --name");
            return Err(Status::already_exists(text));
        }
        if self.names.present(name).any(|(at, _)| at != machine) && same.is_none() {
            tracing::warn!(%name, machine, "a worker of the same name is connected from another machine");
        }
        let replaced = same.and_then(|worker| self.close(worker));
        let claim = self
            .names
            .arrive(&identity, hello.number, is_clear)
            .ok_or_else(|| Status::resource_exhausted("the maximum number of workers is connected; try again later"))?;
        let machine = MachineId::of(machine);
        let (session, messages) = Session::new(now_s, claim.worker, machine, hello);
        let handle = SessionHandle { token, messages, presence: session.presence.clone() };
        self.by_worker.insert(claim.worker, token);
        self.by_token.insert(token, session);
        Ok(OpenedSession { handle, claim, replaced })
    }

    pub(crate) fn of_token(&mut self, token: SessionToken) -> Result<&mut Session, Status> {
        self.by_token.get_mut(&token).ok_or_else(|| Status::unauthenticated("no such session"))
    }

    pub(crate) fn units_of(&self, token: SessionToken, iteration: Iteration) -> Option<&Units> {
        self.by_token.get(&token)?.units_of(iteration)
    }

    pub(crate) fn of_worker(&mut self, worker: WorkerId) -> Option<&mut Session> {
        self.by_token.get_mut(self.by_worker.get(&worker)?)
    }

    /// Returns the session of a worker, to add messages to its outbox. The next [`Self::flush`] sends them.
    pub(crate) fn addressed(&mut self, worker: WorkerId) -> Option<&mut Session> {
        self.dirty.push(worker);
        self.of_worker(worker)
    }

    pub(crate) fn ready(&self) -> impl Iterator<Item = &Session> {
        self.by_token.values().filter(|session| session.is_ready)
    }

    /// Sends the parameters of the current iteration again to the workers that compute at them and were sent the next ones.
    pub(crate) fn send_again(&mut self, current: &ParameterSet) {
        self.by_token.values_mut().for_each(|session| session.send_again(current));
    }

    /// Sends the parameters and the units of an iteration that begins to the workers that have begun it ahead.
    pub(crate) fn begin(&mut self, parameters: &ParameterSet, units: Option<&Units>) {
        for session in self.by_token.values_mut().filter(|session| session.has_begun(parameters.iteration)) {
            session.bring_up_to(parameters, units);
            self.dirty.push(session.worker);
        }
    }

    pub(crate) fn send(&mut self, worker: WorkerId, message: ToWorker) {
        if let Some(session) = self.addressed(worker) {
            session.outbox.push(message);
        }
    }

    /// Sends the messages in all outboxes. Ends and returns the sessions of workers that do not read their messages.
    pub(crate) fn flush(&mut self) -> Vec<Session> {
        let mut broken = Vec::new();
        for worker in std::mem::take(&mut self.dirty) {
            if self.of_worker(worker).is_some_and(|session| !session.flush()) {
                broken.extend(self.close(worker));
            }
        }
        broken
    }

    pub(crate) fn close_token(&mut self, token: SessionToken) -> Option<Session> {
        let worker = self.by_token.get(&token)?.worker;
        self.close(worker)
    }

    pub(crate) fn close(&mut self, worker: WorkerId) -> Option<Session> {
        self.leaving.remove(&worker);
        let session = self.by_token.remove(&self.by_worker.remove(&worker)?)?;
        self.names.leave(worker);
        Some(session)
    }

    /// Ends the sessions whose workers are silent or do not read, and returns them with the reasons.
    pub(crate) fn close_overdue(&mut self, now_s: f64, timeouts: &Timeouts) -> Vec<(Session, &'static str)> {
        let overdue = |session: &mut Session| Some((session.worker, session.overdue(now_s, timeouts)?));
        let mut overdue: Vec<_> = self.by_token.values_mut().filter_map(overdue).collect();
        overdue.sort_unstable();
        overdue.into_iter().filter_map(|(worker, why)| Some((self.close(worker)?, why))).collect()
    }

    /// Returns what workers used since the last call, if that is news.
    pub(crate) fn resources(&mut self, now_s: f64) -> Vec<WorkerResources> {
        let mut news: Vec<_> = self.by_token.values_mut().filter_map(|session| session.resources(now_s)).collect();
        news.sort_unstable_by_key(|resources| resources.worker);
        news
    }

    /// Ends the sessions that keep the oldest version of the parameters in memory, if it is older than `current`.
    pub(crate) fn close_oldest(&mut self, current: Iteration) -> Vec<Session> {
        let versions = self.by_token.values().filter_map(|session| Some((session.oldest_version()?, session.worker)));
        let versions: Vec<_> = versions.filter(|(version, _)| *version < current).collect();
        let Some(oldest) = versions.iter().map(|(version, _)| *version).min() else { return Vec::new() };
        let mut workers: Vec<_> = versions.into_iter().filter(|(version, _)| *version == oldest).collect();
        workers.sort_unstable();
        workers.into_iter().filter_map(|(_, worker)| self.close(worker)).collect()
    }

    pub(crate) fn close_all(&mut self) -> Vec<Session> {
        self.by_worker.clear();
        self.leaving.clear();
        self.by_token.drain().map(|(_, session)| session).collect()
    }
}

pub(crate) fn random_token() -> Result<SessionToken, Status> {
    let mut token = [0; 16];
    rand::rngs::SysRng
        .try_fill_bytes(&mut token)
        .map_err(|error| Status::internal(format!("no randomness for a session token: {error}")))?;
    Ok(SessionToken(token))
}

#[cfg(test)]
mod tests;
