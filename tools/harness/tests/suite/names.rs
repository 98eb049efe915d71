//! Tests workers that join and leave under new names, in a run that is saved continuously.

use ata_harness::{Cluster, Ended, Peer, Settings, WorkerSettings, soon};

/// The number of sessions after which the number of remembered names has reached its maximum.
const SETTLED: usize = 300;

/// Lets workers join one after the other, get a task and leave. Returns the number of the last one.
async fn come_and_go(cluster: &Cluster, guests: std::ops::Range<usize>) -> u32 {
    let peer = Peer::connect(cluster.address).await;
    let mut number = 0;
    for guest in guests {
        let mut session = peer.join(&format!("guest-{guest}")).await;
        session.assigned().await;
        number = session.welcome.worker.number();
    }
    number
}

/// Waits for another checkpoint. Returns the bytes that are saved in addition to the parameters.
async fn saved_bytes(cluster: &mut Cluster) -> u64 {
    let now = cluster.state.borrow().saved;
    cluster.wait_for("a checkpoint", |state| state.saved > now).await;
    cluster.saved_bytes()
}

/// The saved state does not grow with the names, and after a restart the workers that left last get their old numbers.
#[tokio::test(flavor = "multi_thread")]
async fn what_is_saved_does_not_grow_with_names() {
    let settings = Settings { iterations: u64::MAX, checkpoint_every: Some(5), ..Settings::default() };
    let mut cluster = Cluster::start(&settings).await;
    cluster.worker(WorkerSettings::new("stays"));
    come_and_go(&cluster, 0..SETTLED).await;
    let settled = saved_bytes(&mut cluster).await;
    let last = come_and_go(&cluster, SETTLED..3 * SETTLED).await;
    let later = saved_bytes(&mut cluster).await;
    assert!(settled > 0 && later < settled * 5 / 4, "{settled} bytes are saved, and then {later}");
    assert!(last <= 2 * SETTLED as u32, "number {last}");
    cluster.crash(&settings).await;
    let peer = Peer::connect(cluster.address).await;
    let back = soon("its welcome", peer.hello(&format!("guest-{}", 3 * SETTLED - 1), 1)).await.unwrap();
    assert_eq!(back.welcome.worker.number(), last);
    cluster.stop();
    let Ended { report, .. } = cluster.end().await;
    assert!(report.ended.is_ok(), "{:?}", report.ended);
}
