//! Tests of sessions and the messages that they send, without a network.

use std::time::Duration;

use ata_sums::TensorSizes;
use ata_types::{Lease, LeaseId, TaskRange};
use ata_wire::limits::MAX_BATCH;
use ata_wire::{Assignment, ProcessUsage, Reader};

use super::*;
use crate::parameters::DueSets;

const TIMEOUTS: Timeouts =
    Timeouts { heartbeat: Duration::from_secs(2), idle: Duration::from_secs(10), download: Duration::from_mins(1) };

const MACHINE: &str = "10.0.0.1";

fn hello(name: &str, instance: u64) -> Hello {
    Hello { name: name.parse().unwrap(), instance, number: None, device: String::new(), version: String::new() }
}

fn open(sessions: &mut Sessions, name: &str, instance: u64) -> OpenedSession {
    sessions.open(0.0, &hello(name, instance), MACHINE.into(), |_| true).unwrap()
}

fn session() -> (Session, mpsc::Receiver<ToWorker>) {
    Session::new(0.0, WorkerId::from_slot(0), MachineId::of(MACHINE), &hello("a", 1))
}

fn parameters(iteration: u64) -> ParameterSet {
    ParameterSet::complete(Iteration(iteration), &[1.0])
}

fn lease(id: u64, iteration: u64) -> Lease {
    Lease { id: LeaseId(id), iteration: Iteration(iteration), tasks: TaskRange::single(id), own: None }
}

fn assign(session: &mut Session, id: u64, iteration: u64, units: Option<&Units>) {
    let assignment = Assignment { lease: lease(id, iteration), position: 0, vector: None };
    session.assign(assignment, &parameters(iteration), units);
}

fn taken(sent: &DueSets) -> Vec<u64> {
    std::iter::from_fn(|| sent.take().unwrap()).map(Iteration::number).collect()
}

#[test]
fn a_name_in_use_is_refused_but_the_same_process_replaces_itself() {
    let mut sessions = Sessions::default();
    let first = open(&mut sessions, "a", 1);
    let refused = sessions.open(0.0, &hello("a", 2), MACHINE.into(), |_| true);
    assert_eq!(refused.err().unwrap().code(), tonic::Code::AlreadyExists);
    let elsewhere = |sessions: &mut Sessions, instance| {
        sessions.open(0.0, &hello("a", instance), "10.0.0.2".into(), |_| true).unwrap()
    };
    let other = elsewhere(&mut sessions, 2);
    assert!(other.replaced.is_none() && other.claim.worker != first.claim.worker, "it is not kept out");
    sessions.close(other.claim.worker);
    let moved = elsewhere(&mut sessions, 1);
    assert_eq!(moved.replaced.unwrap().worker, first.claim.worker, "its address has changed");
    sessions.close(moved.claim.worker);
    let first = open(&mut sessions, "a", 1);
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
    let mut closed = |now_s| sessions.close_overdue(now_s, &TIMEOUTS).len();
    assert_eq!(closed(10.0), 0);
    presence.hear_heartbeat(true, ProcessUsage::default());
    assert_eq!((closed(11.0), closed(21.0)), (0, 0));
    presence.hear_heartbeat(false, ProcessUsage::default());
    assert_eq!((closed(22.0), closed(24.0)), (0, 0));
    presence.hear();
    assert_eq!((closed(25.0), closed(27.0)), (0, 0), "anything is a sign of life");
    assert!(!presence.ended.is_cancelled());
    assert_eq!(closed(27.1), 1);
    assert!(presence.ended.is_cancelled());
}

/// A worker may be assigned more leases at a time than its queue can hold messages.
#[test]
fn leases_are_sent_in_batches() {
    let (mut session, mut messages) = session();
    (0..20_000).for_each(|id| assign(&mut session, id, 1, None));
    session.cancel(LeaseId(5));
    session.cancel(LeaseId(6));
    assert!(session.flush());
    let mut sizes = Vec::new();
    while let Ok(message) = messages.try_recv() {
        match message {
            ToWorker::Assign(batch) => sizes.push(batch.len()),
            ToWorker::Cancel(batch) => assert_eq!(batch, [LeaseId(5), LeaseId(6)]),
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(sizes, [MAX_BATCH, MAX_BATCH, 20_000 - 2 * MAX_BATCH]);
}

/// A worker that reads slowly gets the latest parameters, through one call at a time. Sets that were sent are not kept.
#[test]
fn at_most_one_version_waits_for_a_worker() {
    let (mut session, _messages) = session();
    assign(&mut session, 1, 1, None);
    let sent = session.parameters(0.0, Reader::default()).unwrap();
    assert!(session.parameters(0.0, Reader::default()).is_err());
    assert_eq!(taken(&sent), [1], "what was due before the call");
    assert_eq!(session.oldest_version(), None);
    assign(&mut session, 2, 1, None);
    assert!(taken(&sent).is_empty(), "once per iteration");
    assign(&mut session, 3, 2, None);
    assign(&mut session, 4, 3, None);
    assert_eq!(taken(&sent), [3]);
    drop(sent);
    let sent = session.parameters(0.0, Reader::default()).unwrap();
    assign(&mut session, 5, 4, None);
    (1..=5).zip([1, 1, 2, 3, 4]).for_each(|(id, iteration)| session.ended(&lease(id, iteration)));
    assert!(taken(&sent).is_empty(), "without leases it needs none");
    assign(&mut session, 6, 4, None);
    assert_eq!(taken(&sent), [4]);
    drop(session);
    assert_eq!(sent.take(), Err(()));
}

/// A worker that was sent the next parameters ahead still holds the current ones, until the next ones are complete.
#[test]
fn the_current_parameters_are_sent_again_only_to_a_worker_that_may_have_lost_them() {
    let (mut session, _messages) = session();
    let sent = session.parameters(0.0, Reader::default()).unwrap();
    assign(&mut session, 1, 1, None);
    session.send_again(&parameters(1));
    assert_eq!(taken(&sent), [1], "it has them");
    session.ended(&lease(1, 1));
    session.put(&parameters(2));
    assign(&mut session, 2, 1, None);
    assert_eq!(taken(&sent), [2], "it is sent none that it holds");
    session.send_again(&parameters(1));
    session.send_again(&parameters(1));
    assert_eq!(taken(&sent), [1]);
    session.ended(&lease(2, 1));
    session.put(&parameters(2));
    session.send_again(&parameters(1));
    assert_eq!(taken(&sent), [2], "without leases it needs none");
}

/// A worker that lacks a part of a set cannot use differences from that set, which it would be sent if the whole set counted as taken.
#[test]
fn a_whole_set_that_was_not_taken_is_followed_by_a_whole_one() {
    let (mut session, _messages) = session();
    let sent = session.parameters(0.0, Reader::default()).unwrap();
    session.put(&parameters(1));
    assert_eq!(sent.take_whole(), Some((1, false)));
    session.send_whole([&parameters(1)]);
    session.put(&parameters(2));
    assert_eq!(sent.take_whole(), Some((2, true)), "the whole one was replaced");
    session.put(&parameters(3));
    assert_eq!(sent.take_whole(), Some((3, false)), "it has a whole one");
    session.send_whole([&parameters(3)]);
    session.ended(&lease(1, 3));
    session.put(&parameters(4));
    assert_eq!(sent.take_whole(), Some((4, true)), "the whole one was dropped");
    session.put(&parameters(5));
    session.ended(&lease(1, 5));
    session.send_whole([&parameters(6)]);
    session.put(&parameters(6));
    assert_eq!(sent.take_whole(), Some((6, true)), "the one to make whole was dropped");
}

#[test]
fn units_are_sent_once_an_iteration() {
    let (mut session, mut messages) = session();
    assign(&mut session, 1, 1, None);
    for (id, iteration, exponent) in [(2, 1, -3), (3, 1, -3), (4, 2, -5)] {
        let units = Units::from_exponents(&[exponent], &TensorSizes::new([1])).unwrap();
        assign(&mut session, id, iteration, Some(&units));
    }
    session.flush();
    let (mut said, mut assigned) = (Vec::new(), 0);
    while let Ok(message) = messages.try_recv() {
        match message {
            ToWorker::Units { iteration, units, .. } => said.push((iteration.number(), units, assigned)),
            ToWorker::Assign(batch) => assigned += batch.len(),
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(said, [(1, vec![-3], 1), (2, vec![-5], 3)], "before the leases that need them");
}
