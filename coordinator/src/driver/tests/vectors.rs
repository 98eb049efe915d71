//! Tests of requested vectors that are interrupted, late, repeated or refused.

use super::*;

const BUDGET: u64 = 6;

/// Returns a run that begins once two workers are present.
fn rig(change: impl FnOnce(&mut CoordinatorConfig)) -> Rig {
    Rig::changed(LARGE, "uta", BUDGET, 2, |config| {
        config.engine.min_workers = 2;
        change(config);
    })
}

fn expected() -> [u8; 32] {
    honest(Rig::large("uta", BUDGET, 2))
}

/// Returns two workers that have computed all tasks of the first iteration, and are asked for a vector each. Both are admitted.
fn two(rig: &mut Rig) -> ([VirtualWorker; 2], [VectorUpload; 2]) {
    let clients = asked(rig, ["a", "b"]);
    let uploads = [&clients[0], &clients[1]].map(|client| let_in(rig, client));
    (clients, uploads)
}

fn let_in(rig: &mut Rig, client: &VirtualWorker) -> VectorUpload {
    rig.announce(client.token, &client.asked[0]).upload().expect("it is let in")
}

/// Sends the first chunks of an admitted vector, and passes them to the training thread.
fn send(rig: &mut Rig, client: &VirtualWorker, upload: &VectorUpload, chunks: u64) {
    assert_eq!(rig.send_chunks(upload, sum(&client.asked[0]), 0..chunks), chunks);
    assert!(rig.step().is_none());
}

/// Ends the run with this worker alone, which must result in the same parameters.
fn check_end_with(mut rig: Rig, client: &mut VirtualWorker) {
    let (ending, sha256) = finish(&mut rig, [client]);
    assert_eq!(sha256, expected());
    let (report, _) = rig.end(ending);
    assert_eq!((report.state.iterations, report.state.totals.tasks_applied), (2, 2 * BUDGET));
    assert!(report.ended.is_ok(), "{:?}", report.ended);
}

/// The way in which a worker is lost.
#[derive(Clone, Copy, Debug)]
enum Loss {
    Leaves,
    Fails,
    Silent,
}

fn lose(rig: &mut Rig, lost: &VirtualWorker, other: &VirtualWorker, how: Loss) {
    let mut ending = match how {
        Loss::Leaves => rig.leave(lost.token),
        Loss::Fails => rig.fail_vector(lost.token, &lost.asked[0]),
        Loss::Silent => None,
    };
    while matches!(how, Loss::Silent) && ending.is_none() && rig.is_open(lost.token) {
        other.presence.hear();
        ending = rig.pass(HEARTBEAT_TIMEOUT_S / 4.0);
    }
    assert!(ending.is_none(), "{how:?}: {ending:?}");
}

/// The chunks that arrived from a lost worker count. Other workers compute its tasks again, and send only the missing chunks.
#[test]
fn only_the_rest_of_a_lost_workers_vector_is_sent_again() {
    let chunks = rig(|_| ()).chunks();
    assert!(chunks >= 3);
    for how in [Loss::Leaves, Loss::Fails, Loss::Silent] {
        for arrived in 0..=chunks {
            let mut rig = rig(|_| ());
            let ([lost, mut other], uploads) = two(&mut rig);
            // Chunks that both workers have sent are stepped.
            send(&mut rig, &other, &uploads[1], 1);
            send(&mut rig, &lost, &uploads[0], arrived);
            let asked = other.asked.remove(0);
            lose(&mut rig, &lost, &other, how);
            assert_eq!(rig.send_chunks(&uploads[0], 0.0, 0..chunks), 0, "{how:?}: its gate is closed");
            assert_eq!(rig.send_chunks(&uploads[1], sum(&asked), 1..chunks), chunks - 1);
            assert_eq!(rig.arrived(other.token, &asked, None).0, Some(Receipt::Accepted));
            rig.step();
            other.read();
            if arrived < chunks || matches!(how, Loss::Fails) {
                assert!(!other.leases.is_empty(), "{how:?}, {arrived}: it gets the tasks");
                rig.report_all(&mut other);
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
/// computed again at the parameters of their iteration, which are sent again. If the run stops before, nothing of the step is saved.
#[test]
fn a_step_that_completes_without_the_engines_knowledge_counts_unless_the_run_stops() {
    for stops in [false, true] {
        let mut rig = rig(|config| config.checkpoints.cadence = Cadence::Seconds(600.0));
        let chunks = rig.chunks();
        let [lost, mut other] = asked(&mut rig, ["a", "b"]);
        let sets = rig.parameters(other.token);
        let uploads = [&lost, &other].map(|client| let_in(&mut rig, client));
        assert_eq!(sets.take(), Ok(Some(Iteration(2))), "it is sent ahead");
        send(&mut rig, &lost, &uploads[0], chunks);
        lose(&mut rig, &lost, &other, Loss::Fails);
        let asked = other.asked.remove(0);
        assert_eq!(rig.send_chunks(&uploads[1], sum(&asked), 0..chunks), chunks);
        rig.arrived(other.token, &asked, None);
        assert_eq!(sets.take(), Ok(None), "it still holds those of the first iteration");
        assert!(rig.step().is_none());
        assert!(!rig.driver.steps.is_under_way);
        assert_eq!(sets.take(), Ok(Some(Iteration::FIRST)));
        if stops {
            let (report, folder) = rig.end(Ok(StopReason::Stopped));
            assert_eq!((report.state.iterations, saved(&folder).len()), (0, 0));
            assert!(report.not_saved.is_some_and(|why| why.contains("computed again")));
        } else {
            check_end_with(rig, &mut other);
        }
    }
}

fn saved(folder: &TempDir) -> Vec<String> {
    FolderStore::new(folder.path().join(CHECKPOINTS)).names().unwrap()
}

/// An order that replaces another one may arrive after the step was taken.
#[test]
fn a_step_is_taken_once_however_late_its_orders_are() {
    let mut rig = rig(|_| ());
    let chunks = rig.chunks();
    let ([lost, mut other], uploads) = two(&mut rig);
    let asked = other.asked.remove(0);
    assert_eq!(rig.send_chunks(&uploads[0], sum(&lost.asked[0]), 0..chunks), chunks);
    assert_eq!(rig.send_chunks(&uploads[1], sum(&asked), 0..chunks), chunks);
    rig.arrived(other.token, &asked, None);
    lose(&mut rig, &lost, &other, Loss::Fails);
    // The thread has all chunks, but is slow, so the tasks are computed again before it takes the step.
    other.read();
    rig.report_all(&mut other);
    assert!(rig.step().is_none());
    check_end_with(rig, &mut other);
}

/// A vector that is announced before the report on its leases is handled waits, and needs only one announcement. It ends with its session.
#[test]
fn a_vector_waits_for_the_report_on_its_leases() {
    for leaves in [true, false] {
        let mut rig = Rig::large("uta", BUDGET, 2);
        let mut client = rig.join("a", 1).unwrap();
        client.read();
        let asked = client.asked.remove(0);
        let mut announced = rig.announce(client.token, &asked);
        assert!(rig.announce(client.token, &asked).is_refused() && announced.is_waiting());
        if leaves {
            rig.leave(client.token);
            assert!(announced.is_refused());
            continue;
        }
        let last = client.leases.pop().unwrap();
        rig.report_all(&mut client);
        assert!(announced.is_waiting());
        rig.report(client.token, &last);
        let (upload, chunks) = (announced.upload().expect("it is let in"), rig.chunks());
        assert_eq!(rig.send_chunks(&upload, sum(&asked), 0..chunks), chunks);
        rig.arrived(client.token, &asked, None);
        check_end_with(rig, &mut client);
    }
}

fn change_units(header: &mut GradientHeader, by: i16) {
    header.units[0] += by;
    header.units_crc32c = units_crc32c(&header.units, &[]);
}

/// A worker with other units is asked again, which is not a failure. If it insists on its units, other workers compute its tasks, and the
/// step does not wait for its vector.
#[test]
fn a_vector_in_other_units_is_asked_for_again() {
    let mut rig = rig(|config| config.engine.rest_s = 0.0);
    let [mut one, mut other] = asked(&mut rig, ["a", "b"]);
    let first = other.asked.remove(0);
    assert_eq!(rig.send_vector(other.token, &first).0, Some(Receipt::Accepted));
    let wrong = one.asked.remove(0);
    assert!(rig.announce_changed(one.token, &wrong, |header| change_units(header, 30)).is_refused());
    // Only the worker that is asked for a vector can fail it.
    rig.fail_vector(other.token, &wrong);
    one.read();
    assert_eq!(one.asked, std::slice::from_ref(&wrong));
    assert!(rig.announce_changed(one.token, &wrong, |header| change_units(header, 30)).is_refused());
    rig.wait_for("the refusal", |state| state.refused == BTreeMap::from([(RefusalKind::WrongSize, 1)]));
    one.asked.clear();
    one.read();
    other.read();
    assert!(one.is_busy() || other.is_busy(), "its tasks are handed out again");
    assert_eq!(finished(&mut rig, [&mut one, &mut other]), expected());
}

/// Returns a run of three workers, each of which is asked for a vector, before the units are known.
fn three(verify: Option<Verify>) -> (Rig, [VirtualWorker; 3]) {
    let mut rig = rig(|config| (config.engine.verify, config.engine.min_workers) = (verify, 3));
    rig.are_units_known = false;
    let clients = asked(&mut rig, ["a", "b", "c"]);
    (rig, clients)
}

fn announce_in_other_units(rig: &mut Rig, client: &VirtualWorker, by: i16) -> Announced {
    rig.announce_changed(client.token, &client.asked[0], |header| change_units(header, by))
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
                assert!(replies.iter_mut().all(Announced::is_waiting), "not all are announced");
                replies.push(announce_in_other_units(&mut rig, client, if at == liar { 30 } else { 0 }));
            }
            let chunks = rig.chunks();
            for (at, (client, mut reply)) in clients.iter_mut().zip(replies).enumerate() {
                let asked = client.asked.remove(0);
                if at == liar {
                    assert!(reply.is_refused(), "{at}");
                    client.read();
                    assert_eq!(client.asked, [asked]);
                } else {
                    rig.send_chunks(&reply.upload().expect("it is let in"), sum(&asked), 0..chunks);
                    assert_eq!(rig.arrived(client.token, &asked, None).0, Some(Receipt::Accepted));
                }
            }
            let (ending, sha256) = finish(&mut rig, &mut clients);
            assert_eq!(sha256, expected());
            let (report, _) = rig.end(ending);
            assert!(report.state.refused.is_empty(), "{:?}", report.state.refused);
        }
    }
}

/// Two workers have no majority, so the smaller units win. The units of a lost worker are not waited for.
#[test]
fn of_two_the_smaller_units_are_taken() {
    for smaller in 0..2 {
        let (mut rig, clients) = three(None);
        let mut announced =
            [0, 1].map(|at| announce_in_other_units(&mut rig, &clients[at], if at == smaller { -1 } else { 0 }));
        rig.leave(clients[2].token);
        assert_eq!(announced.each_mut().map(Announced::is_refused), [smaller != 0, smaller != 1]);
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
        let before = rig.parameters_sha256();
        for client in &mut clients {
            client.read();
            rig.report_all(client);
        }
        for client in &mut clients {
            client.read();
            let upload = let_in(&mut rig, client);
            send(&mut rig, client, &upload, stepped);
        }
        assert!(rig.driver.steps.is_under_way);
        let (report, folder) = rig.end(Ok(StopReason::Stopped));
        assert_eq!((report.state.iterations, report.parameters_sha256), (1, before));
        assert_eq!((report.not_saved, saved(&folder)), (None, vec!["step-000001".to_owned()]));
    }
}
