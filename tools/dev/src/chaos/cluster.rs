//! The processes of a cluster: a coordinator, and workers that each reach it through a fault proxy.

use std::fs::File;
use std::io;
use std::net::SocketAddr;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};
use std::time::{Duration, Instant};

use ata::{Failure, LocalRun};
use ata_fault_proxy::FaultProxy;
use rustix::process::{Pid, Resource, Rlimit, Signal, kill_process, prlimit};
use serde::Deserialize;
use tokio::process::{Child, Command};

use super::ChaosArgs;

/// The longest time that any expected event may take, even on a busy machine. A longer one counts as a failure.
pub(crate) const DEADLINE: Duration = Duration::from_mins(1);

/// The polling interval for files and processes.
pub(crate) const POLL: Duration = Duration::from_millis(5);

/// Seconds within which a coordinator has always started.
const STARTS_WITHIN_S: f64 = 0.5;

/// Converts seconds to a duration; a value that is not a valid duration becomes [`DEADLINE`].
pub(crate) fn duration(seconds: f64) -> Duration {
    Duration::try_from_secs_f64(seconds).unwrap_or(DEADLINE)
}

/// The environment variable that marks the processes of a run, including their descendants.
const MARK: &str = "ATA_CHAOS_RUN";

/// The cluster, the faults that it is exposed to, and a new folder for both runs and all logs.
pub(crate) struct Plan {
    pub(crate) args: ChaosArgs,
    pub(crate) run: LocalRun,
    pub(crate) folder: PathBuf,
}

impl Plan {
    /// Creates the folder, and writes the settings.
    pub(crate) fn new(args: ChaosArgs, run: LocalRun) -> Result<Self, Failure> {
        let folder = args.out.clone().unwrap_or_else(|| Path::new("runs").join(LocalRun::new_id("chaos")));
        if folder.exists() {
            return Err(Failure::usage(format!("--out {}: it exists; expected a new folder", folder.display())));
        }
        let created = std::fs::create_dir_all(&folder).and_then(|()| folder.canonicalize());
        let folder = created.map_err(|cause| unwritable(&folder, &cause))?;
        let plan = Self { args, run, folder };
        let written = std::fs::write(plan.settings(), &plan.run.settings);
        written.map_err(|cause| unwritable(&plan.settings(), &cause))?;
        Ok(plan)
    }

    /// Returns a command for `ata` without arguments.
    pub(crate) fn command(&self) -> Command {
        let (program, first) = self.run.program.split_first().expect("a program has a name");
        let mut command = Command::new(program);
        command.args(first);
        command
    }

    pub(crate) fn disturbed(&self) -> PathBuf {
        self.folder.join("disturbed")
    }

    pub(crate) fn settings(&self) -> PathBuf {
        self.folder.join("settings.toml")
    }

    /// Prepares a command of this run: it takes no settings from the environment, and is killed when dropped.
    pub(crate) fn prepare<'a>(&self, command: &'a mut Command) -> &'a mut Command {
        let is_setting = |name: &str| name.starts_with("ATA_") && name != "ATA_CACHE_DIR";
        for (name, _) in std::env::vars_os().filter(|(name, _)| name.to_str().is_some_and(is_setting)) {
            command.env_remove(name);
        }
        command.env(MARK, &self.folder).stdin(Stdio::null()).kill_on_drop(true)
    }

    pub(crate) fn log(&self, name: &str) -> Result<File, Failure> {
        let path = self.folder.join(name);
        File::options().append(true).create(true).open(&path).map_err(|cause| unwritable(&path, &cause))
    }

    /// Waits at most `patience` for all processes of this run to end, and returns how many are left.
    pub(crate) async fn processes_left(&self, patience: Duration) -> usize {
        let deadline = Instant::now() + patience;
        while self.processes() > 0 && Instant::now() < deadline {
            tokio::time::sleep(POLL).await;
        }
        self.processes()
    }

    fn processes(&self) -> usize {
        let mark = format!("{MARK}={}", self.folder.display());
        let is_ours = |process: &Path| {
            let environment = std::fs::read(process.join("environ")).unwrap_or_default();
            environment.split(|byte| *byte == 0).any(|variable| variable == mark.as_bytes())
        };
        let processes = std::fs::read_dir("/proc").into_iter().flatten().flatten();
        processes.filter(|process| is_ours(&process.path())).count()
    }

    /// The file that a coordinator writes when workers can connect.
    fn ready_file(&self) -> PathBuf {
        self.folder.join("ready.json")
    }

    /// Starts a coordinator with the checkpoint interval `cadence`.
    fn spawn_coordinator(&self, cadence: &str) -> Result<Child, Failure> {
        let mut command = Command::new("sh");
        // With SIGXFSZ ignored, a write beyond the file size limit fails, as on a full disk, instead of ending the process.
        command.args(["-c", "trap '' XFSZ; exec \"$0\" \"$@\""]).args(&self.run.program).arg("coordinator");
        command.arg("--config").arg(self.settings()).arg("--out").arg(self.disturbed());
        command.args(["--resume", "auto", "--listen", "127.0.0.1:0", "--checkpoint-every", cadence]);
        command.arg("--ready-file").arg(self.ready_file());
        self.prepare(&mut command).stdout(Stdio::null()).stderr(self.log("coordinator.log")?);
        command.spawn().map_err(Failure::internal)
    }

    /// Starts a coordinator, and waits until workers can connect.
    async fn start_coordinator(&self, cadence: &str) -> Result<(Child, Ready), Failure> {
        let file = self.ready_file();
        // The file of the previous coordinator is removed; there may be none.
        drop(std::fs::remove_file(&file));
        let mut child = self.spawn_coordinator(cadence)?;
        let began = Instant::now();
        while !file.exists() {
            if let Some(status) = child.try_wait().map_err(Failure::internal)? {
                return Err(Failure::internal(format!("the coordinator ended ({status}): see coordinator.log")));
            }
            if began.elapsed() > DEADLINE {
                return Err(Failure::internal("the coordinator does not accept workers"));
            }
            tokio::time::sleep(POLL).await;
        }
        let wrong = |reason: String| Failure::data(format!("{}: {reason}", file.display()));
        let text = std::fs::read(&file).map_err(|cause| wrong(cause.to_string()))?;
        let ready = serde_json::from_slice(&text).map_err(|cause| wrong(cause.to_string()))?;
        Ok((child, ready))
    }

    fn start_worker(&self, number: u32, proxy: &FaultProxy) -> Result<Child, Failure> {
        let mut command = self.command();
        command.arg("worker").args(["--coordinator", &format!("http://{}", proxy.address)]);
        command.args(["--name", &format!("worker-{number}"), "--number", &number.to_string()]);
        command.args(["--workers", &self.run.workers.to_string()]).args(&self.run.worker_args);
        // This is far longer than any coordinator is absent.
        command.args(["--retry-for", "120", "--log", "info"]);
        self.prepare(&mut command).stdout(Stdio::null()).stderr(self.log(&format!("worker-{number}.log"))?);
        command.spawn().map_err(Failure::internal)
    }
}

/// The content of a coordinator's ready file.
#[derive(Deserialize)]
struct Ready {
    address: SocketAddr,
    /// The iteration after which the run resumes, or 0.
    resumes_after: u64,
}

pub(crate) struct Cluster {
    pub(crate) plan: Plan,
    coordinator: Child,
    workers: Vec<Worker>,
}

struct Worker {
    number: u32,
    proxy: FaultProxy,
    child: Child,
}

impl Cluster {
    /// Starts the cluster with the checkpoint interval `cadence`.
    pub(crate) async fn start(plan: Plan, cadence: &str) -> Result<Self, Failure> {
        let (coordinator, ready) = plan.start_coordinator(cadence).await?;
        let mut workers = Vec::new();
        for number in 1..=plan.run.workers {
            let proxy = FaultProxy::to(ready.address).await;
            let child = plan.start_worker(number, &proxy)?;
            workers.push(Worker { number, proxy, child });
        }
        Ok(Self { plan, coordinator, workers })
    }

    /// Starts a new coordinator in place of one that ended. Returns the iteration after which the run resumes, or 0.
    pub(crate) async fn restart_coordinator(&mut self, cadence: &str) -> Result<u64, Failure> {
        let (coordinator, ready) = self.plan.start_coordinator(cadence).await?;
        self.coordinator = coordinator;
        self.workers.iter().for_each(|worker| worker.proxy.lead_to(Some(ready.address)));
        Ok(ready.resumes_after)
    }

    pub(crate) async fn kill_coordinator(&mut self) -> Result<(), Failure> {
        self.forget_coordinator();
        kill(&mut self.coordinator).await
    }

    /// Removes the coordinator's address from the proxies, because another process may get its port.
    pub(crate) fn forget_coordinator(&self) {
        self.workers.iter().for_each(|worker| worker.proxy.lead_to(None));
    }

    pub(crate) fn signal_coordinator(&self, signal: Signal) -> Result<(), Failure> {
        send(&self.coordinator, signal)
    }

    pub(crate) fn coordinator_is_stopped(&self) -> Result<bool, Failure> {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", pid(&self.coordinator)?.as_raw_nonzero()));
        let stat = stat.map_err(Failure::internal)?;
        // The name of the program, in parentheses, may contain anything; the state follows it.
        Ok(stat.rsplit_once(')').is_some_and(|(_, rest)| rest.trim_start().starts_with('T')))
    }

    /// Prevents all files of the coordinator from growing.
    pub(crate) fn fill_disk(&self) -> Result<(), Failure> {
        let limit = Rlimit { current: Some(0), maximum: Some(0) };
        prlimit(Some(pid(&self.coordinator)?), Resource::Fsize, limit).map(drop).map_err(Failure::internal)
    }

    pub(crate) async fn coordinator_ends(&mut self, within: Duration) -> Result<ExitStatus, Failure> {
        ended("the coordinator", &mut self.coordinator, within).await
    }

    pub(crate) fn proxy(&self, number: u32) -> &FaultProxy {
        &self.worker(number).proxy
    }

    pub(crate) fn signal_worker(&self, number: u32, signal: Signal) -> Result<(), Failure> {
        send(&self.worker(number).child, signal)
    }

    /// Kills a worker and starts it again.
    pub(crate) async fn replace_worker(&mut self, number: u32) -> Result<(), Failure> {
        let worker = &mut self.workers[number as usize - 1];
        kill(&mut worker.child).await?;
        worker.child = self.plan.start_worker(number, &worker.proxy)?;
        Ok(())
    }

    /// Checks that all processes run. Workers that ended with the exit code `allowed` are restarted, as by a supervisor.
    pub(crate) fn supervise(&mut self, allowed: Option<i32>) -> Result<(), Failure> {
        if let Some(status) = self.coordinator.try_wait().map_err(Failure::internal)? {
            return Err(Failure::internal(format!("the coordinator ended by itself ({status})")));
        }
        for worker in &mut self.workers {
            let Some(status) = worker.child.try_wait().map_err(Failure::internal)? else { continue };
            let number = worker.number;
            if allowed.is_none() || status.code() != allowed {
                return Err(Failure::internal(format!("worker {number} ended by itself ({status})")));
            }
            worker.child = self.plan.start_worker(number, &worker.proxy)?;
        }
        Ok(())
    }

    /// Asks all workers to stop, and waits for them to exit.
    pub(crate) async fn stop_workers(&mut self, within: Duration) -> Result<Vec<ExitStatus>, Failure> {
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

/// Starts a coordinator and kills it after the fraction `moment` of the time that a start may take. The start itself is not checked: if it
/// failed, so would the next one.
pub(crate) async fn kill_start(plan: &Plan, cadence: &str, moment: f64) -> Result<(), Failure> {
    let mut coordinator = plan.spawn_coordinator(cadence)?;
    // There is no condition to wait for: the moment is the fault.
    tokio::time::sleep(duration(STARTS_WITHIN_S * moment)).await;
    coordinator.kill().await.map_err(Failure::internal)
}

/// Returns the failure of a file of the chaos run itself that cannot be written.
fn unwritable(path: &Path, cause: &io::Error) -> Failure {
    Failure::disk(format!("cannot write {}: {cause}", path.display()))
}

pub(crate) fn pid(child: &Child) -> Result<Pid, Failure> {
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
