//! The command line.
//!
//! # Layout
//! - this file: the commands, and parsing of command lines
//! - `run`: the flags that start a run, of which `settings/list.rs` has most; `joining`: those of commands that connect to a coordinator
//! - `foreign`: flags of other programs; `short_help`: what `-h` shows
//! - the other files: the flags of a few similar commands

mod data;
mod foreign;
mod joining;
mod models;
mod run;
mod short_help;
mod simulation;
mod watching;

pub(crate) use data::{DataCommand, FetchArgs, FolderArgs, PackArgs};
pub(crate) use joining::{DEFAULT_CACHE_GB, DoctorArgs, JoinArgs, RotateArgs, TokenArgs, TokenCommand, WorkerArgs};
pub(crate) use models::{EvalArgs, InitArgs, NewArgs};
pub(crate) use run::{CommonArgs, CoordinatorArgs, UpArgs};
pub(crate) use simulation::{PlanArgs, ProblemName, ReplayArgs, SimulateArgs};
pub(crate) use watching::{ExplainArgs, ForgiveArgs, HealthArgs, ReportArgs, RunOrUrl, StatusArgs, WorkersCommand};

use std::any::TypeId;
use std::ffi::OsString;
use std::path::PathBuf;

use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{Arg, CommandFactory, FromArgMatches, Parser, Subcommand};
use toml::{Table, Value};

use crate::failure::Failure;
use crate::output::written;
use crate::settings::{Settings, TrainingLength};

/// Distributed training that learns how fast each worker is.
///
/// One coordinator and many workers of unknown and unequal speed: ata learns each worker's speed while training, and
/// gives each one as many gradient tasks as make the iteration finish soonest, with no work thrown away (Adaptive Task
/// Allocation, ICML 2025).
#[derive(Debug, Parser)]
#[command(name = "ata", version, propagate_version = true, max_term_width = 100, after_help = EXAMPLES)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Command,
    /// The level of the log on standard error: error, warn, info, debug, or directives of the tracing crate.
    #[arg(long, global = true, env = "ATA_LOG", value_name = "LEVEL", help_heading = "Output")]
    pub(crate) log: Option<String>,
    /// The form of the log and of results: text, or one JSON object per line.
    #[arg(
        long,
        global = true,
        env = "ATA_LOG_FORMAT",
        value_name = "text|json",
        default_value = "text",
        hide_default_value = true,
        hide_possible_values = true,
        help_heading = "Output"
    )]
    pub(crate) log_format: LogFormat,
}

/// The form of the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum LogFormat {
    Text,
    Json,
}

const EXAMPLES: &str = "\
Examples:
  ata up                                           try it out on this machine, in about a minute
  ata coordinator --listen 0.0.0.0:7070            on the head node; prints the next line
  ata worker --join TOKEN                          on each GPU machine
  ata plan gpu1=20ms 3xcpu=300ms                   whether it helps, by the times of a task
  ata simulate --policy ata-auto,gta,uta           compare policies in virtual time
  ata replay runs/RUN_ID                           what other policies would have cost
  ata up --resume latest                           go on with the last run that was stopped
  ata status --watch                               what the newest run is doing
  ata explain --worker 2                           why worker 2 got its tasks
  ata eval runs/RUN_ID --data DATA                 how good a trained model is
  ata data fetch                                   download CIFAR-100
  ata data synth some-folder                       a data set to play with

Exit codes: 0 done; 64 wrong usage or configuration; 65 bad data; 69 coordinator or server unreachable;
70 internal error; 74 disk error; 75 stopped with the state saved, --resume goes on; 77 refused by the
coordinator; 130 interrupted.";

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Train on this machine: a coordinator and several workers, over real gRPC.
    Up(Box<UpArgs>),
    /// Run the head node: wait for workers, then train.
    Coordinator(Box<CoordinatorArgs>),
    /// Compute gradients for a coordinator.
    Worker(Box<WorkerArgs>),
    /// Show what a run is doing, from its folder or its coordinator.
    Status(StatusArgs),
    /// Show why each worker got its tasks: what was known, and what one task more or less would have cost.
    Explain(ExplainArgs),
    /// Write the page of a run, or of several side by side, or serve it.
    Report(ReportArgs),
    /// Show or replace the token with which workers join.
    #[command(subcommand)]
    Token(TokenCommand),
    /// Decide about the workers of a run, on its coordinator's machine.
    #[command(subcommand)]
    Workers(WorkersCommand),
    /// Download or verify CIFAR-100, or make a synthetic data set.
    #[command(subcommand)]
    Data(DataCommand),
    /// Write the initial parameters of a model to a file, for a coordinator that does not have the model.
    Init(InitArgs),
    /// Write a crate with a problem of your own: a network, data and a loss, with all commands of ata.
    New(NewArgs),
    /// Measure a trained model on test data: loss, accuracy, accuracy by class.
    Eval(EvalArgs),
    /// Predict whether ata helps on your machines: seconds per step, and which machines are worth starting.
    Plan(PlanArgs),
    /// Simulate policies × time laws in virtual time: tables and figures.
    Simulate(Box<SimulateArgs>),
    /// Compute what each policy would have cost on the times that a real run recorded.
    Replay(ReplayArgs),
    /// List the scheduling policies and their parameters.
    #[command(after_help = "\
Examples:
  ata policies
  ata policies --json                              for a script")]
    Policies {
        /// Print JSON on standard output.
        #[arg(long)]
        json: bool,
    },
    /// Check this machine, or the way from it to a coordinator: what would stop a run, and the fix.
    Doctor(Box<DoctorArgs>),
    /// Check whether a coordinator runs, for health checks; the exit code is 69 if it does not.
    Health(HealthArgs),
    /// Print completions for a shell.
    #[command(after_help = "\
Examples:
  ata completions bash > /etc/bash_completion.d/ata
  ata completions zsh > ~/.zfunc/_ata")]
    Completions {
        /// The shell: bash, elvish, fish, powershell or zsh.
        shell: clap_complete::Shell,
    },
    /// Write the manual pages.
    #[command(after_help = "\
Examples:
  ata man --out /usr/local/share/man/man1")]
    Man {
        /// The folder for them.
        #[arg(long, value_name = "DIR")]
        out: PathBuf,
    },
}

/// Returns the definition of the command line.
pub(crate) fn command() -> clap::Command {
    let defaults = Table::try_from(Settings::default()).expect("the default settings are valid TOML");
    Cli::command().mut_subcommands(|command| match command.get_name() {
        "up" | "coordinator" | "doctor" => command.mut_args(|arg| of_setting(arg, &defaults)),
        _ => command,
    })
}

/// Gives the flag of a setting its environment variable, if it does not name one, and puts the default into its help. A number may be
/// negative here, so that the check of its range refuses it.
fn of_setting(arg: Arg, defaults: &Table) -> Arg {
    let name = arg.get_id().to_string();
    if !Settings::NAMES.contains(&&*name) {
        return arg;
    }
    let default = match defaults.get(&name) {
        Some(Value::String(text)) => text.clone(),
        Some(Value::Float(number)) => format!("{number:?}").trim_end_matches(".0").to_owned(),
        other => other.map_or_else(String::new, ToString::to_string),
    };
    let help = arg.get_help().map(ToString::to_string).unwrap_or_default();
    let arg = arg.help(help.replace("[default]", &format!("[default: {default}]")));
    let numbers = [
        TypeId::of::<u32>(),
        TypeId::of::<u64>(),
        TypeId::of::<usize>(),
        TypeId::of::<f64>(),
        TypeId::of::<TrainingLength>(),
    ];
    let is_number = numbers.iter().any(|number| arg.get_value_parser().type_id() == *number);
    let arg = arg.allow_negative_numbers(is_number);
    if arg.get_env().is_some() { arg } else { arg.env(format!("ATA_{}", name.to_uppercase())) }
}

/// Parses the command line; `None` if it asked for help or the version, which has been printed.
pub(crate) fn parse(command_line: Vec<OsString>) -> Result<Option<Cli>, Failure> {
    let is_short = command_line.iter().any(|argument| argument == "-h");
    let command = if is_short { short_help::shortened(command()) } else { command() };
    match command.try_get_matches_from(command_line).and_then(|matches| Cli::from_arg_matches(&matches)) {
        Ok(cli) => Ok(Some(cli)),
        Err(error) if matches!(error.kind(), ErrorKind::DisplayHelp | ErrorKind::DisplayVersion) => {
            written(error.print())?;
            Ok(None)
        }
        // A command without its subcommand: the message is its help.
        Err(error) if error.kind() == ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand => {
            Err(Failure::command_line(error.render().to_string().trim_end()))
        }
        Err(error) => Err(Failure::command_line(&in_short(&error))),
    }
}

/// Returns clap's message without its usage section, with a hint for flags of other programs.
fn in_short(error: &clap::Error) -> String {
    let full = error.render().to_string();
    let short = full.split("\n\nUsage:").next().unwrap_or(&full);
    let short = short.split("\n\nFor more information").next().unwrap_or(short);
    let short = short.trim_start_matches("error: ").trim_end();
    let meant = match error.get(ContextKind::InvalidArg) {
        Some(ContextValue::String(flag)) if error.kind() == ErrorKind::UnknownArgument => foreign::meaning(flag),
        _ => None,
    };
    match meant {
        // The hint replaces clap's suggestion of a similarly spelled flag, which is not what was meant.
        Some(meant) => format!("{}\n\n  {meant}", short.lines().next().unwrap_or(short)),
        None => format!("{short}\n\nSee `ata help` or `--help`"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        command().debug_assert();
        for arg in command().get_subcommands().flat_map(clap::Command::get_arguments) {
            let help = arg.get_long_help().or(arg.get_help()).map(ToString::to_string).unwrap_or_default();
            assert!(!help.contains("[default]") && !help.contains("[default: ]"), "{help}");
        }
    }
}
