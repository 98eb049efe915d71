//! Failures as reported to the user: one line (several for the command line), and a documented exit code.

use std::fmt::Display;
use std::process::ExitCode;

use ata_coordinator::RunError;
use ata_data::DataError;
use ata_experiments::ExperimentError;
use ata_figures::FigureError;
use ata_learn::{DeviceError, ModelError};
use ata_net::{ConnectError, MORE_FILES, SecurityError};
use ata_plan::PlanError;
use ata_record::JournalError;
use ata_scheduler::PolicyError;
use ata_simulator::{LawError, SettingError};
use ata_worker::WorkerError;

use crate::escape::escaped;
use crate::say::{is_json, say};

/// The error that ends the program.
#[derive(Debug, thiserror::Error)]
#[error("{message}")]
pub struct Failure {
    exit: Exit,
    message: String,
}

/// The exit status of the program: one of the documented exit codes, after BSD's sysexits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub struct Exit(pub(crate) u8);

impl Exit {
    /// The exit code of success.
    pub const DONE: Self = Self(0);
    /// The command line or the configuration is wrong.
    pub const USAGE: Self = Self(64);
    pub(crate) const DATA: Self = Self(65);
    pub(crate) const UNREACHABLE: Self = Self(69);
    pub(crate) const INTERNAL: Self = Self(70);
    pub(crate) const DISK: Self = Self(74);
    /// A run was stopped and can be resumed.
    pub(crate) const RESUMABLE: Self = Self(75);
    pub(crate) const REFUSED: Self = Self(77);
    /// The exit code after Ctrl-C or SIGTERM.
    pub const INTERRUPTED: Self = Self(130);

    /// Returns the exit code as a number.
    pub const fn code(self) -> u8 {
        self.0
    }
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        exit.0.into()
    }
}

/// The exit codes and their meanings.
pub const EXIT_CODES: [(u8, &str); 10] = [
    (0, "done"),
    (1, "`ata doctor` found a problem"),
    (Exit::USAGE.code(), "wrong usage or configuration"),
    (
        Exit::DATA.code(),
        "bad data: a data set (also one that the coordinator cannot send), a journal, a checkpoint, a model file, a time trace",
    ),
    (Exit::UNREACHABLE.code(), "a coordinator or server cannot be reached, or does not serve"),
    (Exit::INTERNAL.code(), "internal error, a missing device, or a run that failed; the message says what"),
    (Exit::DISK.code(), "a file cannot be written, or another process writes the run"),
    (
        Exit::RESUMABLE.code(),
        "an unfinished run was stopped by SIGTERM, and saved unless that is turned off: start it again with `--resume auto`",
    ),
    (Exit::REFUSED.code(), "refused by the coordinator: no secret, the wrong one, or expelled"),
    (Exit::INTERRUPTED.code(), "interrupted by Ctrl-C; a run is saved, unless Ctrl-C was pressed twice"),
];

impl Failure {
    /// Creates a failure for wrong flags or configuration.
    pub fn usage(message: impl Display) -> Self {
        Self::new(Exit::USAGE, message)
    }

    /// Creates a failure whose message may have several lines.
    pub(crate) fn command_line(message: &str) -> Self {
        let lines: Vec<_> = message.lines().map(|line| escaped(line.trim_end())).collect();
        Self { exit: Exit::USAGE, message: lines.join("\n") }
    }

    /// Creates a failure for bad data.
    pub fn data(message: impl Display) -> Self {
        Self::new(Exit::DATA, message)
    }

    pub(crate) fn unreachable(message: impl Display) -> Self {
        Self::new(Exit::UNREACHABLE, message)
    }

    pub(crate) fn refused(message: impl Display) -> Self {
        Self::new(Exit::REFUSED, message)
    }

    /// Creates a failure for an error of the program or the machine.
    pub fn internal(message: impl Display) -> Self {
        Self::new(Exit::INTERNAL, message)
    }

    /// Creates a failure for a file that cannot be written.
    pub fn disk(message: impl Display) -> Self {
        Self::new(Exit::DISK, message)
    }

    fn new(exit: Exit, message: impl Display) -> Self {
        // The message is reduced to one line because it may quote a worker, a server or a file.
        let mut message = message.to_string().split_whitespace().collect::<Vec<_>>().join(" ");
        // Whatever was to be opened: errors of files and sockets are only text by now, partly from other machines.
        if cfg!(unix) && message.contains("Too many open files") && !message.contains(MORE_FILES) {
            message = format!("{message}; {MORE_FILES}");
        }
        Self { exit, message: escaped(&message).into_owned() }
    }

    /// Prints the message and returns the exit code.
    pub fn report(&self) -> Exit {
        let prefix = if is_json() { "" } else { "ata: " };
        say("ERROR", format_args!("{prefix}{}", self.message));
        self.exit
    }
}

/// Fails for wrong usage unless something holds.
pub(crate) fn require<M: Display>(holds: bool, message: impl FnOnce() -> M) -> Result<(), Failure> {
    if holds { Ok(()) } else { Err(Failure::usage(message())) }
}

/// An error that may end the program.
pub(crate) trait HasExit: Display {
    /// Returns the exit code; by default, that of a wrong command line or configuration.
    fn exit(&self) -> Exit {
        Exit::USAGE
    }
}

impl<E: HasExit> From<E> for Failure {
    fn from(error: E) -> Self {
        Self::new(error.exit(), error)
    }
}

impl HasExit for ModelError {}
impl HasExit for PolicyError {}
impl HasExit for SettingError {}

impl HasExit for JournalError {
    fn exit(&self) -> Exit {
        Exit::DATA
    }
}

impl HasExit for DataError {
    fn exit(&self) -> Exit {
        if matches!(self, Self::Disk(_)) { Exit::DISK } else { Exit::DATA }
    }
}

impl HasExit for DeviceError {
    fn exit(&self) -> Exit {
        // Drivers may load late, so a missing device is not an error of the command line.
        if matches!(self, Self::NotFound { .. } | Self::NoGpu { .. }) { Exit::INTERNAL } else { Exit::USAGE }
    }
}

impl HasExit for SecurityError {
    fn exit(&self) -> Exit {
        if matches!(self, Self::Write(..)) { Exit::DISK } else { Exit::USAGE }
    }
}

impl HasExit for LawError {
    fn exit(&self) -> Exit {
        if matches!(self, Self::Trace(_)) { Exit::DATA } else { Exit::USAGE }
    }
}

impl HasExit for FigureError {
    fn exit(&self) -> Exit {
        if matches!(self, Self::Write { .. }) { Exit::DISK } else { Exit::INTERNAL }
    }
}

impl HasExit for PlanError {
    fn exit(&self) -> Exit {
        match self {
            Self::Law(error) => error.exit(),
            Self::Run(_) => Exit::INTERNAL,
            Self::Setting(_) | Self::Policy(_) => Exit::USAGE,
        }
    }
}

impl HasExit for ExperimentError {
    fn exit(&self) -> Exit {
        match self {
            Self::Law(error) => error.exit(),
            Self::Run(_) => Exit::INTERNAL,
            Self::Invalid(_) | Self::Setting(_) => Exit::USAGE,
        }
    }
}

impl HasExit for ConnectError {
    fn exit(&self) -> Exit {
        match self {
            Self::Address(_) | Self::Certificates { .. } => Exit::USAGE,
            Self::Distrusted { .. } => Exit::REFUSED,
            Self::Unreachable { .. } => Exit::UNREACHABLE,
        }
    }
}

impl HasExit for RunError {
    fn exit(&self) -> Exit {
        match self {
            Self::Record { .. } => Exit::DISK,
            Self::Data(error) => error.exit(),
            Self::Journal(_) | Self::Restore(_) | Self::OtherData { .. } => Exit::DATA,
            Self::Aborted { .. } | Self::Evaluation(_) | Self::Training | Self::Optimizer(_) => Exit::INTERNAL,
        }
    }
}

impl HasExit for WorkerError {
    fn exit(&self) -> Exit {
        match self {
            Self::Unreachable { .. } => Exit::UNREACHABLE,
            Self::Refused(_) => Exit::REFUSED,
            Self::Connect(error) => error.exit(),
            Self::NameTaken(_) | Self::Model(_) | Self::PeerListen { .. } | Self::TaskTime(_) => Exit::USAGE,
            Self::Data(error) => error.exit(),
            Self::OtherData { .. } | Self::NoData { .. } => Exit::DATA,
            Self::Protocol(_) | Self::OtherModel { .. } | Self::Device(_) => Exit::INTERNAL,
        }
    }
}

#[cfg(test)]
mod tests {
    use ata_scheduler::AbortReason;
    use ata_types::{Iteration, TaskRange};

    use super::*;

    /// A failed run quotes the worker that failed last.
    #[test]
    fn a_message_commands_no_terminal() {
        let (tasks, lasted_s) = (TaskRange { first: 0, count: 1 }, 128.0);
        let reason = AbortReason::TasksFailed { iteration: Iteration(3), tasks, attempts: 9, workers: 4, lasted_s };
        let last_failure = "worker 2: \u{1b}[2J\u{1b}[31mall is well\nata: done\u{202e}".into();
        let failure = Failure::from(RunError::Aborted { reason, last_failure });
        assert_eq!(
            failure.to_string(),
            "1 task(s) from index 0 of iteration 3 failed 9 times, on 4 worker(s), and nothing succeeded for 128 s; the last \
             failure: worker 2: \\u{1b}[2J\\u{1b}[31mall is well ata: done\\u{202e}"
        );
    }
}
