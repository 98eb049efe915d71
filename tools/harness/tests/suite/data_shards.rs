//! Tests data in shards: workers fetch the shards that they need, and the parameters are bit-identical.
#![cfg(unix)]

use std::collections::BTreeSet;
use std::fs;
use std::path::PathBuf;

use ata_data::{Packing, ShardIndex, Unpacked, hex};
use ata_harness::{Cluster, Settings, WorkerSettings};
use ata_learn::builtin_model;
use tempfile::TempDir;

use crate::{RECORD_BYTES, check, start, undisturbed};

/// The size of a record of CIFAR-10 in bytes: a label and an image.
const UNPACKED_BYTES: u32 = 3073;

/// The size of a shard, in bytes. A packed record has the size of one of CIFAR-100.
const SHARD_BYTES: usize = 25 * RECORD_BYTES;

/// 1,000 images in 40 shards, and the settings of a run that takes 640 of them. A window has eight shards, so there are five.
struct Rig {
    folder: TempDir,
    settings: Settings,
}

impl Rig {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let batches = folder.path().join("batches");
        fs::create_dir(&batches).unwrap();
        let names = (1..=5).map(|batch| format!("data_batch_{batch}.bin")).chain(["test_batch.bin".into()]);
        for (batch, name) in names.enumerate() {
            // All images differ, so that no two shards are equal.
            let record = |at: u32| {
                let number = (200 * batch as u32 + at).wrapping_mul(2_654_435_761);
                let byte = move |pixel: u32| number.rotate_left(pixel) as u8;
                std::iter::once((at % 10) as u8).chain((1..UNPACKED_BYTES).map(byte))
            };
            fs::write(batches.join(name), (0..200).flat_map(record).collect::<Vec<u8>>()).unwrap();
        }
        let packing = Packing { size: 32, skip_bad: false, shard_bytes: Some(SHARD_BYTES as u64) };
        let unpacked = Unpacked::find(&batches, None).unwrap().unwrap();
        unpacked.pack(&folder.path().join("packed"), packing, &mut |_, _| ()).unwrap();
        let settings = Settings {
            data: Some(folder.path().join("packed/train.shards")),
            model: "cnn:widths=4/4/8/16,classes=10",
            models: builtin_model,
            task_batch: 4,
            budget: 8,
            iterations: 20,
            // Whether workers evaluate depends on how fast the coordinator is.
            workers_evaluate: false,
            ..Settings::default()
        };
        Self { folder, settings }
    }

    fn index(&self) -> PathBuf {
        self.folder.path().join("packed/train.shards")
    }

    fn digests(&self) -> BTreeSet<String> {
        ShardIndex::read(&self.index()).unwrap().shards().map(|shard| hex(&shard.sha256)).collect()
    }

    /// Waits for the last iteration. Returns the shards in the cache, once the parameters have been checked.
    async fn end(&self, mut cluster: Cluster) -> BTreeSet<String> {
        let last = self.settings.iterations;
        cluster.wait_for("the last iteration", |state| state.iterations == last).await;
        let entries = fs::read_dir(cluster.cache().join("shards")).into_iter().flatten();
        let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
        // Shards that are being fetched do not count.
        let found = names.filter(|name| name != "lock" && !name.starts_with(".unfinished-")).collect();
        check(&self.settings, &cluster.end().await).await;
        found
    }
}

fn worker(name: &str) -> WorkerSettings {
    WorkerSettings { models: builtin_model, ..WorkerSettings::new(name) }
}

/// Three workers fetch shards, and so does one whose cache is small. A worker that has the data fetches nothing.
#[tokio::test(flavor = "multi_thread")]
async fn workers_fetch_the_shards_that_they_need() {
    let rig = Rig::new();
    let settings = Settings { min_workers: 3, ..rig.settings.clone() };
    let found = rig.end(start(&settings, ["a", "b", "c"].map(worker)).await).await;
    // The 640 samples are in four windows. A fifth one is fetched ahead, unless the run ends first.
    assert!(found.is_subset(&rig.digests()) && (32..=40).contains(&found.len()), "{} of 40", found.len());

    let small = WorkerSettings { cache_bytes: 10 * SHARD_BYTES as u64, ..worker("small") };
    let found = rig.end(start(&rig.settings, [small]).await).await;
    assert!((8..=17).contains(&found.len()), "two windows of eight shards at most: {}", found.len());

    let rich = WorkerSettings { data: Some(rig.index()), ..worker("rich") };
    assert!(rig.end(start(&rig.settings, [rich]).await).await.is_empty());
}

/// If a shard has changed at the coordinator, the tasks that need it fail with the reason. Once it is restored, the run continues.
#[tokio::test(flavor = "multi_thread")]
async fn a_run_goes_on_once_a_changed_shard_is_what_it_was() {
    let rig = Rig::new();
    let packed = rig.index().with_extension("packed");
    let good = fs::read(&packed).unwrap();
    // The records of every second shard are changed in place.
    let mut bad = good.clone();
    let first = bad.len() - 1000 * RECORD_BYTES;
    bad[first..].chunks_mut(2 * SHARD_BYTES).for_each(|shards| shards[100] ^= 1);
    fs::write(&packed, &bad).unwrap();
    let settings = Settings { rest_s: 0.05, expel_after: 1000, evaluates: false, ..rig.settings.clone() };
    let mut cluster = start(&settings, [worker("a")]).await;
    cluster.wait_for("a task that failed", |state| state.workers.values().any(|worker| worker.usage.rests > 0)).await;
    assert!(cluster.state.borrow().iterations < 20);
    fs::write(&packed, &good).unwrap();
    // Nobody evaluates these parameters.
    // Nobody is there to evaluate the final parameters.
    assert_eq!(cluster.end_or_fail().await.report.parameters_sha256, undisturbed(&rig.settings).await);
}
