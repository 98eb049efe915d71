//! The registry of runs, by which they are found by id or name, whatever their `--out`.
//!
//! For each run outside of `runs/`, and each named run, the user's data folder has a file `ata/runs/ID` (and `ata/runs/NAME`) with the path
//! of its folder. Files of deleted runs are removed when the next one is written.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};

use ata_record::write_atomically;

use super::resume::RUNS;
use crate::output::note;
use crate::settings::{Settings, data_folder};

/// Registers the folder of a run. Errors are ignored because a run can still be found by its folder.
pub(super) fn remember(run_id: &str, folder: &Path, settings: &Settings) {
    if settings.out.is_none() && settings.name.is_none() {
        return;
    }
    let Some(registry) = data_folder().map(|data| data.join(RUNS)) else { return };
    let names = [Some(run_id), settings.name.as_deref()].into_iter().flatten();
    let written = std::fs::create_dir_all(&registry).and_then(|()| {
        forget_gone(&registry)?;
        let folder = std::path::absolute(folder)?;
        let path = folder.as_os_str().as_encoded_bytes();
        if let (Some(name), Some(other)) =
            (&settings.name, settings.name.as_ref().and_then(|name| read(&registry.join(name))))
            && other != folder
        {
            note!("--name {name}: the run in {} has that name, too, which finds this run from now on", other.display());
        }
        names.map(|name| registry.join(name)).try_for_each(|file| write_atomically(&file, path))
    });
    if let Err(cause) = written {
        tracing::debug!(%cause, "cannot remember where the run is");
    }
}

fn forget_gone(registry: &Path) -> std::io::Result<()> {
    for entry in std::fs::read_dir(registry)? {
        let file = entry?.path();
        if read(&file).is_some_and(|folder| !folder.is_dir()) {
            // Another run may have removed the file already.
            std::fs::remove_file(file).unwrap_or(());
        }
    }
    Ok(())
}

/// Returns the candidates for the folder of a run with this folder, id or name, in the order of precedence.
pub(crate) fn candidates(run: &Path) -> Vec<PathBuf> {
    let is_plain = run.file_name().is_some_and(|name| name == run.as_os_str() && name != OsStr::new(".."));
    let remembered = || read(&data_folder()?.join(RUNS).join(run));
    let remembered = if is_plain { remembered() } else { None };
    [run.to_owned(), Path::new(RUNS).join(run)].into_iter().chain(remembered).collect()
}

fn read(file: &Path) -> Option<PathBuf> {
    std::fs::read_to_string(file).ok().map(PathBuf::from)
}
