//! The program `ata` as a function, so that your own program with your own models and policies has all of its commands.
//!
//! ```no_run
//! fn main() -> std::process::ExitCode {
//!     ata::main(ata::Extensions::default())
//! }
//! ```
//!
//! # Layout
//! - `args`: the command line
//! - `settings`: defaults, file, environment and flags, merged and checked
//! - `inputs`: the model and the data that they name
//! - `commands`: one file or folder per subcommand
//! - `run`: what `ata up` and `ata coordinator` have in common, from settings to the final table
//! - `output`: progress, tables and JSON, and the escaping of what comes from outside
//! - `telemetry`: the log, and spans for a collector
//! - `signals`, `failure`: what ends the program, and its exit codes

mod args;
mod commands;
mod failure;
mod inputs;
mod output;
mod run;
mod settings;
mod signals;
mod telemetry;

use std::process::ExitCode;

use ata_experiments::PolicyResolver;
use ata_learn::{ModelResolver, builtin_model};
use ata_scheduler::build_policy;

/// The models and policies that the program knows by name, and its defaults.
#[derive(Clone, Copy, Debug)]
pub struct Extensions {
    /// Resolves `--model`. Coordinator and workers must be the same program; `ata up` starts its workers from it.
    pub models: ModelResolver,
    /// Resolves `--policy`, on the cluster and in the simulator.
    pub policies: PolicyResolver,
    /// Settings of a run, in the form of `config.toml`, whose defaults are others than ata's; files, environment and flags
    /// override them.
    pub defaults: &'static str,
}

impl Default for Extensions {
    /// The built-in models and policies.
    fn default() -> Self {
        Self { models: builtin_model, policies: build_policy, defaults: "" }
    }
}

/// Runs the command line of this process.
#[must_use]
pub fn main(extensions: Extensions) -> ExitCode {
    ata_learn::keep_freed_memory();
    match args::parse().and_then(|cli| commands::run(cli, extensions)) {
        Ok(code) => code,
        Err(failure) => failure.report(),
    }
}
