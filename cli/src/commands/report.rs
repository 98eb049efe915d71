//! The command `ata report`: writes or serves the page of one or several runs.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use ata_net::cannot_listen;
use ata_observe::{Access, App, DashboardSource, Snapshot, follow, read_state, serve};
use ata_record::REPORT_FILE;
use tokio::net::TcpListener;

use super::location;
use crate::args::ReportArgs;
use crate::failure::{Failure, require};
use crate::output::{note, print_message, write_file};
use crate::run::counterfactual::other_costs;
use crate::signals;

const COMPARISON_FILE: &str = "comparison.html";

pub(crate) async fn run(args: ReportArgs) -> Result<(), Failure> {
    let folders = args.runs.iter().map(|run| location::folder(run)).collect::<Result<Vec<PathBuf>, _>>()?;
    if let Some(address) = args.serve {
        return served(folders, address).await;
    }
    let snapshots = folders.iter().enumerate().map(|(index, folder)| snapshot(index, folder));
    let snapshots: Vec<Snapshot> = snapshots.collect::<Result<_, _>>()?;
    let (title, default) = match &folders[..] {
        [folder] => (format!("Run {}", name(folder)), folder.join(REPORT_FILE)),
        several => (several.iter().map(|folder| name(folder)).collect::<Vec<_>>().join(", "), COMPARISON_FILE.into()),
    };
    let path = args.out.unwrap_or(default);
    write_file(&path, ata_observe::report(&title, &snapshots).as_bytes())?;
    print_message(&path.display().to_string())
}

fn name(folder: &Path) -> String {
    folder.file_name().map_or_else(|| folder.display().to_string(), |name| name.to_string_lossy().into_owned())
}

fn snapshot(index: usize, folder: &Path) -> Result<Snapshot, Failure> {
    let state = read_state(folder, location::prices(folder))?;
    if !state.has_begun() && state.iterations == 0 {
        return Err(Failure::data(format!("{} holds no run", folder.display())));
    }
    Ok(Snapshot { index, ..Snapshot::of(&state, &other_costs(&state)) })
}

async fn served(folders: Vec<PathBuf>, address: SocketAddr) -> Result<(), Failure> {
    require(address.ip().is_loopback(), || {
        format!(
            "--serve {address}: expected an address of this machine only, as in 127.0.0.1:7072; a coordinator's own \
             --dashboard can be reached from elsewhere"
        )
    })?;
    let stop = signals::stop("the page is no longer served".into(), signals::ANY)?;
    let listener = TcpListener::bind(address).await;
    let listener = listener.map_err(|cause| Failure::usage(cannot_listen(address, &cause, "--serve")))?;
    note!("dashboard: http://{}", listener.local_addr().map_err(Failure::internal)?);
    let source = |folder: PathBuf| DashboardSource {
        state: follow(folder.clone(), location::prices(&folder)),
        folder,
        costs: other_costs,
    };
    let app = App { runs: folders.into_iter().map(source).collect(), metrics: None };
    serve(listener, Access::Local, app, async {
        stop.await;
    })
    .await;
    Ok(())
}
