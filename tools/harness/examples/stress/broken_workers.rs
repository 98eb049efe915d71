//! Measures the cost of broken workers, compared with the good ones alone, from iteration 21 on. There are two broken workers of five, and
//! then three machines that return under a new name after each failure, in addition to five good ones.

use std::time::Duration;

use ata_harness::{Cluster, Settings, WorkerSettings, poisoned_toy};
use ata_record::RunEvent;
use tokio::task::JoinSet;

use crate::broken::{Breaks, come_back_again};

const TASK_TIME: Duration = Duration::from_millis(5);

pub(crate) async fn run(_: &[String]) {
    let (alone, sha256) = measure("ata-auto", 3, Vec::new(), None).await;
    println!("ata-auto, three good workers: {:.2} ms per iteration", alone * 1e3);
    let bad = |name| WorkerSettings { task_time: TASK_TIME, ..WorkerSettings::new(name) };
    let poisoned = |name| WorkerSettings { models: poisoned_toy, ..bad(name) };
    let hanging = |name| WorkerSettings { task_time: Duration::from_hours(24), ..bad(name) };
    for (what, workers) in [
        ("two whose gradients are always NaN", vec![poisoned("bad-1"), poisoned("bad-2")]),
        ("two that always hang", vec![hanging("bad-1"), hanging("bad-2")]),
    ] {
        compare(what, (alone, sha256), measure("ata-auto", 3, workers, None).await);
    }
    for policy in ["uta", "pull", "ata-auto"] {
        let (alone, sha256) = measure(policy, 5, Vec::new(), None).await;
        println!("{policy}, five good workers: {:.2} ms per iteration", alone * 1e3);
        for (what, breaks) in [
            ("three that always fail, under new names", Breaks::Fails),
            ("three that always hang, under new names", Breaks::Hangs),
        ] {
            compare(what, (alone, sha256), measure(policy, 5, Vec::new(), Some(breaks)).await);
        }
    }
}

fn compare(what: &str, (alone, sha256): (f64, [u8; 32]), (with, same): (f64, [u8; 32])) {
    assert_eq!(same, sha256, "the parameters are the same");
    println!("with {what}: {:.2} ms per iteration, {:+.1} %", with * 1e3, (with / alone - 1.0) * 100.0);
}

/// Returns the mean seconds per iteration from the 21st on, and the SHA-256 of the parameters.
async fn measure(
    policy: &'static str,
    good: usize,
    bad: Vec<WorkerSettings>,
    renamed: Option<Breaks>,
) -> (f64, [u8; 32]) {
    let min_workers = good + bad.len() + renamed.map_or(0, |_| 3);
    let (iterations, lease_timeout_s) = (1000, 5.0);
    let settings = Settings { policy, iterations, min_workers, rest_s: 1.0, lease_timeout_s, ..Settings::default() };
    let mut cluster = Cluster::start(&settings).await;
    for number in 1..=good {
        cluster.worker(WorkerSettings { task_time: TASK_TIME, ..WorkerSettings::new(format!("good-{number}")) });
    }
    for settings in bad {
        cluster.worker(settings);
    }
    let mut renaming = JoinSet::new();
    if let Some(breaks) = renamed {
        for name in ["x", "y", "z"] {
            renaming.spawn(come_back_again(cluster.address, name.into(), breaks));
        }
    }
    let ended = cluster.end().await;
    let times = ended.events.iter().filter_map(|event| match event {
        RunEvent::Step(step) => Some((step.iteration, step.time_s)),
        _ => None,
    });
    let at = |wanted: u64| {
        times.clone().find(|(iteration, _)| iteration.number() == wanted).expect("it is in the journal").1
    };
    ((at(iterations) - at(20)) / (iterations - 20) as f64, ended.report.parameters_sha256)
}
