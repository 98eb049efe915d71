//! Failures as reported to the user: one line (several for the command line), and a documented exit code.

use std::fmt::Display;
use std::process::ExitCode;

use ata_coordinator::RunError;
use ata_data::DataError;
use ata_experiments::ExperimentError;
use ata_figures::FigureError;
use ata_learn::{DeviceError, ModelError};
use ata_net::{ConnectError, SecurityError};
use ata_plan::PlanError;
use ata_scheduler::PolicyError;
use ata_simulator::{LawError, SettingError};
use ata_worker::WorkerError;

use crate::escape::escaped;
use crate::note;

/// The error that ends the program.
#[derive(Debug, thiserror::Error)]
#[error("{message}")]
pub struct Failure {
    kind: Kind,
    message: String,
}

/// The exit status of the program: one of the documented exit codes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub struct Exit(pub(crate) u8);

impl Exit {
    /// The exit code of success.
    pub const DONE: Self = Self(0);

    /// The command line or the configuration is wrong.
    pub const USAGE: Self = Self(Kind::Usage as u8);

    /// The exit code after Ctrl-C or SIGTERM.
    pub const INTERRUPTED: Self = Self(INTERRUPTED);

    /// Returns the exit code as a number.
    pub fn code(self) -> u8 {
        self.0
    }
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        exit.0.into()
    }
}

/// The documented exit codes, after BSD's sysexits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Usage = 64,
    Data = 65,
    Unreachable = 69,
    Internal = 70,
    Disk = 74,
    Refused = 77,
}

/// The exit codes and their meanings.
pub const EXIT_CODES: [(u8, &str); 10] = [
    (0, "done"),
    (1, "`ata doctor` found a problem"),
    (Kind::Usage as u8, "wrong usage or configuration"),
    (
        Kind::Data as u8,
        "bad data: a data set (also one that the coordinator cannot send), a journal, a checkpoint, a model file, a time trace",
    ),
    (Kind::Unreachable as u8, "a coordinator or server cannot be reached, or does not serve"),
    (Kind::Internal as u8, "internal error, a missing device, or a run that failed; the message says what"),
    (Kind::Disk as u8, "a file cannot be written, or another process writes the run"),
    (
        RESUMABLE,
        "an unfinished run was stopped by SIGTERM, and saved unless that is turned off: start it again with `--resume auto`",
    ),
    (Kind::Refused as u8, "refused by the coordinator: no secret, the wrong one, or expelled"),
    (INTERRUPTED, "interrupted by Ctrl-C; a run is saved, unless Ctrl-C was pressed twice"),
];

/// The exit code of a worker whose run failed.
pub(crate) const RUN_FAILED: u8 = Kind::Internal as u8;

/// The exit code of a run that was stopped and can be resumed.
pub(crate) const RESUMABLE: u8 = 75;

/// The exit code of a run ended by Ctrl-C.
pub(crate) const INTERRUPTED: u8 = 130;

impl Failure {
    /// Creates a failure for wrong flags or configuration.
    pub fn usage(message: impl Display) -> Self {
        Self::new(Kind::Usage, message)
    }

    /// Creates a failure for a command line that cannot be parsed. The message may have several lines.
    pub fn command_line(message: &str) -> Self {
        let lines: Vec<_> = message.lines().map(|line| escaped(line.trim_end())).collect();
        Self { kind: Kind::Usage, message: lines.join("\n") }
    }

    /// Creates a failure for bad data.
    pub fn data(message: impl Display) -> Self {
        Self::new(Kind::Data, message)
    }

    /// Creates a failure for a server that cannot be reached or does not serve.
    pub fn unreachable(message: impl Display) -> Self {
        Self::new(Kind::Unreachable, message)
    }

    /// Creates a failure for a refusal by the coordinator (exit code 77).
    pub fn refused(message: impl Display) -> Self {
        Self::new(Kind::Refused, message)
    }

    /// Creates a failure for an error of the program or the machine.
    pub fn internal(message: impl Display) -> Self {
        Self::new(Kind::Internal, message)
    }

    /// Creates a failure for a file that cannot be written.
    pub fn disk(message: impl Display) -> Self {
        Self::new(Kind::Disk, message)
    }

    fn new(kind: Kind, message: impl Display) -> Self {
        // The message is reduced to one line because it may quote a worker, a server or a file.
        let message = message.to_string().split_whitespace().collect::<Vec<_>>().join(" ");
        Self { kind, message: escaped(&message).into_owned() }
    }

    /// Prints the message and returns the exit code.
    pub fn report(&self) -> Exit {
        note!("ata: {}", self.message);
        Exit(self.kind as u8)
    }
}

impl From<DataError> for Failure {
    fn from(error: DataError) -> Self {
        Self::new(data_kind(&error), error)
    }
}

fn data_kind(error: &DataError) -> Kind {
    if matches!(error, DataError::Cache { .. } | DataError::Write { .. }) { Kind::Disk } else { Kind::Data }
}

impl From<PolicyError> for Failure {
    fn from(error: PolicyError) -> Self {
        Self::usage(error)
    }
}

impl From<ModelError> for Failure {
    fn from(error: ModelError) -> Self {
        Self::usage(error)
    }
}

impl From<DeviceError> for Failure {
    fn from(error: DeviceError) -> Self {
        // Drivers may load late, so a missing device is not an error of the command line.
        let is_machine = matches!(error, DeviceError::NotFound { .. } | DeviceError::NoGpu { .. });
        Self::new(if is_machine { Kind::Internal } else { Kind::Usage }, error)
    }
}

impl From<LawError> for Failure {
    fn from(error: LawError) -> Self {
        match error {
            LawError::Trace { .. } => Self::data(error),
            LawError::Syntax { .. } | LawError::BadParameter { .. } => Self::usage(error),
        }
    }
}

impl From<PlanError> for Failure {
    fn from(error: PlanError) -> Self {
        match error {
            PlanError::Law(error) => error.into(),
            PlanError::Run(_) => Self::internal(error),
            PlanError::Setting(_) | PlanError::Policy(_) => Self::usage(error),
        }
    }
}

impl From<SettingError> for Failure {
    fn from(error: SettingError) -> Self {
        Self::usage(error)
    }
}

impl From<ExperimentError> for Failure {
    fn from(error: ExperimentError) -> Self {
        match error {
            ExperimentError::Law(error) => error.into(),
            ExperimentError::Figure(FigureError::Write { .. }) => Self::disk(error),
            ExperimentError::Figure(_) | ExperimentError::Run { .. } | ExperimentError::Learning { .. } => {
                Self::internal(error)
            }
            _ => Self::usage(error),
        }
    }
}

impl From<FigureError> for Failure {
    fn from(error: FigureError) -> Self {
        ExperimentError::Figure(error).into()
    }
}

impl From<ConnectError> for Failure {
    fn from(error: ConnectError) -> Self {
        match error {
            ConnectError::Address(_) | ConnectError::Certificates { .. } => Self::usage(error),
            ConnectError::Distrusted { .. } => Self::new(Kind::Refused, error),
            ConnectError::Unreachable { .. } => Self::new(Kind::Unreachable, error),
        }
    }
}

impl From<SecurityError> for Failure {
    fn from(error: SecurityError) -> Self {
        Self::usage(error)
    }
}

impl From<RunError> for Failure {
    fn from(error: RunError) -> Self {
        let kind = match error {
            RunError::Record { .. } => Kind::Disk,
            RunError::Data(ref error) => data_kind(error),
            RunError::Journal(_) | RunError::Restore(_) | RunError::OtherData { .. } => Kind::Data,
            RunError::Aborted { .. } | RunError::Evaluation(_) | RunError::Training => Kind::Internal,
        };
        Self::new(kind, error)
    }
}

impl From<WorkerError> for Failure {
    fn from(error: WorkerError) -> Self {
        let kind = match error {
            WorkerError::Unreachable { .. } => Kind::Unreachable,
            WorkerError::Refused(_) => Kind::Refused,
            WorkerError::Connect(error) => return error.into(),
            WorkerError::NameTaken(_)
            | WorkerError::Model(_)
            | WorkerError::PeerListen { .. }
            | WorkerError::TaskTime(_) => Kind::Usage,
            WorkerError::Data(ref error) => data_kind(error),
            WorkerError::OtherData { .. } | WorkerError::NoData { .. } => Kind::Data,
            WorkerError::Protocol(_) | WorkerError::OtherModel { .. } | WorkerError::Device(_) => Kind::Internal,
        };
        Self::new(kind, error)
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
