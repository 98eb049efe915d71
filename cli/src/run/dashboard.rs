//! The observers of a running run: the dashboard with its metrics, and TensorBoard's files.

use std::io::ErrorKind;
use std::path::Path;
use std::sync::{Arc, OnceLock};

use ata_net::cannot_listen;
use ata_observe::{Access, App, DashboardSource, Metrics, TensorBoard, serve};
use ata_record::{Listeners, RunState};
use tokio::net::TcpListener;
use tokio::sync::{oneshot, watch};
use tokio::task::JoinHandle;

use super::counterfactual;
use crate::failure::Failure;
use crate::output::note;
use crate::settings::{DEFAULT_DASHBOARD, Settings};

const TENSORBOARD: &str = "tensorboard";

/// A dashboard that is bound to its address but not yet served.
pub(crate) struct Dashboard {
    listener: TcpListener,
    access: Access,
}

impl Dashboard {
    /// Binds and prints the address of the dashboard, which is `default` if the settings have none. Returns `None` if the dashboard is off.
    pub(crate) async fn bind(settings: &Settings, default: &str) -> Result<Option<Self>, Failure> {
        let Some(address) = settings.dashboard_or(default)? else { return Ok(None) };
        let mut bound = TcpListener::bind(address).await;
        if bound.as_ref().is_err_and(|error| error.kind() == ErrorKind::AddrInUse)
            && DEFAULT_DASHBOARD.parse() == Ok(address)
        {
            bound = TcpListener::bind((address.ip(), 0)).await;
        }
        let failed = |cause| Failure::usage(format!("the dashboard {}", cannot_listen(address, &cause, "--dashboard")));
        let listener = bound.map_err(failed)?;
        let view = settings.dashboard_view(listener.local_addr().map_err(Failure::internal)?)?;
        let secret = match &view.token_file {
            None => String::new(),
            Some(file) => {
                format!(" (`ata token show --status` prints its secret; ata status --token-file {})", file.display())
            }
        };
        note!("dashboard: {}{secret}", view.url);
        Ok(Some(Self { listener, access: view.access }))
    }
}

pub(crate) struct Observers {
    listeners: Listeners,
    server: Option<(oneshot::Sender<()>, JoinHandle<()>)>,
    /// The message about TensorBoard's files, if they could not be written.
    failed: Arc<OnceLock<String>>,
}

impl Observers {
    pub(crate) fn start(
        dashboard: Option<Dashboard>,
        settings: &Settings,
        folder: &Path,
        state: watch::Receiver<RunState>,
    ) -> Result<Self, Failure> {
        let (mut listeners, mut failed) = (Listeners::default(), Arc::default());
        if settings.tensorboard {
            let place = folder.join(TENSORBOARD);
            let board = TensorBoard::create(&place)
                .map_err(|cause| Failure::disk(format!("cannot write to {}: {cause}", place.display())))?;
            failed = board.failed();
            listeners.push(Box::new(board));
        }
        let server = dashboard.map(|Dashboard { listener, access }| {
            let metrics = Metrics::new(env!("CARGO_PKG_VERSION"));
            listeners.push(Box::new(metrics.clone()));
            let source = DashboardSource { state, folder: folder.into(), costs: counterfactual::other_costs };
            let app = App { runs: vec![source], metrics: Some(metrics) };
            let (stop, stopped) = oneshot::channel();
            let server = tokio::spawn(serve(listener, access, app, async { drop(stopped.await) }));
            (stop, server)
        });
        Ok(Self { listeners, server, failed })
    }

    /// Takes the listeners for the run. The server continues without them.
    pub(crate) fn take_listeners(&mut self) -> Listeners {
        std::mem::take(&mut self.listeners)
    }

    pub(crate) fn are_seen(&self) -> bool {
        self.server.is_some()
    }

    pub(crate) fn written(&self) -> Result<(), Failure> {
        self.failed.get().map_or(Ok(()), |message| Err(Failure::disk(message)))
    }

    /// Sends the end of the run to viewers.
    pub(crate) async fn end(self) {
        if let Some((stop, server)) = self.server {
            drop(stop);
            drop(server.await);
        }
    }
}
