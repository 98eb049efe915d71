//! Who gets room for gradients, and in which order.

use super::*;
use ata_types::WireFormat;

const A: SessionToken = SessionToken([1; 16]);
const B: SessionToken = SessionToken([2; 16]);
const C: SessionToken = SessionToken([3; 16]);

fn wait(uploads: &mut Uploads, session: SessionToken, lease: u64) -> oneshot::Receiver<Result<Room, UploadRefusal>> {
    let (reply, answer) = oneshot::channel();
    let units = Units::first(&[1.0], 1);
    uploads.wait(session, worker(session), LeaseId(lease), units, reply);
    answer
}

/// Gives out all room; returns the leases that got some, in order.
fn fill(uploads: &mut Uploads, given: &mut Vec<Place>) -> Vec<u64> {
    let mut leases = Vec::new();
    while let Some((waiting, place)) = uploads.next() {
        leases.push(waiting.lease.0);
        given.push(place);
    }
    leases
}

fn worker(session: SessionToken) -> WorkerId {
    WorkerId::from_slot(session.0[0].into())
}

#[test]
fn room_goes_to_those_that_have_least() {
    let (mut uploads, mut given) = (Uploads::new(6), Vec::new());
    let _answers: Vec<_> = (1..=4).map(|lease| wait(&mut uploads, A, lease)).collect();
    assert_eq!(fill(&mut uploads, &mut given), [1, 2, 3], "half of it is for others");
    let _others = [wait(&mut uploads, B, 5), wait(&mut uploads, B, 6), wait(&mut uploads, C, 7)];
    assert_eq!(fill(&mut uploads, &mut given), [5, 7, 6]);
    given.remove(0);
    let _late = wait(&mut uploads, C, 8);
    assert_eq!(fill(&mut uploads, &mut given), [8], "it has less than the one that waits longer");
    given.clear();
    assert_eq!(fill(&mut uploads, &mut given), [4]);
}

#[test]
fn with_room_for_two_no_worker_has_both() {
    let (mut uploads, mut given) = (Uploads::new(2), Vec::new());
    let _answers = [wait(&mut uploads, A, 1), wait(&mut uploads, A, 2)];
    assert_eq!(fill(&mut uploads, &mut given), [1]);
    assert_eq!(uploads.take(LeaseId(2)).map(|waiting| waiting.lease), Some(LeaseId(2)));
    assert!(uploads.take(LeaseId(2)).is_none());
}

/// The events for the engine, as pairs of a worker and whether it is blocked.
fn blocked_changes(uploads: &mut Uploads) -> Vec<(WorkerId, bool)> {
    let plain = |event| match event {
        Event::UploadBlocked { worker } => (worker, true),
        Event::UploadResumed { worker } => (worker, false),
        other => panic!("{other:?}"),
    };
    uploads.blocked_changes().into_iter().map(plain).collect()
}

#[test]
fn only_workers_without_any_room_are_blocked() {
    let (mut uploads, mut given) = (Uploads::new(2), Vec::new());
    let _answers =
        [(A, 1), (A, 2), (B, 3), (C, 4), (C, 5)].map(|(session, lease)| wait(&mut uploads, session, lease));
    assert_eq!(fill(&mut uploads, &mut given), [1, 3]);
    assert_eq!(blocked_changes(&mut uploads), [(worker(C), true)], "the first one waits for itself");
    assert_eq!(blocked_changes(&mut uploads), []);
    given.remove(0);
    assert_eq!(fill(&mut uploads, &mut given), [2], "it waits longest");
    assert_eq!(blocked_changes(&mut uploads), []);
    let _more = wait(&mut uploads, B, 6);
    given.remove(0);
    assert_eq!(fill(&mut uploads, &mut given), [4]);
    assert_eq!(blocked_changes(&mut uploads), [(worker(B), true), (worker(C), false)]);
    uploads.take(LeaseId(6));
    assert_eq!(blocked_changes(&mut uploads), [(worker(B), false)]);
    uploads.take(LeaseId(5));
    given.clear();
    assert!(fill(&mut uploads, &mut given).is_empty() && blocked_changes(&mut uploads).is_empty());
    assert!(uploads.queues.is_empty() && uploads.turns.is_empty() && uploads.waiting.is_empty());
    assert_eq!((uploads.free, uploads.senders), (2, 0));
}

#[test]
fn a_session_is_in_the_way_if_another_one_could_have_its_room() {
    let (mut uploads, mut given) = (Uploads::new(2), Vec::new());
    let _answers = [(A, 1), (A, 2), (B, 3), (B, 4)].map(|(session, lease)| wait(&mut uploads, session, lease));
    fill(&mut uploads, &mut given);
    let senders = |uploads: &Uploads| [A, B, C].map(|session| Some(uploads.traffic_blocked_by(session)?.senders));
    assert_eq!(senders(&uploads), [None; 3], "both have their share");
    let _other = wait(&mut uploads, C, 5);
    assert_eq!(senders(&uploads), [Some(2), Some(2), None]);
}

#[test]
fn a_worker_that_is_slow_while_others_wait_gives_way() {
    let (mut uploads, mut given) = (Uploads::new(1), Vec::new());
    let _answer = wait(&mut uploads, A, 1);
    fill(&mut uploads, &mut given);
    let mut sending = SessionUploads::default();
    let room = sending.room(Presence::new(), given.remove(0));
    let (least, window_s) = (LEAST_UPLOAD_BYTES_PER_S, UPLOAD_GUARD_WINDOW.as_secs());
    // Windows that have passed, bytes per second that arrived in the last one, and those of all four sessions if any wait.
    let (mut now, mut before) = ((0, 0), 0.0);
    for (windows, rate, of_all, expected) in [
        (0.0, 0, Some(0), false),
        (0.9, least, Some(99 * least), false),
        (1.0, least, Some(99 * least), false),
        (2.0, least - 1, Some(99 * least), true),
        (2.9, 0, None, false),
        (3.0, 0, Some(99 * least), false),
        (3.9, 0, Some(99 * least), false),
        (4.0, 0, Some(99 * least), true),
        // It is not slower than the others by much, or nothing arrives at all.
        (5.0, least / 16, Some(least), false),
        (6.0, least / 16 - 1, Some(least), true),
        (7.0, 0, Some(0), false),
    ] {
        let passed_s = ((windows - before) * window_s as f64).round() as u64;
        before = windows;
        now = (now.0 + rate * passed_s, now.1 + of_all.unwrap_or(0) * passed_s);
        let traffic = of_all.map(|_| Traffic { arrived: now.1, senders: 4 });
        let slow = sending.too_slow(windows * window_s as f64, now.0, traffic);
        assert_eq!(slow.is_some(), expected, "{windows}: {slow:?}");
    }
    sending.give_way();
    assert!(room.must_give_way());
    assert!(!sending.room(Presence::new(), room.place).must_give_way(), "its next one is a new chance");
}

#[test]
fn room_is_given_in_the_order_of_announcement_however_many_wait() {
    let mut uploads = Uploads::new(1);
    let session = |at: u64| SessionToken(u128::from(at).to_le_bytes());
    let waiting = 60_000;
    let _answers: Vec<_> = (0..waiting).map(|at| wait(&mut uploads, session(at), at)).collect();
    for at in 0..waiting {
        let (given, place) = uploads.next().unwrap();
        assert_eq!(given.lease, LeaseId(at));
        assert_eq!(uploads.traffic_blocked_by(given.session).is_some(), at + 1 < waiting);
        uploads.blocked_changes();
        drop(place);
    }
}
