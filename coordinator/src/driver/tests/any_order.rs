//! Tests of random sequences of events.

use super::*;

/// The run continues whatever workers do, and ends with the parameters of an undisturbed run.
#[test]
fn any_order_of_events_comes_to_the_same_parameters() {
    let expected = honest(Rig::large("uta", 6, 4));
    for seed in 0..200 {
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        let mut rig = Rig::large(["uta", "ata-auto", "ata-empirical"][seed as usize % 3], 6, 4);
        let mut clients: Vec<VirtualWorker> = Vec::new();
        let (mut ending, mut failures) = (None, 0);
        for _ in 0..60 {
            if ending.is_some() {
                break;
            }
            ending = random_event(&mut rng, &mut rig, &mut clients, &mut failures);
            assert!(rig.driver.sessions.names.by_departure().count() <= 4, "seed {seed}");
        }
        // The other workers fall silent.
        let (ending, sha256) = finish_alone(&mut rig, ending, &format!("seed {seed}"));
        assert_eq!(sha256, expected, "seed {seed}");
        check_end(rig, ending, seed, 24);
    }
}

/// Makes a worker do something at random. Three failures may end the run, so there are at most two.
fn random_event(
    rng: &mut ChaCha8Rng,
    rig: &mut Rig,
    clients: &mut Vec<VirtualWorker>,
    failures: &mut u32,
) -> Option<Ending> {
    for client in &mut *clients {
        client.read();
    }
    let chosen = (!clients.is_empty()).then(|| rng.random_range(0..clients.len()));
    match (rng.random_range(0..12), chosen) {
        (0 | 1, _) => {
            // The name may be in use by another session, open or ended.
            let name = ["a", "b", "c"][rng.random_range(0..3)];
            clients.extend(rig.join(name, rng.random_range(1..3)));
            None
        }
        (2, Some(at)) => {
            let client = clients.swap_remove(at);
            rig.leave(client.token)
        }
        // Messages of this worker no longer arrive.
        (3, Some(at)) => {
            drop(clients.swap_remove(at));
            None
        }
        (4, Some(at)) if !clients[at].leases.is_empty() && *failures < 2 => {
            *failures += 1;
            let (session, lease) = (clients[at].token, clients[at].leases.remove(0).id);
            rig.fail_lease(session, lease, true)
        }
        (5, Some(at)) if !clients[at].leases.is_empty() => {
            let (token, lease) = (clients[at].token, clients[at].leases[0]);
            // The lease is reported again later.
            rig.report(token, &lease)
        }
        (6, Some(at)) if !clients[at].asked.is_empty() => {
            let mut client = clients.swap_remove(at);
            send_a_part(rng, rig, &mut client);
            // The session ends now, or when the worker has been silent for too long.
            if rng.random_bool(0.5) { rig.leave(client.token) } else { None }
        }
        (6..9, Some(at)) if clients[at].is_busy() => rig.work(&mut clients[at]),
        (9, Some(at)) => {
            clients[at].presence.hear();
            rig.pass(0.3)
        }
        (10, _) => rig.pass(rng.random_range(0.0..3.0)),
        _ => rig.step(),
    }
}

/// Sends the first chunks of a requested vector, or all of it, without reporting that it has arrived.
fn send_a_part(rng: &mut ChaCha8Rng, rig: &mut Rig, client: &mut VirtualWorker) {
    let asked = client.asked.remove(0);
    if let Some(upload) = rig.announce(client.token, &asked).upload() {
        let end = rng.random_range(asked.first_chunk..=rig.chunks());
        rig.send_chunks(&upload, sum(&asked), asked.first_chunk..end);
    }
}
