//! `ata`: the one binary. Each subcommand is a file in `commands`; past the command line, settings are typed and checked.

mod args;
mod commands;
mod counterfactual;
mod display;
mod failure;
mod inputs;
mod run;
mod run_folder;
mod settings;
mod signals;
mod summary;
mod table;

use std::process::ExitCode;

fn main() -> ExitCode {
    match args::parse().and_then(commands::run) {
        Ok(code) => code,
        Err(failure) => failure.report(),
    }
}
