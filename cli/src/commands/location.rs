//! Finding the run that a command reads, in a folder or at its coordinator.

use std::path::{Path, PathBuf};

use ata_observe::{Client, ClientError};
use ata_record::JOURNAL_FILE;

use crate::args::RunOrUrl;
use crate::failure::Failure;
use crate::run::registry::candidates;
use crate::run::resume::{RUNS, runs};
use crate::settings::{DEFAULT_DASHBOARD, Settings, read_file};

pub(super) enum RunLocation {
    Folder(PathBuf),
    Server(Client),
}

impl RunLocation {
    pub(super) async fn find(RunOrUrl { run, token_file }: &RunOrUrl) -> Result<Self, Failure> {
        if let Some(file) = token_file {
            let wrong = |cause: &dyn std::fmt::Display| Failure::usage(format!("{}: {cause}", file.display()));
            let token = std::fs::read_to_string(file).map_err(|cause| wrong(&cause))?;
            let client: Client = token.trim().parse().map_err(|cause: ClientError| wrong(&cause))?;
            return Ok(Self::Server(match run {
                Some(url) => client.at(url.parse()?),
                None => client,
            }));
        }
        match run.as_deref() {
            Some(url) if url.contains("://") || url.starts_with("ata1-") => Ok(Self::Server(url.parse()?)),
            Some(run) => Ok(Self::Folder(folder(run)?)),
            None => match newest() {
                Some(newest) => Ok(Self::Folder(newest)),
                None => Ok(Self::Server(own_coordinator().await?)),
            },
        }
    }
}

/// Returns the newest run in `runs/`.
pub(super) fn newest() -> Option<PathBuf> {
    runs().into_iter().find(|run| run.join(JOURNAL_FILE).exists())
}

/// Returns the coordinator on this machine that has the default address, if it runs.
async fn own_coordinator() -> Result<Client, Failure> {
    let client: Client = format!("http://{DEFAULT_DASHBOARD}").parse()?;
    if let Err(ClientError::Unreachable(address, cause)) = client.get("/healthz").await {
        return Err(Failure::unreachable(format!(
            "there is no run in {RUNS}/ here, and no coordinator at {address} ({cause}): `ata up` begins a run; of another one, give the \
             folder, id or name, or the address of its dashboard"
        )));
    }
    Ok(client)
}

/// Returns the folder of a run, by its path, id or name.
pub(super) fn folder(run: &str) -> Result<PathBuf, Failure> {
    candidates(Path::new(run))
        .into_iter()
        .find(|folder| folder.join(JOURNAL_FILE).exists())
        .ok_or_else(|| Failure::usage(format!("{run}: no {JOURNAL_FILE} there; expected a run's folder, id or --name")))
}

/// Returns the prices of the workers of the run in a folder, from its settings.
pub(super) fn prices(folder: &Path) -> ata_record::Prices {
    let file = folder.join(ata_record::CONFIG_FILE);
    // Errors are ignored because a run can be shown without its settings.
    let settings = read_file(&file).and_then(|table| Settings::of(&table));
    settings.map(|settings| settings.workers.prices).unwrap_or_default()
}

impl From<ClientError> for Failure {
    fn from(error: ClientError) -> Self {
        match error {
            ClientError::Address(_) | ClientError::ForWorkers(_) => Self::usage(error),
            ClientError::Unreachable(..) | ClientError::Unavailable(..) => Self::unreachable(error),
            ClientError::Refused(_) => Self::refused(error),
            ClientError::NotFound(_) => Self::data(error),
        }
    }
}
