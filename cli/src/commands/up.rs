//! The command `ata up`: a coordinator and several workers on this machine, over real gRPC on loopback.

use std::ffi::OsString;
use std::path::Path;
use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;

use tokio::net::TcpListener;
use tokio::process::{Child, Command};
use tokio::sync::watch;
use tokio::task::JoinSet;

use ata_learn::{DeviceChoice, OpenDevice};
use ata_net::Security;
use ata_record::{RunPhase, RunState};
use ata_types::ExchangeChoice;

use super::coordinator::stopping;
use crate::Extensions;
use crate::args::UpArgs;
use crate::failure::{Exit, Failure};
use crate::inputs::Inputs;
use crate::output::note;
use crate::run::{Dashboard, ExpectedWorkers, Run};
use crate::say::is_json;
use crate::settings::{BF16_ON_CPU, Fuse, Settings, Workers, flags, rounds};
use crate::signals;

const GOODBYE_TIMEOUT: Duration = Duration::from_secs(5);
/// The longest delay between an event and the watched state. It is usually milliseconds, but longer on a very busy machine.
const STATE_LAG: Duration = Duration::from_secs(5);

pub(crate) async fn run(args: UpArgs, extensions: Extensions) -> Result<Exit, Failure> {
    let (mut settings, resumption) =
        args.common.settings(extensions.defaults()?, &[flags(&args.run)?, flags(&args.local)?])?;
    let devices = match settings.devices()? {
        Some(devices) => devices.choices()?,
        None => vec![settings.device_choice()?],
    };
    if settings.devices.is_some() {
        settings.workers.count = devices.len() as u32;
    }
    let mut inputs = Inputs::open(&settings, extensions.models)?;
    let training_file = inputs.training_file();
    // Only workers compute on the devices; the coordinator takes steps on the CPU.
    let opened = devices
        .iter()
        .map(|device| device.open()?.with_precision(settings.precision))
        .collect::<Result<Vec<_>, _>>()?;
    let fuses = opened.iter().all(|device| settings.fuse.applies_to(device));
    settings.divide_batch(&mut inputs, settings.workers.count.into(), fuses)?;
    let device_name = opened.iter().map(|device| device.name.as_str()).collect::<Vec<_>>().join(", ");
    let means = settings.time_laws()?.map(|laws| laws.means(settings.workers.count)).transpose()?.flatten();
    let workers = settings.workers.count;
    let (exactly, named) = (Some(workers), Some(device_name.clone()));
    let expected = ExpectedWorkers { at_least: workers as usize, exactly, means, devices: named };
    let mut run =
        Run::new(settings.clone(), extensions, inputs, DeviceChoice::Cpu, expected, resumption, &args.common)?;
    if run.is_complete() {
        return Ok(Exit::DONE);
    }
    say_what(&settings, extensions.own_data, &opened, &device_name);

    let mut signal = Box::pin(signals::stop(stopping(&settings)?, signals::INTERRUPT)?);
    let listener = TcpListener::bind("127.0.0.1:0").await.map_err(Failure::internal)?;
    let address = listener.local_addr().map_err(Failure::internal)?;
    let dashboard = Dashboard::bind(&settings, "off").await?;
    let folder = run.folder()?;
    let address = format!("http://{address}");
    let is_over = run.finished().is_some();
    let program = extensions.program()?;
    let start = || Children::start(&program, &settings, &devices, &address, training_file.as_deref());
    let mut children = if is_over { Children::default() } else { start()? };

    let mut received = None;
    let mut state = run.state();
    let stop = async {
        tokio::select! {
            // The signal is polled first because Ctrl-C ends the workers as well.
            biased;
            signal = &mut signal => received = Some(signal),
            () = children.too_few(&mut state), if !is_over => {}
        }
    };
    let ended = Box::pin(run.train(&folder, listener, Arc::new(Security::Open), dashboard, stop)).await;
    children.finish().await;
    ended?.finish(&folder, &args.common, received, signal).await
}

fn say_what(settings: &Settings, own_data: &str, opened: &[OpenDevice], device: &str) {
    let Settings { workers: Workers { count: workers, .. }, iterations, policy, data, task_time, .. } = settings;
    let data = match data.as_str() {
        "synthetic" => own_data,
        data => data,
    };
    note!("training on {data}: {workers} workers on {device}, policy {policy}, {iterations} iterations");
    if !matches!(task_time.as_str(), "" | "none") {
        note!("workers are slowed down by --task-time '{task_time}'; --task-time none does not slow them down");
    }
    if opened.iter().any(|device| device.is_cpu() && settings.fuse.applies_to(device)) {
        note!("{}", Fuse::ON_CPU);
    }
    if opened.iter().any(rounds) {
        note!("{BF16_ON_CPU}");
    }
    if opened.iter().any(|device| !device.is_cpu()) {
        note!("before the first iteration, the workers compile and tune kernels, which can take minutes");
    }
}

/// Returns the arguments of the workers of a cluster on this machine that compute on `device`, except their identity.
pub(crate) fn worker_args(settings: &Settings, device: DeviceChoice) -> Vec<String> {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let threads = match settings.threads {
        0 => (cores / settings.workers.count as usize).max(1),
        threads => threads,
    };
    let (device, threads) = (device.to_string(), threads.to_string());
    let (fuse, precision) = (settings.fuse.name(), settings.precision.name());
    let args = ["--device", &device, "--fuse", fuse, "--precision", precision, "--threads", &threads];
    let times = ["--task-time", &settings.task_time, "--time-unit", &settings.time_unit];
    // On one machine, workers gain nothing from exchanging vectors among each other, so it must be requested.
    let peers = ["--peer-listen", "127.0.0.1:0"];
    let peers = peers.into_iter().filter(|_| settings.exchange == ExchangeChoice::Shards);
    args.into_iter().chain(times).chain(peers).map(String::from).collect()
}

/// The worker processes, which are killed when dropped.
#[derive(Default)]
struct Children {
    running: JoinSet<(u32, std::io::Result<std::process::ExitStatus>)>,
}

impl Children {
    /// Starts the workers and assigns the devices to them in turn.
    fn start(
        program: &[OsString],
        settings: &Settings,
        devices: &[DeviceChoice],
        coordinator: &str,
        data: Option<&Path>,
    ) -> Result<Self, Failure> {
        let (program, first) = program.split_first().expect("a program has a name");
        let workers = settings.workers.count.to_string();
        let mut running = JoinSet::new();
        for (number, device) in (1..=settings.workers.count).zip(devices.iter().cycle()) {
            let mut command = Command::new(program);
            command
                .args(first)
                .arg("worker")
                .args(["--coordinator", coordinator, "--name", &format!("worker-{number}")])
                .args(["--number", &number.to_string(), "--workers", &workers])
                .args(worker_args(settings, *device))
                .stdin(Stdio::null())
                .kill_on_drop(true);
            // Only this process receives Ctrl-C. It ends the workers together with the run, so none of them is lost.
            #[cfg(unix)]
            command.process_group(0);
            // These variables are for workers of other coordinators.
            for variable in ["ATA_DEVICES", "ATA_JOIN", "ATA_JOIN_FILE", "ATA_TLS_CA", "ATA_TLS_CERT", "ATA_TLS_KEY"] {
                command.env_remove(variable);
            }
            match data {
                Some(data) => command.arg("--data").arg(data),
                None => command.env_remove("ATA_DATA"),
            };
            let format = if is_json() { "json" } else { "text" };
            command.args(["--retry-for", "10", "--log", "error", "--log-format", format]);
            let mut child: Child = command.spawn().map_err(Failure::internal)?;
            running.spawn(async move { (number, child.wait().await) });
        }
        Ok(Self { running })
    }

    /// Resolves when no worker is left, or when one fails before the first iteration. Prints how each worker failed.
    async fn too_few(&mut self, state: &mut watch::Receiver<RunState>) {
        while let Some(ended) = self.running.join_next().await {
            let begun = state.borrow().span_s.is_some();
            match ended {
                Ok((_, Ok(status))) if status.success() => continue,
                Ok((number, Ok(status))) if !begun => note!("worker {number} ended ({status}) before the run began"),
                Ok((number, Ok(status))) => note!("worker {number} ended ({status}); its tasks go to the others"),
                Ok((number, Err(error))) => note!("worker {number}: {error}"),
                Err(error) => note!("{error}"),
            }
            if !begun {
                return;
            }
        }
        // After the last iteration workers are not needed, and their exit must not abort the evaluation.
        let is_trained = |state: &RunState| matches!(state.phase, RunPhase::Evaluating | RunPhase::Over(_));
        if tokio::time::timeout(STATE_LAG, state.wait_for(is_trained)).await.is_ok() {
            std::future::pending::<()>().await;
        }
    }

    /// Waits for the workers to exit by themselves, then kills those that are left.
    async fn finish(mut self) {
        let ended = async { while self.running.join_next().await.is_some() {} };
        // After a timeout, dropping their tasks kills the processes.
        drop(tokio::time::timeout(GOODBYE_TIMEOUT, ended).await);
        self.running.shutdown().await;
    }
}
