//! Tests that workers that exchange vectors in shards end with the same parameters as in a star, whatever fails.

use std::collections::BTreeSet;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::time::Duration;

use ata_harness::{Cluster, Ended, Settings, Tamper, WorkerSettings};
use ata_record::{RefusalKind, RunEvent};
use ata_types::{ExchangeChoice, WireFormat};
use tokio::net::TcpListener;

use crate::{each, losses, rests, run};

/// A model of seven chunks, so that each of four workers owns one or two.
const MODEL: &str = "toy:200000";

fn settings(exchange: ExchangeChoice, format: WireFormat) -> Settings {
    Settings { model: MODEL, min_workers: 4, iterations: 60, exchange, format, ..Settings::default() }
}

fn worker(name: &str) -> WorkerSettings {
    WorkerSettings { task_time: Duration::from_millis(1), ..WorkerSettings::new(name) }
}

/// Starts a cluster of this worker and three others, which listen at the same address.
async fn start(settings: &Settings, fourth: WorkerSettings) -> Cluster {
    let peer_listen = (fourth.peer_listen.ip(), 0).into();
    let others = ["first", "second", "third"].map(|name| WorkerSettings { peer_listen, ..worker(name) });
    crate::start(settings, others.into_iter().chain([fourth])).await
}

/// Checks that the run had the parameters of a star. Returns how many workers exchanged the vectors of each step in shards.
async fn check(settings: &Settings, ended: &Ended) -> Vec<u64> {
    crate::check(settings, ended).await;
    // A vector that was requested again may already have been on its way.
    let refused = &ended.report.state.refused;
    assert!(refused.keys().all(|kind| *kind == RefusalKind::Stale), "{refused:?}");
    members(ended)
}

fn members(ended: &Ended) -> Vec<u64> {
    each(ended, |event| if let RunEvent::Step(step) = event { Some(step.shards) } else { None })
}

#[tokio::test(flavor = "multi_thread")]
async fn shards_are_a_star_bit_for_bit() {
    for format in [WireFormat::F32Exact, WireFormat::Compact] {
        for workers in [2, 4, 7] {
            let settings = Settings { min_workers: workers, ..settings(ExchangeChoice::Shards, format) };
            let ended = run(&settings, (1..=workers).map(|number| worker(&format!("worker-{number}")))).await;
            let members = check(&settings, &ended).await;
            // At first it is unknown which workers reach each other, and some exchange their vectors before others do.
            assert!(members.contains(&(workers as u64)), "{workers} workers, {format}: {members:?}");
            assert_eq!(losses(&ended), [""; 0]);
        }
    }
}

/// Members die in the middle of steps, and other workers take their places.
#[tokio::test(flavor = "multi_thread")]
async fn a_member_that_dies_changes_nothing() {
    for format in [WireFormat::F32Exact, WireFormat::Compact] {
        let settings = Settings { iterations: 120, ..settings(ExchangeChoice::Shards, format) };
        let mut cluster = crate::start(&settings, ["first", "second", "third"].map(worker)).await;
        let mut next = cluster.worker(worker("mortal-0"));
        for life in 1..=6 {
            let before = cluster.state.borrow().totals.sharded_steps;
            cluster.wait_for("steps in shards", |state| state.totals.sharded_steps > before + 3).await;
            // The worker is killed at a different point of a step each time.
            tokio::time::sleep(Duration::from_micros(700 * life)).await;
            next.abort();
            next = cluster.worker(worker(&format!("mortal-{life}")));
        }
        let ended = cluster.end().await;
        check(&settings, &ended).await;
        assert!(ended.report.state.totals.sharded_steps > 24);
    }
}

/// Returns settings of a worker that says that it listens at this host, and a free port.
async fn elsewhere(host: &'static str) -> WorkerSettings {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    WorkerSettings { peer_host: Some(host), peer_listen: listener.local_addr().unwrap(), ..worker("fourth") }
}

/// The others continue in shards without it. Since reachability is tested outside of steps, no step is lost.
#[tokio::test(flavor = "multi_thread")]
async fn a_worker_that_others_cannot_reach_sends_its_sum_alone() {
    let settings = Settings { peer_hosts: &["127.0.0.9"], ..settings(ExchangeChoice::Shards, WireFormat::Compact) };
    // No server listens at this address.
    let hidden = WorkerSettings { peer_host: Some("127.0.0.9"), ..worker("hidden") };
    let ended = start(&settings, hidden).await.end().await;
    let members = check(&settings, &ended).await;
    assert!(members.contains(&3) && !members.contains(&4), "{members:?}");
    // Once there is an exchange, there is one in each further step.
    let mut shards = members.iter().skip_while(|members| **members == 0);
    assert!(shards.all(|members| *members > 0), "{members:?}");
    assert_eq!(losses(&ended), [""; 0]);
    assert!(ended.report.state.workers.values().all(|worker| worker.tasks_applied > 0));
}

/// The host that a worker announces is used only if the operator allows it. Otherwise the worker could direct others to any address.
#[tokio::test(flavor = "multi_thread")]
async fn a_worker_cannot_lead_others_elsewhere() {
    let settings = settings(ExchangeChoice::Shards, WireFormat::Compact);
    let fourth = elsewhere("127.0.0.8").await;
    let elsewhere = TcpListener::bind((Ipv4Addr::new(127, 0, 0, 8), fourth.peer_listen.port())).await.unwrap();
    let members = check(&settings, &start(&settings, fourth).await.end().await).await;
    assert!(members.contains(&4), "it is reached where the coordinator sees it: {members:?}");
    assert!(tokio::time::timeout(Duration::ZERO, elsewhere.accept()).await.is_err(), "somebody was led there");
}

#[tokio::test(flavor = "multi_thread")]
async fn shards_work_over_ipv6() {
    for listen in [Ipv6Addr::LOCALHOST.into(), Ipv4Addr::LOCALHOST.into()] {
        let settings = Settings { listen, ..settings(ExchangeChoice::Shards, WireFormat::F32Exact) };
        let any = WorkerSettings { peer_listen: (Ipv6Addr::UNSPECIFIED, 0).into(), ..worker("fourth") };
        let ended = start(&settings, any).await.end().await;
        let members = check(&settings, &ended).await;
        assert!(members.contains(&4), "{listen}: {members:?}");
        assert_eq!(losses(&ended), [""; 0]);
    }
}

/// The others are notified, continue without it, and do not fail.
#[tokio::test(flavor = "multi_thread")]
async fn a_member_that_passes_on_garbage_is_struck() {
    for format in [WireFormat::F32Exact, WireFormat::Compact] {
        let settings = Settings { peer_hosts: &["127.0.0.7"], ..settings(ExchangeChoice::Shards, format) };
        let byzantine = elsewhere("127.0.0.7").await;
        let address = byzantine.peer_listen;
        Tamper::listen((Ipv4Addr::new(127, 0, 0, 7), address.port()).into(), address).await;
        let ended = start(&settings, byzantine).await.end().await;
        crate::check(&settings, &ended).await;
        let garbage = ended.report.state.refused.get(&RefusalKind::WrongSize);
        assert!(garbage.is_some_and(|count| *count > 0), "{:?}", ended.report.state.refused);
        assert!(members(&ended).contains(&3), "{:?}", members(&ended));
        assert!(ended.workers.values().all(Result::is_ok), "{:?}", ended.workers);
        assert_eq!(BTreeSet::from_iter(rests(&ended)).len(), 1, "{:?}", losses(&ended));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_star_is_the_choice_where_it_is_as_short() {
    let settings = settings(ExchangeChoice::Star, WireFormat::F32Exact);
    let ended = start(&settings, worker("fourth")).await.end().await;
    assert!(check(&settings, &ended).await.iter().all(|members| *members == 0));
}
