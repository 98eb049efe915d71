//! The command `ata workers`: what the operator of a run decides about its workers.

use std::fs::File;
use std::time::{Duration, Instant};

use ata_observe::{Snapshot, SnapshotPhase, read_state};
use ata_record::{Exclusion, FORGIVE_PREFIX, RUN_LOCK, RunState, is_abandoned, sync_folder};
use serde::Serialize;

use super::location;
use super::status::excluded;
use crate::args::{ForgiveArgs, WorkersCommand};
use crate::failure::{Failure, require};
use crate::output::print;

/// The time within which a coordinator that runs carries out a request. It looks for requests once a second.
const TIMEOUT: Duration = Duration::from_secs(10);

/// The number of names that an error lists.
const NAMES_LISTED: usize = 10;

pub(crate) async fn run(command: &WorkersCommand) -> Result<(), Failure> {
    let WorkersCommand::Forgive(args) = command;
    let folder = match &args.run {
        Some(run) => location::folder(run)?,
        None => location::newest().ok_or_else(|| {
            Failure::usage("no run in runs/: expected a run's folder, id or --name after the worker's name")
        })?,
    };
    let state = read_state(&folder, location::prices(&folder))?;
    check(args, &state)?;
    let mut exclusions = Snapshot::of(&state, &[]).exclusions;
    exclusions.retain(|exclusion| exclusion.name == args.name);

    let request = folder.join(format!("{FORGIVE_PREFIX}{}", args.name));
    let wrong = |cause| Failure::disk(format!("{}: {cause}", request.display()));
    File::create(&request).and_then(|_| sync_folder(&folder)).map_err(wrong)?;
    let is_running = folder.join(RUN_LOCK).exists() && !is_abandoned(&folder, RUN_LOCK);
    let deadline = Instant::now() + TIMEOUT;
    while is_running && request.exists() {
        if Instant::now() >= deadline {
            return Err(Failure::unreachable(format!(
                "the coordinator of run {} has not answered in {} s; it carries out the request as soon as it can",
                state.run_id,
                TIMEOUT.as_secs()
            )));
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    let forgiven =
        Forgiven { run_id: state.run_id, name: args.name.clone(), is_pending: !is_running, lifted: exclusions };
    print(args.json, &forgiven, || forgiven.text())
}

#[derive(Serialize)]
struct Forgiven {
    run_id: String,
    name: String,
    /// Whether it takes effect only when the run is resumed.
    is_pending: bool,
    lifted: Vec<Exclusion>,
}

impl Forgiven {
    fn text(&self) -> String {
        let Self { run_id, name, is_pending, lifted } = self;
        let when = if *is_pending { "will be forgiven when it is resumed" } else { "is forgiven" };
        format!("run {run_id}: {name} {when}\n{}", excluded(lifted))
    }
}

/// Refuses a name that the run does not know, and a run that is finished.
fn check(args: &ForgiveArgs, state: &RunState) -> Result<(), Failure> {
    let run = &state.run_id;
    let is_finished = SnapshotPhase::from(state.phase) == SnapshotPhase::Finished;
    require(!is_finished, || format!("run {run} is finished: nothing can be lifted"))?;
    let excluded = state.exclusions.iter().map(|exclusion| exclusion.name.as_str());
    let mut names: Vec<&str> = state.workers.values().map(|worker| worker.name.as_str()).chain(excluded).collect();
    require(names.contains(&args.name.as_str()), || {
        names.sort_unstable();
        names.dedup();
        names.truncate(NAMES_LISTED);
        format!("run {run} has no worker '{}': expected one of {}", args.name, names.join(", "))
    })
}
