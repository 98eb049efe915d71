//! A run's folder.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use ata_record::{CONFIG_FILE, RUN_FILES, SUMMARY_FILE, write_atomically};
use rand::TryRng;

use super::resume::{RUNS, Resumption};
use crate::failure::Failure;
use crate::settings::Settings;

/// A new folder that holds one run.
pub(crate) struct RunFolder {
    pub(crate) run_id: String,
    pub(crate) path: PathBuf,
}

impl RunFolder {
    /// Creates the folder, and writes the complete configuration into it.
    pub(crate) fn create(settings: &Settings) -> Result<Self, Failure> {
        let run_id = new_run_id(&settings.policy);
        let path = settings.out.clone().unwrap_or_else(|| Path::new(RUNS).join(&run_id));
        std::fs::create_dir_all(&path)
            .map_err(|cause| Failure::disk(format!("cannot create {}: {cause}", path.display())))?;
        if let Some(file) = RUN_FILES.iter().find(|file| path.join(file).exists()) {
            let shown = path.display();
            return Err(Failure::usage(format!("{shown} already holds a run ({file}): choose another --out")));
        }
        let folder = Self { run_id, path };
        // Without the folder, so that the file can be used for another run.
        folder.write(CONFIG_FILE, &Settings { out: None, ..settings.clone() }.to_toml()?)?;
        Ok(folder)
    }

    /// Opens the folder of a run that goes on, and replaces its configuration.
    pub(crate) fn reopen(resumption: &Resumption, run_id: &str, settings: &Settings) -> Result<Self, Failure> {
        let folder = Self { run_id: run_id.into(), path: resumption.folder.clone() };
        // It may be gone if the checkpoints are elsewhere.
        std::fs::create_dir_all(&folder.path)
            .map_err(|cause| Failure::disk(format!("cannot create {}: {cause}", folder.path.display())))?;
        // How it ended before is no longer so, even if this process ends without a word.
        match std::fs::remove_file(folder.path.join(SUMMARY_FILE)) {
            Err(error) if error.kind() != ErrorKind::NotFound => {
                return Err(Failure::disk(format!(
                    "cannot remove {}: {error}",
                    folder.path.join(SUMMARY_FILE).display()
                )));
            }
            _ => {}
        }
        folder.write(CONFIG_FILE, &settings.to_toml()?)?;
        Ok(folder)
    }

    /// Writes one of the run's files atomically.
    pub(crate) fn write(&self, name: &str, content: &str) -> Result<(), Failure> {
        let path = self.path.join(name);
        write_atomically(&path, content.as_bytes())
            .map_err(|cause| Failure::disk(format!("cannot write {}: {cause}", path.display())))
    }
}

/// Time, policy, and four random digits: `20261121-101500-ata-empirical-3f2a`.
pub(crate) fn new_run_id(policy: &str) -> String {
    #[expect(clippy::disallowed_methods, reason = "it is a name")]
    let time = humantime::format_rfc3339_seconds(SystemTime::now()).to_string();
    let time = time.trim_end_matches('Z').replace(['-', ':'], "").replace('T', "-");
    let policy = policy.split(':').next().unwrap_or_default();
    // Without randomness from the system, the time still tells runs apart.
    let random = rand::rngs::SysRng.try_next_u32().unwrap_or(0) & 0xffff;
    format!("{time}-{policy}-{random:04x}")
}
