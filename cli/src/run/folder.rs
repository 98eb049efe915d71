//! A run's folder.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use ata_record::{
    BEST_MODEL_FILE, CONFIG_FILE, EMA_MODEL_FILE, JOURNAL_FILE, METRICS_FILE, MODEL_FILE, RUN_FILES, RUN_LOCK,
    SUMMARY_FILE, discard_journal,
};
use ata_types::Iteration;
use rand::TryRng;

use super::place::Hold;
use super::resume::{RUNS, Results, Resumption};
use super::{place, registry};
use crate::failure::Failure;
use crate::output::write_file;
use crate::settings::Settings;

/// The folder of a run, with the exclusive right to write to it.
pub(crate) struct RunFolder {
    pub(crate) run_id: String,
    pub(crate) path: PathBuf,
    _hold: Hold,
}

impl RunFolder {
    /// Creates the folder with the complete configuration. It replaces a run that never began, and with `again` one without checkpoints.
    pub(crate) fn create(settings: &Settings, again: bool) -> Result<Self, Failure> {
        let run_id = new_run_id(&settings.policy);
        let path = settings.out.clone().unwrap_or_else(|| Path::new(RUNS).join(&run_id));
        check_free(&path, settings, again)?;
        let hold = Hold::take(&path, settings.checkpoint.as_deref())?;
        // Another process may have started a run before the lock was taken.
        check_free(&path, settings, again)?;
        clear(&path).map_err(|cause| Failure::disk(format!("cannot clear {}: {cause}", path.display())))?;
        let folder = Self { run_id, path, _hold: hold };
        // The folder is omitted, so that the file can be used for another run.
        folder.write(CONFIG_FILE, &Settings { out: None, ..settings.clone() }.to_toml()?)?;
        registry::remember(&folder.run_id, &folder.path, settings);
        Ok(folder)
    }

    /// Opens the folder of a run that resumes from the checkpoint of `iteration`, and replaces its configuration.
    pub(crate) fn reopen(
        hold: Hold,
        resumption: &Resumption,
        run_id: &str,
        iteration: Iteration,
        settings: &Settings,
    ) -> Result<Self, Failure> {
        resumption.go_on_from(iteration)?;
        let folder = Self { run_id: run_id.into(), path: resumption.folder.clone(), _hold: hold };
        // The earlier summary becomes invalid now, even if this process is killed.
        let removed = remove(&folder.path.join(SUMMARY_FILE));
        removed.map_err(|cause| Failure::disk(format!("cannot clear {}: {cause}", folder.path.display())))?;
        folder.write(CONFIG_FILE, &settings.to_toml()?)?;
        Ok(folder)
    }

    pub(crate) fn write(&self, name: &str, content: &str) -> Result<(), Failure> {
        write_file(&self.path.join(name), content.as_bytes())
    }
}

/// The files that a run may have written before it began.
const NEVER_BEGUN: [&str; 3] = [CONFIG_FILE, JOURNAL_FILE, METRICS_FILE];

/// Checks that neither a folder nor the place for checkpoints holds anything that a new run must not replace.
fn check_free(path: &Path, settings: &Settings, again: bool) -> Result<(), Failure> {
    place::check_empty(settings.checkpoint.as_deref(), path)?;
    let holds = |file: &&&str| path.join(**file).exists();
    let Some(file) = RUN_FILES.iter().find(holds) else { return Ok(()) };
    let has_begun = path.join(JOURNAL_FILE).metadata().is_ok_and(|journal| journal.len() > 0)
        || RUN_FILES.iter().filter(holds).any(|file| !NEVER_BEGUN.contains(file));
    // Only a run locks its folder, before it does anything else.
    let is_a_run = path.join(RUN_LOCK).exists() || !has_begun && again && is_written_by_a_run(&path.join(CONFIG_FILE));
    let may_begin_again = again && Results::of(path).is_none();
    if is_a_run && (may_begin_again || !has_begun) {
        return Ok(());
    }
    Err(Failure::usage(format!(
        "{} already holds a run ({file}): --resume auto goes on with it; a new run needs another --out",
        path.display()
    )))
}

/// Whether a configuration is complete and formatted like one that a run has written.
fn is_written_by_a_run(config: &Path) -> bool {
    let Ok(text) = std::fs::read_to_string(config) else { return false };
    let own = text.parse().ok().and_then(|own| Settings::of(&own).ok()?.to_toml().ok());
    own.is_some_and(|own| own == text)
}

/// Removes the files of a run without checkpoints, last the journal, which shows that it began. Its events and models are renamed.
fn clear(run: &Path) -> std::io::Result<()> {
    for model in [MODEL_FILE, BEST_MODEL_FILE, EMA_MODEL_FILE] {
        let file = run.join(model);
        if file.exists() {
            std::fs::rename(&file, run.join(model.replace(".safetensors", "-discarded.safetensors")))?;
        }
    }
    let others = RUN_FILES.iter().filter(|file| **file != JOURNAL_FILE);
    others.map(|file| run.join(file)).try_for_each(|file| remove(&file))?;
    discard_journal(run)
}

fn remove(file: &Path) -> std::io::Result<()> {
    match std::fs::remove_file(file) {
        Err(error) if error.kind() != ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

/// Returns a run id of time, policy, and four random digits, such as `20261121-101500-ata-empirical-3f2a`.
pub(crate) fn new_run_id(policy: &str) -> String {
    #[expect(clippy::disallowed_methods, reason = "it is a name")]
    let time = humantime::format_rfc3339_seconds(SystemTime::now()).to_string();
    let time = time.trim_end_matches('Z').replace(['-', ':'], "").replace('T', "-");
    let policy = policy.split(':').next().unwrap_or_default();
    // If the system provides no randomness, the time still distinguishes runs.
    let random = rand::rngs::SysRng.try_next_u32().unwrap_or(0) & 0xffff;
    format!("{time}-{policy}-{random:04x}")
}
