//! A run's folder.

use std::fs::File;
use std::io::{self, Write};
use std::path::Path;

/// The complete configuration of the run.
pub const CONFIG_FILE: &str = "config.toml";
/// One line of JSON per event.
pub const JOURNAL_FILE: &str = "events.jsonl";
/// One line per iteration.
pub const METRICS_FILE: &str = "metrics.csv";
/// The result of the run.
pub const SUMMARY_FILE: &str = "summary.json";
/// What the run learned about its workers' speeds.
pub const STATISTICS_FILE: &str = "statistics.json";
/// The model that was trained.
pub const MODEL_FILE: &str = "model.safetensors";
/// The model that did best in an evaluation.
pub const BEST_MODEL_FILE: &str = "model-best.safetensors";
/// Tables and figures.
pub const REPORT_FILE: &str = "report.html";

/// The files that a run writes: a folder that has any of them holds a run.
pub const RUN_FILES: [&str; 6] = [CONFIG_FILE, JOURNAL_FILE, METRICS_FILE, SUMMARY_FILE, STATISTICS_FILE, REPORT_FILE];

/// Writes a file completely or not at all, even if the machine stops: to a temporary file that is synced, then renamed.
pub fn write_atomically(path: &Path, content: &[u8]) -> io::Result<()> {
    let name = path.file_name().ok_or(io::ErrorKind::InvalidInput)?.to_string_lossy();
    let folder = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let partial = folder.join(format!(".{name}.partial"));
    let written = write_durably(&partial, content).and_then(|()| std::fs::rename(&partial, path));
    if written.is_err() {
        // Half a file is useless, and takes up space on a disk that may be full.
        drop(std::fs::remove_file(&partial));
    }
    written?;
    sync_folder(folder)
}

fn write_durably(path: &Path, content: &[u8]) -> io::Result<()> {
    let mut file = File::create(path)?;
    file.write_all(content)?;
    file.sync_all()
}

/// Makes renames in a folder durable, which only Unix can do.
pub fn sync_folder(folder: &Path) -> io::Result<()> {
    if cfg!(unix) { File::open(folder)?.sync_all() } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_replaced_whole() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.json");
        for content in ["one", "another"] {
            write_atomically(&path, content.as_bytes()).unwrap();
            assert_eq!(std::fs::read_to_string(&path).unwrap(), content);
        }
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1, "no temporary file is left");
    }

    #[test]
    fn what_cannot_be_written_leaves_the_old_file() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a");
        std::fs::create_dir(&path).unwrap();
        assert!(write_atomically(&path, b"x").is_err(), "a folder is in its place");
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1);
    }
}
