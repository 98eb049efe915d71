//! Tests of workers that join, compute and leave, each under its own name.

use super::*;

/// Makes the workers compute all their leases and send their vectors, so that a step is taken.
fn iterate(rig: &mut Rig, clients: &mut [&mut VirtualWorker]) {
    // A second round is needed: a worker is asked for its vector once all tasks are assigned, which may follow from
    // another worker's report.
    for _ in 0..2 {
        for client in &mut *clients {
            rig.work_off(client);
        }
    }
    assert!(rig.step().is_none());
}

/// Only the last few hundred workers are kept and saved.
#[test]
fn what_is_saved_does_not_grow_with_workers_long_gone() {
    let mut rig = Rig::new("uta", 4, u64::MAX);
    let mut stays = rig.join("stays", 1).unwrap();
    let (mut sizes, mut saved_bytes) = (Vec::new(), Vec::new());
    for number in 1..=1200_u64 {
        let mut guest = rig.join(&format!("guest-{number}"), 1).unwrap();
        iterate(&mut rig, &mut [&mut stays, &mut guest]);
        iterate(&mut rig, &mut [&mut stays, &mut guest]);
        assert!(rig.leave(guest.token).is_none());
        if number % 400 == 0 {
            let known = rig.driver.engine.statistics().iter().filter(|known| known.observed > 0).count();
            let saved = serde_json::to_string(&rig.driver.engine.save()).unwrap().len();
            sizes.push((rig.driver.sessions.names.by_departure().count(), known, rig.driver.engine.statistics().len()));
            saved_bytes.push(saved);
        }
        // The guest's tasks are computed, and a step without guests is taken.
        iterate(&mut rig, &mut [&mut stays]);
    }
    assert_eq!(sizes[0], sizes[2], "names, workers known, numbers");
    let (_, known, numbers) = sizes[2];
    assert!(known > 200 && numbers < 400, "{sizes:?}");
    // Sums and times have more digits as the run continues.
    assert!(saved_bytes[2] < saved_bytes[0] * 11 / 10, "{saved_bytes:?}");
}
