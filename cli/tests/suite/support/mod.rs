//! Helpers that run the real program in a separate folder.

// Each test file uses only a part of this module.
#![allow(dead_code)]

#[cfg(target_os = "linux")]
pub(crate) mod extremes;

use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStderr, Command, Output, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use serde_json::Value;
use tempfile::TempDir;

/// The time after which a program counts as hung: each of these tests takes seconds.
const DEADLINE: Duration = Duration::from_mins(5);
/// The polling interval of conditions.
const POLL: Duration = Duration::from_millis(5);

/// The program under test: `ata`, or `ata-dev`, which has all commands of ata as well.
const PROGRAM: &str = match (option_env!("CARGO_BIN_EXE_ata"), option_env!("CARGO_BIN_EXE_ata-dev")) {
    (Some(program), _) | (None, Some(program)) => program,
    (None, None) => panic!("cargo says where the program is"),
};

/// The flags of a model and tasks that are small enough to train quickly.
pub(crate) const TINY: [&str; 6] = ["--model", "cnn:widths=4/4/8/16", "--task-batch", "2", "--device", "cpu"];

/// A temporary folder in which programs run, and which is also their cache.
pub(crate) struct Sandbox {
    folder: TempDir,
    /// The number of commands that were started in the background.
    started: AtomicU32,
}

impl Sandbox {
    pub(crate) fn new() -> Self {
        Self { folder: tempfile::tempdir().unwrap(), started: AtomicU32::new(0) }
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Returns the command `ata` with these arguments, in the sandbox, without settings from the environment.
    pub(crate) fn ata(&self, args: &[&str]) -> Command {
        self.command(Path::new(PROGRAM), args)
    }

    /// Runs one of the examples in the same way.
    pub(crate) fn example(&self, name: &str, args: &[&str]) -> Output {
        let program = Path::new(PROGRAM).with_file_name("examples").join(name);
        assert!(program.with_extension(std::env::consts::EXE_EXTENSION).exists(), "cargo build --release --examples");
        output(self.command(&program, args))
    }

    /// Returns another command, with the same folder and environment.
    pub(crate) fn command(&self, program: &Path, args: &[&str]) -> Command {
        let mut command = Command::new(program);
        for (name, _) in std::env::vars_os().filter(|(name, _)| name.to_string_lossy().starts_with("ATA_")) {
            command.env_remove(name);
        }
        command
            .args(args)
            .current_dir(self.folder.path())
            .env("XDG_CACHE_HOME", self.path("cache"))
            .env("XDG_DATA_HOME", self.path("xdg"))
            // The servers of these tests are not behind a proxy.
            .env("NO_PROXY", "127.0.0.1")
            .stdin(Stdio::null());
        command
    }

    /// Runs a command to completion.
    pub(crate) fn run(&self, args: &[&str]) -> Output {
        output(self.ata(args))
    }

    /// Runs a command that must succeed, and returns what it prints on standard output and on standard error.
    pub(crate) fn outputs(&self, args: &[&str]) -> [String; 2] {
        let output = self.run(args);
        let [out, said] = [output.stdout, output.stderr].map(|text| String::from_utf8(text).unwrap());
        assert!(output.status.success(), "{args:?}: {said}");
        [out, said]
    }

    /// Runs a command that must succeed, and returns what it prints on standard output.
    pub(crate) fn text(&self, args: &[&str]) -> String {
        let [out, _] = self.outputs(args);
        out
    }

    /// Runs a command that must succeed, and returns what it prints on standard error.
    pub(crate) fn said(&self, args: &[&str]) -> String {
        let [_, said] = self.outputs(args);
        said
    }

    /// Runs a command that must succeed, and returns the summary printed by `--json`.
    pub(crate) fn summary(&self, args: &[&str]) -> Value {
        serde_json::from_str(&self.text(&[args, &["--json"]].concat())).unwrap()
    }

    /// Runs a command that must fail with this exit code and message, and returns standard error.
    pub(crate) fn fails(&self, args: &[&str], code: i32, says: &str) -> String {
        let output = self.run(args);
        let said = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(code), "{args:?}: {said}");
        assert!(said.contains(says) && !said.contains("panicked"), "{args:?} does not say '{says}': {said}");
        assert!(output.stdout.is_empty(), "{args:?}");
        said
    }

    /// Returns the journal of the run in the folder `run`; empty if there is none yet.
    pub(crate) fn journal(&self) -> String {
        std::fs::read_to_string(self.path("run/events.jsonl")).unwrap_or_default()
    }

    /// Returns the events of the run in the folder `run`.
    pub(crate) fn events(&self) -> Vec<Value> {
        self.journal().lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }

    /// Whether the journal of the run in the folder `run` has an event of this kind.
    pub(crate) fn has_event(&self, kind: &str) -> bool {
        self.journal().contains(&format!("\"event\":\"{kind}\""))
    }

    /// Starts a command in the background.
    pub(crate) fn start(&self, args: &[&str]) -> Process {
        self.start_command(self.ata(args), args)
    }

    /// Starts a command in a process group of its own, like a shell.
    #[cfg(unix)]
    pub(crate) fn start_group(&self, args: &[&str]) -> Process {
        use std::os::unix::process::CommandExt;
        let mut command = self.ata(args);
        command.process_group(0);
        self.start_command(command, args)
    }

    /// Starts a coordinator of a tiny run in the folder `run`, and returns its address as well.
    pub(crate) fn coordinator(&self, args: &[&str]) -> (Process, String) {
        let head = ["coordinator", "--listen", "127.0.0.1:0", "--out", "run"];
        let mut coordinator = self.start(&[&head, args, &TINY].concat());
        let address = format!("http://127.0.0.1:{}", coordinator.port());
        (coordinator, address)
    }

    /// Starts a worker on the CPU.
    pub(crate) fn worker(&self, coordinator: &str, args: &[&str]) -> Process {
        self.start(&[&["worker", "--coordinator", coordinator, "--device", "cpu"], args].concat())
    }

    fn start_command(&self, mut command: Command, args: &[&str]) -> Process {
        let ready = self.path(&format!("ready-{}.json", self.started.fetch_add(1, Ordering::Relaxed)));
        if args.first() == Some(&"coordinator") {
            command.arg("--ready-file").arg(&ready);
        }
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let lines = BufReader::new(child.stderr.take().unwrap());
        Process { child, lines, said: String::new(), ready }
    }

    /// Writes a small data set, and returns its folder.
    pub(crate) fn data(&self) -> String {
        let folder = self.path("data").to_str().unwrap().to_owned();
        self.text(&["data", "synth", &folder, "--train", "400", "--test", "100"]);
        folder
    }
}

/// A running program, killed when dropped.
pub(crate) struct Process {
    child: Child,
    lines: BufReader<ChildStderr>,
    /// The standard error that has been read.
    said: String,
    /// The ready file of a coordinator.
    ready: PathBuf,
}

impl Process {
    /// Reads standard error up to a line that contains this text.
    pub(crate) fn wait_for(&mut self, text: &str) -> String {
        loop {
            let mut line = String::new();
            let length = self.lines.read_line(&mut line).unwrap();
            assert!(length > 0, "it ended without saying '{text}':\n{}", self.said);
            self.said.push_str(&line);
            if line.contains(text) {
                return line;
            }
        }
    }

    /// Waits until workers can connect to a coordinator, and returns its port.
    pub(crate) fn port(&mut self) -> String {
        let began = Instant::now();
        while !self.ready.exists() {
            assert!(self.is_running() && began.elapsed() < DEADLINE, "no worker can connect");
            std::thread::sleep(POLL);
        }
        let ready: Value = serde_json::from_slice(&std::fs::read(&self.ready).unwrap()).unwrap();
        ready["address"].as_str().unwrap().rsplit(':').next().unwrap().into()
    }

    /// Returns the process id.
    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    /// Whether the process is running.
    pub(crate) fn is_running(&mut self) -> bool {
        self.child.try_wait().unwrap().is_none()
    }

    /// Sends a signal by its name.
    pub(crate) fn signal(&self, name: &str) {
        assert!(Command::new("kill").args([&format!("-{name}"), &self.id().to_string()]).status().unwrap().success());
    }

    /// Sends a signal to its process group, as a terminal does.
    pub(crate) fn signal_group(&self, name: &str) {
        let group = format!("-{}", self.id());
        assert!(Command::new("kill").args([&format!("-{name}"), "--", &group]).status().unwrap().success());
    }

    /// Returns the processes of its process group.
    pub(crate) fn group(&self) -> Vec<u32> {
        let all = Command::new("ps").args(["-A", "-o", "pid=", "-o", "pgid="]).output().unwrap().stdout;
        let all = String::from_utf8(all).unwrap();
        let numbers = |line: &str| line.split_whitespace().map(|number| number.parse().unwrap()).collect::<Vec<u32>>();
        let of_group = all.lines().map(numbers).filter(|line| line[1] == self.id());
        of_group.map(|line| line[0]).collect()
    }

    /// Waits for the process to exit with this code, and returns standard output and standard error.
    pub(crate) fn ends_with(self, code: i32) -> (String, String) {
        let (ended, out, log) = self.end();
        assert_eq!(ended, Some(code), "{log}");
        (out, log)
    }

    /// Waits for a run with `--json` to be done, and returns its summary.
    pub(crate) fn summary(self) -> Value {
        serde_json::from_str(&self.ends_with(0).0).unwrap()
    }

    /// Waits for the process to exit, and returns exit code, standard output and standard error.
    pub(crate) fn end(mut self) -> (Option<i32>, String, String) {
        let id = self.child.id();
        within_deadline(id, move || {
            let mut out = String::new();
            // Both outputs are small enough for the buffers of the pipes.
            self.lines.read_to_string(&mut self.said).unwrap();
            self.child.stdout.take().unwrap().read_to_string(&mut out).unwrap();
            let status = self.child.wait().unwrap();
            (status.code(), out, std::mem::take(&mut self.said))
        })
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // The process may have exited already.
        self.child.kill().unwrap_or(());
        drop(self.child.wait());
    }
}

/// Runs a command to completion.
fn output(mut command: Command) -> Output {
    let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    within_deadline(child.id(), move || child.wait_with_output().unwrap())
}

/// Returns all files below a folder, in order.
pub(crate) fn files_below(folder: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let mut files: Vec<PathBuf> =
        entries.flat_map(|path| if path.is_dir() { files_below(&path) } else { vec![path] }).collect();
    files.sort();
    files
}

/// Waits until `condition` holds.
pub(crate) fn until(what: &str, condition: impl Fn() -> bool) {
    let began = Instant::now();
    while !condition() {
        assert!(began.elapsed() < DEADLINE, "{what}: not in {DEADLINE:?}");
        std::thread::sleep(POLL);
    }
}

/// Runs `wait`. If it takes too long, kills the process that it waits for, and panics.
fn within_deadline<T: Send + 'static>(process: u32, wait: impl FnOnce() -> T + Send + 'static) -> T {
    let (sender, receiver) = mpsc::channel();
    std::thread::spawn(move || drop(sender.send(wait())));
    receiver.recv_timeout(DEADLINE).unwrap_or_else(|_| {
        Command::new("kill").args(["-KILL", &process.to_string()]).status().unwrap();
        panic!("process {process} did not end in {DEADLINE:?}")
    })
}
