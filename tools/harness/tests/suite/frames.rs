//! Tests mutated frames of every RPC, in both directions. Each is refused, or accepted as a message that can be sent again.

use ata_harness::{Cluster, Flood, Frames, Peer, Reader, Settings, WorkerSettings};
use ata_mutator::{Fed, Mutator, feed};
use ata_net::{Credentials, JoinToken};
use ata_wire::SessionToken;

const COUNT: u64 = 150_000;

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

/// A coordinator that trains answers all mutated calls, and ends with the parameters of an undisturbed run.
#[tokio::test(flavor = "multi_thread")]
async fn mutated_calls_do_not_disturb_a_run() {
    let settings = Settings::default();
    let run = async |calls| {
        let mut cluster = Cluster::start(&settings).await;
        // This session never reports Ready, so it gets no lease.
        let session = Peer::connect(cluster.address).await.hello("mutant", 1).await.unwrap();
        let answers = Flood::connect(cluster.address, session.token()).await.send(calls).await;
        cluster.worker(WorkerSettings::new("honest"));
        (answers, cluster.end().await.report)
    };
    let (Fed { accepted, refused }, report) = run(CALLS).await;
    println!("{accepted} calls accepted, {refused} refused");
    assert!(accepted > 0 && refused > CALLS / 2, "{accepted}, {refused}");
    assert_eq!(report.parameters_sha256, run(0).await.1.parameters_sha256);
}

/// Any mutated join token is either refused, or survives being written and read back.
#[test]
fn mutated_join_tokens_do_no_harm() {
    let folder = tempfile::tempdir().unwrap();
    let credentials = Credentials::open(folder.path()).unwrap();
    let pin = credentials.tls_files().pin().unwrap();
    let of = |address: &str| {
        credentials.token(ata_net::Role::Worker, address.parse().unwrap(), pin).unwrap().0.to_string().into_bytes()
    };
    let mutator =
        Mutator::new(1, vec![of("head:7070"), of("[fe80::1]:1")]).with_tokens(&["-", "ata1-", "[", ":", "@", "é"]);
    feed(mutator, 100_000, |bytes| {
        let Some(token) = std::str::from_utf8(bytes).ok().and_then(|text| text.parse::<JoinToken>().ok()) else {
            return false;
        };
        assert_eq!(token.to_string().parse::<JoinToken>().unwrap(), token);
        true
    });
}
