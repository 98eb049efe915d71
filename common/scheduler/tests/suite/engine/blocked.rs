//! Deadlines of workers that wait for what others send.

use ata_scheduler::{EngineConfig, Event};

use crate::engine::support::{Cluster, begun, config, evicted, worker};

const TIMEOUT_S: f64 = 10.0;

/// Two workers, of which the first waits from second 9 to second 30 to report its lease.
#[test]
fn its_deadline_stands_still_and_that_of_others_does_not() {
    let (mut cluster, leases) = begun("uta", EngineConfig { lease_timeout_s: Some(TIMEOUT_S), ..config(2, 2) });
    assert_eq!((leases.len(), cluster.engine.poll_timeout()), (2, Some(TIMEOUT_S)));
    cluster.now_s = 9.0;
    assert_eq!(cluster.tell(Event::Blocked { worker: worker(1) }), []);
    cluster.now_s = 10.5;
    assert_eq!(evicted(&cluster.timeout()), [2]);
    // The worker is given the lease of the other one as well.
    cluster.now_s = 30.0;
    assert_eq!((evicted(&cluster.timeout()), cluster.engine.poll_timeout()), (vec![], None));
    assert_eq!(cluster.tell(Event::Resumed { worker: worker(1) }), []);
    assert_eq!(cluster.engine.poll_timeout(), Some(31.0), "a second of its time is left");
    cluster.now_s = 31.5;
    assert_eq!(evicted(&cluster.timeout()), [1]);
}

#[test]
fn workers_without_leases_are_not_blocked() {
    let mut cluster = Cluster::new("uta", 1, 1);
    for event in [Event::Blocked { worker: worker(7) }, Event::Resumed { worker: worker(7) }] {
        assert_eq!(cluster.tell(event), []);
    }
    let leases = cluster.join_all(1);
    cluster.tell(Event::Blocked { worker: worker(1) });
    cluster.lose(1);
    cluster.tell(Event::Resumed { worker: worker(1) });
    let again = cluster.join_all(1);
    assert!(cluster.engine.poll_timeout().is_some() && again.len() == leases.len());
}
