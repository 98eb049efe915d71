//! Renders the configuration as a page.

use std::collections::BTreeMap;

use ata::Failure;
use clap::Command;

use crate::reference::cell;

/// Arguments of `ata up` and `ata coordinator` that are not settings of the run.
const NOT_SETTINGS: [&str; 9] =
    ["help", "version", "config", "resume", "json", "stay", "log", "log_format", "ready_file"];

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

pub(crate) fn page(ata: &Command) -> Result<String, Failure> {
    let defaults = ata::default_settings()?;
    let mut rows = BTreeMap::new();
    for command in ["up", "coordinator"].into_iter().filter_map(|name| ata.find_subcommand(name)) {
        for key in command.get_arguments().map(|arg| arg.get_id().as_str()).filter(|key| !NOT_SETTINGS.contains(key)) {
            let default = defaults.get(key).map(|value| format!("`{}`", cell(&value.to_string()))).unwrap_or_default();
            rows.insert(key, format!("| `{key}` | {default} |\n"));
        }
    }
    Ok(INTRODUCTION.to_owned() + &rows.into_values().collect::<String>())
}
