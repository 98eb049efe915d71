//! The flags of the commands that show runs, and of `ata workers`.

use std::path::PathBuf;

use clap::{Args, Subcommand};

use crate::settings::DEFAULT_DASHBOARD;

/// A run, or the dashboard of its coordinator.
#[derive(Clone, Debug, Args)]
pub(crate) struct RunOrUrl {
    /// A run's folder, id or name, or the address of a coordinator's dashboard, as in http://127.0.0.1:7071 [default: the newest
    /// run in runs/, or else that address].
    #[arg(value_name = "RUN|URL")]
    pub(crate) run: Option<String>,
    /// A file with the status token of a coordinator on another machine, which leaves one in its credentials folder. An address
    /// that is given as well replaces the token's.
    #[arg(long, env = "ATA_STATUS_TOKEN_FILE", value_name = "FILE")]
    pub(crate) token_file: Option<PathBuf>,
}

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  ata status                                       the newest run in runs/
  ata status --watch                               the same, live
  ata status http://127.0.0.1:7071 --json          for a script
  ata status --token-file status-token             a coordinator on another machine")]
pub(crate) struct StatusArgs {
    #[command(flatten)]
    pub(crate) of: RunOrUrl,
    /// Keep the display up to date. Keys: up and down scroll, q quits.
    #[arg(long, conflicts_with = "json")]
    pub(crate) watch: bool,
    /// Print JSON on standard output: what /api/state of the dashboard returns.
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Subcommand)]
pub(crate) enum WorkersCommand {
    /// Lift all that counts against the workers of a name: failures, rests, expulsions, and exclusion from evaluations.
    Forgive(ForgiveArgs),
}

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  ata workers forgive rig-1                        in the newest run in runs/
  ata workers forgive rig-1 runs/RUN_ID            a run that was stopped forgives when it is resumed")]
pub(crate) struct ForgiveArgs {
    /// The workers' name.
    #[arg(value_name = "NAME")]
    pub(crate) name: String,
    /// A run's folder, id or name [default: the newest run in runs/].
    #[arg(value_name = "RUN")]
    pub(crate) run: Option<String>,
    /// Print JSON on standard output.
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  ata explain                                      the last allocation of the newest run
  ata explain runs/RUN_ID --iteration 7 --worker 2
  ata explain http://127.0.0.1:7071 --json")]
pub(crate) struct ExplainArgs {
    #[command(flatten)]
    pub(crate) of: RunOrUrl,
    /// The iteration [default: the last one that began].
    #[arg(long, value_name = "K")]
    pub(crate) iteration: Option<u64>,
    /// Explain only the worker with this number.
    #[arg(long, value_name = "W")]
    pub(crate) worker: Option<u32>,
    /// Print JSON on standard output.
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  ata report runs/RUN_ID                           writes report.html into it
  ata report runs/A runs/B --out comparison.html   several runs on one page
  ata report runs/RUN_ID --serve                   the same page, live if the run goes on")]
pub(crate) struct ReportArgs {
    /// Folders or names of runs.
    #[arg(value_name = "RUN", required = true)]
    pub(crate) runs: Vec<String>,
    /// The file to write [default: report.html in the folder of the run, or comparison.html here for several].
    #[arg(long, value_name = "FILE", conflicts_with = "serve")]
    pub(crate) out: Option<PathBuf>,
    /// Serve the page on this loopback address in place of writing it, until Ctrl-C; port 0 picks a free one.
    #[arg(long, value_name = "ADDRESS", num_args = 0..=1, default_missing_value = "127.0.0.1:7072")]
    pub(crate) serve: Option<std::net::SocketAddr>,
}

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  ata health                                       of a coordinator on this machine
  ata health https://127.0.0.1:7071                in a container's health check")]
pub(crate) struct HealthArgs {
    /// The address of a coordinator's dashboard. The request carries no secret, and any certificate is accepted.
    #[arg(value_name = "URL", default_value_t = format!("http://{DEFAULT_DASHBOARD}"))]
    pub(crate) url: String,
    /// Ask whether it accepts workers, instead of whether it runs.
    #[arg(long)]
    pub(crate) ready: bool,
}
