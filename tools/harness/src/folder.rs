//! Copies the folders of runs.

use std::path::Path;

/// Copies the files in a folder, which may be changing.
pub(crate) fn copy(from: &Path, to: &Path) {
    for entry in std::fs::read_dir(from).into_iter().flatten().flatten() {
        let (from, to) = (entry.path(), to.join(entry.file_name()));
        if from.is_dir() {
            std::fs::create_dir(&to).expect("a folder can be made");
            copy(&from, &to);
        } else {
            // The file may have been removed meanwhile.
            drop(std::fs::copy(&from, &to));
        }
    }
}
