//! Renders the command line as a page.

use std::collections::BTreeMap;

use clap::{Arg, Command};

use crate::reference::cell;

/// The argument rows of the page so far, each with its command.
type Rows = BTreeMap<String, String>;

/// What the mark of a flag means.
const ENVIRONMENT: &str =
    "A flag marked * is also an environment variable: `ATA_` and its name in capitals, as in `ATA_TASK_BATCH`.";

/// Renders all commands with their arguments. An argument that an earlier command also has is only named.
pub(crate) fn page(ata: &Command) -> String {
    let mut text = format!("{}\n\n{ENVIRONMENT}\n\n", ata.get_about().map(ToString::to_string).unwrap_or_default());
    let mut rows = Rows::new();
    for command in ata.get_subcommands().filter(|command| is_shown(command)) {
        text += &section("ata", command, 2, &mut rows);
    }
    text
}

fn is_shown(command: &Command) -> bool {
    !command.is_hide_set() && command.get_name() != "help"
}

fn section(parent: &str, command: &Command, depth: usize, rows: &mut Rows) -> String {
    let name = format!("{parent} {}", command.get_name());
    let about = command.get_long_about().or(command.get_about()).map(ToString::to_string).unwrap_or_default();
    let mut text = format!("{} {name}\n\n{about}\n\n", "#".repeat(depth));
    text += &arguments(&name, command, rows);
    let examples = command.get_after_help().map(ToString::to_string);
    let examples = examples.as_deref().map(|examples| examples.trim_start_matches("Examples:\n").trim_end());
    text.extend(examples.map(|examples| format!("```text\n{examples}\n```\n\n")));
    for command in command.get_subcommands().filter(|command| is_shown(command)) {
        text += &section(&name, command, depth + 1, rows);
    }
    text
}

/// Renders the arguments of a command by their heading in `--help`, and then those of earlier commands.
fn arguments(name: &str, command: &Command, known: &mut Rows) -> String {
    let mut groups: BTreeMap<Option<&str>, Vec<&Arg>> = BTreeMap::new();
    let shown = |arg: &&Arg| !arg.is_hide_set() && !["help", "version"].contains(&arg.get_id().as_str());
    for arg in command.get_arguments().filter(shown) {
        groups.entry(arg.get_help_heading()).or_default().push(arg);
    }
    let row = |arg: &Arg| format!("| `{}`{} | {} |\n", usage(arg).replace('|', "\\|"), variable(arg), help(arg));
    let (mut tables, mut repeated) = (Vec::new(), BTreeMap::<String, Vec<String>>::new());
    for (heading, args) in groups {
        let mut rows = String::new();
        for arg in args {
            let row = row(arg);
            if let Some(earlier) = known.get(&row) {
                repeated.entry(earlier.clone()).or_default().push(format!("`{}`", usage(arg)));
            } else {
                rows += &row;
                known.insert(row, name.to_owned());
            }
        }
        if !rows.is_empty() {
            let heading = heading.unwrap_or("argument");
            tables.push(format!("| {heading} | |\n| --- | --- |\n{rows}\n"));
        }
    }
    tables.extend(repeated.into_iter().map(|(earlier, arguments)| {
        format!("As [{earlier}](#{}): {}\n\n", earlier.replace(' ', "-"), arguments.join(", "))
    }));
    tables.concat()
}

/// The mark of a flag that is also an environment variable, and the variable if its name is not that of the flag.
fn variable(arg: &Arg) -> String {
    let name = arg.get_env().map(|name| name.to_string_lossy().into_owned());
    match name {
        None => String::new(),
        Some(name) if name == format!("ATA_{}", arg.get_id().as_str().to_uppercase()) => "*".into(),
        Some(name) => format!("* `{name}`"),
    }
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
