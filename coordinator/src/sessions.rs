//! The sessions of connected workers.

use std::collections::HashMap;

use ata_types::{Iteration, MachineId, WorkerId};
use ata_wire::{Hello, SessionToken, ToWorker, WorkerName};
use rand::TryRng;
use tokio::sync::mpsc;
use tonic::Status;

use crate::names::{Claim, Names};
use crate::session::{Patience, Presence, Session};
use crate::uploads::Traffic;

/// The service's side of a session.
#[derive(Debug)]
pub(crate) struct SessionHandle {
    pub(crate) token: SessionToken,
    /// Messages to send to the worker.
    pub(crate) messages: mpsc::Receiver<ToWorker>,
    pub(crate) presence: Presence,
}

/// A session that was opened.
pub(crate) struct Opened {
    pub(crate) handle: SessionHandle,
    pub(crate) claim: Claim,
    /// An earlier session of the same process, whose broken connection had not been noticed.
    pub(crate) replaced: Option<Session>,
}

/// The connected workers. Every lookup takes constant time.
#[derive(Debug, Default)]
pub(crate) struct Sessions {
    by_token: HashMap<SessionToken, Session>,
    by_worker: HashMap<WorkerId, SessionToken>,
    names: Names,
    /// Workers with a non-empty outbox; may contain duplicates.
    dirty: Vec<WorkerId>,
}

impl Sessions {
    /// Opens a session.
    pub(crate) fn open(&mut self, now_s: f64, hello: &Hello, machine: MachineId) -> Result<Opened, Status> {
        if let Some(why) = self.names.expelled(&hello.name) {
            let text = format!("worker '{}' was expelled from this run: {why}", hello.name);
            return Err(Status::permission_denied(text));
        }
        let token = random_token()?;
        let claim = self
            .names
            .arrive(&hello.name, hello.number)
            .ok_or_else(|| Status::resource_exhausted("the maximum number of workers is connected; try again later"))?;
        let old = self.by_worker.get(&claim.worker).and_then(|token| self.by_token.get(token));
        if let Some(old) = old
            && old.instance != hello.instance
        {
            let text = format!("another worker named '{}' is connected: choose another --name", hello.name);
            return Err(Status::already_exists(text));
        }
        let replaced = self.remove(claim.worker);
        let (session, messages) = Session::new(now_s, claim.worker, machine, hello);
        let handle = SessionHandle { token, messages, presence: session.presence() };
        self.by_worker.insert(claim.worker, token);
        self.by_token.insert(token, session);
        Ok(Opened { handle, claim, replaced })
    }

    /// The session of a token.
    pub(crate) fn of_token(&mut self, token: SessionToken) -> Result<&mut Session, Status> {
        self.by_token.get_mut(&token).ok_or_else(|| Status::unauthenticated("no such session"))
    }

    /// The session of a worker.
    pub(crate) fn of_worker(&mut self, worker: WorkerId) -> Option<&mut Session> {
        self.by_token.get_mut(self.by_worker.get(&worker)?)
    }

    /// The session of a worker, for adding to its outbox, which the next [`Self::flush`] sends.
    pub(crate) fn addressed(&mut self, worker: WorkerId) -> Option<&mut Session> {
        self.dirty.push(worker);
        self.of_worker(worker)
    }

    /// Adds a message to a worker's outbox.
    pub(crate) fn say(&mut self, worker: WorkerId, message: ToWorker) {
        if let Some(session) = self.addressed(worker) {
            session.outbox.push(message);
        }
    }

    /// Sends the messages in all outboxes. Ends and returns the sessions of workers that do not read theirs.
    pub(crate) fn flush(&mut self) -> Vec<Session> {
        let mut broken = Vec::new();
        for worker in std::mem::take(&mut self.dirty) {
            if self.of_worker(worker).is_some_and(|session| !session.flush()) {
                broken.extend(self.close(worker));
            }
        }
        broken
    }

    /// Ends a session by its token.
    pub(crate) fn close_token(&mut self, token: SessionToken) -> Option<Session> {
        let worker = self.by_token.get(&token)?.worker;
        self.close(worker)
    }

    /// Ends the session of a worker.
    pub(crate) fn close(&mut self, worker: WorkerId) -> Option<Session> {
        let session = self.remove(worker)?;
        self.names.leave(&session.name);
        Some(session)
    }

    /// Ends the session of a worker, if it has one, and refuses its name from now on.
    pub(crate) fn expel(&mut self, worker: WorkerId, why: &str) -> Option<Session> {
        let session = self.close(worker);
        self.names.expel(worker, why);
        session
    }

    /// The names that are refused, and why.
    pub(crate) fn expelled(&self) -> impl Iterator<Item = &(WorkerName, String)> {
        self.names.all_expelled()
    }

    fn remove(&mut self, worker: WorkerId) -> Option<Session> {
        self.by_token.remove(&self.by_worker.remove(&worker)?)
    }

    /// Ends the sessions whose workers are silent or do not read, and says why.
    pub(crate) fn close_overdue(&mut self, now_s: f64, patience: &Patience) -> Vec<(Session, &'static str)> {
        let overdue = |session: &mut Session| Some((session.worker, session.overdue(now_s, patience)?));
        let mut overdue: Vec<_> = self.by_token.values_mut().filter_map(overdue).collect();
        overdue.sort_unstable();
        overdue.into_iter().filter_map(|(worker, why)| Some((self.close(worker)?, why))).collect()
    }

    /// Ends the sessions that keep the oldest version of the parameters in memory, if it is one before `current`.
    pub(crate) fn close_oldest(&mut self, current: Iteration) -> Vec<Session> {
        let versions = self.by_token.values().filter_map(|session| Some((session.oldest_version()?, session.worker)));
        let versions: Vec<_> = versions.filter(|(version, _)| *version < current).collect();
        let Some(oldest) = versions.iter().map(|(version, _)| *version).min() else { return Vec::new() };
        let mut workers: Vec<_> = versions.into_iter().filter(|(version, _)| *version == oldest).collect();
        workers.sort_unstable();
        workers.into_iter().filter_map(|(_, worker)| self.close(worker)).collect()
    }

    /// Forgets the workers that are absent the longest, if there are many; returns their numbers, which others may have now.
    pub(crate) fn forget_long_absent(&mut self) -> Vec<WorkerId> {
        self.names.forget_long_absent()
    }

    /// The session whose gradients arrive most slowly, of those that must give way to others. `traffic` is what arrives, if others
    /// wait for the room that a session has.
    pub(crate) fn slowest_sender(
        &mut self,
        now_s: f64,
        traffic: impl Fn(SessionToken) -> Option<Traffic>,
    ) -> Option<&mut Session> {
        let sessions = self.by_token.iter_mut();
        let slow =
            sessions.filter_map(|(token, session)| Some((session.sends_too_slowly(now_s, traffic(*token))?, session)));
        slow.min_by(|(a, one), (b, other)| a.total_cmp(b).then(one.worker.cmp(&other.worker))).map(|(_, slow)| slow)
    }

    /// Ends all sessions.
    pub(crate) fn close_all(&mut self) -> Vec<Session> {
        self.by_worker.clear();
        self.by_token.drain().map(|(_, session)| session).collect()
    }

    /// Sessions of a run that is resumed, in which no worker is present yet.
    pub(crate) fn restored(names: Names) -> Self {
        Self { names, ..Self::default() }
    }

    /// Numbers and names of all workers that took part, the longest absent first, and those present last.
    pub(crate) fn names_by_departure(&self) -> impl Iterator<Item = (WorkerId, &WorkerName)> {
        self.names.by_departure()
    }

    /// Names by number, of all workers that took part and whose number was not reassigned.
    pub(crate) fn names(&self) -> impl Iterator<Item = (WorkerId, &WorkerName)> {
        self.names.iter()
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
    use crate::parameters::ParameterSet;
    use ata_types::{Iteration, Lease, LeaseId, TaskRange};
    use ata_wire::limits::MAX_BATCH;
    use ata_wire::{Pool, Reader};
    use std::time::Duration;

    const PATIENCE: Patience =
        Patience { heartbeat: Duration::from_secs(2), idle: Duration::from_secs(10), download: Duration::from_mins(1) };

    fn hello(name: &str, instance: u64) -> Hello {
        Hello { name: name.parse().unwrap(), instance, number: None, device: String::new(), version: String::new() }
    }

    fn open(sessions: &mut Sessions, name: &str, instance: u64) -> Opened {
        sessions.open(0.0, &hello(name, instance), MachineId(1)).unwrap()
    }

    fn parameters(iteration: u64) -> ParameterSet {
        ParameterSet::new(Iteration(iteration), vec![1.0], &Pool::default())
    }

    fn lease(id: u64, iteration: u64) -> Lease {
        Lease { id: LeaseId(id), iteration: Iteration(iteration), tasks: TaskRange::single(id) }
    }

    #[test]
    fn a_name_in_use_is_refused_but_the_same_process_replaces_itself() {
        let mut sessions = Sessions::default();
        let first = open(&mut sessions, "a", 1);
        assert_eq!(sessions.open(0.0, &hello("a", 2), MachineId(1)).err().unwrap().code(), tonic::Code::AlreadyExists);
        let second = open(&mut sessions, "a", 1);
        assert_eq!(second.replaced.unwrap().worker, first.claim.worker);
        assert_eq!(second.claim.worker, first.claim.worker);
        assert_eq!(sessions.of_token(first.handle.token).unwrap_err().code(), tonic::Code::Unauthenticated);
        sessions.close(first.claim.worker);
        assert_eq!(open(&mut sessions, "a", 3).claim.worker, first.claim.worker, "it gets its old number");
    }

    #[test]
    fn silence_is_noticed_and_sooner_from_a_worker_with_work() {
        let mut sessions = Sessions::default();
        let presence = open(&mut sessions, "a", 1).handle.presence;
        let mut closed = |now_s| sessions.close_overdue(now_s, &PATIENCE).len();
        assert_eq!(closed(10.0), 0);
        presence.hear_heartbeat(true);
        assert_eq!((closed(11.0), closed(21.0)), (0, 0));
        presence.hear_heartbeat(false);
        assert_eq!((closed(22.0), closed(24.0)), (0, 0));
        presence.hear();
        assert_eq!((closed(25.0), closed(27.0)), (0, 0), "anything is a sign of life");
        assert!(!presence.ended.is_cancelled());
        assert_eq!(closed(27.1), 1);
        assert!(presence.ended.is_cancelled());
    }

    /// A worker may get more leases at a time than its queue can hold messages.
    #[test]
    fn leases_are_sent_in_batches() {
        let mut sessions = Sessions::default();
        let mut opened = open(&mut sessions, "a", 1);
        let session = sessions.addressed(opened.claim.worker).unwrap();
        for id in 0..20_000 {
            session.assign(&lease(id, 1), &parameters(1), None);
        }
        session.cancel(LeaseId(5));
        session.cancel(LeaseId(6));
        assert!(sessions.flush().is_empty());
        let mut sizes = Vec::new();
        while let Ok(message) = opened.handle.messages.try_recv() {
            match message {
                ToWorker::Assign(batch) => sizes.push(batch.len()),
                ToWorker::Cancel(batch) => assert_eq!(batch, [LeaseId(5), LeaseId(6)]),
                other => panic!("{other:?}"),
            }
        }
        assert_eq!(sizes, [MAX_BATCH, MAX_BATCH, 20_000 - 2 * MAX_BATCH]);
    }

    #[test]
    fn a_worker_that_takes_no_messages_is_thrown_out() {
        let mut sessions = Sessions::default();
        let opened = open(&mut sessions, "a", 1);
        drop(opened.handle.messages);
        sessions.say(opened.claim.worker, ToWorker::Cancel(vec![LeaseId(1)]));
        assert_eq!(sessions.flush().len(), 1);
        assert!(sessions.of_worker(opened.claim.worker).is_none());
    }

    /// A worker that reads slowly gets the latest parameters, by one call at a time, and what it was sent is not kept.
    #[test]
    fn at_most_one_version_waits_for_a_worker() {
        let mut sessions = Sessions::default();
        let opened = open(&mut sessions, "a", 1);
        let session = sessions.of_worker(opened.claim.worker).unwrap();
        let assign = |session: &mut Session, id, iteration| {
            session.assign(&lease(id, iteration), &parameters(iteration), None);
        };
        assign(session, 1, 1);
        let sent = session.parameters(0.0, Reader::default()).unwrap();
        assert!(session.parameters(0.0, Reader::default()).is_err());
        assert_eq!((sent.take(), sent.take()), (Ok(Some(Iteration(1))), Ok(None)), "what was due before the call");
        assert_eq!(session.oldest_version(), None);
        assign(session, 2, 1);
        assert_eq!(sent.take(), Ok(None), "once per iteration");
        assign(session, 3, 2);
        assign(session, 4, 3);
        assert_eq!((sent.take(), sent.take()), (Ok(Some(Iteration(3))), Ok(None)));
        drop(sent);
        let sent = session.parameters(0.0, Reader::default()).unwrap();
        assign(session, 5, 4);
        (1..=5).for_each(|id| session.ended(LeaseId(id)));
        assert_eq!(sent.take(), Ok(None), "without leases it needs none");
        assign(session, 6, 4);
        assert_eq!(sent.take(), Ok(Some(Iteration(4))));
        sessions.close(opened.claim.worker);
        assert_eq!(sent.take(), Err(()));
    }

    #[test]
    fn those_that_keep_the_oldest_version_are_the_first_to_go() {
        let mut sessions = Sessions::default();
        let workers: Vec<_> = ["a", "b", "c", "d"].map(|name| open(&mut sessions, name, 1)).into();
        for (opened, iteration) in workers.iter().zip([2, 1, 1, 3]) {
            let session = sessions.of_worker(opened.claim.worker).unwrap();
            session.assign(&lease(iteration, iteration), &parameters(iteration), None);
        }
        let mut closed =
            || sessions.close_oldest(Iteration(3)).iter().map(|session| session.name.to_string()).collect::<Vec<_>>();
        assert_eq!([closed(), closed(), closed()], [vec!["b".to_owned(), "c".into()], vec!["a".into()], vec![]]);
    }

    #[test]
    fn a_gradient_is_sent_once_at_a_time() {
        let mut sessions = Sessions::default();
        let opened = open(&mut sessions, "a", 1);
        let session = sessions.of_worker(opened.claim.worker).unwrap();
        let lease = lease(1, 3);
        session.assign(&lease, &parameters(3), None);
        assert_eq!(session.sending.begin(lease.id), Ok(()));
        assert!(session.sending.begin(lease.id).is_err());
        session.ended(lease.id);
        assert_eq!(session.sending.begin(lease.id), Ok(()), "the engine checks which lease it is");
    }
}
