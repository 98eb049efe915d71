//! Random sequences of events.

use super::*;

/// Whatever workers do, the run continues, and ends with the parameters of an undisturbed one.
#[test]
fn any_order_of_events_comes_to_the_same_parameters() {
    let expected = honest(6, 4);
    for seed in 0..200 {
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        let mut rig = Rig::new(["uta", "ata-auto", "ata-empirical"][seed as usize % 3], 6, 4);
        let mut clients: Vec<VirtualWorker> = Vec::new();
        let (mut ending, mut failures) = (None, 0);
        for _ in 0..60 {
            if ending.is_some() {
                break;
            }
            ending = random_event(&mut rng, &mut rig, &mut clients, &mut failures);
            assert!(rig.run.names() <= 4, "seed {seed}");
        }
        let ending = ending.unwrap_or_else(|| {
            // The others fall silent, and one honest worker finishes the run alone.
            let mut last = rig.join("last", 9).unwrap();
            finish(&mut rig, &mut last).0
        });
        let sha256 = rig.run.parameters_sha256();
        assert!(matches!(ending, Ending::Stop(StopReason::Finished(_))), "seed {seed}: {ending:?}");
        assert_eq!(sha256, expected, "seed {seed}");
        check_end(rig, ending, seed, 24);
    }
}

/// Something that workers do. Three failures may end the run, so there are at most two.
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
            // The name may be in use by another session, dead or alive.
            let name = ["a", "b", "c"][rng.random_range(0..3)];
            clients.extend(rig.join(name, rng.random_range(1..3)));
            None
        }
        (2, Some(at)) => {
            let client = clients.swap_remove(at);
            rig.leave(0.1, client.token)
        }
        // Its messages no longer arrive.
        (3, Some(at)) => {
            drop(clients.swap_remove(at));
            None
        }
        (4, Some(at)) if !clients[at].leases.is_empty() && *failures < 2 => {
            *failures += 1;
            let (session, lease) = (clients[at].token, clients[at].leases.remove(0).id);
            rig.run.fail(0.1, session, lease, RefusalKind::NotFinite)
        }
        (5, Some(at)) if !clients[at].leases.is_empty() => {
            let (client, lease) = (&clients[at], clients[at].leases[0]);
            let (_, ending) = rig.submit(client.token, &lease, true);
            // Submit it again.
            ending.or_else(|| rig.submit(client.token, &lease, true).1)
        }
        (6..9, Some(at)) if !clients[at].leases.is_empty() => {
            let lease = clients[at].leases.remove(0);
            rig.submit(clients[at].token, &lease, true).1
        }
        (9, Some(at)) => {
            clients[at].hear();
            rig.run.pass(0.3)
        }
        (10, _) => rig.run.pass(rng.random_range(0.0..3.0)),
        _ => rig.step(),
    }
}
