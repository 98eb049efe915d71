//! Tests of runs that are stopped at any moment and resume from their checkpoints, which hold whole steps.

use super::*;
use crate::checkpoint::{Checkpoint, newest};

const BUDGET: u64 = 6;
const ITERATIONS: u64 = 5;

/// The way in which a part of a run ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stop {
    Requested,
    DiskFull,
    Killed,
}

/// Counts of what happened at the stops.
type Counts = BTreeMap<&'static str, u64>;

pub(super) fn checkpoint(folder: &TempDir, format: WireFormat) -> Option<Checkpoint> {
    let (store, table) = (FolderStore::new(folder.path().join(CHECKPOINTS)), builtin_model(MODEL).unwrap().table());
    let (optimizer, sizes) = (Optimizer::default(), TensorSizes::from(&table));
    let training = ata_sums::TrainingConfig { optimizer, sizes, format, budget: BUDGET };
    Some(newest(&store, &table, &training).unwrap()?.checkpoint)
}

/// Checks that a checkpoint holds what the journal adds up to after its step, if the journal has the step.
fn check_past(folder: &TempDir, checkpoint: &Checkpoint) {
    let (mut state, mut is_there) = (RunState::default(), false);
    let apply = |event: RunEvent| {
        if !is_there {
            state.apply(&event);
            let step = checkpoint.progress.iteration;
            is_there = matches!(event, RunEvent::Step(taken) if taken.iteration == step);
        }
    };
    read_journal(folder.path(), apply).unwrap();
    if is_there {
        let mut found = [state.saved(), checkpoint.past.saved()];
        // The log says as well what a crash has taken from the journal.
        for state in &mut found {
            drop(state.as_object_mut().unwrap().remove("log"));
        }
        assert_eq!(found[0], found[1]);
    }
}

fn go_on(folder: TempDir, policy: &str, cadence: Cadence, format: WireFormat) -> Rig {
    let start = checkpoint(&folder, format).map_or(Start::Random, |checkpoint| {
        check_past(&folder, &checkpoint);
        Start::Checkpoint(Box::new(checkpoint))
    });
    if matches!(start, Start::Random) {
        std::fs::remove_dir_all(folder.path()).unwrap();
        std::fs::create_dir(folder.path()).unwrap();
    }
    let mut config = config(folder.path(), MODEL, policy, BUDGET, ITERATIONS);
    (config.training.start, config.training.format, config.checkpoints.cadence) = (start, format, cadence);
    Rig::begin(config, folder)
}

fn stop(rng: &mut ChaCha8Rng, mut rig: Rig, how: Stop, format: WireFormat, counts: &mut Counts) -> TempDir {
    let mut clients = Vec::new();
    if rig.pass(0.0).is_some() {
        // The run has already finished, and all iterations are saved.
        return rig.kill();
    }
    for number in 0..2 {
        clients.extend(rig.join(&format!("w{number}"), rng.random()));
    }
    for _ in 0..rng.random_range(0..12) {
        let client = &mut clients[rng.random_range(0..2)];
        client.presence.hear();
        client.read();
        let ending = if client.is_busy() && rng.random_bool(0.8) { rig.work(client) } else { rig.step() };
        if ending.is_some() {
            break;
        }
    }
    let mut count = |what, is_so| *counts.entry(what).or_default() += u64::from(is_so);
    count("with a step under way", rig.driver.steps.is_under_way);
    count("in the middle", clients.iter().any(|client| !client.leases.is_empty()));
    drop(clients);
    let ending = match how {
        Stop::Killed => return rig.kill(),
        Stop::Requested => Ok(StopReason::Stopped),
        Stop::DiskFull => {
            let cause = Arc::new(std::io::ErrorKind::StorageFull.into());
            Err(RecordError { path: "events.jsonl".into(), cause }.into())
        }
    };
    let (report, folder) = rig.end(ending);
    assert_eq!(report.ended.is_err(), how == Stop::DiskFull);
    assert_eq!(report.not_saved, None);
    let saved = checkpoint(&folder, format);
    assert_eq!(saved.as_ref().map_or(0, |saved| saved.progress.iteration.number()), report.state.iterations);
    if let Some(saved) = saved {
        assert_eq!(ata_sums::sha256_of_parameters(saved.training.parameters()), report.parameters_sha256);
        count("resumed", true);
    }
    folder
}

#[test]
fn however_often_it_is_stopped_a_run_ends_with_the_same_parameters() {
    let formats = [WireFormat::F32Exact, WireFormat::Compact];
    let undisturbed = formats.map(|format| honest(go_on(tempfile::tempdir().unwrap(), "uta", Cadence::Never, format)));
    let mut counts = Counts::default();
    for seed in 0..100 {
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        let policy = ["uta", "ata-auto", "ata-empirical"][seed as usize % 3];
        let cadence = [Cadence::Seconds(60.0), Cadence::Iterations(1), Cadence::Iterations(2)][seed as usize / 3 % 3];
        let (format, expected) = (formats[seed as usize % 2], undisturbed[seed as usize % 2]);
        let mut folder = tempfile::tempdir().unwrap();
        for _ in 0..4 {
            let how = [Stop::Requested, Stop::Requested, Stop::DiskFull, Stop::Killed][rng.random_range(0..4)];
            folder = stop(&mut rng, go_on(folder, policy, cadence, format), how, format, &mut counts);
        }
        let mut rig = go_on(folder, policy, cadence, format);
        let ending = rig.pass(0.0);
        let (ending, sha256) = finish_alone(&mut rig, ending, &format!("seed {seed}"));
        assert_eq!(sha256, expected, "seed {seed}");
        let (report, folder) = rig.end(ending);
        assert_eq!((report.state.iterations, report.state.totals.tasks_applied), (ITERATIONS, ITERATIONS * BUDGET));
        assert!(folder.path().join(ata_record::MODEL_FILE).exists());
    }
    for (what, least) in [("with a step under way", 30), ("in the middle", 50), ("resumed", 100)] {
        assert!(counts[what] > least, "{what}: {counts:?}");
    }
}

/// If the training thread fails while the run ends, the run does not wait for the step.
#[test]
fn a_step_that_fails_at_the_end_is_not_waited_for() {
    let mut rig = go_on(tempfile::tempdir().unwrap(), "uta", Cadence::Seconds(60.0), WireFormat::F32Exact);
    let mut client = rig.join("a", 1).unwrap();
    rig.work_off(&mut client);
    assert!(rig.driver.steps.is_under_way);
    // The units of another model make the thread panic.
    let none = Units::from_exponents(&[], &TensorSizes::new([])).unwrap();
    rig.training.send(Work::Units(none)).unwrap();
    let (report, folder) = rig.end(Ok(StopReason::Stopped));
    assert!(matches!(report.ended, Err(RunError::Training)), "{:?}", report.ended);
    assert!(checkpoint(&folder, WireFormat::F32Exact).is_none(), "nothing was saved");
}
