//! The settings of a run on this machine, for programs that start its processes themselves.

use std::ffi::OsString;
use std::path::Path;
use std::time::Duration;

use ata_learn::DeviceChoice;
use toml::Table;

use crate::Extensions;
use crate::commands::worker_args;
use crate::failure::Failure;
use crate::inputs::Inputs;
use crate::run::new_run_id;
use crate::settings::Settings;

/// A run on this machine.
#[derive(Clone, Debug)]
pub struct LocalRun {
    /// The words that start the program.
    pub program: Vec<OsString>,
    /// All settings of the run, as for `--config`.
    pub settings: String,
    /// The arguments of every worker, except its identity and the coordinator's address.
    pub worker_args: Vec<OsString>,
    /// The number of workers.
    pub workers: u32,
    /// The number of tasks per iteration.
    pub budget: u64,
    /// Whether workers take local steps, so that the parameters depend on who takes which.
    pub takes_local_steps: bool,
    /// The size of the model's parameters, in bytes.
    pub parameters_bytes: u64,
    /// The time after which a silent worker counts as lost.
    pub heartbeat_timeout: Duration,
    /// The checkpoint interval, as for `--checkpoint-every`.
    pub checkpoint_every: String,
    /// The seed of the run.
    pub seed: u64,
}

impl LocalRun {
    /// Resolves the settings of a run on CPUs that waits for all workers: these defaults, overridden by a file, overridden by flags.
    pub fn resolve(
        defaults: &str,
        file: Option<&Path>,
        flags: &Table,
        extensions: Extensions,
    ) -> Result<Self, Failure> {
        let mut all = extensions.defaults()?;
        all.extend(defaults.parse::<Table>().map_err(Failure::internal)?);
        let mut settings = Settings { out: None, ..Settings::extended(all, file, std::slice::from_ref(flags))? };
        settings.min_workers = settings.workers.count as usize;
        let inputs = Inputs::open(&settings, extensions.models)?;
        let args = worker_args(&settings, DeviceChoice::Cpu);
        let mut worker_args: Vec<OsString> = args.into_iter().map(OsString::from).collect();
        if let Some(data) = inputs.training_file() {
            worker_args.extend(["--data".into(), data.into_os_string()]);
        }
        Ok(Self {
            program: extensions.program()?,
            settings: settings.to_toml()?,
            worker_args,
            workers: settings.workers.count,
            budget: settings.tasks(),
            takes_local_steps: settings.local_steps.is_some(),
            parameters_bytes: 4 * inputs.model.parameter_count() as u64,
            heartbeat_timeout: settings.heartbeat_timeout(),
            checkpoint_every: settings.checkpoint_every,
            seed: settings.seed,
        })
    }

    /// Returns a new id for a run.
    pub fn new_id(kind: &str) -> String {
        new_run_id(kind)
    }
}
