//! Tests of checkpoints that are written, found and damaged.

use std::sync::mpsc;

use ata_mutator::{Mutator, bit_flips, feed, truncations};
use ata_policies::build_policy;
use ata_record::ExcludedFrom;
use ata_scheduler::{Engine, EngineConfig, PolicyContext};
use ata_sums::{Optimizer, Rule};
use ata_types::WireFormat;
use tempfile::TempDir;

use super::*;

const FILES: [&str; 3] = [MODEL, OPTIMIZER, STATE];

const PARAMETERS: usize = 3000;

/// Returns a state after `iteration` steps, in which every number depends on `iteration`.
fn sample_checkpoint(parameters: usize, iteration: u64) -> Checkpoint {
    let sizes = TensorSizes::new([parameters]);
    let units = Units::new(&[-20], &vec![1; parameters.div_ceil(512)], &sizes).expect("one tensor");
    let config = TrainingConfig { optimizer: Optimizer::default(), sizes, format: WireFormat::F32Exact, budget: 2 };
    let mut training = TrainingState::new(config, vec![0.5; parameters]);
    for step in 0..iteration {
        let sum = (0..parameters).map(|at| (at as u64 + step) as f32).collect();
        training.step_whole(sum, 2, 0.1, true).unwrap();
        training.commit_step(&[1.0]);
    }
    training.set_units(units);
    let policy = build_policy("ata-auto", &PolicyContext::default()).expect("a policy");
    let progress = Progress {
        version: VERSION,
        written_by: "0.1.0".into(),
        run_id: "run".into(),
        iteration: Iteration(iteration),
        epoch: 1,
        time_s: 0.1 + 0.2,
        samples: 96 * iteration,
        data: "synthetic, seed 1".into(),
        best_accuracy: Some(0.1),
        workers: vec![
            (WorkerId::from_slot(1), "b".into(), "::1".into()),
            (WorkerId::from_slot(0), "a".into(), "10.0.0.1".into()),
        ],
        excluded: vec![Exclusion {
            name: "c".into(),
            machine: "10.0.0.1".into(),
            from: ExcludedFrom::Run,
            why: "mismatches".into(),
        }],
        engine: Engine::new(EngineConfig::default(), policy).save(),
        settings: "budget = 16\n".into(),
    };
    Checkpoint { training, past: RunState::default(), progress }
}

/// Writes checkpoints through the saver thread, keeping the newest ones. Returns whether each was written, or why not.
fn save_all(
    store: impl Store + 'static,
    newest: usize,
    checkpoints: impl IntoIterator<Item = Checkpoint>,
) -> Vec<Result<Iteration, String>> {
    let retention = Retention { newest, every: None };
    let saver = Saver { store: Box::new(store), retention, table: table(), metadata: Metadata::new() };
    let (reports, received) = mpsc::channel();
    let jobs = saver.spawn(move |result| reports.send(result).unwrap_or(()));
    for Checkpoint { training: state, past: added_up, progress } in checkpoints {
        let (copy, training) = mpsc::sync_channel(1);
        copy.send(state).expect("there is room for one");
        let (reply, past) = mpsc::channel();
        reply.send(added_up).expect("the saver waits for it");
        jobs.send(SaveJob::Checkpoint { training, past, progress: Box::new(progress) }).expect("the saver runs");
    }
    drop(jobs);
    let outcome = |result| match result {
        SaveResult::Checkpoint { iteration, saved } => saved.map(|_| iteration),
        SaveResult::Model { .. } => unreachable!("no model is written"),
    };
    received.into_iter().map(outcome).collect()
}

fn table() -> ParameterTable {
    ParameterTable::vector("theta", PARAMETERS)
}

fn config(parameters: usize) -> TrainingConfig {
    sample_checkpoint(parameters, 1).training.config().clone()
}

fn parts(checkpoint: Checkpoint) -> (TrainingState, serde_json::Value, Progress) {
    let Checkpoint { training, past, progress } = checkpoint;
    (training, past.saved(), progress)
}

fn checkpoint(iteration: u64) -> Checkpoint {
    sample_checkpoint(PARAMETERS, iteration)
}

/// Saves checkpoints of these iterations, keeping the newest ones. Returns whether each was written.
pub(super) fn save(store: impl Store + 'static, newest: usize, iterations: &[u64]) -> Vec<Result<Iteration, String>> {
    save_all(store, newest, iterations.iter().map(|iteration| checkpoint(*iteration)))
}

pub(super) fn find(store: &dyn Store) -> Result<Option<FoundCheckpoint>, Vec<(String, Damage)>> {
    newest(store, &table(), &config(PARAMETERS))
}

pub(super) fn found(store: &dyn Store) -> String {
    find(store).unwrap().unwrap().name
}

fn name_of(iteration: u64) -> String {
    format!("step-{iteration:06}")
}

/// Checks that what is saved is found, and that old checkpoints are dropped, in a store that `open` returns.
pub(super) fn check_saving<S: Store + 'static>(open: impl Fn() -> S) {
    let store = open();
    assert!(find(&store).unwrap().is_none());
    assert_eq!(newest_settings(&store).unwrap(), None);
    let saved = save(open(), 2, &[1, 2, 3]);
    assert_eq!(saved, [1, 2, 3].map(|iteration| Ok(Iteration(iteration))));
    let newest = find(&store).unwrap().unwrap();
    assert_eq!((newest.name, newest.damaged.len()), (name_of(3), 0));
    assert_eq!(parts(newest.checkpoint), parts(checkpoint(3)));
    assert_eq!(newest_settings(&store).unwrap(), Some(checkpoint(3).progress.settings));
    let mut names = store.names().unwrap();
    names.sort();
    assert_eq!(names, [2, 3].map(name_of));
    assert_eq!(store.latest().unwrap(), Some(name_of(3)));
    // A resumed run records which checkpoint it resumes from before it saves again.
    store.set_latest(&name_of(2)).unwrap();
    assert_eq!(found(&store), name_of(2));
    save(open(), 2, &[2]);
    assert_eq!(found(&store), name_of(2));
}

#[test]
fn what_is_saved_is_found_and_old_ones_are_dropped() {
    let folder = TempDir::new().unwrap();
    check_saving(|| FolderStore::new(folder.path()));
    assert_eq!(std::fs::read_to_string(folder.path().join("latest")).unwrap(), "step-000002\n");
}

/// Every file of a small checkpoint is truncated at every byte, gets every bit flipped, grows and disappears. The damage is found and
/// reported, and the previous checkpoint is used. If all are damaged, all are named.
#[test]
fn damage_at_any_byte_and_bit_is_detected() {
    const SMALL: usize = 6;
    let folder = TempDir::new().unwrap();
    let (store, table, config) =
        (FolderStore::new(folder.path()), ParameterTable::vector("theta", SMALL), config(SMALL));
    for iteration in [4, 5] {
        let files = sample_checkpoint(SMALL, iteration).encode(&table, &Metadata::new());
        store.put(&name_of(iteration), &files).unwrap();
    }
    let mut damaged = 0;
    for file in FILES {
        let path = folder.path().join(name_of(5)).join(file);
        let whole = std::fs::read(&path).unwrap();
        let mut check = || {
            let found = newest(&store, &table, &config).unwrap().unwrap();
            assert_eq!((found.name, found.damaged.len()), (name_of(4), 1), "{file}");
            assert_eq!((&found.damaged[0].0, found.damaged[0].1.file), (&name_of(5), file));
            damaged += 1;
        };
        let truncated = truncations(&whole).map(<[u8]>::to_vec);
        let longer = [&whole[..], b"x"].concat();
        for content in truncated.chain(bit_flips(&whole)).chain([longer]) {
            std::fs::write(&path, content).unwrap();
            check();
        }
        std::fs::remove_file(&path).unwrap();
        check();
        std::fs::write(&path, &whole).unwrap();
    }
    assert_eq!(newest(&store, &table, &config).unwrap().unwrap().name, name_of(5));
    assert!(damaged > 10_000, "{damaged}");
    for iteration in [4, 5] {
        std::fs::write(folder.path().join(name_of(iteration)).join(STATE), "{}").unwrap();
    }
    let all = newest(&store, &table, &config).unwrap_err();
    assert_eq!(all.into_iter().map(|(name, _)| name).collect::<Vec<_>>(), [5, 4].map(name_of));
}

fn decode(files: &[(&str, Vec<u8>)], config: &TrainingConfig) -> Result<Checkpoint, Damage> {
    let read = |name: &str| Ok(files.iter().find(|(file, _)| *file == name).unwrap().1.clone());
    Checkpoint::decode(&table(), config, read)
}

fn decoded(checkpoint: &Checkpoint, config: &TrainingConfig) -> Result<Checkpoint, Damage> {
    decode(&checkpoint.encode(&table(), &Metadata::new()), config)
}

/// Any content of `state.json`, even with a valid SHA-256, is either refused, or passed to an engine that starts from it or refuses it.
#[test]
fn a_state_that_was_edited_does_no_harm() {
    let config = config(PARAMETERS);
    let mut files = checkpoint(3).encode(&table(), &Metadata::new());
    let content = files[2].1[PREFIX.len() + 64..].to_vec();
    let tokens = ["null", "-1", "1e308", "18446744073709551615", "[", "{", "\"", "0.0", "[[1,\"a\"]]"];
    let mutator = Mutator::new(1, vec![content]).with_tokens(&tokens);
    feed(mutator, 20_000, |rest| {
        files[2].1 = [PREFIX.as_bytes(), sha256(rest).as_bytes(), rest].concat();
        let Ok(checkpoint) = decode(&files, &config) else { return false };
        let policy = build_policy("ata-auto", &PolicyContext::default()).unwrap();
        Engine::restore(EngineConfig::default(), policy, checkpoint.progress.engine).is_ok()
    });
}

/// Parts of different iterations do not make a checkpoint, even if each is intact. They are neither written nor read.
#[test]
fn parts_that_disagree_are_refused() {
    let (four, five) = (checkpoint(4), checkpoint(5));
    let folder = TempDir::new().unwrap();
    let store = FolderStore::new(folder.path());
    let torn = Checkpoint { training: five.training, ..four };
    let saved = save_all(store.clone(), 2, [torn.clone()]);
    let [Err(reason)] = &saved[..] else { panic!("{saved:?}") };
    assert!(reason.contains("after step 5"), "{reason}");
    assert!(find(&store).unwrap().is_none());
    store.put(&name_of(4), &torn.encode(&table(), &Metadata::new())).unwrap();
    let damaged = find(&store).unwrap_err();
    assert_eq!((damaged.len(), damaged[0].1.file), (1, "model.safetensors"));
    assert_eq!(damaged[0].1.reason, "it holds step 5, and state.json step 4");
}

/// A run that resumes from an earlier checkpoint does not return to later ones, even if it ends before it saves.
#[test]
fn checkpoints_after_the_one_resumed_from_do_not_count() {
    let folder = TempDir::new().unwrap();
    let store = FolderStore::new(folder.path());
    save(store.clone(), 9, &[10, 20, 30]);
    go_on_from(&store, Iteration(10)).unwrap();
    assert_eq!((found(&store), newest_settings(&store).unwrap().is_some()), (name_of(10), true));
    // Later checkpoints are not lost until the run saves again.
    go_on_from(&store, Iteration(30)).unwrap();
    assert_eq!(found(&store), name_of(30));
    go_on_from(&store, Iteration(10)).unwrap();
    save(store.clone(), 2, &[15]);
    assert_eq!(found(&store), name_of(15));
    assert_eq!(store.names().unwrap().len(), 2);
    for damage in ["", "step-", "step-000010", "nonsense\n"] {
        std::fs::write(folder.path().join("latest"), damage).unwrap();
        assert_eq!(found(&store), name_of(15), "{damage:?}");
    }
}

#[test]
fn numbers_that_no_run_reaches_are_refused() {
    let refused = |change: fn(&mut Progress), message: &str| {
        let mut checkpoint = checkpoint(1);
        change(&mut checkpoint.progress);
        let damage = decoded(&checkpoint, &config(PARAMETERS)).unwrap_err().to_string();
        assert!(damage.contains(message), "{damage}");
    };
    refused(|progress| progress.epoch = u64::MAX, "epoch is 18446744073709551615");
    refused(|progress| progress.time_s = 1e300, "expected a time from 0 to 1000000000");
    refused(|progress| progress.time_s = -1.0, "time_s is -1");
    refused(
        |progress| progress.workers[0].0 = WorkerId::new(u32::MAX).unwrap(),
        "number is 4294967295: expected one from 1 to 16384",
    );
}

/// It would take the place of one that can be read.
#[test]
fn a_state_that_could_not_be_read_again_is_not_saved() {
    let folder = TempDir::new().unwrap();
    let mut wrong = checkpoint(2);
    wrong.past.iterations = u64::MAX;
    let saved = save_all(FolderStore::new(folder.path()), 1, [checkpoint(1), wrong]);
    assert_eq!(saved[0], Ok(Iteration(1)));
    let refused = saved[1].as_ref().unwrap_err();
    assert!(
        refused.contains("could not be read again: state.json: the state's iterations has a number beyond"),
        "{refused}"
    );
    assert!(folder.path().join(name_of(1)).exists());
}

#[test]
fn another_release_optimizer_and_format_are_refused() {
    let mut other = checkpoint(1);
    other.progress.version = VERSION - 1;
    let config = config(PARAMETERS);
    assert_eq!(parts(decoded(&checkpoint(1), &config).unwrap()), parts(checkpoint(1)));
    let reads = format!("this is ata {PROGRAM_VERSION}, which reads version {VERSION}.");
    for (by, found) in
        [("", "another release of ata wrote it, in version 5"), ("9.9", "ata 9.9 wrote it, in version 5")]
    {
        other.progress.written_by = by.into();
        let refused = decoded(&other, &config).unwrap_err();
        assert!(
            refused.is_of_other_release && refused.reason.contains(found) && refused.reason.contains(&reads),
            "{refused}"
        );
    }
    let sgd = Optimizer { rule: Rule::Sgd { momentum: 0.9, nesterov: false }, ..Optimizer::default() };
    let sgd = TrainingConfig { optimizer: sgd, ..config.clone() };
    let refused = decoded(&checkpoint(1), &sgd).unwrap_err();
    assert!(!refused.is_of_other_release && refused.reason.contains("saved by another optimizer"));
    let compact = TrainingConfig { format: WireFormat::Compact, ..config };
    assert!(decoded(&checkpoint(1), &compact).unwrap_err().reason.contains("another wire format"));
}

/// If a folder cannot be written, as on a full disk, earlier checkpoints remain, and no partial one is left.
#[test]
fn a_checkpoint_that_cannot_be_written_is_reported() {
    let folder = TempDir::new().unwrap();
    let store = FolderStore::new(folder.path());
    save(store.clone(), 2, &[1]);
    // A file blocks the path of the next checkpoint's folder.
    std::fs::write(folder.path().join(".step-000002.partial"), "").unwrap();
    let saved = save(store.clone(), 2, &[2]);
    let [Err(reason)] = &saved[..] else { panic!("{saved:?}") };
    assert!(reason.contains("step-000002"), "{reason}");
    assert_eq!(found(&store), name_of(1));
}
