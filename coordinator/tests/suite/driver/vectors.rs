//! Tests of requested vectors that are interrupted, late, repeated or refused.

use ata_coordinator::Store;
use ata_coordinator::testing::{VectorAnnouncement, VectorUploading};
use ata_scheduler::Verify;

use super::*;

const BUDGET: u64 = 6;

/// Returns two workers that have computed all tasks of the first iteration, and are asked for a vector each.
fn two(rig: &mut Rig) -> [VirtualWorker; 2] {
    asked(rig, ["a", "b"])
}

/// Returns the sum of all leases of a worker.
fn honest_of(client: &VirtualWorker) -> f32 {
    client.assigned.values().map(|lease| value(lease.iteration, lease.tasks)).sum()
}

/// Returns a run that begins once two workers are present.
fn rig(change: impl FnOnce(&mut CoordinatorConfig)) -> Rig {
    let folder = tempfile::tempdir().unwrap();
    let mut config = config(folder.path(), LARGE, Start::Random, Cadence::Never, "uta", BUDGET, 2);
    config.engine.min_workers = 2;
    change(&mut config);
    Rig::of(config, folder)
}

fn expected() -> [u8; 32] {
    honest_end(Rig::large("uta", BUDGET, 2))
}

/// Announces a worker's vector, which must be admitted.
fn let_in(rig: &mut Rig, client: &VirtualWorker) -> VectorUploading {
    rig.run.announce_vector(client.token, &client.asked[0]).upload().expect("it is let in")
}

/// Sends the first chunks of an admitted vector, and passes them to the training thread.
fn send(rig: &mut Rig, client: &VirtualWorker, upload: &VectorUploading, chunks: u64) {
    let asked = &client.asked[0];
    assert_eq!(rig.run.send_chunks(upload, sum(asked), 0..chunks), chunks);
    assert!(rig.step().is_none());
}

/// Ends the run with the other worker alone, which must result in the same parameters.
fn check_end_with(mut rig: Rig, client: &mut VirtualWorker) {
    let (ending, sha256) = finish(&mut rig, client);
    assert!(matches!(ending, Ending::Stop(StopReason::Finished(_))), "{ending:?}");
    assert_eq!(sha256, expected());
    let Rig { run, folder } = rig;
    let report = run.end(ending);
    assert_eq!((report.state.iterations, report.state.tasks_applied), (2, 2 * BUDGET));
    drop(folder);
}

/// The way in which a worker is lost.
#[derive(Clone, Copy, Debug)]
enum Loss {
    /// The control stream ends.
    Leaves,
    /// The vector breaks off.
    Fails,
    /// The worker falls silent.
    Silent,
}

const LOSSES: [Loss; 3] = [Loss::Leaves, Loss::Fails, Loss::Silent];

fn lose(rig: &mut Rig, lost: &VirtualWorker, other: &VirtualWorker, how: Loss) {
    let ending = match how {
        Loss::Leaves => rig.leave(0.1, lost.token),
        Loss::Fails => rig.run.fail_vector(lost.token, &lost.asked[0], RefusalKind::NotReceived),
        Loss::Silent => {
            let mut ending = None;
            while ending.is_none() && rig.run.is_open(lost.token) {
                other.hear();
                ending = rig.run.pass(HEARTBEAT_TIMEOUT_S / 4.0);
            }
            ending
        }
    };
    assert!(ending.is_none(), "{how:?}: {ending:?}");
}

/// The chunks that arrived from a lost worker count. Other workers compute its tasks again, and send only the missing chunks.
#[test]
fn only_the_rest_of_a_lost_workers_vector_is_sent_again() {
    let chunks = Rig::large("uta", BUDGET, 2).run.chunks();
    assert!(chunks >= 3);
    for how in LOSSES {
        for arrived in 0..=chunks {
            let mut rig = rig(|_| ());
            let [lost, mut other] = two(&mut rig);
            // Chunks that both workers have sent are stepped.
            let uploads = [&lost, &other].map(|client| let_in(&mut rig, client));
            send(&mut rig, &other, &uploads[1], 1);
            send(&mut rig, &lost, &uploads[0], arrived);
            let (asked, value) = (other.asked.remove(0), 0.0);
            lose(&mut rig, &lost, &other, how);
            assert_eq!(rig.run.send_chunks(&uploads[0], value, 0..chunks), 0, "{how:?}: its gate is closed");
            let rest = sum(&asked);
            assert_eq!(rig.run.send_chunks(&uploads[1], rest, 1..chunks), chunks - 1);
            assert_eq!(rig.run.vector_arrived(other.token, &asked).0, Some(Receipt::Accepted));
            rig.step();
            other.read();
            if arrived < chunks || matches!(how, Loss::Fails) {
                assert!(!other.leases.is_empty(), "{how:?}, {arrived}: it gets the tasks");
                for lease in std::mem::take(&mut other.leases) {
                    rig.run.report(other.token, &lease);
                }
                other.read();
                let again = other.asked.iter().filter(|asked| asked.iteration == Iteration::FIRST);
                let first: Vec<u64> = again.map(|asked| asked.first_chunk).collect();
                assert_eq!(first, if arrived < chunks { vec![arrived] } else { vec![] }, "{how:?}");
            }
            check_end_with(rig, &mut other);
        }
    }
}

/// The engine has withdrawn the order when the step completes, since it did not know that a lost worker's vector had arrived. The tasks are
/// computed again at the parameters of their iteration, which are sent again.
#[test]
fn a_step_that_completes_without_the_engines_knowledge_counts() {
    let mut rig = rig(|_| ());
    let chunks = rig.run.chunks();
    let [lost, mut other] = two(&mut rig);
    let sets = rig.run.parameters(other.token);
    let uploads = [&lost, &other].map(|client| let_in(&mut rig, client));
    assert_eq!(sets.take(), Some(Iteration(2)), "it is sent ahead");
    send(&mut rig, &lost, &uploads[0], chunks);
    lose(&mut rig, &lost, &other, Loss::Fails);
    let asked = other.asked.remove(0);
    let value = sum(&asked);
    assert_eq!(rig.run.send_chunks(&uploads[1], value, 0..chunks), chunks);
    rig.run.vector_arrived(other.token, &asked);
    assert_eq!(sets.take(), None, "it still holds those of the first iteration");
    assert!(rig.step().is_none());
    assert!(!rig.run.is_step_under_way());
    assert_eq!(sets.take(), Some(Iteration::FIRST));
    check_end_with(rig, &mut other);
}

/// A step that was taken and is not committed is not saved.
#[test]
fn a_stop_after_such_a_step_saves_nothing_of_it() {
    let mut rig = rig(|config| config.checkpoints.cadence = Cadence::Seconds(600.0));
    let chunks = rig.run.chunks();
    let [lost, mut other] = two(&mut rig);
    let upload = let_in(&mut rig, &lost);
    send(&mut rig, &lost, &upload, chunks);
    lose(&mut rig, &lost, &other, Loss::Fails);
    let asked = other.asked.remove(0);
    rig.run.send_vector(other.token, &asked, 1.0);
    rig.step();
    let Rig { run, folder } = rig;
    let report = run.end(Ending::Stop(StopReason::Stopped));
    assert_eq!(report.state.iterations, 0);
    assert!(report.not_saved.is_some_and(|why| why.contains("computed again")));
    assert_eq!(FolderStore::new(folder.path().join(CHECKPOINTS)).names().unwrap(), Vec::<String>::new());
}

/// An order that replaces another one may arrive after the step was taken.
#[test]
fn a_step_is_taken_once_however_late_its_orders_are() {
    let mut rig = rig(|_| ());
    let chunks = rig.run.chunks();
    let [lost, mut other] = two(&mut rig);
    let uploads = [&lost, &other].map(|client| let_in(&mut rig, client));
    let (asked, value) = (other.asked.remove(0), honest_of(&other));
    assert_eq!(rig.run.send_chunks(&uploads[0], sum(&lost.asked[0]), 0..chunks), chunks);
    assert_eq!(rig.run.send_chunks(&uploads[1], value, 0..chunks), chunks);
    rig.run.vector_arrived(other.token, &asked);
    lose(&mut rig, &lost, &other, Loss::Fails);
    // The thread has all chunks, but is slow, so the tasks are computed again before it takes the step.
    other.read();
    for lease in std::mem::take(&mut other.leases) {
        rig.run.report(other.token, &lease);
    }
    assert!(rig.step().is_none());
    check_end_with(rig, &mut other);
}

/// A vector that is announced before the report on its leases is handled waits, and needs only one announcement.
#[test]
fn a_vector_waits_for_the_report_on_its_leases() {
    let mut rig = Rig::large("uta", BUDGET, 2);
    let mut client = rig.join("a", 1).unwrap();
    client.read();
    let asked = client.asked.remove(0);
    let mut announced = rig.run.announce_vector(client.token, &asked);
    let mut again = rig.run.announce_vector(client.token, &asked);
    assert!(announced.is_waiting() && again.is_refused());
    let leases = std::mem::take(&mut client.leases);
    let (last, others) = leases.split_last().unwrap();
    for lease in others {
        rig.run.report(client.token, lease);
    }
    assert!(announced.is_waiting());
    rig.run.report(client.token, last);
    let upload = announced.upload().expect("it is let in");
    let (chunks, value) = (rig.run.chunks(), honest_of(&client));
    assert_eq!(rig.run.send_chunks(&upload, value, 0..chunks), chunks);
    rig.run.vector_arrived(client.token, &asked);
    check_end_with(rig, &mut client);
}

/// A waiting announcement is answered when its session ends.
#[test]
fn a_vector_that_waits_ends_with_its_session() {
    let mut rig = Rig::large("uta", BUDGET, 2);
    let mut client = rig.join("a", 1).unwrap();
    client.read();
    let mut announced = rig.run.announce_vector(client.token, &client.asked[0]);
    assert!(announced.is_waiting());
    rig.leave(0.1, client.token);
    assert!(announced.is_refused());
}

/// A change that makes a header wrong.
type Change = fn(&mut GradientHeader);

/// Headers that do not match a requested vector are refused, counted by kind, and change nothing. Only the worker that is asked for a
/// vector can fail it.
#[test]
fn headers_that_differ_from_what_is_asked_for_change_nothing() {
    use RefusalKind::{Foreign, Stale};
    let changes: [(RefusalKind, Change); 2] = [
        (Foreign, |header| header.vector = VectorId(99)),
        (Stale, |header| header.vector = VectorId(3 - header.vector.0)),
    ];
    for (kind, change) in changes {
        let mut rig = rig(|config| config.engine.rest_s = 0.0);
        let [mut one, mut other] = two(&mut rig);
        let uploaded = other.asked.remove(0);
        let value = sum(&uploaded);
        assert_eq!(rig.run.send_vector(other.token, &uploaded, value).0, Some(Receipt::Accepted));
        let mut refused = rig.run.announce_changed_vector(one.token, &one.asked[0], change);
        assert!(refused.is_refused(), "{kind:?}");
        rig.run.wait_for("the refusal", |state| state.refused.get(&kind) == Some(&1));
        rig.run.fail_vector(other.token, &one.asked[0], RefusalKind::NotReceived);
        run_to_the_end(&mut rig, [&mut one, &mut other]);
        assert_eq!(rig.run.parameters_sha256(), expected(), "{kind:?}");
    }
}

fn change_units(header: &mut GradientHeader, by: i16) {
    let mut units = header.units.clone();
    units[0] += by;
    *header = header.clone().in_units(&units, &[]);
}

fn other_units(header: &mut GradientHeader) {
    change_units(header, 30);
}

fn smaller_units(header: &mut GradientHeader) {
    change_units(header, -1);
}

/// A worker with other units is asked again, which is not a failure. If it insists on its units, other workers compute its tasks, and the
/// step does not wait for its vector.
#[test]
fn a_vector_in_other_units_is_asked_for_again() {
    let mut rig = rig(|config| config.engine.rest_s = 0.0);
    let [mut one, mut other] = two(&mut rig);
    let first = other.asked.remove(0);
    let value = sum(&first);
    assert_eq!(rig.run.send_vector(other.token, &first, value).0, Some(Receipt::Accepted));
    let wrong = one.asked.remove(0);
    assert!(rig.run.announce_changed_vector(one.token, &wrong, other_units).is_refused());
    one.read();
    assert_eq!(one.asked, std::slice::from_ref(&wrong));
    assert!(rig.run.announce_changed_vector(one.token, &wrong, other_units).is_refused());
    rig.run.wait_for("the refusal", |state| state.refused == BTreeMap::from([(RefusalKind::WrongSize, 1)]));
    one.asked.clear();
    one.read();
    other.read();
    assert!(is_busy(&one) || is_busy(&other), "its tasks are handed out again");
    run_to_the_end(&mut rig, [&mut one, &mut other]);
    assert_eq!(rig.run.parameters_sha256(), expected());
}

/// Returns a run of three workers, each of which is asked for a vector, before the units are known.
fn three(verify: Option<Verify>) -> (Rig, [VirtualWorker; 3]) {
    let folder = tempfile::tempdir().unwrap();
    let mut config = config(folder.path(), LARGE, Start::Random, Cadence::Never, "uta", BUDGET, 2);
    (config.engine.verify, config.engine.min_workers) = (verify, 3);
    let mut rig = Rig { run: VirtualRun::begin_without_units(config), folder };
    let clients = asked(&mut rig, ["a", "b", "c"]);
    (rig, clients)
}

/// No single worker determines the units of the first iteration. No vector is admitted before all workers have announced their units, and
/// the worker with different units is asked again.
#[test]
fn most_workers_determine_the_first_units() {
    // The `verify` setting keeps vectors separate. Its share is 0, so there are no checks.
    for verify in [None, Some(Verify { share: 0.0, secret: 7 })] {
        for liar in 0..3 {
            let (mut rig, mut clients) = three(verify);
            let mut replies = Vec::new();
            for (at, client) in clients.iter().enumerate() {
                assert!(replies.iter_mut().all(VectorAnnouncement::is_waiting), "not all are announced");
                let change: Change = if at == liar { other_units } else { |_| () };
                replies.push(rig.run.announce_changed_vector(client.token, &client.asked[0], change));
            }
            let chunks = rig.run.chunks();
            for (at, mut reply) in replies.into_iter().enumerate() {
                let asked = clients[at].asked.remove(0);
                let value = sum(&asked);
                if at == liar {
                    assert!(reply.is_refused(), "{at}");
                    clients[at].read();
                    assert_eq!(clients[at].asked, [asked]);
                } else {
                    rig.run.send_chunks(&reply.upload().expect("it is let in"), value, 0..chunks);
                    assert_eq!(rig.run.vector_arrived(clients[at].token, &asked).0, Some(Receipt::Accepted));
                }
            }
            let ending = run_to_the_end(&mut rig, &mut clients);
            assert_eq!(rig.run.parameters_sha256(), expected());
            let report = rig.run.end(ending);
            assert!(report.state.refused.is_empty(), "{:?}", report.state.refused);
        }
    }
}

/// Two workers have no majority, so the smaller units win. The units of a lost worker are not waited for.
#[test]
fn of_two_the_smaller_units_are_taken() {
    for smaller in 0..2 {
        let (mut rig, clients) = three(None);
        let announced: Vec<_> = (0..2)
            .map(|at| {
                let change: Change = if at == smaller { smaller_units } else { |_| () };
                rig.run.announce_changed_vector(clients[at].token, &clients[at].asked[0], change)
            })
            .collect();
        rig.leave(0.1, clients[2].token);
        for (at, mut announced) in announced.into_iter().enumerate() {
            assert_eq!(announced.is_refused(), at != smaller, "{at} of {smaller}");
        }
    }
}

/// A stop in the middle of a step drops the step, and the checkpoint holds the previous one.
#[test]
fn a_step_that_is_half_taken_at_a_stop_is_dropped() {
    for stepped in 0..3 {
        let mut rig = rig(|config| config.checkpoints.cadence = Cadence::Seconds(600.0));
        let mut clients = ["a", "b"].map(|name| rig.join(name, 1).unwrap());
        for client in &mut clients {
            rig.work_off(client);
        }
        rig.step();
        let before = rig.run.parameters_sha256();
        for client in &mut clients {
            client.read();
            for lease in std::mem::take(&mut client.leases) {
                rig.run.report(client.token, &lease);
            }
        }
        for client in &mut clients {
            client.read();
            let upload = let_in(&mut rig, client);
            send(&mut rig, client, &upload, stepped);
        }
        assert!(rig.run.is_step_under_way());
        let Rig { run, folder } = rig;
        let report = run.end(Ending::Stop(StopReason::Stopped));
        assert_eq!((report.state.iterations, report.parameters_sha256), (1, before));
        assert_eq!(report.not_saved, None);
        assert_eq!(FolderStore::new(folder.path().join(CHECKPOINTS)).names().unwrap(), ["step-000001"]);
    }
}

/// A worker that sends heartbeats but never its vector does not delay the step forever.
#[test]
fn a_vector_that_never_comes_is_not_waited_for() {
    let mut rig = rig(|_| ());
    let [silent, mut other] = two(&mut rig);
    rig.work_off(&mut other);
    let mut waited_s = 0;
    while !is_busy(&other) {
        silent.hear();
        other.hear();
        assert!(rig.run.pass(1.0).is_none() && waited_s <= TransferLimits::default().timeout.as_secs() + 2);
        other.read();
        waited_s += 1;
    }
    rig.run.wait_for("the refusal", |state| state.refused.get(&RefusalKind::NotReceived) == Some(&1));
    check_end_with(rig, &mut other);
}
