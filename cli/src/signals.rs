//! Ctrl-C and SIGTERM.

use std::fmt;

use sd_notify::NotifyState;

use crate::failure::{Exit, Failure};
use crate::output::note;

/// Makes a write beyond `ulimit -f` fail like one on a full disk. Without a handler, SIGXFSZ would kill the process.
pub(crate) fn survive_file_limits() {
    #[cfg(unix)]
    if let Err(error) = signal_hook::flag::register(signal_hook::consts::SIGXFSZ, std::sync::Arc::default()) {
        crate::output::note!("SIGXFSZ: {error}");
    }
}

/// A signal that asks the program to stop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Signal {
    Interrupt,
    Terminate,
}

impl Signal {
    /// Returns the exit code of a process without a run of its own that this signal ended.
    pub(crate) fn exit(self) -> Exit {
        match self {
            Self::Interrupt => Exit::INTERRUPTED,
            Self::Terminate => Exit::DONE,
        }
    }
}

impl fmt::Display for Signal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Interrupt => "Ctrl-C",
            Self::Terminate => "SIGTERM",
        })
    }
}

/// The signals that end a coordinator at once if they come second: not SIGTERM, which both batch systems and the scripts in them may send.
pub(crate) const INTERRUPT: &[Signal] = &[Signal::Interrupt];

/// The signals that end a worker at once if they come second.
pub(crate) const ANY: &[Signal] = &[Signal::Interrupt, Signal::Terminate];

/// Resolves at the first Ctrl-C or SIGTERM, and prints what happens then. One of `second` ends the process afterwards, without a clean
/// shutdown. After this call, no signal ends the process by itself.
#[cfg(unix)]
pub(crate) fn stop(says: String, second: &'static [Signal]) -> Result<impl Future<Output = Signal>, Failure> {
    use tokio::signal::unix::{SignalKind, signal};
    let mut interrupt = signal(SignalKind::interrupt()).map_err(Failure::internal)?;
    let mut terminate = signal(SignalKind::terminate()).map_err(Failure::internal)?;
    let mut next = async move || {
        tokio::select! {
            _ = interrupt.recv() => Signal::Interrupt,
            _ = terminate.recv() => Signal::Terminate,
        }
    };
    Ok(async move {
        let first = next().await;
        note!("{first}: {says}");
        tokio::spawn(async move {
            loop {
                let again = next().await;
                if second.contains(&again) {
                    std::process::exit(again.exit().code().into());
                }
            }
        });
        first
    })
}

/// Resolves at the first Ctrl-C, and prints what happens then.
#[cfg(windows)]
pub(crate) fn stop(says: String, _second: &'static [Signal]) -> Result<impl Future<Output = Signal>, Failure> {
    let mut interrupt = tokio::signal::windows::ctrl_c().map_err(Failure::internal)?;
    Ok(async move {
        interrupt.recv().await;
        note!("{}: {says}", Signal::Interrupt);
        Signal::Interrupt
    })
}

pub(crate) fn notify(states: &[NotifyState<'_>]) {
    if let Err(error) = sd_notify::notify(states) {
        tracing::debug!(%error, "cannot notify systemd");
    }
}
