//! One file per subcommand.

mod coordinator;
mod data;
mod doctor;
mod eval;
mod explain;
mod generate;
mod health;
mod init;
mod joining;
mod location;
mod new;
mod plan;
mod policies;
mod replay;
mod report;
mod simulate;
mod status;
mod token;
mod up;
mod worker;
mod workers;

pub(crate) use up::worker_args;

use std::time::Duration;

use tokio::runtime::{Builder, Runtime};

use crate::Extensions;
use crate::args::{Cli, Command};
use crate::failure::{Exit, Failure};
use crate::log;
use crate::settings::Settings;

pub(crate) fn run(cli: Cli, extensions: Extensions) -> Result<Exit, Failure> {
    // A worker's only output is its log, and a coordinator's log reports on its workers. cubecl would log a line for every tuned kernel.
    let default = match &cli.command {
        Command::Worker(_) | Command::Coordinator(_) => "info,cubecl_runtime=warn",
        _ => "warn",
    };
    // Programs other than ata's own executable may not support being restarted.
    if matches!(cli.command, Command::Worker(_)) && extensions.program.is_empty() {
        ata_learn::keep_large_blocks();
    }
    log::start(cli.log.as_deref().unwrap_or(default), cli.log_format)?;
    let done = match cli.command {
        Command::Up(args) => return block_on(up::run(*args, extensions)),
        Command::Coordinator(args) => return block_on(coordinator::run(*args, extensions)),
        Command::Worker(args) => return block_on_one_thread(worker::run(*args, extensions.models)),
        Command::Doctor(args) => return block_on(doctor::run(*args, extensions)),
        Command::Status(args) => block_on(status::run(args)),
        Command::Explain(args) => block_on(explain::run(args)),
        Command::Report(args) => block_on(report::run(args)),
        Command::Health(args) => block_on(health::run(args)),
        Command::Completions { shell } => generate::completions(shell),
        Command::Man { out } => generate::man(&out),
        Command::Token(command) => token::run(&command),
        Command::Workers(command) => block_on(async move { workers::run(&command).await }),
        Command::Data(command) => data::run(command),
        Command::Init(args) => {
            let defaults = Settings::of(&extensions.defaults()?)?;
            init::run(&args, &defaults.model, extensions.models)
        }
        Command::New(args) => new::run(&args),
        Command::Eval(args) => eval::run(&args, extensions.models),
        Command::Plan(args) => plan::run(&args, extensions),
        Command::Simulate(args) => simulate::run(&args, extensions),
        Command::Replay(args) => replay::run(&args, extensions),
        Command::Policies { json } => policies::run(json),
    };
    done.map(|()| Exit::DONE)
}

/// Runs `work` on the runtime's own threads, so that tasks it wakes up run on the same thread or on another one that is awake.
fn block_on<T: Send + 'static>(work: impl Future<Output = Result<T, Failure>> + Send + 'static) -> Result<T, Failure> {
    let runtime = Builder::new_multi_thread().enable_all().build().map_err(Failure::internal)?;
    let result = runtime.block_on(async { tokio::spawn(work).await });
    shut_down(runtime);
    match result {
        Ok(result) => result,
        Err(error) if error.is_panic() => std::panic::resume_unwind(error.into_panic()),
        Err(error) => Err(Failure::internal(error)),
    }
}

/// Runs `work` on this thread, because a worker's other threads are for its gradients.
fn block_on_one_thread<T>(work: impl Future<Output = Result<T, Failure>>) -> Result<T, Failure> {
    let runtime = Builder::new_current_thread().enable_all().build().map_err(Failure::internal)?;
    let result = runtime.block_on(work);
    shut_down(runtime);
    result
}

fn shut_down(runtime: Runtime) {
    // Work that still blocks (on a cache lock, or a hung device) must not keep the process alive.
    runtime.shutdown_timeout(Duration::from_millis(500));
}
