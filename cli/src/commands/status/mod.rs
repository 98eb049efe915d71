//! `ata status`: what a run is doing.
//!
//! # Layout
//! - here: the state as text or JSON
//! - `shown`: what is read of it
//! - `watch`: the live view

mod shown;
mod watch;

use std::process::ExitCode;
use std::sync::Arc;

use ata_figures::Table;
use ata_observe::{Cursor, seconds, viewed};
use bytes::Bytes;

use super::watched::{self, Watched};
use crate::args::StatusArgs;
use crate::failure::Failure;
use crate::output::{escaped, print_json, render_table};
use crate::run::counterfactual::cost_rows;
use shown::{Shown, Worker};

/// Workers shown.
const WORKERS_SHOWN: usize = 32;

pub(crate) async fn run(args: StatusArgs) -> Result<ExitCode, Failure> {
    let watched = Watched::find(&args.of)?;
    if args.watch {
        return watch::run(watched).await;
    }
    let text = state(&watched).await?;
    if args.json {
        let value: serde_json::Value = serde_json::from_slice(&text).map_err(Failure::data)?;
        print_json(&value)?;
    } else {
        print!("{}", rendered(&Shown::read(&text)?));
    }
    Ok(ExitCode::SUCCESS)
}

/// The state of a run, as its dashboard tells it.
async fn state(watched: &Watched) -> Result<Bytes, Failure> {
    match watched {
        Watched::Server(client) => Ok(client.get("/api/state").await?),
        Watched::Folder(folder) => {
            let view = viewed(folder, watched::prices(folder))?;
            let message = view.message(0, &mut Cursor::default(), &Arc::new(cost_rows(view.state())));
            Ok(serde_json::to_vec(&message).map_err(Failure::internal)?.into())
        }
    }
}

fn rendered(shown: &Shown) -> String {
    let mut text = escaped(&shown.headline()).into_owned() + "\n";
    text.extend(shown.facts().into_iter().map(|(name, value)| format!("{name:<16}{value}\n")));
    let per_iteration = |row: &shown::Cost| {
        vec![row.label.clone(), seconds(row.iteration_s), seconds(row.worker_time_s), format!("{:.1}", row.wasted)]
    };
    if !shown.costs.is_empty() {
        let header = ["policy", "runtime", "worker time", "wasted tasks"].map(String::from).into();
        let rows = shown.costs.iter().map(per_iteration).collect();
        text += &render_table(&Table { title: "Per iteration, on the times so far".into(), header, rows }, usize::MAX);
    }
    let title = format!("Workers, in iteration {}: {}", shown.allocation.iteration, shown.allocation.rule);
    let header = Worker::COLUMNS.map(String::from).into();
    let rows = shown.workers.iter().map(|worker| worker.cells().into()).collect();
    text + &render_table(&Table { title, header, rows }, WORKERS_SHOWN)
}
