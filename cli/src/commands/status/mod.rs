//! The command `ata status`: shows the state of a run.
//!
//! # Layout
//! - this file: the state as text or JSON
//! - `text`: parts of the state as text
//! - `watch`: the live view

mod text;
mod watch;

use ata_figures::Table;
use ata_observe::{Client, Snapshot, read_state};
use ata_record::Exclusion;
use serde::Serialize;

use super::location::{self, RunLocation};
use crate::args::StatusArgs;
use crate::escape::escaped;
use crate::failure::Failure;
use crate::output::{print, render_table};
use crate::run::counterfactual::{cost_text, other_costs};

const WORKERS_SHOWN: usize = 32;

pub(crate) async fn run(args: StatusArgs) -> Result<(), Failure> {
    let location = RunLocation::find(&args.of).await?;
    if args.watch {
        return watch::run(location).await;
    }
    let status = match location {
        RunLocation::Server(client) => StatusOutput::fetch(&client).await?,
        RunLocation::Folder(folder) => {
            let state = read_state(&folder, location::prices(&folder))?;
            StatusOutput::Run(Box::new(Snapshot::of(&state, &other_costs(&state))))
        }
    };
    print(args.json, &status, || status.runs().iter().map(render).collect::<Vec<_>>().join("\n"))
}

/// The runs that a server shows.
#[derive(Serialize)]
#[serde(untagged)]
enum StatusOutput {
    Run(Box<Snapshot>),
    Runs(Vec<Snapshot>),
}

impl StatusOutput {
    async fn fetch(client: &Client) -> Result<Self, Failure> {
        let json = client.get("/api/state").await?;
        let status = match json.first() {
            Some(b'[') => serde_json::from_slice(&json).map(Self::Runs),
            _ => serde_json::from_slice(&json).map(|run| Self::Run(Box::new(run))),
        };
        status.map_err(|error| {
            Failure::data(format!(
                "the state is not what this version of ata expects ({error}): is the coordinator another one?"
            ))
        })
    }

    fn runs(&self) -> &[Snapshot] {
        match self {
            Self::Run(run) => std::slice::from_ref(run),
            Self::Runs(runs) => runs,
        }
    }
}

fn render(snapshot: &Snapshot) -> String {
    let mut text = escaped(&text::headline(snapshot)).into_owned() + "\n";
    text.extend(text::facts(snapshot).into_iter().map(|(name, value)| format!("{name:<16}{value}\n")));
    if !snapshot.costs.is_empty() {
        text += &cost_text("Per iteration, on the times so far".into(), &snapshot.costs);
    }
    let title = text::workers_title(snapshot);
    let header = text::COLUMNS.map(String::from).into();
    let rows = text::by_importance(snapshot).into_iter().map(|worker| text::cells(worker).into()).collect();
    text += &render_table(&Table { title, header, rows }, WORKERS_SHOWN);
    text + &excluded(&snapshot.exclusions)
}

/// Returns a table of what workers are excluded from; empty if there is nothing.
pub(super) fn excluded(exclusions: &[Exclusion]) -> String {
    if exclusions.is_empty() {
        return String::new();
    }
    let title = "Excluded workers; `ata workers forgive NAME` lifts what counts against a name".into();
    let header = ["worker", "machine", "excluded from", "reason"].map(String::from).into();
    let row = |exclusion: &Exclusion| {
        let Exclusion { name, machine, from, why } = exclusion;
        vec![name.clone(), machine.clone(), from.to_string(), why.clone()]
    };
    let rows = exclusions.iter().map(row).collect();
    render_table(&Table { title, header, rows }, WORKERS_SHOWN)
}
