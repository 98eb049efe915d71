//! Mutated frames of every RPC, in both directions: each is refused, or accepted as something that can be sent again.

use ata_harness::{Answers, Cluster, Flood, Frames, Peer, Reader, Settings, WorkerSettings};
use ata_mutation::{Fed, Mutator, feed};
use ata_wire::SessionToken;

/// Frames of each kind.
const COUNT: u64 = 150_000;

/// Calls to a live coordinator.
const CALLS: u64 = 5000;

#[test]
fn mutated_frames_do_no_harm() {
    let reader = Reader::default();
    for (seed, frames) in (1..).zip(Frames::ALL) {
        let examples = frames.examples(SessionToken([5; 16]));
        assert!(examples.iter().all(|example| reader.accepts(frames, example)), "{frames:?}");
        let Fed { accepted, refused } =
            feed(Mutator::new(seed, examples), COUNT, |frame| reader.accepts(frames, frame));
        println!("{frames:?}: {accepted} accepted, {refused} refused");
    }
}

/// Mutated calls to a coordinator that trains: it answers all, and ends with the parameters of an undisturbed run.
#[tokio::test(flavor = "multi_thread")]
async fn mutated_calls_do_not_disturb_a_run() {
    let settings = Settings::default();
    let run = async |calls| {
        let mut cluster = Cluster::start(&settings).await;
        // It never says that it can compute, so that it gets no lease.
        let session = Peer::connect(cluster.address).await.hello("mutant", 1).await.unwrap();
        let answers = Flood::connect(cluster.address, session.token()).await.send(calls).await;
        cluster.worker(WorkerSettings::new("honest"));
        (answers, cluster.end().await.report)
    };
    let (Answers { accepted, refused }, report) = run(CALLS).await;
    println!("{accepted} calls accepted, {refused} refused");
    assert!(accepted > 0 && refused > CALLS / 2 && report.ended.is_ok(), "{accepted}, {refused}, {:?}", report.ended);
    assert_eq!(report.parameters_sha256, run(0).await.1.parameters_sha256);
}
