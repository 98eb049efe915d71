//! Checks whether runs and data fit on the disks, and how fast the disks are.

use std::fs::{self, File};
use std::io::{self, ErrorKind, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use ata_types::seconds;

use crate::finding::{Finding, bytes};

/// The size of a parameter in a checkpoint, in bytes: its value and the optimizer's two moments.
const CHECKPOINT_BYTES: u64 = 3 * 4;

/// The number of models that a run leaves: the last one and the best.
const MODELS: u64 = 2;

/// The largest size of the journal and `metrics.csv` in bytes, while their older part is being replaced.
const JOURNAL_BYTES: u64 = 200_000_000;

/// The maximum number of bytes that are written to measure a disk.
const MEASURED_BYTES: u64 = 64 << 20;

/// The time within which a stopped run is promised to be saved.
const SAVED_WITHIN: Duration = Duration::from_secs(10);

/// The space that a run needs, in its own folder or in a folder of runs.
pub struct RunSpace {
    /// The folder, which need not exist yet.
    pub folder: PathBuf,
    /// The number of the model's parameters.
    pub parameters: u64,
    /// The number of checkpoints that are kept in the folder; 0 if they are elsewhere.
    pub kept: u64,
}

impl RunSpace {
    fn checkpoint_bytes(&self) -> u64 {
        CHECKPOINT_BYTES * self.parameters
    }

    /// Returns the required space. A new checkpoint is complete before the oldest one is removed.
    fn needed_bytes(&self) -> u64 {
        let checkpoints = if self.kept > 0 { (self.kept + 1) * self.checkpoint_bytes() } else { 0 };
        checkpoints + MODELS * 4 * self.parameters + JOURNAL_BYTES
    }

    /// Checks the space, and times a write of the size of a checkpoint.
    pub fn check(&self) -> Vec<Finding> {
        const CHECK: &str = "disk";
        let written_bytes = self.checkpoint_bytes().clamp(4096, MEASURED_BYTES);
        let folder = existing(&self.folder);
        let took = match timed_write(&folder, written_bytes) {
            Ok(took) => took,
            Err(cause) => return vec![unwritable(CHECK, &self.folder, &cause, "set --out to a folder that is")],
        };
        let what = match self.kept {
            0 => "a run".to_owned(),
            kept => format!("a run that keeps {kept} checkpoints"),
        };
        let fix = "delete old runs, keep fewer checkpoints (--keep), or set --out to another disk";
        vec![space(CHECK, &self.folder, self.needed_bytes(), &what, fix), self.speed(CHECK, written_bytes, took)]
    }

    fn speed(&self, check: &'static str, written_bytes: u64, took: Duration) -> Finding {
        let whole_s = took.as_secs_f64() * (self.checkpoint_bytes() as f64 / written_bytes as f64).max(1.0);
        let found = format!(
            "{} are on disk after {}, a checkpoint of {} after {}",
            bytes(written_bytes),
            seconds(took.as_secs_f64()),
            bytes(self.checkpoint_bytes()),
            seconds(whole_s)
        );
        if whole_s <= SAVED_WITHIN.as_secs_f64() {
            return Finding::ok(check, found);
        }
        let expected = format!("{found}: expected {} at most", seconds(SAVED_WITHIN.as_secs_f64()));
        let fix = "set --out or --checkpoint to a faster disk: a run that is stopped waits until it is saved";
        Finding::warning(check, expected, fix)
    }
}

/// Checks the folder in which a worker keeps its data.
pub fn cache(folder: &Path, data_bytes: u64) -> Finding {
    const CHECK: &str = "cache";
    let fix = "make room, or set ATA_CACHE_DIR to another disk";
    match timed_write(&existing(folder), 4096) {
        Ok(_) => space(CHECK, folder, data_bytes, "the training data", fix),
        Err(cause) => unwritable(CHECK, folder, &cause, "set ATA_CACHE_DIR to a folder that is"),
    }
}

fn space(check: &'static str, folder: &Path, needed_bytes: u64, what: &str, fix: &str) -> Finding {
    let shown = folder.display();
    let Some(free_bytes) = free_bytes(&existing(folder)) else {
        return Finding::ok(check, format!("{shown} can be written to; this system does not say how much is free"));
    };
    let needs = if needed_bytes == 0 { String::new() } else { format!("; {what} needs {}", bytes(needed_bytes)) };
    let found = format!("{shown}: {} are free{needs}", bytes(free_bytes));
    if free_bytes < needed_bytes { Finding::problem(check, found, fix) } else { Finding::ok(check, found) }
}

fn unwritable(check: &'static str, folder: &Path, cause: &io::Error, otherwise: &str) -> Finding {
    let found = format!("{}: cannot be written to: {cause}", folder.display());
    let fix = match cause.kind() {
        ErrorKind::StorageFull | ErrorKind::QuotaExceeded => format!("make room, or {otherwise}"),
        _ => format!("make it writable for this user, or {otherwise}"),
    };
    Finding::problem(check, found, fix)
}

/// Returns the folder or, if it does not exist yet, its nearest existing ancestor.
fn existing(folder: &Path) -> PathBuf {
    let is_there = |folder: &&Path| folder.exists() && !folder.as_os_str().is_empty();
    folder.ancestors().find(is_there).map_or_else(|| PathBuf::from("."), Path::to_owned)
}

/// Writes a file like a checkpoint, and removes it.
fn timed_write(folder: &Path, length: u64) -> io::Result<Duration> {
    let path = folder.join(format!(".ata-doctor-{}", std::process::id()));
    // The file does not contain zeros, which some file systems do not store.
    let piece = ata_wire::padding(1 << 20);
    let began = Instant::now();
    let write = || {
        let mut file = File::create(&path)?;
        for at in (0..length as usize).step_by(piece.len()) {
            file.write_all(&piece[..piece.len().min(length as usize - at)])?;
        }
        file.sync_all()
    };
    let written = write().map(|()| began.elapsed());
    // If the file was never created, that is the error to report.
    let removed = fs::remove_file(&path);
    let took = written?;
    removed.map(|()| took)
}

#[cfg(unix)]
fn free_bytes(folder: &Path) -> Option<u64> {
    let disk = rustix::fs::statvfs(folder).ok()?;
    Some(disk.f_bavail.saturating_mul(disk.f_frsize))
}

#[cfg(not(unix))]
fn free_bytes(_: &Path) -> Option<u64> {
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::finding::Status;

    #[test]
    fn a_run_needs_its_checkpoints_and_one_more() {
        let folder = tempfile::tempdir().unwrap();
        let run = |parameters, kept| RunSpace { folder: folder.path().join("runs/x"), parameters, kept };
        assert_eq!(run(1_000_000, 3).needed_bytes(), 4 * 12_000_000 + 8_000_000 + JOURNAL_BYTES);
        assert_eq!(run(1_000_000, 0).needed_bytes(), 8_000_000 + JOURNAL_BYTES);
        let findings = run(1000, 3).check();
        assert!(findings.iter().all(|finding| finding.status == Status::Ok), "{findings:?}");
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0, "nothing is left");
        // No disk holds a run of this size.
        let findings = run(1000, 1 << 50).check();
        let [Finding { status: Status::Problem, fix: Some(fix), .. }, _] = &findings[..] else {
            panic!("{findings:?}")
        };
        assert!(fix.contains("--keep"), "{fix}");
    }

    #[test]
    fn a_slow_disk_is_told() {
        let run = RunSpace { folder: ".".into(), parameters: 100_000_000, kept: 3 };
        let speed = |took_s| run.speed("disk", MEASURED_BYTES, ata_wire::duration(took_s)).status;
        assert_eq!([0.1, 0.5, 1.0].map(speed), [Status::Ok, Status::Ok, Status::Warning]);
    }

    #[test]
    fn a_folder_that_cannot_be_written_to_is_a_problem() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("file");
        fs::write(&file, "").unwrap();
        let finding = cache(&file.join("ata"), 0);
        assert_eq!(finding.status, Status::Problem);
        assert!(finding.fix.unwrap().contains("ATA_CACHE_DIR"));
        assert_eq!(cache(folder.path(), 1 << 62).status, Status::Problem);
        assert_eq!(cache(&folder.path().join("new"), 1).status, Status::Ok);
    }
}
