//! Tests of the room for vectors that are used whole: which workers get it, which wait, and which give way.

use ata_wire::limits::{LEAST_UPLOAD_BYTES_PER_S, UPLOAD_GUARD_WINDOW};

use super::*;
use crate::reduction::Reduction;
use crate::reduction::room::Whole;

fn limit_room(rig: &mut Rig, places: usize) {
    rig.driver.reduction = Reduction::new(rig.chunks(), rig.driver.reduction.are_separate, places);
}

/// Returns a run with room for `places` vectors, and workers that have each computed a lease with its own vector.
fn rig<const N: usize>(places: usize) -> (Rig, [VirtualWorker; N]) {
    let mut rig = Rig::new("asgd", 1, 20);
    limit_room(&mut rig, places);
    let clients = std::array::from_fn(|at| {
        let mut client = rig.join(["a", "b", "c", "d"][at], 1).unwrap();
        client.read();
        rig.report_all(&mut client);
        assert_eq!(client.asked.len(), 1, "its vector is asked for with the lease");
        client
    });
    (rig, clients)
}

fn announce(rig: &mut Rig, client: &VirtualWorker) -> Announced {
    rig.announce(client.token, &client.asked[0])
}

fn room(announced: &mut Announced) -> Whole {
    let Sink::Whole(whole) = announced.upload().expect("room").vector.sink else { panic!("it is assembled") };
    whole
}

/// Lets one second pass, in which all workers send heartbeats.
fn second(rig: &mut Rig, clients: &[VirtualWorker]) {
    hear(clients);
    assert!(rig.pass(1.0).is_none());
}

/// If all vectors arrive slowly, the coordinator's link is full, and no worker gains from another worker's failure.
#[test]
fn a_worker_that_sends_too_slowly_while_others_wait_gives_way_unless_all_are_slow() {
    const SLOW: usize = LEAST_UPLOAD_BYTES_PER_S as usize / 2;
    let window_s = UPLOAD_GUARD_WINDOW.as_secs();
    for (quick_bytes, seconds, gives_way) in [(40 * SLOW, window_s, true), (SLOW, 2 * window_s, false)] {
        let (mut rig, clients) = rig::<3>(2);
        let [slow, quick] = [0, 1].map(|at| room(&mut announce(&mut rig, &clients[at])));
        // No vector waits, so this one may arrive slowly.
        for _ in 0..30 {
            slow.receive(SLOW);
            second(&mut rig, &clients);
        }
        let mut waiting = announce(&mut rig, &clients[2]);
        for _ in 0..=seconds {
            assert!(waiting.is_waiting() && !slow.ended.is_cancelled());
            slow.receive(SLOW);
            quick.receive(quick_bytes);
            second(&mut rig, &clients);
        }
        assert_eq!([slow.ended.is_cancelled(), quick.ended.is_cancelled()], [gives_way, false]);
        if gives_way {
            // The service drops the upload, too. Its room goes to the waiting vector.
            drop(slow);
            second(&mut rig, &clients);
            drop(room(&mut waiting));
            assert!(rig.is_open(clients[0].token), "its session goes on");
            let refused = BTreeMap::from([(RefusalKind::NotReceived, 1)]);
            rig.wait_for("the refusal", |state| state.refused == refused);
        }
    }
}

/// Room goes to the vectors that were announced first, and is freed once a vector has arrived or failed.
#[test]
fn room_is_given_in_turn() {
    let (mut rig, clients) = rig::<4>(1);
    let mut announced = [2, 0, 1, 3].map(|at| announce(&mut rig, &clients[at]));
    let first = room(&mut announced[0]);
    assert!(announced[1..].iter_mut().all(Announced::is_waiting));
    // The service drops the upload, too.
    drop(first);
    let asked = &clients[2].asked[0];
    assert_eq!(rig.arrived(clients[2].token, asked, Some(sum(asked))).0, Some(Receipt::Accepted));
    let next = room(&mut announced[1]);
    drop(next);
    assert!(rig.fail_vector(clients[0].token, &clients[0].asked[0]).is_none());
    let _third = room(&mut announced[2]);
    assert!(announced[3].is_waiting());
}

/// A worker never has all of the room. With checks, each worker holds its own lease and a copy of the other worker's.
#[test]
fn a_worker_has_half_of_the_room() {
    let mut rig = Rig::changed(MODEL, "uta", 2, 20, |config| {
        config.engine.min_workers = 2;
        config.engine.verify = Some(Verify { share: 1.0, secret: 7 });
    });
    limit_room(&mut rig, 2);
    let [one, other] = computed(&mut rig, ["a", "b"]);
    assert_eq!([one.asked.len(), other.asked.len()], [2, 2]);
    let mut announce = |client: &VirtualWorker, at: usize| rig.announce(client.token, &client.asked[at]);
    let (mut first, mut second, mut third) = (announce(&one, 0), announce(&one, 1), announce(&other, 0));
    let _rooms = [room(&mut first), room(&mut third)];
    assert!(second.is_waiting());
}
