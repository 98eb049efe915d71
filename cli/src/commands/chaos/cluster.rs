//! The processes: a coordinator, and workers that reach it through a link each.

use std::fs::File;
use std::io::Write;
use std::net::SocketAddr;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use ata_fault_proxy::FaultProxy;
use ata_learn::{DeviceChoice, ParameterTable};
use ata_wire::duration;
use rustix::process::{Pid, Resource, Rlimit, Signal, kill_process, prlimit};
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::{Child, ChildStderr, Command};
use tokio::sync::mpsc;

use crate::commands::up::worker_command;
use crate::failure::Failure;
use crate::settings::Settings;

/// Time for anything that must happen at all. What takes longer is a broken promise, whatever the machine is busy with.
pub(super) const DEADLINE: Duration = Duration::from_mins(1);

/// Seconds in which a coordinator starts, and more.
const STARTS_WITHIN_S: f64 = 0.5;

/// In the environment of every process of a run, and so of any process that one of them would start.
const MARK: &str = "ATA_CHAOS_RUN";

/// What the processes are started with.
pub(super) struct Plan {
    pub(super) settings: Settings,
    /// The file that holds these settings.
    pub(super) file: PathBuf,
    /// The folder of everything, by its absolute path.
    pub(super) folder: PathBuf,
    /// The workers' training data, if it is not generated.
    pub(super) data: Option<PathBuf>,
    /// The tensors of the model.
    pub(super) table: ParameterTable,
}

impl Plan {
    /// The folder of the disturbed run.
    pub(super) fn disturbed(&self) -> PathBuf {
        self.folder.join("disturbed")
    }

    /// A command of this run: without settings from the environment, and killed when it is dropped.
    pub(super) fn prepare<'a>(&self, command: &'a mut Command) -> &'a mut Command {
        let is_setting = |name: &str| name.starts_with("ATA_") && name != "ATA_CACHE_DIR";
        for (name, _) in std::env::vars_os().filter(|(name, _)| name.to_str().is_some_and(is_setting)) {
            command.env_remove(name);
        }
        command.env(MARK, &self.folder).stdin(Stdio::null()).kill_on_drop(true)
    }

    /// A log that goes on where it ended.
    pub(super) fn log(&self, name: &str) -> Result<File, Failure> {
        let path = self.folder.join(name);
        let opened = File::options().append(true).create(true).open(&path);
        opened.map_err(|cause| Failure::disk(format!("cannot write {}: {cause}", path.display())))
    }

    /// How many processes of this run are left.
    pub(super) fn processes(&self) -> usize {
        let mark = format!("{MARK}={}", self.folder.display());
        let is_ours = |process: &Path| {
            let environment = std::fs::read(process.join("environ")).unwrap_or_default();
            environment.split(|byte| *byte == 0).any(|variable| variable == mark.as_bytes())
        };
        let processes = std::fs::read_dir("/proc").into_iter().flatten().flatten();
        processes.filter(|process| is_ours(&process.path())).count()
    }
}

/// The cluster.
pub(super) struct Cluster {
    pub(super) plan: Plan,
    coordinator: Coordinator,
    workers: Vec<Worker>,
}

struct Coordinator {
    child: Child,
    lines: mpsc::UnboundedReceiver<String>,
}

struct Worker {
    number: u32,
    link: FaultProxy,
    child: Child,
}

impl Cluster {
    /// Starts everything. The run is saved this often.
    pub(super) async fn start(plan: Plan, cadence: &str) -> Result<Self, Failure> {
        let (coordinator, listening) = Coordinator::start(&plan, cadence).await?;
        let mut workers = Vec::new();
        for number in 1..=plan.settings.workers.count {
            let link = FaultProxy::to(listening.address).await;
            let child = start_worker(&plan, number, &link)?;
            workers.push(Worker { number, link, child });
        }
        Ok(Self { plan, coordinator, workers })
    }

    /// Starts a new coordinator in place of one that ended. Returns the iteration after which it goes on, or 0.
    pub(super) async fn restart_coordinator(&mut self, cadence: &str) -> Result<u64, Failure> {
        let (coordinator, listening) = Coordinator::start(&self.plan, cadence).await?;
        self.coordinator = coordinator;
        self.workers.iter().for_each(|worker| worker.link.lead_to(Some(listening.address)));
        Ok(listening.resumed_after)
    }

    /// Kills the coordinator.
    pub(super) async fn kill_coordinator(&mut self) -> Result<(), Failure> {
        self.forget_coordinator();
        kill(&mut self.coordinator.child).await
    }

    /// Leads the workers nowhere: another process may get the coordinator's port.
    pub(super) fn forget_coordinator(&self) {
        self.workers.iter().for_each(|worker| worker.link.lead_to(None));
    }

    /// Sends the coordinator a signal.
    pub(super) fn signal_coordinator(&self, signal: Signal) -> Result<(), Failure> {
        send(&self.coordinator.child, signal)
    }

    /// From now on no file of the coordinator can grow.
    pub(super) fn fill_disk(&self) -> Result<(), Failure> {
        let pid = pid(&self.coordinator.child)?;
        let limit = Rlimit { current: Some(0), maximum: Some(0) };
        prlimit(Some(pid), Resource::Fsize, limit).map(drop).map_err(Failure::internal)
    }

    /// Waits for the coordinator's end.
    pub(super) async fn coordinator_ends(&mut self, within: Duration) -> Result<ExitStatus, Failure> {
        ended("the coordinator", &mut self.coordinator.child, within).await
    }

    /// Whether the coordinator has said this since it was last asked.
    pub(super) fn coordinator_said(&mut self, text: &str) -> bool {
        let mut said = false;
        while let Ok(line) = self.coordinator.lines.try_recv() {
            said |= line.contains(text);
        }
        said
    }

    /// A worker's link.
    pub(super) fn link(&self, number: u32) -> &FaultProxy {
        &self.worker(number).link
    }

    /// Sends a worker a signal.
    pub(super) fn signal_worker(&self, number: u32, signal: Signal) -> Result<(), Failure> {
        send(&self.worker(number).child, signal)
    }

    /// Kills a worker and starts it again.
    pub(super) async fn replace_worker(&mut self, number: u32) -> Result<(), Failure> {
        let worker = &mut self.workers[number as usize - 1];
        kill(&mut worker.child).await?;
        worker.child = start_worker(&self.plan, number, &worker.link)?;
        Ok(())
    }

    /// Checks that all processes run. Workers that ended with `allowed` are started again, as a supervisor would.
    pub(super) fn tend(&mut self, allowed: Option<u8>) -> Result<(), Failure> {
        if let Some(status) = self.coordinator.child.try_wait().map_err(Failure::internal)? {
            return Err(Failure::internal(format!("the coordinator ended by itself ({status})")));
        }
        for worker in &mut self.workers {
            let Some(status) = worker.child.try_wait().map_err(Failure::internal)? else { continue };
            let number = worker.number;
            if allowed.is_none() || status.code() != allowed.map(i32::from) {
                return Err(Failure::internal(format!("worker {number} ended by itself ({status})")));
            }
            worker.child = start_worker(&self.plan, number, &worker.link)?;
        }
        Ok(())
    }

    /// Has all workers stop, and waits for their ends.
    pub(super) async fn stop_workers(&mut self, within: Duration) -> Result<Vec<ExitStatus>, Failure> {
        self.workers.iter().try_for_each(|worker| send(&worker.child, Signal::TERM))?;
        let mut all = Vec::new();
        for worker in &mut self.workers {
            all.push(ended(&format!("worker {}", worker.number), &mut worker.child, within).await?);
        }
        Ok(all)
    }

    fn worker(&self, number: u32) -> &Worker {
        &self.workers[number as usize - 1]
    }
}

/// Starts a coordinator and kills it while it starts, at this share of the time that a start may take. A start that failed would
/// be seen in the next one, too.
pub(super) async fn kill_start(plan: &Plan, cadence: &str, moment: f64) -> Result<(), Failure> {
    let mut coordinator = Coordinator::spawn(plan, cadence)?;
    // Nothing can be waited for: the moment is the fault.
    tokio::time::sleep(duration(STARTS_WITHIN_S * moment)).await;
    coordinator.child.kill().await.map_err(Failure::internal)
}

/// A coordinator that accepts workers.
struct Listening {
    address: SocketAddr,
    resumed_after: u64,
}

impl Coordinator {
    fn spawn(plan: &Plan, cadence: &str) -> Result<Self, Failure> {
        let program = std::env::current_exe().map_err(Failure::internal)?;
        let mut command = Command::new("sh");
        // A file that cannot grow is an error then, as on a full disk, and no signal.
        command.args(["-c", "trap '' XFSZ; exec \"$0\" \"$@\""]).arg(program).arg("coordinator");
        command.arg("--config").arg(&plan.file).arg("--out").arg(plan.disturbed());
        command.args(["--resume", "auto", "--listen", "127.0.0.1:0", "--checkpoint-every", cadence]);
        plan.prepare(&mut command).stdout(Stdio::null()).stderr(Stdio::piped());
        let mut child = command.spawn().map_err(Failure::internal)?;
        let (sender, lines) = mpsc::unbounded_channel();
        let said = child.stderr.take().expect("it is piped");
        tokio::spawn(pass_on(said, plan.log("coordinator.log")?, sender));
        Ok(Self { child, lines })
    }

    async fn start(plan: &Plan, cadence: &str) -> Result<(Self, Listening), Failure> {
        let mut coordinator = Self::spawn(plan, cadence)?;
        let listening = tokio::time::timeout(DEADLINE, coordinator.listens()).await;
        let listening = listening.map_err(|_| Failure::internal("the coordinator does not listen"))??;
        Ok((coordinator, listening))
    }

    /// Reads its log until it says where it listens.
    async fn listens(&mut self) -> Result<Listening, Failure> {
        let (mut resumed_after, mut last) = (0, String::new());
        while let Some(line) = self.lines.recv().await {
            if let Some(text) = after(&line, " after iteration ") {
                resumed_after = text.split(';').next().and_then(|text| text.parse().ok()).unwrap_or(0);
            }
            if let Some(text) = after(&line, " listens on ") {
                let address = text.split(';').next().unwrap_or_default().parse().map_err(Failure::internal)?;
                return Ok(Listening { address, resumed_after });
            }
            last = line;
        }
        Err(Failure::internal(format!("the coordinator ended: {last}")))
    }
}

fn after<'a>(line: &'a str, text: &str) -> Option<&'a str> {
    line.split_once(text).map(|(_, after)| after)
}

/// Passes lines on, and writes them to a log.
async fn pass_on(said: ChildStderr, mut log: File, lines: mpsc::UnboundedSender<String>) {
    let mut said = BufReader::new(said).lines();
    while let Ok(Some(line)) = said.next_line().await {
        // The log is for people; a fault goes on without it.
        drop(writeln!(log, "{line}"));
        // Nobody reads the lines of a coordinator that was replaced.
        drop(lines.send(line));
    }
}

fn start_worker(plan: &Plan, number: u32, link: &FaultProxy) -> Result<Child, Failure> {
    let address = format!("http://{}", link.address);
    let mut command = worker_command(&plan.settings, number, DeviceChoice::Cpu, &address, plan.data.as_deref())?;
    // Far longer than any coordinator is away.
    command.args(["--retry-for", "120", "--log", "info"]);
    plan.prepare(&mut command).stdout(Stdio::null()).stderr(plan.log(&format!("worker-{number}.log"))?);
    command.spawn().map_err(Failure::internal)
}

pub(super) fn pid(child: &Child) -> Result<Pid, Failure> {
    let id = child.id().and_then(|id| i32::try_from(id).ok()).and_then(Pid::from_raw);
    id.ok_or_else(|| Failure::internal("the process is gone"))
}

fn send(child: &Child, signal: Signal) -> Result<(), Failure> {
    kill_process(pid(child)?, signal).map_err(Failure::internal)
}

async fn kill(child: &mut Child) -> Result<(), Failure> {
    send(child, Signal::KILL)?;
    let status = ended("a killed process", child, DEADLINE).await?;
    if status.signal() == Some(Signal::KILL.as_raw()) {
        return Ok(());
    }
    Err(Failure::internal(format!("the process ended before it was killed ({status})")))
}

async fn ended(what: &str, child: &mut Child, within: Duration) -> Result<ExitStatus, Failure> {
    match tokio::time::timeout(within, child.wait()).await {
        Ok(status) => status.map_err(Failure::internal),
        Err(_) => Err(Failure::internal(format!("{what} does not end within {} s", within.as_secs()))),
    }
}
