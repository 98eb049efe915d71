//! The short help (`-h`) of commands with many flags: those that people need every day, on one screen. `--help` has all.

use clap::Command;

/// A flag's id, and its help in a few words.
type Flag = (&'static str, &'static str);

/// The flags of a run, which `up` and `coordinator` share.
const RUN: &[Flag] = &[
    ("data", "synthetic, a folder of images, or an archive"),
    ("model", "cnn, resnet20 or resnet18"),
    ("iterations", "Number of optimizer steps"),
    ("lr", "Learning rate, or its peak"),
    ("batch", "Samples per step, or auto"),
    ("policy", "What gives tasks to workers; see `ata policies`"),
    ("resume", "Go on with a run: auto, latest, or its id"),
    ("config", "A TOML file of settings"),
];

/// Each command's own everyday flags, those that it shares, and two examples.
const COMMANDS: [(&str, &[Flag], &[Flag], &str); 3] = [
    (
        "up",
        &[
            ("workers", "Worker processes"),
            ("device", "auto, cpu, wgpu[:INDEX] or cuda[:INDEX]"),
            ("json", "Print the summary as JSON"),
        ],
        RUN,
        "  ata up\n  ata up --data cifar-100-binary.tar.gz --iterations 1000",
    ),
    (
        "coordinator",
        &[
            ("listen", "Where workers connect, as in 0.0.0.0:7070"),
            ("min_workers", "Workers to wait for before the start"),
            ("dashboard", "Serve a page about the run at this address"),
        ],
        RUN,
        "  ata coordinator\n  ata coordinator --listen 0.0.0.0:7070 --min-workers 8",
    ),
    (
        "worker",
        &[
            ("join", "The token that the coordinator prints"),
            ("join_file", "A file with the token"),
            ("coordinator", "An address without encryption, or https://"),
            ("name", "The name under which its speed is remembered"),
            ("device", "auto, cpu, wgpu[:INDEX] or cuda[:INDEX]"),
            ("devices", "A worker for each: all, or a list of devices"),
            ("data", "Training data on this machine"),
            ("threads", "CPU threads to compute with"),
        ],
        &[],
        "  ata worker --join TOKEN\n  ata worker --join-file join.txt --devices all",
    ),
];

/// The command line as `-h` shows it.
pub(crate) fn shortened(mut ata: Command) -> Command {
    let global: Vec<_> = ata.get_arguments().map(|arg| arg.get_id().clone()).collect();
    for (name, own, shared, examples) in COMMANDS {
        let flags = [own, shared].concat();
        ata = ata.mut_subcommand(name, |command| {
            let shown = flags.len();
            let command = command.mut_args(|arg| {
                let arg = arg.hide_env(true).hide_default_value(true).hide_possible_values(true);
                match flags.iter().position(|(id, _)| arg.get_id() == id) {
                    Some(at) => arg.help(flags[at].1).help_heading(None::<&str>).display_order(at),
                    None => arg.hide(true),
                }
            });
            let all = command.get_arguments().count();
            let more = format!("Examples:\n{examples}\n\n`ata {name} --help` has {} more flags.", all - shown);
            command.after_help(more).disable_version_flag(true)
        });
    }
    global.into_iter().fold(ata, |ata, id| ata.mut_arg(id, |arg| arg.hide_short_help(true)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::command;

    #[test]
    fn everyday_flags_fit_on_a_screen() {
        for (name, own, shared, _) in COMMANDS {
            let ata = shortened(command()).term_width(80);
            let help = ata.try_get_matches_from(["ata", name, "-h"]).unwrap_err().to_string();
            assert!(help.lines().count() <= 24, "{help}");
            for (id, text) in own.iter().chain(shared) {
                assert!(help.contains(&format!("--{}", id.replace('_', "-"))) && help.contains(text), "{id}: {help}");
            }
        }
    }
}
