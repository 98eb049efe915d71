//! Requests of the operator to lift what counts against workers, as files in the run's folder: who may write there may make them.
//!
//! A request is an empty file whose name is [`FORGIVE_PREFIX`] and a worker's name. Once it is carried out, it is renamed. It stays until
//! a checkpoint includes it, because a run that resumes from an earlier one has to carry it out again.

use std::collections::HashMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use ata_record::{FORGIVE_PREFIX, RunState};
use ata_types::Iteration;
use ata_wire::WorkerName;
use tokio::sync::{mpsc, oneshot, watch};

use crate::driver::DriverCommand;

/// The time between two looks at the folder. The operator waits for half of it on average; a look takes microseconds.
const INTERVAL: Duration = Duration::from_secs(1);

const DONE_PREFIX: &str = "forgiven-";

/// Passes requests to the driver until the run is over.
pub(crate) async fn watch(folder: PathBuf, commands: mpsc::Sender<DriverCommand>, state: watch::Receiver<RunState>) {
    // The requests that were carried out by this process, with the iteration whose checkpoint includes them.
    let mut done: HashMap<WorkerName, Iteration> = HashMap::new();
    loop {
        let saved = state.borrow().saved;
        for (name, _) in done.extract_if(|_, from| saved >= Some(*from)) {
            drop(fs::remove_file(folder.join(format!("{DONE_PREFIX}{name}"))));
        }
        let looked = folder.clone();
        let requests = tokio::task::spawn_blocking(move || requests(&looked)).await.unwrap_or_default();
        for (name, is_new) in requests {
            if !is_new && done.contains_key(&name) {
                continue;
            }
            let (reply, answer) = oneshot::channel();
            let (request, carried_out) = (format!("{FORGIVE_PREFIX}{name}"), format!("{DONE_PREFIX}{name}"));
            if commands.send(DriverCommand::Forgive { name: name.clone(), reply }).await.is_err() {
                return;
            }
            let Ok(from) = answer.await else { return };
            if is_new && let Err(error) = fs::rename(folder.join(&request), folder.join(carried_out)) {
                tracing::warn!("{}: cannot be renamed: {error}", folder.join(request).display());
            }
            done.insert(name, from);
        }
        tokio::select! {
            () = tokio::time::sleep(INTERVAL) => {}
            () = commands.closed() => return,
        }
    }
}

fn requests(folder: &Path) -> Vec<(WorkerName, bool)> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let request = |entry: fs::DirEntry| {
        let file = entry.file_name().into_string().ok()?;
        let new = file.strip_prefix(FORGIVE_PREFIX).map(|name| (name, true));
        let (name, is_new) = new.or_else(|| file.strip_prefix(DONE_PREFIX).map(|name| (name, false)))?;
        Some((name.parse().ok()?, is_new))
    };
    entries.filter_map(request).collect()
}
