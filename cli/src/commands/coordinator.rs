//! The command `ata coordinator`: the head node.

use std::io::IsTerminal;
use std::net::SocketAddr;

use ata_coordinator::Cadence;
use ata_net::{Security, cannot_listen};
use sd_notify::NotifyState;
use serde::Serialize;
use tokio::net::TcpListener;

use crate::Extensions;
use crate::args::CoordinatorArgs;
use crate::failure::{Exit, Failure};
use crate::inputs::Inputs;
use crate::output::{note, write_file};
use crate::run::{Dashboard, ExpectedWorkers, Run};
use crate::settings::{DEFAULT_DASHBOARD, EntranceSettings, Settings, flags};
use crate::shell::word;
use crate::signals::{self, notify};

/// The least number of workers that the tasks of a batch are made for: more may come than the run waits for.
const FEW_WORKERS: u64 = 8;

pub(crate) async fn run(args: CoordinatorArgs, extensions: Extensions) -> Result<Exit, Failure> {
    let (mut settings, resumption) =
        args.common.settings(extensions.defaults()?, &[flags(&args.run)?, flags(&args.head)?])?;
    let address = settings.listen()?;
    let mut inputs = Inputs::of_coordinator(&settings, extensions.models)?;
    settings.divide_batch(&mut inputs, FEW_WORKERS.max(settings.min_workers as u64), false)?;
    let (device, min_workers) = (settings.device_choice()?, settings.min_workers);
    let expected = ExpectedWorkers { at_least: min_workers, exactly: None, means: None, devices: None };
    let mut run = Run::new(settings.clone(), extensions, inputs, device, expected, resumption, &args.common)?;
    if run.is_complete() {
        return Ok(Exit::DONE);
    }

    let mut signal = Box::pin(signals::stop(stopping(&settings)?, signals::INTERRUPT)?);
    if let Some(file) = &args.ready_file {
        // The ready file of an earlier process has an outdated address. There may be none.
        drop(std::fs::remove_file(file));
    }
    let listener = TcpListener::bind(address).await;
    let listener = listener.map_err(|cause| Failure::usage(cannot_listen(address, &cause, "--listen")))?;
    let bound = listener.local_addr().map_err(Failure::internal)?;
    let dashboard = Dashboard::bind(&settings, DEFAULT_DASHBOARD).await?;
    let EntranceSettings { security, join, token_file } = settings.entrance(bound)?;
    let folder = run.folder()?;
    let waits = if run.finished().is_some() { String::new() } else { format!("; waiting for {min_workers} worker(s)") };
    note!("run {} listens on {bound}{waits}", folder.run_id);
    match &token_file {
        // A log is read by more people than a terminal.
        Some(file) if !args.print_join && !std::io::stderr().is_terminal() => {
            note!("start workers with: ata worker --join-file {}", word(file));
            note!("on other machines with a copy of that file: keep it secret; `ata token rotate` replaces it");
        }
        Some(file) => {
            note!("start workers with: {join}");
            note!("the token is also in {}: keep it secret; `ata token rotate` replaces it", file.display());
        }
        None => note!("start workers with: {join}"),
    }
    if matches!(*security, Security::Open) && !bound.ip().is_loopback() {
        note!("--insecure: anyone who can reach this address can join, read the traffic and change it");
    }

    let ready = Ready { run_id: &folder.run_id, address: bound, resumes_after: run.resumes_after() };
    let ready = serde_json::to_vec(&ready).map_err(Failure::internal)?;
    let (mut received, mut is_announced) = (None, Ok(()));
    // It is first polled when the run serves its workers.
    let stop = async {
        is_announced = args.ready_file.as_ref().map_or(Ok(()), |file| write_file(file, &ready));
        if is_announced.is_ok() {
            notify(&[NotifyState::Ready]);
            received = Some((&mut signal).await);
        }
        notify(&[NotifyState::Stopping]);
    };
    let ended = Box::pin(run.train(&folder, listener, security, dashboard, stop)).await?;
    is_announced?;
    ended.finish(&folder, &args.common, received, signal).await
}

/// Returns what a run does when it is asked to stop.
pub(super) fn stopping(settings: &Settings) -> Result<String, Failure> {
    let saves = match settings.checkpoint_cadence()? {
        Cadence::Never => "the state is not saved (checkpoint_every)",
        _ => "the state is saved, which takes seconds; Ctrl-C again ends it at once, without that",
    };
    Ok(format!("no step begins any more, and {saves}"))
}

#[derive(Serialize)]
struct Ready<'a> {
    run_id: &'a str,
    address: SocketAddr,
    /// The last iteration of the checkpoint that the run resumes from; 0 for a new run.
    resumes_after: u64,
}
