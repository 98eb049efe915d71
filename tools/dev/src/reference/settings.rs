//! Renders the configuration as a page.

use clap::Command;

use crate::reference::{Definitions, cell};

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

[Commands](cli.md) describes each setting under its flag. Those without a default here are not set, or follow from others.

| key | default |
| --- | --- |
";

pub(crate) fn page(ata: &Command, definitions: &Definitions) -> String {
    let of = |name: &str| ata.get_subcommands().find(|command| command.get_name() == name);
    let commands: Vec<&Command> = ["up", "coordinator"].into_iter().filter_map(of).collect();
    let mut rows: Vec<(String, String)> = Vec::new();
    for arg in commands.iter().flat_map(|command| command.get_arguments()) {
        let key = arg.get_id().as_str();
        if is_excluded(key, definitions) || rows.iter().any(|(known, _)| known == key) {
            continue;
        }
        let default =
            definitions.defaults.get(key).map(|value| format!("`{}`", cell(&value.to_string()))).unwrap_or_default();
        rows.push((key.into(), format!("| `{key}` | {default} |\n")));
    }
    rows.sort();
    INTRODUCTION.to_owned() + &rows.into_iter().map(|(_, row)| row).collect::<String>()
}

/// Whether an argument is not a setting of the run.
fn is_excluded(key: &str, definitions: &Definitions) -> bool {
    ["help", "version"].contains(&key) || definitions.not_settings.contains(&key)
}
