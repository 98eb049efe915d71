//! Tests a problem that is not about images, from its file at the coordinator to its parameters.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use ata_data::{DataError, DataSource, Split, hex, sha256_of_file};
use ata_harness::{Cluster, Ended, Settings, WorkerSettings};
use ata_learn::{Model, ModelError, Problem, Samples, model};
use ata_record::RunEvent;
use ata_worker::{WorkerEnd, WorkerError};
use burn::module::{Module, Param};
use burn::tensor::{Device, Tensor};
use tempfile::TempDir;

/// A model that fits y = ax + b to a file of lines `x y`. Every fifth line is test data.
struct CostLine;

#[derive(Module, Debug)]
struct Coefficients {
    slope: Param<Tensor<1>>,
    intercept: Param<Tensor<1>>,
}

struct Points(Vec<(f32, f32)>);

impl Problem for CostLine {
    type Network = Coefficients;
    type Samples = Points;

    fn network(&self, device: &Device) -> Coefficients {
        let zero = || Param::from_tensor(Tensor::zeros([1], device));
        Coefficients { slope: zero(), intercept: zero() }
    }

    fn open(&self, source: &DataSource, split: Split) -> Result<Points, DataError> {
        let path = source.file("a file of lines 'x y'")?;
        let text = std::fs::read_to_string(path).map_err(DataError::io(path))?;
        let point = |line: &str| {
            let (x, y) = line.split_once(' ')?;
            Some((x.parse().ok()?, y.parse().ok()?))
        };
        let of_split = text.lines().enumerate().filter(|(at, _)| (at % 5 == 4) == (split == Split::Test));
        let points: Option<Vec<(f32, f32)>> = of_split.map(|(_, line)| point(line)).collect();
        points.map(Points).ok_or_else(|| DataError::corrupt(path, "expected two numbers per line"))
    }

    fn loss(&self, network: &Coefficients, points: &Vec<(f32, f32)>, device: &Device) -> Tensor<1> {
        let column = |pick: fn(&(f32, f32)) -> f32| {
            Tensor::<1>::from_floats(&points.iter().map(pick).collect::<Vec<_>>()[..], device)
        };
        let fitted = column(|point| point.0) * network.slope.val() + network.intercept.val();
        (fitted - column(|point| point.1)).powi_scalar(2).mean()
    }
}

impl Samples for Points {
    type Batch = Vec<(f32, f32)>;

    fn count(&self) -> u64 {
        self.0.len() as u64
    }

    fn batch(&self, indices: &[u64]) -> Result<Vec<(f32, f32)>, DataError> {
        Ok(indices.iter().map(|index| self.0[*index as usize]).collect())
    }
}

fn line(specification: &str) -> Result<Arc<dyn Model>, ModelError> {
    match specification {
        "line" => Ok(model(CostLine)),
        other => Err(ModelError::Unknown(other.into())),
    }
}

/// Writes points on the line y = 2x + 1 to a file.
fn data(folder: &TempDir, name: &str, points: u16) -> PathBuf {
    let path = folder.path().join(name);
    let x = |at| f32::from(at) / f32::from(points);
    let lines: Vec<String> = (0..points).map(|at| format!("{} {}\n", x(at), 2.0 * x(at) + 1.0)).collect();
    std::fs::write(&path, lines.concat()).unwrap();
    path
}

fn settings(data: &Path, min_workers: usize) -> Settings {
    let data = Some(data.to_owned());
    Settings {
        model: "line",
        models: line,
        data,
        task_batch: 4,
        budget: 4,
        iterations: 150,
        min_workers,
        ..Settings::default()
    }
}

fn worker(name: &str, data: Option<PathBuf>) -> WorkerSettings {
    WorkerSettings { models: line, data, ..WorkerSettings::new(name) }
}

fn evaluation(ended: &Ended) -> (f64, Option<f64>) {
    let of = |event: &RunEvent| match event {
        RunEvent::Evaluation { loss, accuracy, .. } => Some((*loss, *accuracy)),
        _ => None,
    };
    ended.events.iter().find_map(of).expect("an evaluation")
}

/// One worker has the file, and the others fetch it once, by its hash. All compute the same gradients.
#[tokio::test(flavor = "multi_thread")]
async fn its_file_is_fetched_by_hash_or_read_in_place() {
    let folder = tempfile::tempdir().unwrap();
    let path = data(&folder, "points.txt", 100);
    let mut cluster = Cluster::start(&settings(&path, 3)).await;
    let cached = cluster.cache().join("train").join(format!("{}.bin", hex(&sha256_of_file(&path).unwrap())));
    for (name, own) in [("one", None), ("two", None), ("three", Some(path.clone()))] {
        cluster.worker(worker(name, own));
    }
    cluster.wait_for("the beginning", |state| state.iterations > 0).await;
    assert_eq!(std::fs::read(cached).unwrap(), std::fs::read(&path).unwrap());
    let ended = cluster.end().await;
    assert!(ended.report.ended.is_ok(), "{:?}", ended.report.ended);
    let (first, last) = (ended.report.state.first_loss.unwrap(), ended.report.state.last_loss.unwrap());
    assert!(first > 2.0 && last < 0.05, "{first} → {last}");
    let (loss, accuracy) = evaluation(&ended);
    assert!(loss < 0.05 && accuracy.is_none(), "{loss}, {accuracy:?}");

    let mut alone = Cluster::start(&settings(&path, 1)).await;
    alone.worker(worker("alone", Some(path)));
    assert_eq!(alone.end().await.report.parameters_sha256, ended.report.parameters_sha256);
}

/// Writes training data of 80 samples, in which sample 5 is NaN.
fn bad_data(folder: &TempDir) -> PathBuf {
    let path = data(folder, "bad.txt", 100);
    let text = std::fs::read_to_string(&path).unwrap();
    let line = |(at, line): (usize, &str)| if at == 6 { "0.06 NaN\n".into() } else { format!("{line}\n") };
    std::fs::write(&path, text.lines().enumerate().map(line).collect::<String>()).unwrap();
    path
}

#[tokio::test(flavor = "multi_thread")]
async fn a_bad_sample_ends_the_run_and_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let path = bad_data(&folder);
    let mut cluster = Cluster::start(&Settings { outage_s: 6.0, ..settings(&path, 2) }).await;
    cluster.worker(worker("one", None));
    cluster.worker(WorkerSettings { fuses: true, ..worker("two", None) });
    let reason = cluster.end().await.report.ended.unwrap_err().to_string();
    for part in ["sample 5 of the training data", "--on-bad-sample skip"] {
        assert!(reason.contains(part), "{reason}");
    }
}

/// The parameters do not depend on which worker computes the task without the bad sample.
#[tokio::test(flavor = "multi_thread")]
async fn a_bad_sample_is_left_out() {
    let folder = tempfile::tempdir().unwrap();
    let path = bad_data(&folder);
    let mut hashes = Vec::new();
    for (policy, workers, fuses) in [("uta", 1, false), ("ata-auto", 3, false), ("uta", 1, true)] {
        let mut cluster =
            Cluster::start(&Settings { policy, skip_bad_samples: true, ..settings(&path, workers) }).await;
        for at in 0..workers {
            cluster.worker(WorkerSettings { fuses, ..worker(&format!("worker-{at}"), None) });
        }
        let ended = cluster.end().await;
        assert!(ended.report.ended.is_ok(), "{:?}", ended.report.ended);
        assert!(ended.report.state.last_loss.unwrap() < 0.05);
        hashes.push(ended.report.parameters_sha256);
    }
    assert_eq!(hashes[0], hashes[1]);
}

/// A copy with other content is refused, and a damaged file in the cache is fetched again.
#[tokio::test(flavor = "multi_thread")]
async fn other_content_is_found_out() {
    let folder = tempfile::tempdir().unwrap();
    let (path, other) = (data(&folder, "points.txt", 100), data(&folder, "other.txt", 50));
    let mut cluster = Cluster::start(&settings(&path, 1)).await;
    let cached = cluster.cache().join("train").join(format!("{}.bin", hex(&sha256_of_file(&path).unwrap())));
    std::fs::create_dir_all(cached.parent().unwrap()).unwrap();
    std::fs::write(&cached, "0 1\n").unwrap();
    cluster.worker(worker("wrong", Some(other.clone())));
    cluster.worker(worker("right", None));
    let ended = cluster.end().await;
    assert!(ended.report.ended.is_ok(), "{:?}", ended.report.ended);
    assert!(matches!(&ended.workers["wrong"], Err(WorkerError::OtherData(path, _)) if *path == other));
    assert_eq!(ended.workers["right"].as_ref().unwrap(), &WorkerEnd::Finished);
}
