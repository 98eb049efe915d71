//! `ata-dev`: the program `ata` with the commands of its contributors.
//!
//! # Layout
//! - `bench`: measures this build on this machine, each figure next to a reference
//! - `chaos`: runs a cluster of processes of this program under faults
//! - `reference`: generates the pages of the documentation that are derived from the code

mod bench;
#[cfg(target_os = "linux")]
mod chaos;
mod reference;

use std::ffi::OsString;
use std::future::Future;
use std::path::PathBuf;
use std::process::ExitCode;

use ata::{Exit, Extensions, Failure};
use clap::{Parser, Subcommand};
use tokio::runtime::Runtime;

/// ata with the commands for its contributors. All commands of ata work as well.
#[derive(Debug, Parser)]
#[command(name = "ata-dev", version, max_term_width = 100)]
struct Dev {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Run a cluster on this machine under faults, and compare it with a run without any.
    ///
    /// At random moments, processes are killed and stopped, connections are severed, stalled and slowed down, and the disk is
    /// filled. At the end the run is stopped with SIGTERM and repeated without faults: the parameters must be the same bits.
    /// The exit code is 0 only if every promise of recovery was kept.
    #[cfg(target_os = "linux")]
    Chaos(Box<chaos::ChaosArgs>),
    /// Measure this build on this machine, each figure next to a reference.
    Bench(bench::BenchArgs),
    /// Write the reference pages of the documentation.
    Reference {
        /// The folder for them.
        #[arg(long, value_name = "DIR")]
        out: PathBuf,
    },
    /// A command of ata.
    #[command(external_subcommand)]
    Ata(Vec<OsString>),
}

fn main() -> ExitCode {
    let command = match Dev::try_parse() {
        Ok(dev) => dev.command,
        Err(error) => {
            drop(error.print());
            return if error.use_stderr() { Exit::USAGE } else { Exit::DONE }.into();
        }
    };
    let ended = match command {
        #[cfg(target_os = "linux")]
        Command::Chaos(args) => block_on(chaos::command(*args)),
        Command::Bench(args) => block_on(bench::command(args)),
        Command::Reference { out } => reference::command(&out),
        Command::Ata(arguments) => {
            let command_line = std::iter::once("ata".into()).chain(arguments);
            return ata::run(command_line, Extensions::default()).into();
        }
    };
    ended.unwrap_or_else(|failure| failure.report()).into()
}

fn block_on<T: Send + 'static>(work: impl Future<Output = Result<T, Failure>> + Send + 'static) -> Result<T, Failure> {
    let runtime = Runtime::new().map_err(Failure::internal)?;
    // A spawned task runs on one of the runtime's own threads, where it may block.
    runtime.block_on(async { tokio::spawn(work).await }).map_err(Failure::internal)?
}
