//! Room for gradients: who gets it, who has to wait, and who gives way.

use ata_wire::limits::{LEAST_UPLOAD_BYTES_PER_S, UPLOAD_GUARD_WINDOW};

use ata_coordinator::testing::{Announcement, UploadRoom};
use ata_scheduler::Verify;

use super::*;

/// Room for two gradients.
fn room_for_two(policy: &str, budget: u64) -> Rig {
    let mut rig = Rig::new(policy, budget, 20);
    rig.run.limit_uploads(2);
    rig
}

/// Room for two gradients, and three workers that hold a lease each.
fn rig() -> (Rig, [VirtualWorker; 3]) {
    let mut rig = room_for_two("asgd", 1);
    let clients = ["a", "b", "c"].map(|name| rig.join(name, 1).unwrap());
    let clients = clients.map(|mut client| {
        client.read();
        assert_eq!(client.leases.len(), 1);
        client
    });
    (rig, clients)
}

fn announce(rig: &mut Rig, client: &VirtualWorker) -> Announcement {
    announce_lease(rig, client, 0)
}

fn announce_lease(rig: &mut Rig, client: &VirtualWorker, at: usize) -> Announcement {
    rig.run.announce(client.token, &client.leases[at])
}

fn room(announcement: &mut Announcement) -> UploadRoom {
    announcement.room().expect("room")
}

/// One second passes, in which all workers give a sign of life.
fn second(rig: &mut Rig, clients: &[VirtualWorker]) {
    for client in clients {
        client.hear();
    }
    assert!(rig.run.pass(1.0).is_none());
}

#[test]
fn a_worker_that_sends_too_slowly_while_others_wait_gives_way() {
    let (mut rig, clients) = rig();
    let [slow, quick] = [0, 1].map(|at| room(&mut announce(&mut rig, &clients[at])));
    // Nobody waits, so it may take its time until its deadline, a minute after its lease.
    for _ in 0..30 {
        second(&mut rig, &clients);
    }
    let mut waiting = announce(&mut rig, &clients[2]);
    for _ in 0..=UPLOAD_GUARD_WINDOW.as_secs() {
        assert!(waiting.is_waiting() && !slow.must_give_way());
        slow.receive(LEAST_UPLOAD_BYTES_PER_S as usize / 2);
        quick.receive(20 * LEAST_UPLOAD_BYTES_PER_S as usize);
        second(&mut rig, &clients);
    }
    assert!(slow.must_give_way() && !quick.must_give_way());
    // As the service does. The lease fails, and its room goes to the one that waits.
    drop(slow);
    let (session, lease) = (clients[0].token, clients[0].leases[0].id);
    assert!(rig.run.fail(0.0, session, lease, RefusalKind::NotReceived).is_none());
    drop(room(&mut waiting));
    assert!(rig.run.is_open(clients[0].token), "its session goes on");
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
    let said = clients.each_mut().map(VirtualWorker::read);
    assert_eq!(said, [Some(FarewellReason::Evicted), Some(FarewellReason::Evicted), None]);
    drop(rooms);
    second(&mut rig, &clients);
    let _room = room(&mut waiting);
    // From now on its time runs again. It is the third worker that hangs, which ends the run.
    let mut ending = None;
    for _ in 0..62 {
        clients[2].hear();
        ending = ending.or(rig.run.pass(1.0));
    }
    assert!(matches!(ending, Some(Ending::Abort(_))), "{ending:?}");
    assert_eq!(clients[2].read(), Some(FarewellReason::Evicted));
}

#[test]
fn a_gradient_that_is_not_needed_any_more_waits_no_longer() {
    let (mut rig, clients) = rig();
    let _rooms = [0, 1].map(|at| room(&mut announce(&mut rig, &clients[at])));
    let mut waiting = announce(&mut rig, &clients[2]);
    assert!(waiting.is_waiting());
    assert!(rig.leave(0.1, clients[2].token).is_none());
    assert!(waiting.is_refused());
}

#[test]
fn a_worker_that_gives_up_waiting_fails() {
    let (mut rig, clients) = rig();
    let _rooms = [0, 1].map(|at| room(&mut announce(&mut rig, &clients[at])));
    drop(announce(&mut rig, &clients[2]));
    // As the service does.
    let (session, lease) = (clients[2].token, clients[2].leases[0].id);
    assert!(rig.run.fail(0.0, session, lease, RefusalKind::NotReceived).is_none());
    let refused = BTreeMap::from([(RefusalKind::NotReceived, 1)]);
    rig.run.wait_for("the refusal", |state| state.refused == refused);
}

/// A worker that waits because of its own gradients is not blocked by others.
#[test]
fn a_worker_that_waits_for_itself_misses_its_deadline() {
    let folder = tempfile::tempdir().unwrap();
    let mut config = config(folder.path(), MODEL, Start::Random, Cadence::Never, "uta", 2, 20);
    config.engine.min_workers = 2;
    config.engine.verify = Some(Verify { share: 1.0, secret: 7 });
    let mut rig = Rig::of(config, folder);
    rig.run.limit_uploads(2);
    let [mut client, _other] = ["a", "b"].map(|name| rig.join(name, 1).unwrap());
    client.read();
    assert_eq!(client.leases.len(), 2, "its own, and the other worker's, which it checks");
    let [mut first, mut second] = [0, 1].map(|at| announce_lease(&mut rig, &client, at));
    let _room = room(&mut first);
    assert!(second.is_waiting());
    for _ in 0..62 {
        client.hear();
        rig.run.pass(1.0);
    }
    assert_eq!(client.read(), Some(FarewellReason::Evicted));
}

/// If all gradients arrive slowly, the link of the coordinator is full, and no worker gains from another one's failure.
#[test]
fn nobody_gives_way_if_all_are_slow() {
    let (mut rig, clients) = rig();
    let rooms = [0, 1].map(|at| room(&mut announce(&mut rig, &clients[at])));
    let mut waiting = announce(&mut rig, &clients[2]);
    for _ in 0..2 * UPLOAD_GUARD_WINDOW.as_secs() {
        for room in &rooms {
            room.receive(LEAST_UPLOAD_BYTES_PER_S as usize / 2);
        }
        second(&mut rig, &clients);
    }
    assert!(waiting.is_waiting());
    assert_eq!(rooms.map(|room| room.must_give_way()), [false, false]);
}
