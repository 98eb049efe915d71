//! One file per subcommand.

mod bench;
#[cfg(target_os = "linux")]
mod chaos;
mod coordinator;
mod data;
mod doctor;
mod eval;
mod explain;
mod generate;
mod health;
mod joining;
mod policies;
mod reference;
mod replay;
mod report;
mod simulate;
mod status;
mod token;
mod up;
mod watched;
mod worker;

use std::io::IsTerminal;
use std::process::ExitCode;
use std::time::Duration;

use tokio::runtime::{Builder, Runtime};
use tracing_subscriber::EnvFilter;

use crate::Extensions;
use crate::args::{Cli, Command, LogFormat};
use crate::failure::Failure;

/// Runs the subcommand.
pub(crate) fn run(cli: Cli, extensions: Extensions) -> Result<ExitCode, Failure> {
    // A worker shows nothing but its log, and a coordinator's log reports on its workers. Every kernel tuned is a line of
    // cubecl's.
    let default = match &cli.command {
        Command::Worker(_) | Command::Coordinator(_) => "info,cubecl_runtime=warn",
        _ => "warn",
    };
    start_log(cli.log.as_deref().unwrap_or(default), cli.log_format)?;
    match cli.command {
        Command::Up(args) => block_on(up::run(*args, extensions)),
        Command::Coordinator(args) => block_on(coordinator::run(*args, extensions)),
        Command::Worker(args) => block_on_one_thread(worker::run(*args, extensions.models)),
        Command::Status(args) => block_on(status::run(args)),
        Command::Explain(args) => block_on(explain::run(args)),
        Command::Report(args) => block_on(report::run(args)),
        Command::Health(args) => block_on(health::run(args)),
        Command::Completions { shell } => Ok(generate::completions(shell)),
        Command::Reference { out } => reference::run(&out),
        Command::Man { out } => generate::man(&out),
        Command::Token(command) => token::run(&command),
        Command::Data(command) => data::run(command),
        Command::Eval(args) => eval::run(&args, extensions.models),
        Command::Simulate(args) => simulate::run(&args, extensions),
        Command::Replay(args) => replay::run(&args, extensions),
        Command::Policies { json } => policies::run(json),
        Command::Doctor(args) => block_on(doctor::run(*args, extensions)),
        #[cfg(target_os = "linux")]
        Command::Chaos(args) => block_on(chaos::run(*args, extensions)),
        Command::Bench(args) => block_on(bench::run(args)),
    }
}

fn start_log(directives: &str, format: LogFormat) -> Result<(), Failure> {
    let filter = EnvFilter::try_new(directives).map_err(|error| {
        Failure::usage(format!("--log '{directives}': {error}; expected error, warn, info or debug"))
    })?;
    let log = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_target(false)
        .with_writer(std::io::stderr)
        .with_ansi(std::io::stderr().is_terminal());
    match format {
        LogFormat::Text => log.try_init(),
        LogFormat::Json => log.json().flatten_event(true).try_init(),
    }
    .map_err(Failure::internal)
}

/// Runs `work` on the runtime's own threads: what it wakes up runs on the same thread, or on another that is awake.
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

/// Runs `work` on this thread: a worker's other threads are for its gradients.
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
