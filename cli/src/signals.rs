//! Ctrl-C and SIGTERM.

use sd_notify::NotifyState;

use crate::failure::{Exit, Failure};

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

/// Resolves at the first Ctrl-C or SIGTERM. After this call, neither ends the process by itself.
#[cfg(unix)]
pub(crate) fn stop() -> Result<impl Future<Output = Signal>, Failure> {
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
        // A second Ctrl-C exits at once, without a clean shutdown. A second SIGTERM is ignored because both batch systems and the scripts
        // that started this process may send one.
        tokio::spawn(async move {
            while next().await != Signal::Interrupt {}
            std::process::exit(Exit::INTERRUPTED.code().into());
        });
        first
    })
}

/// Resolves at the first Ctrl-C.
#[cfg(windows)]
pub(crate) fn stop() -> Result<impl Future<Output = Signal>, Failure> {
    let mut interrupt = tokio::signal::windows::ctrl_c().map_err(Failure::internal)?;
    Ok(async move {
        interrupt.recv().await;
        Signal::Interrupt
    })
}

pub(crate) fn notify(states: &[NotifyState<'_>]) {
    if let Err(error) = sd_notify::notify(states) {
        tracing::debug!(%error, "cannot notify systemd");
    }
}
