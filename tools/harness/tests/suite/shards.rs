//! Tests that workers that exchange vectors in shards end with the same parameters as in a star, whatever fails.

use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::Duration;

use ata_harness::{Cluster, Ended, Settings, Tamper, WorkerSettings};
use ata_record::{RefusalKind, RunEvent};
use ata_types::{ExchangeChoice, WireFormat};

/// A model of seven chunks, so that each of four workers owns one or two.
const MODEL: &str = "toy:200000";

fn settings(exchange: ExchangeChoice, format: WireFormat) -> Settings {
    Settings { model: MODEL, min_workers: 4, iterations: 60, exchange, format, ..Settings::default() }
}

fn worker(name: &str) -> WorkerSettings {
    WorkerSettings { task_time: Duration::from_millis(1), ..WorkerSettings::new(name) }
}

/// Returns the parameters of a run in a star, with one worker.
async fn star(settings: &Settings) -> [u8; 32] {
    let exchange = ExchangeChoice::Star;
    let mut cluster = Cluster::start(&Settings { min_workers: 1, exchange, ..settings.clone() }).await;
    cluster.worker(WorkerSettings::new("alone"));
    cluster.end().await.report.parameters_sha256
}

/// Checks that the run succeeded with the parameters of a star. Returns how many of its steps were in shards.
async fn check(settings: &Settings, ended: &Ended) -> u64 {
    assert!(ended.report.ended.is_ok(), "{:?}", ended.report.ended);
    assert_eq!(ended.report.state.iterations, settings.iterations);
    // A vector that was requested again may already have been on its way.
    let refused = &ended.report.state.refused;
    assert!(refused.keys().all(|kind| *kind == RefusalKind::Stale), "{refused:?}");
    assert_eq!(ended.report.parameters_sha256, star(settings).await);
    ended.report.state.sharded_steps
}

#[tokio::test(flavor = "multi_thread")]
async fn shards_are_a_star_bit_for_bit() {
    for format in [WireFormat::F32Exact, WireFormat::Compact] {
        for workers in [2, 4, 7] {
            let settings = Settings { min_workers: workers, ..settings(ExchangeChoice::Shards, format) };
            let mut cluster = Cluster::start(&settings).await;
            for number in 1..=workers {
                cluster.worker(worker(&format!("worker-{number}")));
            }
            let ended = cluster.end().await;
            check(&settings, &ended).await;
            // At first it is unknown which workers reach each other, and some exchange their vectors before others do.
            assert!(members(&ended).contains(&(workers as u64)), "{workers} workers, {format}: {:?}", members(&ended));
            assert_eq!(losses(&ended), [""; 0]);
        }
    }
}

/// Members die in the middle of steps, and other workers take their places.
#[tokio::test(flavor = "multi_thread")]
async fn a_member_that_dies_changes_nothing() {
    for format in [WireFormat::F32Exact, WireFormat::Compact] {
        let settings = Settings { iterations: 120, ..settings(ExchangeChoice::Shards, format) };
        let mut cluster = Cluster::start(&settings).await;
        for name in ["first", "second", "third"] {
            cluster.worker(worker(name));
        }
        let mut next = cluster.worker(worker("mortal-0"));
        for life in 1..=6 {
            let before = cluster.state.borrow().sharded_steps;
            cluster.wait_for("steps in shards", |state| state.sharded_steps > before + 3).await;
            // The worker is killed at a different point of a step each time.
            tokio::time::sleep(Duration::from_micros(700 * life)).await;
            next.abort();
            next = cluster.worker(worker(&format!("mortal-{life}")));
        }
        assert!(check(&settings, &cluster.end().await).await > 24);
    }
}

/// Returns how many workers exchanged the vectors of each step in shards.
fn members(ended: &Ended) -> Vec<u64> {
    let members = |event: &RunEvent| match event {
        RunEvent::Step { shards, .. } => Some(*shards),
        _ => None,
    };
    ended.events.iter().filter_map(members).collect()
}

/// Returns why workers were lost or got no work before the run was over.
fn losses(ended: &Ended) -> Vec<String> {
    let is_loss = |event: &&RunEvent| matches!(event, RunEvent::Loss { .. } | RunEvent::Rest { .. });
    ended.events.iter().filter(is_loss).map(|event| format!("{event:?}")).collect()
}

/// Returns a free port of this machine.
async fn free_port() -> u16 {
    let listener = tokio::net::TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    listener.local_addr().unwrap().port()
}

/// The others continue in shards without it. Since reachability is tested outside of steps, no step is lost.
#[tokio::test(flavor = "multi_thread")]
async fn a_worker_that_others_cannot_reach_sends_its_sum_alone() {
    let settings = Settings { peer_hosts: &["127.0.0.9"], ..settings(ExchangeChoice::Shards, WireFormat::Compact) };
    let mut cluster = Cluster::start(&settings).await;
    for name in ["first", "second", "third"] {
        cluster.worker(worker(name));
    }
    // No server listens at this address.
    cluster.worker(WorkerSettings { peer_host: Some("127.0.0.9"), ..worker("hidden") });
    let ended = cluster.end().await;
    let sharded = check(&settings, &ended).await;
    let members = members(&ended);
    assert!(members.contains(&3) && !members.contains(&4), "{members:?}");
    // Once there is an exchange, there is one in each further step.
    let first = members.iter().position(|members| *members > 0).unwrap();
    assert_eq!(sharded, members.len() as u64 - first as u64, "{members:?}");
    assert_eq!(losses(&ended), [""; 0]);
    assert!(ended.report.state.workers.values().all(|worker| worker.tasks_applied > 0));
}

/// A worker that could not be reached for a while is tried again.
#[tokio::test(flavor = "multi_thread")]
async fn a_worker_that_can_be_reached_again_takes_part() {
    let settings = Settings {
        peer_hosts: &["127.0.0.9"],
        iterations: 200,
        ..settings(ExchangeChoice::Shards, WireFormat::Compact)
    };
    let mut cluster = Cluster::start(&settings).await;
    for name in ["first", "second", "third"] {
        cluster.worker(worker(name));
    }
    let peer_listen = SocketAddr::from((Ipv4Addr::LOCALHOST, free_port().await));
    cluster.worker(WorkerSettings { peer_host: Some("127.0.0.9"), peer_listen, ..worker("hidden") });
    cluster.wait_for("steps in shards", |state| state.sharded_steps > 3).await;
    let listener = tokio::net::TcpListener::bind((Ipv4Addr::new(127, 0, 0, 9), peer_listen.port())).await.unwrap();
    tokio::spawn(async move {
        while let Ok((mut peer, _)) = listener.accept().await {
            tokio::spawn(async move {
                let mut worker = tokio::net::TcpStream::connect(peer_listen).await?;
                tokio::io::copy_bidirectional(&mut peer, &mut worker).await
            });
        }
    });
    let ended = cluster.end().await;
    check(&settings, &ended).await;
    assert!(members(&ended).contains(&4), "{:?}", members(&ended));
}

/// The host that a worker announces is used only if the operator allows it. Otherwise the worker could direct others to any address.
#[tokio::test(flavor = "multi_thread")]
async fn a_worker_cannot_lead_others_elsewhere() {
    let settings = settings(ExchangeChoice::Shards, WireFormat::Compact);
    let mut cluster = Cluster::start(&settings).await;
    let elsewhere = tokio::net::TcpListener::bind((Ipv4Addr::new(127, 0, 0, 8), 0)).await.unwrap();
    let peer_listen = SocketAddr::from((Ipv4Addr::LOCALHOST, elsewhere.local_addr().unwrap().port()));
    for name in ["first", "second", "third"] {
        cluster.worker(worker(name));
    }
    cluster.worker(WorkerSettings { peer_host: Some("127.0.0.8"), peer_listen, ..worker("fourth") });
    let ended = cluster.end().await;
    check(&settings, &ended).await;
    assert!(members(&ended).contains(&4), "it is reached where the coordinator sees it: {:?}", members(&ended));
    assert!(tokio::time::timeout(Duration::ZERO, elsewhere.accept()).await.is_err(), "somebody was led there");
}

/// Workers that listen on all addresses of both families are reached by either.
#[tokio::test(flavor = "multi_thread")]
async fn shards_work_over_ipv6() {
    let any = (Ipv6Addr::UNSPECIFIED, 0).into();
    for listen in [Ipv6Addr::LOCALHOST.into(), Ipv4Addr::LOCALHOST.into()] {
        let settings = Settings { listen, ..settings(ExchangeChoice::Shards, WireFormat::F32Exact) };
        let mut cluster = Cluster::start(&settings).await;
        for name in ["first", "second", "third", "fourth"] {
            cluster.worker(WorkerSettings { peer_listen: any, ..worker(name) });
        }
        let ended = cluster.end().await;
        check(&settings, &ended).await;
        assert!(members(&ended).contains(&4), "{listen}: {:?}", members(&ended));
        assert_eq!(losses(&ended), [""; 0]);
    }
}

/// The others are notified, continue without it, and do not fail.
#[tokio::test(flavor = "multi_thread")]
async fn a_member_that_passes_on_garbage_is_struck() {
    for format in [WireFormat::F32Exact, WireFormat::Compact] {
        let settings = Settings { peer_hosts: &["127.0.0.7"], ..settings(ExchangeChoice::Shards, format) };
        let mut cluster = Cluster::start(&settings).await;
        for name in ["first", "second", "third"] {
            cluster.worker(worker(name));
        }
        let peer_listen = SocketAddr::from((Ipv4Addr::LOCALHOST, free_port().await));
        Tamper::listen((Ipv4Addr::new(127, 0, 0, 7), peer_listen.port()).into(), peer_listen).await;
        cluster.worker(WorkerSettings { peer_host: Some("127.0.0.7"), peer_listen, ..worker("byzantine") });
        let ended = cluster.end().await;
        assert_eq!(ended.report.parameters_sha256, star(&settings).await);
        let garbage = ended.report.state.refused.get(&RefusalKind::WrongSize);
        assert!(garbage.is_some_and(|count| *count > 0), "{:?}", ended.report.state.refused);
        assert!(members(&ended).contains(&3), "{:?}", members(&ended));
        assert!(ended.workers.values().all(Result::is_ok), "{:?}", ended.workers);
        let rests = ended.events.iter().filter_map(|event| match event {
            RunEvent::Rest { worker, .. } => Some(*worker),
            _ => None,
        });
        let rests: std::collections::BTreeSet<_> = rests.collect();
        assert_eq!(rests.len(), 1, "{:?}", losses(&ended));
    }
}

/// With [`ExchangeChoice::Star`], workers that could exchange vectors in shards do not.
#[tokio::test(flavor = "multi_thread")]
async fn a_star_is_the_choice_where_it_is_as_short() {
    let settings = settings(ExchangeChoice::Star, WireFormat::F32Exact);
    let mut cluster = Cluster::start(&settings).await;
    for name in ["first", "second", "third", "fourth"] {
        cluster.worker(worker(name));
    }
    assert_eq!(check(&settings, &cluster.end().await).await, 0);
}
