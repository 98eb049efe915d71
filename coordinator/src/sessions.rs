//! The sessions of connected workers.

use std::collections::{HashMap, VecDeque};

use ata_record::RefusalKind;
use ata_scheduler::{Lease, LeaseId, WorkerId};
use ata_wire::limits::{MAX_BATCH, MAX_UPLOADS};
use ata_wire::{Assignment, FarewellReason, Hello, SessionToken, ToWorker, WorkerName};
use rand::TryRng;
use tokio::sync::{mpsc, oneshot, watch};
use tonic::Status;

use crate::names::{Claim, Names};
use crate::parameters::ParameterSet;

/// Leases that are remembered as delivered: whoever sends a gradient again does so soon, or it counts as late.
const DELIVERED: usize = 64;

/// The owner's side of a worker's session. Dropping it ends the session.
#[derive(Debug)]
pub(crate) struct Session {
    pub(crate) worker: WorkerId,
    pub(crate) name: WorkerName,
    pub(crate) device: String,
    instance: u64,
    /// Whether the worker reported Ready.
    pub(crate) is_ready: bool,
    /// When the worker was last heard from, in seconds of the run's clock.
    pub(crate) heard_s: f64,
    /// Whether it computes the same bits as others of which this is true.
    pub(crate) is_exact: bool,
    /// The first and the last lease that it was given.
    given: Option<(LeaseId, LeaseId)>,
    /// The last leases whose gradients were accepted.
    delivered: VecDeque<LeaseId>,
    /// Leases whose gradients are in transit.
    uploading: Vec<LeaseId>,
    /// The parameters that it was sent last or, if it reads slowly, is to be sent next: so at most two versions are kept
    /// for it.
    parameters: watch::Sender<Option<ParameterSet>>,
    /// Messages to send when all effects are carried out.
    outbox: Vec<ToWorker>,
    messages: mpsc::Sender<ToWorker>,
    /// Dropped with the session, which ends the task that reads the control stream.
    _alive: oneshot::Sender<()>,
}

/// The service's side of a session.
#[derive(Debug)]
pub(crate) struct SessionHandle {
    pub(crate) token: SessionToken,
    /// Messages to send to the worker.
    pub(crate) messages: mpsc::Receiver<ToWorker>,
    /// Resolves when the owner ends the session.
    pub(crate) ended: oneshot::Receiver<()>,
}

/// A session that was opened.
pub(crate) struct Opened {
    pub(crate) handle: SessionHandle,
    pub(crate) claim: Claim,
    /// An earlier session of the same process, whose broken connection had not been noticed.
    pub(crate) replaced: Option<Session>,
}

impl Session {
    /// Adds a lease to the next message, and sends the parameters at which it is to be computed unless that was done.
    pub(crate) fn assign(&mut self, lease: &Lease, parameters: &ParameterSet) {
        self.given = Some((self.given.map_or(lease.id, |(first, _)| first), lease.id));
        debug_assert_eq!(lease.iteration, parameters.iteration, "leases are of the current iteration");
        let is_other = |sent: &Option<ParameterSet>| sent.as_ref().is_none_or(|sent| sent.iteration != lease.iteration);
        self.parameters
            .send_if_modified(|sent| is_other(sent) && sent.replace(parameters.clone()).is_none_or(|_| true));
        let assignment = Assignment {
            lease: lease.id.0,
            iteration: lease.iteration,
            first_task: lease.tasks.first,
            tasks: lease.tasks.count,
        };
        match self.outbox.last_mut() {
            Some(ToWorker::Assign(batch)) if batch.len() < MAX_BATCH => batch.push(assignment),
            _ => self.outbox.push(ToWorker::Assign(vec![assignment])),
        }
    }

    /// Adds the cancellation of a lease to the next message.
    pub(crate) fn cancel(&mut self, lease: LeaseId) {
        match self.outbox.last_mut() {
            Some(ToWorker::Cancel(batch)) if batch.len() < MAX_BATCH => batch.push(lease.0),
            _ => self.outbox.push(ToWorker::Cancel(vec![lease.0])),
        }
    }

    /// What a gradient is for a lease that neither this worker nor another one holds now.
    pub(crate) fn past(&self, lease: LeaseId) -> RefusalKind {
        match self.given {
            Some(_) if self.delivered.contains(&lease) => RefusalKind::Replayed,
            Some((first, last)) if (first..=last).contains(&lease) => RefusalKind::Stale,
            _ => RefusalKind::Foreign,
        }
    }

    /// Records that the gradient of a lease was accepted.
    pub(crate) fn delivered(&mut self, lease: LeaseId) {
        self.delivered.truncate(DELIVERED - 1);
        self.delivered.push_front(lease);
    }

    /// Records that a lease ended.
    pub(crate) fn ended(&mut self, lease: LeaseId) {
        self.uploading.retain(|uploading| *uploading != lease);
    }

    /// The parameters to send to the worker, as they come; an error says why it must not ask for them.
    pub(crate) fn parameters(&mut self) -> Result<watch::Receiver<Option<ParameterSet>>, Status> {
        if self.parameters.receiver_count() > 0 {
            return Err(Status::resource_exhausted("the parameters of this session are being sent already"));
        }
        // Those that were due before are new to this receiver.
        let mut receiver = self.parameters.subscribe();
        receiver.mark_changed();
        Ok(receiver)
    }

    /// Records that the worker is about to send the gradient of a lease that it holds; an error says why it must not.
    pub(crate) fn begin_upload(&mut self, lease: LeaseId) -> Result<(), (RefusalKind, &'static str)> {
        if self.uploading.contains(&lease) {
            return Err((RefusalKind::Replayed, "its gradient is being sent already"));
        }
        // A lease that failed in transit leaves the list, so an honest worker stays below this.
        if self.uploading.len() >= 2 * MAX_UPLOADS {
            return Err((RefusalKind::TooMany, "the worker is sending too many gradients at a time"));
        }
        self.uploading.push(lease);
        Ok(())
    }

    /// Queues the messages of the outbox; `false` if the worker does not read them fast enough, or is gone.
    fn flush(&mut self) -> bool {
        self.outbox.drain(..).all(|message| self.messages.try_send(message).is_ok())
    }

    /// Sends a farewell, and ends the session.
    pub(crate) fn farewell(mut self, reason: FarewellReason, detail: impl Into<String>) {
        self.outbox.push(ToWorker::Farewell { reason, detail: detail.into() });
        // The session ends whether or not the worker gets it.
        self.flush();
    }
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
    pub(crate) fn open(&mut self, now_s: f64, hello: &Hello) -> Result<Opened, Status> {
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
        let (messages, receiver) = mpsc::channel(ata_wire::limits::MAX_QUEUED_MESSAGES);
        let (alive, ended) = oneshot::channel();
        let session = Session {
            worker: claim.worker,
            name: hello.name.clone(),
            device: hello.device.clone(),
            instance: hello.instance,
            is_ready: false,
            heard_s: now_s,
            is_exact: false,
            given: None,
            delivered: VecDeque::new(),
            uploading: Vec::new(),
            parameters: watch::Sender::default(),
            outbox: Vec::new(),
            messages,
            _alive: alive,
        };
        self.by_worker.insert(claim.worker, token);
        self.by_token.insert(token, session);
        Ok(Opened { handle: SessionHandle { token, messages: receiver, ended }, claim, replaced })
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

    /// Ends the sessions that were not heard from for `timeout_s`.
    pub(crate) fn close_silent(&mut self, now_s: f64, timeout_s: f64) -> Vec<Session> {
        let silent = self.by_token.values().filter(|session| now_s - session.heard_s > timeout_s);
        let mut silent: Vec<WorkerId> = silent.map(|session| session.worker).collect();
        silent.sort_unstable();
        silent.into_iter().filter_map(|worker| self.close(worker)).collect()
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
    pub(crate) fn names_by_departure(&self) -> impl Iterator<Item = (u32, &WorkerName)> {
        self.names.by_departure()
    }

    /// Names by number, of all workers that took part and whose number was not reassigned.
    pub(crate) fn names(&self) -> impl Iterator<Item = (u32, &WorkerName)> {
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
    use ata_scheduler::TaskRange;
    use ata_wire::Pool;

    fn hello(name: &str, instance: u64) -> Hello {
        Hello { name: name.parse().unwrap(), instance, number: None, device: String::new(), version: String::new() }
    }

    fn open(sessions: &mut Sessions, name: &str, instance: u64) -> Opened {
        sessions.open(0.0, &hello(name, instance)).unwrap()
    }

    fn parameters(iteration: u64) -> ParameterSet {
        ParameterSet::new(iteration, vec![1.0], &Pool::default())
    }

    #[test]
    fn a_name_in_use_is_refused_but_the_same_process_replaces_itself() {
        let mut sessions = Sessions::default();
        let first = open(&mut sessions, "a", 1);
        assert_eq!(sessions.open(0.0, &hello("a", 2)).err().unwrap().code(), tonic::Code::AlreadyExists);
        let second = open(&mut sessions, "a", 1);
        assert_eq!(second.replaced.unwrap().worker, first.claim.worker);
        assert_eq!(second.claim.worker, first.claim.worker);
        assert_eq!(sessions.of_token(first.handle.token).unwrap_err().code(), tonic::Code::Unauthenticated);
        sessions.close(first.claim.worker);
        assert_eq!(open(&mut sessions, "a", 3).claim.worker, first.claim.worker, "it gets its old number");
    }

    #[test]
    fn leases_that_are_not_held_are_told_apart() {
        let mut sessions = Sessions::default();
        let opened = open(&mut sessions, "a", 1);
        let session = sessions.of_worker(opened.claim.worker).unwrap();
        assert_eq!(session.past(LeaseId(5)), RefusalKind::Foreign, "it was given none");
        for id in 100..300 {
            session.assign(&Lease { id: LeaseId(id), iteration: 1, tasks: TaskRange::single(id) }, &parameters(1));
            if id % 2 == 0 {
                session.delivered(LeaseId(id));
            }
        }
        for (id, kind) in [
            (99, RefusalKind::Foreign),
            (101, RefusalKind::Stale),
            (298, RefusalKind::Replayed),
            (299, RefusalKind::Stale),
            (300, RefusalKind::Foreign),
            (100, RefusalKind::Stale),
        ] {
            assert_eq!(session.past(LeaseId(id)), kind, "{id}");
        }
        assert_eq!(session.delivered.len(), DELIVERED, "memory is bounded");
    }

    #[test]
    fn silence_is_noticed() {
        let mut sessions = Sessions::default();
        let opened = open(&mut sessions, "a", 1);
        assert!(sessions.close_silent(2.0, 2.0).is_empty());
        sessions.of_token(opened.handle.token).unwrap().heard_s = 1.0;
        assert!(sessions.close_silent(2.9, 2.0).is_empty());
        assert_eq!(sessions.close_silent(3.1, 2.0).len(), 1);
    }

    /// A worker may get more leases at a time than its queue can hold messages.
    #[test]
    fn leases_are_sent_in_batches() {
        let mut sessions = Sessions::default();
        let mut opened = open(&mut sessions, "a", 1);
        let session = sessions.addressed(opened.claim.worker).unwrap();
        for id in 0..20_000 {
            session.assign(&Lease { id: LeaseId(id), iteration: 1, tasks: TaskRange::single(id) }, &parameters(1));
        }
        session.cancel(LeaseId(5));
        session.cancel(LeaseId(6));
        assert!(sessions.flush().is_empty());
        let mut sizes = Vec::new();
        while let Ok(message) = opened.handle.messages.try_recv() {
            match message {
                ToWorker::Assign(batch) => sizes.push(batch.len()),
                ToWorker::Cancel(batch) => assert_eq!(batch, [5, 6]),
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
        sessions.say(opened.claim.worker, ToWorker::Cancel(vec![1]));
        assert_eq!(sessions.flush().len(), 1);
        assert!(sessions.of_worker(opened.claim.worker).is_none());
    }

    /// A worker that reads slowly gets the latest parameters, and one call at a time.
    #[test]
    fn at_most_one_version_waits_for_a_worker() {
        let mut sessions = Sessions::default();
        let opened = open(&mut sessions, "a", 1);
        let session = sessions.of_worker(opened.claim.worker).unwrap();
        let assign = |session: &mut Session, iteration| {
            let lease = Lease { id: LeaseId(iteration), iteration, tasks: TaskRange::single(0) };
            session.assign(&lease, &parameters(iteration));
        };
        assign(session, 1);
        let mut sent = session.parameters().unwrap();
        assert!(session.parameters().is_err());
        let next = |sent: &mut watch::Receiver<Option<ParameterSet>>| {
            let is_new = sent.has_changed().unwrap();
            is_new.then(|| sent.borrow_and_update().as_ref().unwrap().iteration)
        };
        assert_eq!((next(&mut sent), next(&mut sent)), (Some(1), None), "what was due before the call");
        assign(session, 1);
        assert_eq!(next(&mut sent), None, "once per iteration");
        assign(session, 2);
        assign(session, 3);
        assert_eq!((next(&mut sent), next(&mut sent)), (Some(3), None));
        drop(sent);
        assert!(session.parameters().is_ok());
    }

    #[test]
    fn a_gradient_is_sent_once_at_a_time() {
        let mut sessions = Sessions::default();
        let opened = open(&mut sessions, "a", 1);
        let session = sessions.of_worker(opened.claim.worker).unwrap();
        let lease = Lease { id: LeaseId(1), iteration: 3, tasks: TaskRange::single(0) };
        session.assign(&lease, &parameters(3));
        assert_eq!(session.begin_upload(lease.id), Ok(()));
        assert!(session.begin_upload(lease.id).is_err());
        session.ended(lease.id);
        assert_eq!(session.begin_upload(lease.id), Ok(()), "the engine checks which lease it is");
    }
}
