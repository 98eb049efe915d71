//! Tests that blame stays with the machine that earned it, and that the operator can lift it.

use ata_record::{ExcludedFrom, Exclusion, JOURNAL_FILE};
use ata_types::WorkerId;
use ata_wire::{BatchFigures, MeasuredBatch};

use super::*;

const BROKEN: &str = "10.0.0.2";
const SOUND: &str = "10.0.0.3";

/// Begins or resumes a run from which a worker is expelled after two failures in a row.
fn expelling(folder: TempDir, start: Start) -> Rig {
    let mut config = config(folder.path(), MODEL, "uta", 2, 3);
    (config.engine.expel_after, config.engine.rest_s) = (Some(2), 0.01);
    (config.checkpoints.cadence, config.training.start) = (Cadence::Iterations(1), start);
    Rig::begin(config, folder)
}

/// Lets a worker fail every lease until it is expelled.
fn fail(rig: &mut Rig, client: &mut VirtualWorker) {
    while rig.is_open(client.token) {
        client.read();
        client.presence.hear();
        for lease in std::mem::take(&mut client.leases) {
            assert!(rig.fail_lease(client.token, lease.id, false).is_none());
        }
        assert!(rig.pass(0.1).is_none());
    }
}

fn number(rig: &mut Rig, client: &VirtualWorker) -> u32 {
    rig.driver.sessions.of_token(client.token).unwrap().worker.number()
}

fn forgive(rig: &mut Rig, name: &str) -> Iteration {
    rig.ask(|reply| DriverCommand::Forgive { name: name.parse().unwrap(), reply })
}

/// Another machine takes the name of an absent worker, and fails until it is expelled. The worker itself is welcome, also after a resume,
/// and nothing counts against it. The other machine is refused until the operator forgives it.
#[test]
fn a_name_that_another_machine_used_is_welcome() {
    let mut rig = expelling(tempfile::tempdir().unwrap(), Start::Random);
    let mut thief = rig.join_from(BROKEN, "rig-1", 1).unwrap();
    fail(&mut rig, &mut thief);
    let held = Exclusion {
        name: "rig-1".into(),
        machine: BROKEN.into(),
        from: ExcludedFrom::Run,
        why: "it failed 2 times in a row".into(),
    };
    rig.wait_for("the expulsion", |state| state.exclusions.contains(&held));
    let refused = rig.join_from(BROKEN, "rig-1", 2).err().unwrap();
    assert!(refused.message().contains("ata workers forgive rig-1"), "{refused}");
    let mut worker = rig.join_from(SOUND, "rig-1", 3).unwrap();
    assert_eq!(number(&mut rig, &worker), 2);
    rig.work_off(&mut worker);
    assert!(rig.step().is_none());
    let (report, folder) = rig.end(Ok(StopReason::Stopped));
    assert_eq!(report.ended.unwrap(), StopReason::Stopped);

    let saved = stops::checkpoint(&folder, WireFormat::F32Exact).unwrap();
    let mut rig = expelling(folder, Start::Checkpoint(Box::new(saved)));
    let worker = rig.join_from(SOUND, "rig-1", 4).unwrap();
    assert_eq!(number(&mut rig, &worker), 2, "it keeps its number");
    rig.leave(worker.token);
    assert!(rig.join_from(BROKEN, "rig-1", 5).is_err());
    rig.wait_for("the same exclusion", |state| state.exclusions.contains(&held));
    assert_eq!(forgive(&mut rig, "rig-1"), Iteration(2));
    rig.wait_for("the end of the exclusion", |state| state.exclusions.is_empty());
    let thief = rig.join_from(BROKEN, "rig-1", 6).unwrap();
    assert_eq!(number(&mut rig, &thief), 1);
    rig.driver.carry_out_all();
    assert!(rig.driver.engine.is_clear(WorkerId::from_slot(0)));
    let (_, folder) = rig.end(Ok(StopReason::Stopped));
    let mut forgiven = 0;
    read_journal(&folder.path().join(JOURNAL_FILE), |event| {
        forgiven += usize::from(matches!(event, RunEvent::Forgive { name, .. } if name == "rig-1"));
    })
    .unwrap();
    assert_eq!(forgiven, 1);
}

/// Failures that did not suffice for an expulsion stay with their machine, too.
#[test]
fn strikes_and_rests_do_not_follow_a_name() {
    let mut rig = Rig::changed(MODEL, "uta", 2, 3, |config| config.engine.rest_s = 1000.0);
    let mut thief = rig.join_from(BROKEN, "rig-1", 1).unwrap();
    thief.read();
    let lease = thief.leases.remove(0).id;
    rig.fail_lease(thief.token, lease, false);
    rig.leave(thief.token);
    let mut worker = rig.join_from(SOUND, "rig-1", 2).unwrap();
    worker.read();
    assert!(!worker.leases.is_empty(), "it gets work");
    rig.leave(worker.token);
    rig.join_from(BROKEN, "rig-1", 3).unwrap();
    rig.wait_for("a rest of the first worker alone", |state| {
        let rests = |number| state.workers.get(&WorkerId::new(number).unwrap()).map(|worker| worker.usage.rests);
        (rests(1), rests(2)) == (Some(1), Some(0))
    });
}

/// A worker whose measurement cannot be right measures nothing any more in this run, whatever session it opens, until it is forgiven.
#[test]
fn a_worker_that_measures_something_else_evaluates_no_more() {
    let mut rig = Rig::changed(MODEL, "uta", 2, 9, |config| {
        (config.evaluation.own, config.evaluation.samples) = (None, Some(50));
        (config.evaluation.by_workers, config.evaluation.every) = (true, Some(1));
    });
    let step_of = |message| if let ToWorker::Evaluate { step, .. } = message { Some(step) } else { None };
    let asked =
        |client: &mut VirtualWorker| std::iter::from_fn(|| client.messages.try_recv().ok()).filter_map(step_of).last();
    let mut client = rig.join("a", 1).unwrap();
    rig.work_off(&mut client);
    assert!(rig.step().is_none());
    let step = asked(&mut client).expect("it is asked");
    let figures =
        BatchFigures { samples: 1 << 63, batch_samples: 1, loss: 0.0, classes: vec![], metrics: BTreeMap::new() };
    rig.say(client.token, FromWorker::Measured(MeasuredBatch { step, batch: 0, outcome: Ok(figures) }));
    let is_it = |of: &Exclusion| of.from == ExcludedFrom::Evaluations && of.why.contains("the coordinator has 50");
    rig.wait_for("its exclusion", |state| state.exclusions.iter().any(is_it));
    rig.leave(client.token);
    let mut again = rig.join("a", 2).unwrap();
    again.presence.hear();
    rig.pass(1.0);
    rig.driver.evaluate();
    rig.driver.carry_out_all();
    assert_eq!(asked(&mut again), None);
    forgive(&mut rig, "a");
    assert_eq!(asked(&mut again), Some(step));
}
