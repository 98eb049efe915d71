//! The folder of a run, and atomic writes.

use std::fs::File;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

/// The file with the complete configuration of the run.
pub const CONFIG_FILE: &str = "config.toml";
/// The journal: one line of JSON per event.
pub const JOURNAL_FILE: &str = "events.jsonl";
/// The metrics: one line per iteration.
pub const METRICS_FILE: &str = "metrics.csv";
/// The file with the result of the run.
pub const SUMMARY_FILE: &str = "summary.json";
/// The file with the speeds of workers, as the run learned them.
pub const STATISTICS_FILE: &str = "statistics.json";
/// The file with the trained model.
pub const MODEL_FILE: &str = "model.safetensors";
/// The file with the model of the best evaluation.
pub const BEST_MODEL_FILE: &str = "model-best.safetensors";
/// The file with the moving average of the model's parameters.
pub const EMA_MODEL_FILE: &str = "model-ema.safetensors";
/// The report, with tables and figures.
pub const REPORT_FILE: &str = "report.html";

/// The beginning of the name of a file with which the operator asks to lift what counts against a worker, whose name follows.
pub const FORGIVE_PREFIX: &str = "forgive-";

/// The files that a run writes, and that a new run would replace.
pub const RUN_FILES: [&str; 9] = [
    JOURNAL_FILE,
    METRICS_FILE,
    SUMMARY_FILE,
    STATISTICS_FILE,
    REPORT_FILE,
    MODEL_FILE,
    BEST_MODEL_FILE,
    EMA_MODEL_FILE,
    CONFIG_FILE,
];

/// Creates a folder and its parents durably, so that they survive a crash of the machine.
pub fn create_folder(path: &Path) -> io::Result<()> {
    if path.is_dir() {
        return Ok(());
    }
    let above = folder_of(path);
    create_folder(above)?;
    match std::fs::create_dir(path) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists || !path.is_dir() => Err(error),
        _ => sync_folder(above),
    }
}

/// Returns the folder that contains a path; the current folder if the path is only a name.
pub(crate) fn folder_of(path: &Path) -> &Path {
    path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// Writes a file completely or not at all, even if the machine crashes.
pub fn write_atomically(path: &Path, content: &[u8]) -> io::Result<()> {
    replace(path, |file| file.write_all(content))?;
    sync_folder(folder_of(path))
}

/// Replaces a file by what `write` writes: to a temporary file, which is synced and renamed. The folder is still to be synced.
pub(crate) fn replace(path: &Path, write: impl FnOnce(&mut File) -> io::Result<()>) -> io::Result<File> {
    let partial = replacement(path);
    let replaced = (|| {
        let mut file = File::create(&partial)?;
        write(&mut file)?;
        file.sync_all()?;
        std::fs::rename(&partial, path)?;
        Ok(file)
    })();
    // An incomplete file would take up space on a disk that may be full.
    replaced.inspect_err(|_| drop(std::fs::remove_file(&partial)))
}

/// Returns the path at which the replacement of a file is written.
pub(crate) fn replacement(path: &Path) -> PathBuf {
    path.with_file_name(format!(".{}.partial", path.file_name().unwrap_or_default().to_string_lossy()))
}

/// Makes renames in a folder durable. Only Unix supports this; elsewhere it does nothing.
pub fn sync_folder(folder: &Path) -> io::Result<()> {
    if cfg!(unix) { File::open(folder)?.sync_all() } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_replaced_atomically() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.json");
        for content in ["one", "another"] {
            write_atomically(&path, content.as_bytes()).unwrap();
            assert_eq!(std::fs::read_to_string(&path).unwrap(), content);
        }
        let blocked = folder.path().join("folder");
        std::fs::create_dir(&blocked).unwrap();
        assert!(write_atomically(&blocked, b"x").is_err(), "a folder is in its place");
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 2, "no temporary file is left");
    }
}
