//! Runs that are stopped at any moment and go on from what was saved: it holds whole steps.

use std::sync::Arc;

use super::*;
use crate::checkpoint::{Checkpoint, newest};

const BUDGET: u64 = 6;
const ITERATIONS: u64 = 5;

/// How a part of a run ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stop {
    /// It is told to stop.
    Told,
    /// Its journal cannot be written any more.
    DiskFull,
    /// Its process is killed.
    Killed,
}

/// What was seen of all stops.
#[derive(Debug, Default)]
struct Seen {
    with_a_step_under_way: u64,
    in_the_middle: u64,
    resumed: u64,
}

fn checkpoint(folder: &TempDir) -> Option<Checkpoint> {
    let (store, table) = (FolderStore::new(folder.path().join(CHECKPOINTS)), builtin_model(MODEL).unwrap().table());
    Some(newest(&store, &table, Optimizer::default()).unwrap()?.checkpoint)
}

/// Begins the run in a folder, or goes on with it.
fn go_on(folder: TempDir, policy: &str, cadence: Cadence) -> Rig {
    let start = checkpoint(&folder).map_or(Start::Random, |checkpoint| Start::Checkpoint(Box::new(checkpoint)));
    if matches!(start, Start::Random) {
        std::fs::remove_dir_all(folder.path()).unwrap();
        std::fs::create_dir(folder.path()).unwrap();
    }
    Rig::begin(folder, start, TransferLimits::default(), cadence, policy, BUDGET, ITERATIONS)
}

/// Lets a run go on for a while, and stops it.
fn stop(rng: &mut ChaCha8Rng, mut rig: Rig, how: Stop, seen: &mut Seen) -> TempDir {
    let mut clients = Vec::new();
    if rig.turn(0.0, None).is_some() {
        // All iterations are saved.
        return rig.folder;
    }
    for number in 0..2 {
        clients.extend(rig.join(&format!("w{number}"), rng.random()));
    }
    for _ in 0..rng.random_range(0..12) {
        let client = &mut clients[rng.random_range(0..2)];
        client.presence.hear();
        client.read();
        let ending = if client.leases.is_empty() || rng.random_bool(0.2) {
            rig.step()
        } else {
            let lease = client.leases.remove(0);
            rig.submit(client.token, &lease, true).1
        };
        if ending.is_some() {
            break;
        }
    }
    seen.with_a_step_under_way += u64::from(rig.owner.training.is_stepping);
    seen.in_the_middle += u64::from(clients.iter().any(|client| !client.leases.is_empty()));
    let ending = match how {
        Stop::Killed => return rig.folder,
        Stop::Told => Ending::Stop(StopReason::Stopped),
        Stop::DiskFull => {
            let cause = Arc::new(std::io::ErrorKind::StorageFull.into());
            Ending::RecordFailed(RecordError { path: "events.jsonl".into(), cause })
        }
    };
    let (report, folder) = rig.end(ending);
    assert_eq!(report.ended.is_err(), how == Stop::DiskFull);
    assert_eq!(report.not_saved, None);
    let saved = checkpoint(&folder);
    assert_eq!(saved.as_ref().map_or(0, |saved| saved.progress.iteration), report.state.iterations);
    if let Some(saved) = saved {
        assert_eq!(ata_learn::sha256_of_parameters(saved.training.parameters()), report.parameters_sha256);
        seen.resumed += 1;
    }
    folder
}

#[test]
fn however_often_it_is_stopped_a_run_ends_with_the_same_parameters() {
    let expected = honest(BUDGET, ITERATIONS);
    let mut seen = Seen::default();
    for seed in 0..100 {
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        let policy = ["uta", "ata-auto", "ata-empirical"][seed as usize % 3];
        let cadence = [Cadence::Seconds(60.0), Cadence::Iterations(1), Cadence::Iterations(2)][seed as usize / 3 % 3];
        let mut folder = tempfile::tempdir().unwrap();
        for _ in 0..4 {
            let how = [Stop::Told, Stop::Told, Stop::DiskFull, Stop::Killed][rng.random_range(0..4)];
            folder = stop(&mut rng, go_on(folder, policy, cadence), how, &mut seen);
        }
        let mut rig = go_on(folder, policy, cadence);
        let (ending, sha256) = if let Some(ending) = rig.turn(0.0, None) {
            (ending, rig.owner.parameters.sha256())
        } else {
            let mut last = rig.join("last", 9).unwrap();
            finish(&mut rig, &mut last)
        };
        assert!(matches!(ending, Ending::Stop(StopReason::Finished(_))), "seed {seed}: {ending:?}");
        assert_eq!(sha256, expected, "seed {seed}");
        let (report, folder) = rig.end(ending);
        assert_eq!((report.state.iterations, report.state.tasks_applied), (ITERATIONS, ITERATIONS * BUDGET));
        assert!(folder.path().join(ata_record::MODEL_FILE).exists());
    }
    println!("{seen:?}");
    assert!(seen.with_a_step_under_way > 30 && seen.in_the_middle > 50 && seen.resumed > 100, "{seen:?}");
}

/// If the training thread fails while the run ends, that is noticed, and not waited for.
#[test]
fn a_step_that_fails_at_the_end_is_not_waited_for() {
    let mut rig = Rig::saving(Cadence::Seconds(60.0), "uta", BUDGET, ITERATIONS);
    let mut client = rig.join("a", 1).unwrap();
    client.read();
    for lease in std::mem::take(&mut client.leases) {
        rig.submit(client.token, &lease, true);
    }
    assert!(rig.owner.training.is_stepping);
    // A step without gradients is one that panics.
    let bare = Work::Step { iteration: 1, tasks: BUDGET, rate: 0.1, with_product: false, trace: None };
    rig.training.send(bare).unwrap();
    let (report, folder) = rig.end(Ending::Stop(StopReason::Stopped));
    assert!(matches!(report.ended, Err(RunError::Training)), "{:?}", report.ended);
    assert!(checkpoint(&folder).is_none(), "nothing was saved");
}
