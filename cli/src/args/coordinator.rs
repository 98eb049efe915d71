//! The flags of `ata coordinator`.

use std::path::PathBuf;

use clap::Args;
use serde::Serialize;

use super::{CommonArgs, RunArgs, SecurityArgs};

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  ata coordinator                                        listen on this machine only
  ata coordinator --listen 0.0.0.0:7070 --min-workers 8  accept workers of other machines, by the token that it prints
  ata coordinator --listen 0.0.0.0:7070 --tls-cert head.pem --tls-key head.key --tls-client-ca workers-ca.pem")]
pub(crate) struct CoordinatorArgs {
    #[command(flatten)]
    pub(crate) common: CommonArgs,
    #[command(flatten)]
    pub(crate) run: RunArgs,
    #[command(flatten)]
    pub(crate) head: HeadArgs,
    /// Write a JSON object with the keys run_id, address and resumes_after (the iteration that the run goes on after, or 0) to
    /// this file as soon as workers can connect.
    #[arg(long, env = "ATA_READY_FILE", value_name = "FILE", help_heading = "Output")]
    pub(crate) ready_file: Option<PathBuf>,
}

/// Settings of the head node.
#[derive(Clone, Debug, Default, Args, Serialize)]
pub(crate) struct HeadArgs {
    /// Address and port to listen on; port 0 picks a free one.
    #[arg(long, env = "ATA_LISTEN", value_name = "ADDRESS")]
    listen: Option<String>,
    /// The number of workers to wait for before the first iteration.
    #[arg(long, env = "ATA_MIN_WORKERS", value_name = "N", allow_negative_numbers = true)]
    min_workers: Option<usize>,
    /// The address of the dashboard and the metrics. On other addresses than loopback, they use TLS and require the status secret [default:
    /// 127.0.0.1:7071, or a free port if that is taken].
    #[arg(long, env = "ATA_DASHBOARD", value_name = "ADDRESS|off", help_heading = "Output")]
    dashboard: Option<String>,
    #[command(flatten)]
    #[serde(flatten)]
    security: SecurityArgs,
}
