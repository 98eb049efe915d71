//! `ata worker`: computes gradients for a coordinator.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use ata_learn::{DataError, DeviceChoice, ModelResolver, default_cache_dir, limit_threads};
use ata_simulator::{TimeLaws, worker_rng};
use ata_wire::{Endpoint, WorkerName};
use ata_worker::{TaskTime, TaskTimes, WorkerConfig, WorkerEnd};
use rand::TryRng;

use crate::args::WorkerArgs;
use crate::failure::{Failure, INTERRUPTED, RUN_FAILED};
use crate::settings::parse_time_unit;
use crate::signals::{self, Signal};

pub(crate) async fn run(args: WorkerArgs, models: ModelResolver) -> Result<ExitCode, Failure> {
    let endpoint: Endpoint = args.coordinator.parse()?;
    let name = args.name.as_deref().map_or_else(|| Ok(host_name()), str::parse).map_err(Failure::usage)?;
    let device: DeviceChoice = args.device.parse()?;
    let task_times = args.task_time.as_deref().map(|law| task_times(law, &args)).transpose()?.flatten();
    if args.threads == Some(0) || args.workers == 0 || args.number == Some(0) {
        return Err(Failure::usage("--threads, --workers and --number: expected at least 1"));
    }
    if let Some(threads) = args.threads {
        limit_threads(threads);
    }
    let config = WorkerConfig {
        endpoint,
        name_is_fixed: args.name.is_some(),
        name,
        number: args.number,
        device: device.open()?,
        fuse: false,
        models,
        data: args.data.as_deref().map(own_data).transpose()?.flatten(),
        cache: default_cache_dir(),
        retry_for: Duration::from_secs(args.retry_for),
        task_times,
        instance: rand::rngs::SysRng.try_next_u64().map_err(Failure::internal)?,
    };
    let signal = signals::stop()?;
    let mut received = None;
    let end = ata_worker::run(config, async { received = Some(signal.await) }).await?;
    match (end, received) {
        (WorkerEnd::RunFailed, _) => {
            tracing::warn!("the run failed; see the coordinator's log");
            Ok(ExitCode::from(RUN_FAILED))
        }
        (WorkerEnd::Stopped, Some(Signal::Interrupt)) => Ok(ExitCode::from(INTERRUPTED)),
        (WorkerEnd::Stopped | WorkerEnd::Finished, _) => Ok(ExitCode::SUCCESS),
    }
}

/// The user's copy of the training data, which must exist; what it has to be is known when the model is.
fn own_data(path: &Path) -> Result<Option<PathBuf>, Failure> {
    // ATA_DATA may be set for the coordinator; every worker generates synthetic data itself anyway.
    if path == Path::new("synthetic") {
        return Ok(None);
    }
    path.metadata().map_err(DataError::io(path))?;
    Ok(Some(path.to_owned()))
}

/// The host name, reduced to what a worker's name may contain.
fn host_name() -> WorkerName {
    let host = hostname::get().ok().and_then(|name| name.into_string().ok()).unwrap_or_default();
    let valid: String = host.chars().filter(|c| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-')).collect();
    // This leaves room for the number of further workers on the same host.
    let name = valid.chars().take(56).collect::<String>();
    name.parse().unwrap_or_else(|_| "worker".parse().expect("a valid name"))
}

/// The emulated slowness of `--task-time`.
fn task_times(law: &str, args: &WorkerArgs) -> Result<Option<TaskTimes>, Failure> {
    if matches!(law, "" | "none") {
        return Ok(None);
    }
    let laws: TimeLaws = law.parse()?;
    let unit = parse_time_unit(&args.time_unit)?;
    let workers = args.workers;
    Ok(Some(Arc::new(move |number, seed| {
        let mut law = laws.of_worker(number, workers).map_err(|error| error.to_string())?;
        let mut rng = worker_rng(seed, number);
        // scale(x) multiplies the real time, so the unit does not matter.
        let unit_s = if law.is_relative() { 1.0 } else { unit.as_secs_f64() };
        let fuses = law.fuses();
        let of_batch = Box::new(move |tasks: u64, computed: Duration| {
            let time = law.sample_batch(tasks, computed.as_secs_f64(), &mut rng) * unit_s;
            // A time that a `Duration` cannot hold means practically forever.
            Duration::try_from_secs_f64(time).unwrap_or(Duration::from_secs(u32::MAX.into()))
        });
        Ok(TaskTime { fuses, of_batch })
    })))
}
