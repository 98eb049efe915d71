//! Room for gradients: who gets it, who has to wait, and who gives way.

use ata_wire::limits::{LEAST_UPLOAD_BYTES_PER_S, UPLOAD_PATIENCE};

use super::*;
use crate::uploads::Room;

type Answer = oneshot::Receiver<Result<Room, NotAnnounced>>;

/// Room for two gradients, and three workers that hold a lease each.
fn rig() -> (Rig, [Client; 3]) {
    let transfers = TransferLimits { memory_bytes: 0, ..TransferLimits::default() };
    let mut rig = Rig::begin(tempfile::tempdir().unwrap(), Start::Random, transfers, Cadence::Never, "asgd", 1, 20);
    let clients = ["a", "b", "c"].map(|name| rig.join(name, 1).unwrap());
    let clients = clients.map(|mut client| {
        client.read();
        assert_eq!(client.leases.len(), 1);
        client
    });
    (rig, clients)
}

fn announce(rig: &mut Rig, client: &Client) -> Answer {
    let Assignment { lease, iteration, .. } = client.leases[0];
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
        slow.presence.receive(LEAST_UPLOAD_BYTES_PER_S as usize / 2);
        quick.presence.receive(2 * LEAST_UPLOAD_BYTES_PER_S as usize);
        second(&mut rig, &clients);
    }
    assert!(slow.gives_way.is_cancelled() && !quick.gives_way.is_cancelled());
    // As the service does. The lease fails, and its room goes to the one that waits.
    drop(slow);
    let failed = Command::LeaseFailed {
        session: clients[0].token,
        lease: clients[0].leases[0].lease,
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
            room.presence.receive(2 * LEAST_UPLOAD_BYTES_PER_S as usize);
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
    second(&mut rig, &clients);
    assert_eq!(rig.state.borrow().refused, BTreeMap::from([(RefusalKind::NotReceived, 1)]));
}
