//! The program `ata`, as a function: so that a program of your own with your own models and policies has all of its commands.
//!
//! ```no_run
//! fn main() -> std::process::ExitCode {
//!     ata::main(ata::Extensions::default())
//! }
//! ```
//!
//! # Layout
//! - `args`: the command line
//! - `settings`: defaults, file, environment and flags, put together and checked
//! - `inputs`: the data that they name
//! - `commands`: a file or a folder per subcommand
//! - `run`: what `ata up` and `ata coordinator` have in common, from settings to the table at the end
//! - `output`: progress and tables
//! - `signals`, `failure`: what ends the program, and its exit codes

mod args;
mod commands;
mod failure;
mod inputs;
mod output;
mod run;
mod settings;
mod signals;

use std::process::ExitCode;

use ata_learn::{ModelResolver, builtin_model};
use ata_scheduler::build_policy;
use ata_simulator::experiment::PolicyResolver;

/// What the program knows by name.
#[derive(Clone, Copy, Debug)]
pub struct Extensions {
    /// What `--model` may name. Coordinator and workers must be the same program; `ata up` starts its workers from it.
    pub models: ModelResolver,
    /// What `--policy` may name, on the cluster and in the simulator.
    pub policies: PolicyResolver,
}

impl Default for Extensions {
    /// What ata comes with.
    fn default() -> Self {
        Self { models: builtin_model, policies: build_policy }
    }
}

/// Runs the command line of this process.
#[must_use]
pub fn main(extensions: Extensions) -> ExitCode {
    match args::parse().and_then(|cli| commands::run(cli, extensions)) {
        Ok(code) => code,
        Err(failure) => failure.report(),
    }
}
