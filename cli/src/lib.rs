//! The program `ata` as a function, for programs with custom models and policies that have all of its commands.
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
//! - `inputs`: the model and the data that the settings name
//! - `commands`: one file or folder per subcommand
//! - `run`: the shared part of `ata up` and `ata coordinator`, from settings to the final table
//! - `output`: progress, tables and JSON, and the escaping of untrusted text
//! - `say`: messages on standard error; `log`: the log; `shell`: commands to paste
//! - `local_run`: the settings of a run, for programs that start its processes themselves
//! - `signals`, `failure`: signals, errors and exit codes

mod args;
mod commands;
mod escape;
mod failure;
mod inputs;
mod local_run;
mod log;
mod output;
mod run;
mod say;
mod settings;
mod shell;
mod signals;

use std::ffi::OsString;
use std::process::ExitCode;

use ata_learn::{ModelResolver, builtin_model};
use ata_policies::build_policy;
use ata_scheduler::PolicyResolver;

pub use failure::{EXIT_CODES, Exit, Failure};
pub use local_run::LocalRun;
pub use output::{live_line, print, print_json, print_text, render_table};
pub use say::say;

/// The models and policies that the program knows by name, and its defaults.
#[derive(Clone, Copy, Debug)]
pub struct Extensions {
    /// Resolves `--model`. The coordinator and the workers must be the same program; `ata up` starts its workers from it.
    pub models: ModelResolver,
    /// Resolves `--policy`, on the cluster and in the simulator.
    pub policies: PolicyResolver,
    /// Default settings that differ from ata's, in the form of `config.toml`; files, environment and flags override them.
    pub defaults: &'static str,
    /// A description of the data that is used without `--data`, for the output of `ata up`.
    pub own_data: &'static str,
    /// The words that start this program, before its arguments. If empty, it is the executable of this process.
    pub program: &'static [OsString],
}

impl Default for Extensions {
    /// Returns the built-in models and policies.
    fn default() -> Self {
        Self {
            models: builtin_model,
            policies: build_policy,
            defaults: "",
            own_data: "generated synthetic data (--data takes CIFAR-100)",
            program: &[],
        }
    }
}

impl Extensions {
    pub(crate) fn defaults(&self) -> Result<toml::Table, Failure> {
        self.defaults.parse().map_err(|error| Failure::usage(format!("this program's defaults: {error}")))
    }

    pub(crate) fn program(&self) -> Result<Vec<OsString>, Failure> {
        if self.program.is_empty() {
            let executable = std::env::current_exe().map_err(Failure::internal)?;
            return Ok(vec![executable.into()]);
        }
        Ok(self.program.to_vec())
    }
}

/// Runs the command line of this process.
#[must_use]
pub fn main(extensions: Extensions) -> ExitCode {
    run(std::env::args_os(), extensions).into()
}

/// Runs a command line, whose first word is the program's name: [`main`] for another command line, or for the exit code.
pub fn run(command_line: impl IntoIterator<Item = OsString>, extensions: Extensions) -> Exit {
    ata_learn::keep_freed_memory();
    signals::survive_file_limits();
    let command_line: Vec<OsString> = command_line.into_iter().collect();
    log::choose_form(&command_line);
    let ended = match args::parse(command_line) {
        Ok(Some(cli)) => commands::run(cli, extensions),
        Ok(None) => Ok(Exit::DONE),
        Err(failure) => Err(failure),
    };
    ended.unwrap_or_else(|failure| failure.report())
}

/// Returns the definition of the command line, for its reference and its completions.
pub fn command_line() -> clap::Command {
    args::command()
}

/// Returns the default settings of a run.
pub fn default_settings() -> Result<toml::Table, Failure> {
    toml::Table::try_from(settings::Settings::default()).map_err(Failure::internal)
}
