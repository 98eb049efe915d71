//! The command `ata worker`: computes gradients for a coordinator.

use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use ata_data::{DataError, default_cache_dir};
use ata_learn::{DeviceChoice, ModelResolver, limit_threads};
use ata_net::Endpoint;
use ata_simulator::{TimeLaws, worker_rng};
use ata_types::{Iteration, WorkerId};
use ata_wire::{WorkerName, duration};
use ata_worker::{EmulatedTimes, FIRST_CONTACT, PeerConfig, TaskTime, WorkerConfig, WorkerEnd};
use rand::TryRng;
use sd_notify::NotifyState;
use tokio::sync::watch;
use tokio::task::JoinSet;

use super::joining;
use crate::args::WorkerArgs;
use crate::failure::{Exit, Failure};
use crate::settings::{BF16_ON_CPU, Devices, Fuse, parse_time_unit, rounds};
use crate::signals::{self, Signal, notify};

pub(crate) async fn run(args: WorkerArgs, models: ModelResolver) -> Result<Exit, Failure> {
    if let Some(threads) = args.threads {
        limit_threads(threads);
    }
    let says = format!(
        "this worker finishes what it has begun and leaves, within {} s (--drain-s); a second signal ends it at once",
        args.drain_s
    );
    let signal = signals::stop(says, signals::ANY)?;
    let mut signal = pin!(signal);
    let retry_for = args.retry_for.map(Duration::from_secs);
    let endpoint = tokio::select! {
        endpoint = joining::endpoint(&args.joining, retry_for.unwrap_or(FIRST_CONTACT)) => endpoint?,
        signal = &mut signal => return Ok(signal.exit()),
    };
    let configs = configs(&args, &endpoint, models)?;
    notify(&[NotifyState::Ready]);
    let (stop, stopped) = watch::channel(());
    let mut workers: JoinSet<_> = configs
        .into_iter()
        .map(|config| {
            let mut stopped = stopped.clone();
            ata_worker::run(config, async move { drop(stopped.changed().await) })
        })
        .collect();
    let (mut ends, mut received) = (Vec::new(), None);
    while !workers.is_empty() {
        tokio::select! {
            Some(ended) = workers.join_next() => {
                let ended = ended.map_err(Failure::internal).and_then(|ended| ended.map_err(Failure::from));
                if let (Err(failure), false) = (&ended, workers.is_empty()) {
                    tracing::error!("{failure}; the workers on the other devices go on");
                }
                ends.push(ended);
            }
            signal = &mut signal, if received.is_none() => {
                received = Some(signal);
                notify(&[NotifyState::Stopping]);
                stop.send_replace(());
            }
        }
    }
    exit_code(ends, received)
}

/// Returns the exit code of the process. It fails if any of its workers failed, even if others worked until the end of the run.
fn exit_code(ends: Vec<Result<WorkerEnd, Failure>>, received: Option<Signal>) -> Result<Exit, Failure> {
    let ends: Vec<WorkerEnd> = ends.into_iter().collect::<Result<_, _>>()?;
    if ends.contains(&WorkerEnd::RunFailed) {
        tracing::warn!("the run failed; see the coordinator's log");
        return Ok(Exit::INTERNAL);
    }
    match received {
        Some(signal) if ends.contains(&WorkerEnd::Stopped) => Ok(signal.exit()),
        _ => Ok(Exit::DONE),
    }
}

fn configs(args: &WorkerArgs, endpoint: &Endpoint, models: ModelResolver) -> Result<Vec<WorkerConfig>, Failure> {
    let name = args.name.as_deref().map_or_else(|| Ok(host_name()), str::parse).map_err(Failure::usage)?;
    let devices = match &args.devices {
        Some(devices) => Devices::parse(devices)?.choices()?,
        None => vec![args.device.parse()?],
    };
    let task_times = args.task_time.as_deref().map(|law| task_times(law, args)).transpose()?.flatten();
    let data = args.data.as_deref().map(own_data).transpose()?.flatten();
    let config = |(choice, index): (DeviceChoice, u16)| {
        let device = choice.open()?.with_precision(args.precision)?.with_micro_batch(args.micro_batch);
        let fuse = args.fuse.applies_to(&device);
        if fuse && device.is_cpu() {
            tracing::warn!("{}", Fuse::ON_CPU);
        }
        if rounds(&device) {
            tracing::warn!("{BF16_ON_CPU}");
        }
        Ok(WorkerConfig {
            endpoint: endpoint.clone(),
            relocate: joining::relocate(&args.joining),
            name_is_fixed: args.name.is_some(),
            name: if args.devices.is_some() { name_of_device(&name, choice)? } else { name.clone() },
            number: args.number.and_then(|first| WorkerId::new(first + u32::from(index))),
            device,
            fuse,
            models,
            data: data.clone(),
            folder_options: args.folder.options(),
            peers: peers(args, endpoint, index)?,
            cache: default_cache_dir(),
            cache_bytes: args.cache_gb.saturating_mul(1_000_000_000),
            retry_for: args.retry_for.map(Duration::from_secs),
            drain: Duration::from_secs(args.drain_s),
            task_times: task_times.clone(),
            instance: rand::rngs::SysRng.try_next_u64().map_err(Failure::internal)?,
        })
    };
    devices.into_iter().zip(0..).map(config).collect()
}

/// Returns the address at which other workers reach the worker on one of the devices.
fn peers(args: &WorkerArgs, endpoint: &Endpoint, index: u16) -> Result<Option<PeerConfig>, Failure> {
    let is_local = || {
        let (host, _) = endpoint.host_and_port();
        host == "localhost" || host.parse::<IpAddr>().is_ok_and(|host| host.is_loopback())
    };
    let mut listen: SocketAddr = match args.peer_listen.as_deref() {
        Some("off") => return Ok(None),
        None if is_local() => return Ok(None),
        None => (Ipv6Addr::UNSPECIFIED, 0).into(),
        Some(address) => address.parse().map_err(|_| {
            Failure::usage(format!("--peer-listen '{address}': expected ADDRESS:PORT, as in 0.0.0.0:7071, or off"))
        })?,
    };
    if listen.port() > 0 {
        let too_high = || Failure::usage(format!("--peer-listen {listen}: there are no ports for all devices"));
        listen.set_port(listen.port().checked_add(index).ok_or_else(too_high)?);
    }
    Ok(Some(PeerConfig { listen, host: args.peer_host.clone() }))
}

/// Returns the name of one of several workers of a process, such as `host-wgpu0`.
fn name_of_device(name: &WorkerName, device: DeviceChoice) -> Result<WorkerName, Failure> {
    format!("{name}-{}", device.to_string().replace(':', "")).parse().map_err(Failure::usage)
}

/// Returns the path of the user's copy of the training data, which must exist. It is checked once the model is known.
fn own_data(path: &Path) -> Result<Option<PathBuf>, Failure> {
    // ATA_DATA may be set for the coordinator, and workers generate synthetic data themselves.
    if path == Path::new("synthetic") {
        return Ok(None);
    }
    path.metadata().map_err(DataError::io(path))?;
    Ok(Some(path.to_owned()))
}

/// Returns the host name, reduced to the characters that a worker's name may contain.
pub(super) fn host_name() -> WorkerName {
    let host = hostname::get().ok().and_then(|name| name.into_string().ok()).unwrap_or_default();
    let valid: String = host.chars().filter(|c| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-')).collect();
    // The limit leaves room for the device and for the number of further workers on the same host.
    let name = valid.chars().take(48).collect::<String>();
    name.parse().unwrap_or_else(|_| "worker".parse().expect("a valid name"))
}

fn task_times(law: &str, args: &WorkerArgs) -> Result<Option<EmulatedTimes>, Failure> {
    if matches!(law, "" | "none") {
        return Ok(None);
    }
    let laws: TimeLaws = law.parse()?;
    let unit = parse_time_unit(&args.time_unit)?;
    let workers = args.workers;
    Ok(Some(Arc::new(move |worker: WorkerId, seed| {
        let number = worker.number();
        let mut law = laws.of_worker(number, workers).map_err(|error| error.to_string())?;
        let mut rng = worker_rng(seed, number);
        // The law scale(x) multiplies the real time, so the unit does not matter.
        let unit_s = if law.is_relative() { 1.0 } else { unit.as_secs_f64() };
        let fuses = law.fuses();
        let of_batch = Box::new(move |iteration: Iteration, tasks: u64, computed: Duration| {
            law.begins(iteration.number());
            let time = law.sample_batch(tasks, computed.as_secs_f64(), &mut rng) * unit_s;
            duration(time)
        });
        Ok(TaskTime { fuses, of_batch })
    })))
}
