//! The flags for joining a coordinator, and those of `ata token`.

use std::path::PathBuf;

use clap::{Args, Subcommand};
use serde::Serialize;

/// The address of the coordinator, and the credentials.
#[derive(Debug, Args)]
pub(crate) struct JoinArgs {
    /// The coordinator's address without encryption, or https://HOST:PORT with --tls-ca [default: http://127.0.0.1:7070].
    #[arg(long, env = "ATA_COORDINATOR", value_name = "URL")]
    pub(crate) coordinator: Option<String>,
    /// The token that the coordinator prints: its address, its key and a secret. `ps` shows it to all users of this machine;
    /// --join-file and the variable do not.
    #[arg(long, env = "ATA_JOIN", value_name = "TOKEN", hide_env_values = true)]
    pub(crate) join: Option<String>,
    /// A file that holds the token; the worker waits for it if it does not exist yet.
    #[arg(long, env = "ATA_JOIN_FILE", value_name = "FILE")]
    pub(crate) join_file: Option<PathBuf>,
    /// Trust a coordinator whose certificate comes from this authority (PEM).
    #[arg(long, env = "ATA_TLS_CA", value_name = "FILE", help_heading = "Own certificates")]
    pub(crate) tls_ca: Option<PathBuf>,
    /// This worker's certificate (PEM); its DNS names are the names that the worker may use.
    #[arg(long, env = "ATA_TLS_CERT", value_name = "FILE", help_heading = "Own certificates")]
    pub(crate) tls_cert: Option<PathBuf>,
    /// The private key of this worker's certificate (PEM).
    #[arg(long, env = "ATA_TLS_KEY", value_name = "FILE", help_heading = "Own certificates")]
    pub(crate) tls_key: Option<PathBuf>,
}

/// The security settings of a coordinator.
#[derive(Clone, Debug, Default, Args, Serialize)]
pub(crate) struct SecurityArgs {
    /// The host, or HOST:PORT, under which workers reach this machine, for the join token [default: its address].
    #[arg(long, env = "ATA_ADVERTISE", value_name = "HOST")]
    advertise: Option<String>,
    /// The folder of the coordinator's key and secrets, made at the first start [default: ~/.local/share/ata/credentials].
    #[arg(long, env = "ATA_CREDENTIALS", value_name = "DIR")]
    credentials: Option<PathBuf>,
    /// Accept connections from other machines that are neither encrypted nor authenticated.
    #[arg(long, env = "ATA_INSECURE", num_args = 0..=1, default_missing_value = "true", value_name = "BOOL")]
    insecure: Option<bool>,
    /// A certificate of your own for the coordinator (PEM, with what is between it and the root).
    #[arg(long, env = "ATA_TLS_CERT", value_name = "FILE", help_heading = "Own certificates")]
    tls_cert: Option<PathBuf>,
    /// The private key of --tls-cert (PEM).
    #[arg(long, env = "ATA_TLS_KEY", value_name = "FILE", help_heading = "Own certificates")]
    tls_key: Option<PathBuf>,
    /// Let in workers with a certificate of this authority (PEM), in place of those with a join token.
    #[arg(long, env = "ATA_TLS_CLIENT_CA", value_name = "FILE", help_heading = "Own certificates")]
    tls_client_ca: Option<PathBuf>,
}

#[derive(Debug, Subcommand)]
pub(crate) enum TokenCommand {
    /// Print the join token.
    Show(TokenArgs),
    /// Make a new secret: the old token stops working. Workers that are connected stay.
    Rotate(RotateArgs),
}

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  ata token show                                   what follows --join
  ata token show > join.txt                        for ata worker --join-file join.txt
  ata token show --status                          the secret for reading the status")]
pub(crate) struct TokenArgs {
    /// The folder of the coordinator's key and secrets.
    #[arg(long, env = "ATA_CREDENTIALS", value_name = "DIR")]
    pub(crate) credentials: Option<PathBuf>,
    /// HOST or HOST:PORT under which workers reach the coordinator [default: as it was started last].
    #[arg(long, env = "ATA_ADVERTISE", value_name = "HOST")]
    pub(crate) advertise: Option<String>,
    /// The secret for reading the status, in place of the token for workers.
    #[arg(long)]
    pub(crate) status: bool,
    /// Print JSON on standard output.
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  ata token rotate                                 after a token has leaked
  ata token rotate --key                           after the key has leaked: all workers need the new token")]
pub(crate) struct RotateArgs {
    #[command(flatten)]
    pub(crate) token: TokenArgs,
    /// Make a new key, too; a coordinator that is running takes it for new connections.
    #[arg(long, conflicts_with = "status")]
    pub(crate) key: bool,
}
