//! Tests of vectors that stop arriving, or arrive very slowly.

use super::*;

/// A time in seconds that is longer than any pause that a worker is granted, however fast the others are.
const LONG_S: f64 = 4.0;

fn rig() -> Rig {
    Rig::changed(LARGE, "uta", 6, 1, |config| config.engine.min_workers = 3)
}

/// Lets time pass while all workers send heartbeats. Returns whether a worker was assigned tasks again.
fn pass(rig: &mut Rig, clients: &mut [VirtualWorker], seconds: f64) -> bool {
    for _ in 0..(seconds / 0.25) as usize {
        hear(clients);
        assert!(rig.pass(0.25).is_none());
    }
    clients.iter_mut().any(|client| {
        client.read();
        !client.leases.is_empty()
    })
}

fn arrive(rig: &mut Rig, client: &mut VirtualWorker) {
    let asked = client.asked.remove(0);
    let (receipt, ending) = rig.send_vector(client.token, &asked);
    assert!(receipt == Some(Receipt::Accepted) && ending.is_none());
}

/// One or two of three workers do not announce their vectors, or send only a part. Other workers compute the tasks again, long before a
/// timeout, and the result is the same.
#[test]
fn tasks_of_vectors_that_do_not_arrive_are_computed_by_others() {
    let chunks = Rig::large("uta", 6, 1).chunks();
    for stalled in 1..=2 {
        for sent in [None, Some(0), Some(1), Some(chunks - 1)] {
            let mut rig = rig();
            let mut clients = asked(&mut rig, ["a", "b", "c"]);
            for client in &clients[..stalled] {
                if let Some(sent) = sent {
                    let upload = rig.announce(client.token, &client.asked[0]).upload().unwrap();
                    rig.send_chunks(&upload, sum(&client.asked[0]), 0..sent);
                }
            }
            for client in &mut clients[stalled..] {
                arrive(&mut rig, client);
            }
            assert!(!pass(&mut rig, &mut clients, 1.5), "a pause is no failure");
            assert!(pass(&mut rig, &mut clients, LONG_S), "{stalled} at {sent:?}");
            rig.wait_for("the refusals", |state| state.refused == [(RefusalKind::NotReceived, stalled as u64)].into());
            assert_eq!(finished(&mut rig, clients.last_mut()), honest(Rig::large("uta", 6, 1)));
        }
    }
}

/// A vector is given as much time as the other vectors took.
#[test]
fn a_vector_has_the_time_that_the_others_took() {
    let mut rig = rig();
    let mut clients = asked(&mut rig, ["a", "b", "c"]);
    assert!(!pass(&mut rig, &mut clients, 3.0 * LONG_S), "nobody is waited for more than others");
    for client in &mut clients[1..] {
        arrive(&mut rig, client);
    }
    assert!(!pass(&mut rig, &mut clients, 2.5 * LONG_S));
    assert!(pass(&mut rig, &mut clients, LONG_S));
}

/// The last chunk of a vector may complete the last step before its arrival is reported, and others are announced too late.
#[test]
fn vectors_that_come_after_the_last_step_end_no_session() {
    let mut rig = Rig::new("uta", 1, 1);
    let mut client = asked(&mut rig, ["a"]).into_iter().next().unwrap();
    let (session, asked) = (client.token, client.asked.remove(0));
    let upload = rig.announce(session, &asked).upload().unwrap();
    rig.send_chunks(&upload, sum(&asked), 0..rig.chunks());
    let ending = rig.step().expect("the step was the last one");
    let arrived = [None, Some(Vec::new())].map(|values| {
        let (reply, receipt) = oneshot::channel();
        let command = DriverCommand::VectorArrived { session, vector: asked.id, values, reply };
        rig.sender.try_send(command).unwrap();
        receipt
    });
    rig.end(ending);
    let [passed, assembled] = arrived.map(|mut receipt| receipt.try_recv().expect("an answer"));
    assert!(passed == Receipt::Accepted && matches!(assembled, Receipt::NotHeld { .. }));
}
