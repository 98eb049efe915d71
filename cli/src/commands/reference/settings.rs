//! The configuration as a page.

use clap::{Arg, Command, CommandFactory};
use toml::Table;

use super::cell;
use crate::args::Cli;
use crate::failure::Failure;
use crate::settings::Settings;

const INTRODUCTION: &str = "\
`--config FILE` reads settings from TOML: `budget = 32`. Every key is also a flag (`--budget 32`), which overrides the environment
(`ATA_BUDGET=32`), which overrides the file. Unknown keys are refused. A run's folder holds its complete `config.toml`, with which
`--config` repeats it.

What a worker costs is said by name, for the dashboard, `ata status` and the metrics; its price counts while it is present, its
power while it computes:

```toml
[workers.rig-1]
price_per_hour = 1.20
watts = 350
```

`ata up` starts as many workers as `workers = 4` says, or `count = 4` in the table `[workers]`.

| key | default | |
| --- | --- | --- |
";

pub(super) fn page() -> Result<String, Failure> {
    let defaults = Table::try_from(Settings::default()).map_err(Failure::internal)?;
    let mut ata = Cli::command();
    ata.build();
    let of = |name: &str| ata.get_subcommands().find(|command| command.get_name() == name);
    let commands: Vec<&Command> = ["up", "coordinator"].into_iter().filter_map(of).collect();
    let mut rows: Vec<(String, String)> = Vec::new();
    for arg in commands.iter().flat_map(|command| command.get_arguments()) {
        let key = arg.get_id().as_str();
        if !is_setting(key) || rows.iter().any(|(known, _)| known == key) {
            continue;
        }
        let default = defaults.get(key).map(|value| format!("`{}`", cell(&value.to_string()))).unwrap_or_default();
        rows.push((key.into(), format!("| `{key}` | {default} | {} |\n", help(arg))));
    }
    rows.sort();
    Ok(INTRODUCTION.to_owned() + &rows.into_iter().map(|(_, row)| row).collect::<String>())
}

/// Whether a flag of these commands is a setting of the run.
fn is_setting(key: &str) -> bool {
    !["config", "resume", "json", "stay", "help", "version", "log", "log_format", "otlp"].contains(&key)
}

fn help(arg: &Arg) -> String {
    let help = arg.get_help().map(ToString::to_string).unwrap_or_default();
    cell(help.split(" [default:").next().unwrap_or(&help))
}
