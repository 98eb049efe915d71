//! Sessions, names and numbers of the workers.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use ata_scheduler::WorkerId;
use ata_wire::limits::MAX_WORKERS;
use ata_wire::{Hello, SessionToken, ToWorker, WorkerName};
use rand::TryRng;
use tokio::sync::{mpsc, oneshot};
use tonic::Status;

/// A worker's session, as the owner keeps it. Dropping it ends the session.
#[derive(Debug)]
pub(crate) struct Session {
    pub(crate) token: SessionToken,
    pub(crate) worker: WorkerId,
    pub(crate) name: WorkerName,
    instance: u64,
    /// Whether the worker said it can compute.
    pub(crate) ready: bool,
    pub(crate) heard: Instant,
    messages: mpsc::Sender<ToWorker>,
    /// Dropped with the session, which ends the task that reads the control stream.
    _alive: oneshot::Sender<()>,
}

impl Session {
    /// Queues a message; `false` if the worker does not take them fast enough, or is gone.
    pub(crate) fn send(&self, message: ToWorker) -> bool {
        self.messages.try_send(message).is_ok()
    }
}

/// The ends of a session that the service holds.
#[derive(Debug)]
pub(crate) struct SessionEnds {
    pub(crate) token: SessionToken,
    /// What to send to the worker.
    pub(crate) messages: mpsc::Receiver<ToWorker>,
    /// Resolves when the owner ended the session.
    pub(crate) ended: oneshot::Receiver<()>,
}

/// Who takes part.
#[derive(Debug, Default)]
pub(crate) struct Membership {
    sessions: Vec<Session>,
    /// The number each name has, kept when its session ends.
    numbers: BTreeMap<WorkerName, WorkerId>,
}

impl Membership {
    /// Opens a session. Returns it, and one that it replaces.
    pub(crate) fn open(&mut self, hello: &Hello, now: Instant) -> Result<(SessionEnds, Option<Session>), Status> {
        let replaced = match self.sessions.iter().position(|session| session.name == hello.name) {
            Some(at) if self.sessions[at].instance != hello.instance => {
                let text = format!("another worker named '{}' is connected: choose another --name", hello.name);
                return Err(Status::already_exists(text));
            }
            // The same process again: its old connection broke before we noticed.
            Some(at) => Some(self.sessions.remove(at)),
            None => None,
        };
        let worker = self.number(hello)?;
        let token = random_token()?;
        let (messages, receiver) = mpsc::channel(ata_wire::limits::MAX_QUEUED_MESSAGES);
        let (alive, ended) = oneshot::channel();
        self.sessions.push(Session {
            token,
            worker,
            name: hello.name.clone(),
            instance: hello.instance,
            ready: false,
            heard: now,
            messages,
            _alive: alive,
        });
        Ok((SessionEnds { token, messages: receiver, ended }, replaced))
    }

    /// Its old number, the one it asks for, or the first free one.
    fn number(&mut self, hello: &Hello) -> Result<WorkerId, Status> {
        if let Some(&worker) = self.numbers.get(&hello.name) {
            return Ok(worker);
        }
        let taken: Vec<u32> = self.numbers.values().map(|worker| worker.number()).collect();
        let free = |number: &u32| (1..=MAX_WORKERS as u32).contains(number) && !taken.contains(number);
        let number = hello.number.filter(free).or_else(|| (1..=MAX_WORKERS as u32).find(free));
        let worker = number
            .and_then(WorkerId::new)
            .ok_or_else(|| Status::resource_exhausted(format!("{MAX_WORKERS} workers have taken part already")))?;
        self.numbers.insert(hello.name.clone(), worker);
        Ok(worker)
    }

    /// The session of a token.
    pub(crate) fn of_token(&mut self, token: SessionToken) -> Result<&mut Session, Status> {
        self.sessions
            .iter_mut()
            .find(|session| session.token == token)
            .ok_or_else(|| Status::unauthenticated("no such session"))
    }

    /// The session of a worker.
    pub(crate) fn of_worker(&self, worker: WorkerId) -> Option<&Session> {
        self.sessions.iter().find(|session| session.worker == worker)
    }

    /// Ends a session.
    pub(crate) fn close(&mut self, token: SessionToken) -> Option<Session> {
        let at = self.sessions.iter().position(|session| session.token == token)?;
        Some(self.sessions.remove(at))
    }

    /// Ends the session of a worker.
    pub(crate) fn close_worker(&mut self, worker: WorkerId) -> Option<Session> {
        let token = self.of_worker(worker)?.token;
        self.close(token)
    }

    /// Sessions not heard of for `timeout`.
    pub(crate) fn silent(&self, now: Instant, timeout: Duration) -> Vec<SessionToken> {
        let silent = |session: &&Session| now.saturating_duration_since(session.heard) > timeout;
        self.sessions.iter().filter(silent).map(|session| session.token).collect()
    }

    /// Ends all sessions.
    pub(crate) fn close_all(&mut self) -> Vec<Session> {
        std::mem::take(&mut self.sessions)
    }

    /// How many workers can compute.
    pub(crate) fn ready(&self) -> usize {
        self.sessions.iter().filter(|session| session.ready).count()
    }

    /// The workers that ever took part, by number.
    pub(crate) fn names(&self) -> BTreeMap<u32, String> {
        self.numbers.iter().map(|(name, worker)| (worker.number(), name.to_string())).collect()
    }
}

fn random_token() -> Result<SessionToken, Status> {
    let mut token = [0; 16];
    rand::rngs::SysRng
        .try_fill_bytes(&mut token)
        .map_err(|error| Status::internal(format!("no randomness for a session token: {error}")))?;
    Ok(SessionToken(token))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hello(name: &str, instance: u64, number: Option<u32>) -> Hello {
        Hello { name: name.parse().unwrap(), instance, number, device: String::new(), version: String::new() }
    }

    fn number(members: &mut Membership, hello: &Hello) -> u32 {
        let (ends, _) = members.open(hello, Instant::now()).unwrap();
        members.of_token(ends.token).unwrap().worker.number()
    }

    #[test]
    fn numbers_are_as_asked_or_the_first_free_and_stay_with_the_name() {
        let mut members = Membership::default();
        assert_eq!(number(&mut members, &hello("a", 1, None)), 1);
        assert_eq!(number(&mut members, &hello("b", 1, Some(4))), 4);
        assert_eq!(number(&mut members, &hello("c", 1, Some(4))), 2);
        assert_eq!(number(&mut members, &hello("d", 1, Some(0))), 3);
        assert_eq!(number(&mut members, &hello("e", 1, None)), 5);
        members.close_all();
        assert_eq!(number(&mut members, &hello("b", 2, Some(1))), 4);
    }

    #[test]
    fn a_name_in_use_is_refused_but_the_same_process_replaces_itself() {
        let mut members = Membership::default();
        let now = Instant::now();
        let (first, _) = members.open(&hello("a", 1, None), now).unwrap();
        assert_eq!(members.open(&hello("a", 2, None), now).unwrap_err().code(), tonic::Code::AlreadyExists);
        let (_, replaced) = members.open(&hello("a", 1, None), now).unwrap();
        assert_eq!(replaced.unwrap().token, first.token);
        assert_eq!(members.of_token(first.token).unwrap_err().code(), tonic::Code::Unauthenticated);
    }

    #[test]
    fn silence_is_noticed() {
        let mut members = Membership::default();
        let now = Instant::now();
        let (ends, _) = members.open(&hello("a", 1, None), now).unwrap();
        let timeout = Duration::from_secs(2);
        assert_eq!(members.silent(now + timeout, timeout), []);
        assert_eq!(members.silent(now + timeout * 2, timeout), [ends.token]);
    }
}
