//! The command line as a page.

use std::collections::BTreeMap;

use clap::{Arg, Command};

use crate::cell;

/// All commands with their arguments.
pub(crate) fn page(ata: &Command) -> String {
    let mut text = format!("{}\n\n", ata.get_about().map(ToString::to_string).unwrap_or_default());
    for command in ata.get_subcommands().filter(|command| is_shown(command)) {
        text += &section("ata", command, 2);
    }
    text
}

fn is_shown(command: &Command) -> bool {
    !command.is_hide_set() && command.get_name() != "help"
}

fn section(parent: &str, command: &Command, depth: usize) -> String {
    let name = format!("{parent} {}", command.get_name());
    let about = command.get_long_about().or(command.get_about()).map(ToString::to_string).unwrap_or_default();
    let mut text = format!("{} {name}\n\n{about}\n\n", "#".repeat(depth));
    text += &arguments(command);
    let examples = command.get_after_help().map(ToString::to_string);
    let examples = examples.as_deref().map(|examples| examples.trim_start_matches("Examples:\n").trim_end());
    text.extend(examples.map(|examples| format!("```text\n{examples}\n```\n\n")));
    for command in command.get_subcommands().filter(|command| is_shown(command)) {
        text += &section(&name, command, depth + 1);
    }
    text
}

/// The arguments, by the heading under which `--help` has them.
fn arguments(command: &Command) -> String {
    let mut groups: BTreeMap<Option<&str>, Vec<&Arg>> = BTreeMap::new();
    let shown = |arg: &&Arg| !arg.is_hide_set() && !["help", "version"].contains(&arg.get_id().as_str());
    for arg in command.get_arguments().filter(shown) {
        groups.entry(arg.get_help_heading()).or_default().push(arg);
    }
    let row = |arg: &Arg| {
        let environment = arg.get_env().map(|name| format!("`{}`", name.to_string_lossy())).unwrap_or_default();
        format!("| `{}` | {environment} | {} |\n", usage(arg).replace('|', "\\|"), help(arg))
    };
    let table = |(heading, args): (Option<&str>, Vec<&Arg>)| {
        let rows: String = args.into_iter().map(row).collect();
        format!("| {} | environment | |\n| --- | --- | --- |\n{rows}\n", heading.unwrap_or("argument"))
    };
    groups.into_iter().map(table).collect()
}

fn usage(arg: &Arg) -> String {
    let values = arg.get_value_names().map(|names| names.iter().map(ToString::to_string).collect::<Vec<_>>().join(" "));
    let values = values.filter(|_| arg.get_action().takes_values()).unwrap_or_default();
    match arg.get_long() {
        Some(long) => format!("--{long} {values}").trim_end().to_owned(),
        None => values,
    }
}

fn help(arg: &Arg) -> String {
    let help = arg.get_long_help().or(arg.get_help()).map(ToString::to_string).unwrap_or_default();
    let defaults: Vec<String> =
        arg.get_default_values().iter().map(|value| value.to_string_lossy().into_owned()).collect();
    let default = match &defaults[..] {
        [] => String::new(),
        _ if arg.is_hide_default_value_set() || !arg.get_action().takes_values() => String::new(),
        values => format!(" [default: {}]", values.join(" ")),
    };
    cell(&(help + &default))
}
