//! Room for gradients: who gets it, who has to wait, and who gives way.

use ata_wire::limits::{LEAST_UPLOAD_BYTES_PER_S, UPLOAD_PATIENCE};

use super::*;
use crate::uploads::Room;

type Answer = oneshot::Receiver<Result<Room, NotAnnounced>>;

/// Room for two gradients.
fn room_for_two(policy: &str, budget: u64) -> Rig {
    let mut rig = Rig::new(policy, budget, 20);
    rig.owner.uploads = Uploads::new(2);
    rig
}

/// Room for two gradients, and three workers that hold a lease each.
fn rig() -> (Rig, [Client; 3]) {
    let mut rig = room_for_two("asgd", 1);
    let clients = ["a", "b", "c"].map(|name| rig.join(name, 1).unwrap());
    let clients = clients.map(|mut client| {
        client.read();
        assert_eq!(client.leases.len(), 1);
        client
    });
    (rig, clients)
}

fn announce(rig: &mut Rig, client: &Client) -> Answer {
    announce_lease(rig, client, 0)
}

fn announce_lease(rig: &mut Rig, client: &Client, at: usize) -> Answer {
    let Lease { id: lease, iteration, .. } = client.leases[at];
    let (reply, answer) = oneshot::channel();
    let (session, peer) = (client.token, Peer::default());
    assert!(rig.turn(0.0, Some(Command::Announce { session, lease, iteration, peer, reply })).is_none());
    answer
}

fn room(answer: &mut Answer) -> Room {
    answer.try_recv().expect("an answer").expect("room")
}

fn waits(answer: &mut Answer) -> bool {
    answer.try_recv().is_err_and(|error| error == oneshot::error::TryRecvError::Empty)
}

/// One second passes, in which all are heard.
fn second(rig: &mut Rig, clients: &[Client]) {
    for client in clients {
        client.presence.hear();
    }
    assert!(rig.turn(1.0, None).is_none());
}

#[test]
fn who_sends_too_slowly_while_others_wait_gives_way() {
    let (mut rig, clients) = rig();
    let [slow, quick] = [0, 1].map(|at| room(&mut announce(&mut rig, &clients[at])));
    // Nobody waits: it may take its time, until its deadline a minute after its lease.
    for _ in 0..30 {
        second(&mut rig, &clients);
    }
    let mut waiting = announce(&mut rig, &clients[2]);
    for _ in 0..=UPLOAD_PATIENCE.as_secs() {
        assert!(waits(&mut waiting) && !slow.gives_way.is_cancelled());
        slow.receive(LEAST_UPLOAD_BYTES_PER_S as usize / 2);
        quick.receive(20 * LEAST_UPLOAD_BYTES_PER_S as usize);
        second(&mut rig, &clients);
    }
    assert!(slow.gives_way.is_cancelled() && !quick.gives_way.is_cancelled());
    // As the service does. The lease fails, and its room goes to the one that waits.
    drop(slow);
    let failed = Command::LeaseFailed {
        session: clients[0].token,
        lease: clients[0].leases[0].id,
        kind: RefusalKind::NotReceived,
        reason: "it gave way".into(),
    };
    assert!(rig.turn(0.0, Some(failed)).is_none());
    drop(room(&mut waiting));
    assert!(rig.owner.sessions.of_token(clients[0].token).is_ok(), "its session goes on");
}

/// However long it takes until there is room, only those that have it can miss their deadlines.
#[test]
fn the_deadline_of_a_worker_that_waits_stands_still() {
    let (mut rig, mut clients) = rig();
    let rooms = [0, 1].map(|at| room(&mut announce(&mut rig, &clients[at])));
    let mut waiting = announce(&mut rig, &clients[2]);
    for _ in 0..70 {
        for room in &rooms {
            room.receive(2 * LEAST_UPLOAD_BYTES_PER_S as usize);
        }
        second(&mut rig, &clients);
    }
    let said = clients.each_mut().map(Client::read);
    assert_eq!(said, [Some(FarewellReason::Evicted), Some(FarewellReason::Evicted), None]);
    drop(rooms);
    second(&mut rig, &clients);
    let _room = room(&mut waiting);
    // From now on its time runs again. It is the third worker that hangs, which ends the run.
    let mut ending = None;
    for _ in 0..62 {
        clients[2].presence.hear();
        ending = ending.or(rig.turn(1.0, None));
    }
    assert!(matches!(ending, Some(Ending::Abort(_))), "{ending:?}");
    assert_eq!(clients[2].read(), Some(FarewellReason::Evicted));
}

#[test]
fn a_gradient_that_is_not_needed_any_more_waits_no_longer() {
    let (mut rig, clients) = rig();
    let _rooms = [0, 1].map(|at| room(&mut announce(&mut rig, &clients[at])));
    let mut waiting = announce(&mut rig, &clients[2]);
    assert!(waits(&mut waiting));
    let left = Command::Left { session: clients[2].token, why: "it left".into() };
    assert!(rig.turn(0.1, Some(left)).is_none());
    assert!(matches!(waiting.try_recv(), Ok(Err(NotAnnounced::NotHeld { .. }))));
}

#[test]
fn whoever_gives_up_waiting_fails() {
    let (mut rig, clients) = rig();
    let _rooms = [0, 1].map(|at| room(&mut announce(&mut rig, &clients[at])));
    drop(announce(&mut rig, &clients[2]));
    // As the service does.
    let (session, lease) = (clients[2].token, clients[2].leases[0].id);
    let (kind, reason) = (RefusalKind::NotReceived, "it gave up".into());
    assert!(rig.turn(0.0, Some(Command::LeaseFailed { session, lease, kind, reason })).is_none());
    assert_eq!(rig.state.borrow().refused, BTreeMap::from([(RefusalKind::NotReceived, 1)]));
}

/// A worker that waits because of its own gradients is not held up by anybody else.
#[test]
fn a_worker_that_waits_for_itself_misses_its_deadline() {
    let mut rig = room_for_two("uta", 3);
    let mut client = rig.join("a", 1).unwrap();
    client.read();
    assert_eq!(client.leases.len(), 2, "three tasks are two subtrees");
    let [mut first, mut second] = [0, 1].map(|at| announce_lease(&mut rig, &client, at));
    let _room = room(&mut first);
    assert!(waits(&mut second));
    for _ in 0..62 {
        client.presence.hear();
        rig.turn(1.0, None);
    }
    assert_eq!(client.read(), Some(FarewellReason::Evicted));
}

/// If what arrives is as slow for all, it is the link of the coordinator that is full: nobody gains by another one's failure.
#[test]
fn nobody_gives_way_if_all_are_slow() {
    let (mut rig, clients) = rig();
    let rooms = [0, 1].map(|at| room(&mut announce(&mut rig, &clients[at])));
    let mut waiting = announce(&mut rig, &clients[2]);
    for _ in 0..2 * UPLOAD_PATIENCE.as_secs() {
        for room in &rooms {
            room.receive(LEAST_UPLOAD_BYTES_PER_S as usize / 2);
        }
        second(&mut rig, &clients);
    }
    assert!(waits(&mut waiting));
    assert_eq!(rooms.map(|room| room.gives_way.is_cancelled()), [false, false]);
}
