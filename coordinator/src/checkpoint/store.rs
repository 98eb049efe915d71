//! The places where checkpoints are kept, and the newest intact one in them.

use std::fs::File;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use ata_objects::{Objects, is_url};
use ata_record::{create_folder, sync_folder, write_atomically};
use ata_sums::{ParameterTable, TrainingConfig};
use ata_types::Iteration;

use super::{Checkpoint, Damage, STATE, damage};

/// Keeps checkpoints by name. Once [`Store::put`] succeeds, the checkpoint is durable. It is kept completely or not at all.
pub trait Store: Send + Sync {
    /// Writes a checkpoint.
    fn put(&self, name: &str, files: &[(&str, Vec<u8>)]) -> io::Result<()>;

    /// Lists the names of all checkpoints, in no particular order.
    fn names(&self) -> io::Result<Vec<String>>;

    /// Reads a file of a checkpoint.
    fn get(&self, name: &str, file: &str) -> io::Result<Vec<u8>>;

    /// Removes a checkpoint.
    fn remove(&self, name: &str) -> io::Result<()>;

    /// Sets the newest checkpoint that counts. Checkpoints of later iterations are ignored.
    fn set_latest(&self, name: &str) -> io::Result<()>;

    /// Returns the newest checkpoint that counts, if one was set.
    fn latest(&self) -> io::Result<Option<String>>;

    /// Describes the place of a checkpoint for people.
    fn describe(&self, name: &str) -> String;
}

/// Opens the folder or object store with this name. An error says why it cannot keep checkpoints.
pub fn open_store(place: &str) -> Result<Box<dyn Store>, String> {
    let opened = match place {
        "" => Err("expected a folder or the URL of an object store".into()),
        url if is_url(url) => open_url(url),
        folder => Ok(Box::new(FolderStore::new(folder)) as Box<dyn Store>),
    };
    opened.map_err(|reason: String| format!("checkpoint = '{place}': {reason}"))
}

#[cfg(feature = "object-store")]
fn open_url(place: &str) -> Result<Box<dyn Store>, String> {
    Ok(Box::new(super::object::ObjectStore::new(Objects::open(place)?)))
}

#[cfg(not(feature = "object-store"))]
fn open_url(place: &str) -> Result<Box<dyn Store>, String> {
    match Objects::open(place)? {}
}

/// Keeps checkpoints as subfolders of a folder, whose file `latest` names the newest.
#[derive(Clone, Debug)]
pub struct FolderStore {
    root: PathBuf,
}

pub(super) const LATEST: &str = "latest";

pub(super) fn latest_text(name: &str) -> String {
    format!("{name}\n")
}

/// Returns the name in this content, unless the content is damaged.
pub(super) fn latest_name(text: &[u8]) -> Option<String> {
    std::str::from_utf8(text).ok()?.strip_suffix('\n').map(str::to_owned)
}

pub(super) const NAME_PREFIX: &str = "step-";

impl FolderStore {
    /// Creates a store of the checkpoints in this folder, which need not exist yet.
    pub fn new(root: impl Into<PathBuf>) -> Self {
        Self { root: root.into() }
    }

    fn write(&self, partial: &Path, name: &str, files: &[(&str, Vec<u8>)]) -> io::Result<()> {
        std::fs::create_dir(partial)?;
        for (file, content) in files {
            let mut file = File::create_new(partial.join(file))?;
            file.write_all(content)?;
            file.sync_all()?;
        }
        sync_folder(partial)?;
        let target = self.root.join(name);
        if target.exists() {
            // The folder is left over from before the run was resumed at an earlier iteration.
            std::fs::remove_dir_all(&target)?;
        }
        std::fs::rename(partial, target)?;
        sync_folder(&self.root)
    }
}

impl Store for FolderStore {
    fn put(&self, name: &str, files: &[(&str, Vec<u8>)]) -> io::Result<()> {
        create_folder(&self.root)?;
        let partial = self.root.join(format!(".{name}.partial"));
        // A crash may have left a partial checkpoint behind.
        drop(std::fs::remove_dir_all(&partial));
        let written = self.write(&partial, name, files);
        if written.is_err() {
            // An incomplete checkpoint only takes space, on a disk that may be full.
            drop(std::fs::remove_dir_all(&partial));
        }
        written
    }

    fn names(&self) -> io::Result<Vec<String>> {
        let entries = match std::fs::read_dir(&self.root) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            entries => entries?,
        };
        let names = entries.map(|entry| Ok(entry?.file_name().to_string_lossy().into_owned()));
        let names: Vec<String> = names.collect::<io::Result<_>>()?;
        Ok(names.into_iter().filter(|name| name.starts_with(NAME_PREFIX)).collect())
    }

    fn get(&self, name: &str, file: &str) -> io::Result<Vec<u8>> {
        std::fs::read(self.root.join(name).join(file))
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        std::fs::remove_dir_all(self.root.join(name))
    }

    fn set_latest(&self, name: &str) -> io::Result<()> {
        write_atomically(&self.root.join(LATEST), latest_text(name).as_bytes())
    }

    fn latest(&self) -> io::Result<Option<String>> {
        match std::fs::read(self.root.join(LATEST)) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            text => Ok(latest_name(&text?)),
        }
    }

    fn describe(&self, name: &str) -> String {
        self.root.join(name).display().to_string()
    }
}

/// The newest intact checkpoint.
#[derive(Debug)]
pub struct FoundCheckpoint {
    /// The checkpoint's name in the store.
    pub name: String,
    /// The checkpoint itself.
    pub checkpoint: Checkpoint,
    /// The newer checkpoints, which are damaged, by name.
    pub damaged: Vec<(String, Damage)>,
}

pub(super) fn name_of(iteration: Iteration) -> String {
    format!("{NAME_PREFIX}{:06}", iteration.number())
}

fn iteration_of(name: &str) -> Option<Iteration> {
    let digits = name.strip_prefix(NAME_PREFIX)?;
    digits.bytes().all(|byte| byte.is_ascii_digit()).then(|| digits.parse().ok().map(Iteration))?
}

/// Returns the iterations of all checkpoints in a store, in no particular order.
pub(super) fn iterations(store: &dyn Store) -> io::Result<Vec<Iteration>> {
    Ok(store.names()?.iter().filter_map(|name| iteration_of(name)).collect())
}

/// Returns the iterations of the checkpoints that count, newest first. Checkpoints after `latest` do not, since the run was resumed from an earlier one.
fn counting(store: &dyn Store) -> io::Result<Vec<Iteration>> {
    let mut all = iterations(store)?;
    if let Some(latest) = store.latest()?.as_deref().and_then(iteration_of) {
        all.retain(|iteration| *iteration <= latest);
    }
    all.sort_unstable_by(|a, b| b.cmp(a));
    Ok(all)
}

/// Records that a run resumes from the checkpoint of `iteration`. Later checkpoints no longer count.
pub fn go_on_from(store: &dyn Store, iteration: Iteration) -> io::Result<()> {
    let name = name_of(iteration);
    if store.latest()?.as_ref() == Some(&name) { Ok(()) } else { store.set_latest(&name) }
}

/// Reads the newest intact checkpoint, or returns `None` if the store has no checkpoint. If all are damaged, the error lists them.
pub fn newest(
    store: &dyn Store,
    table: &ParameterTable,
    config: &TrainingConfig,
) -> Result<Option<FoundCheckpoint>, Vec<(String, Damage)>> {
    let unreadable = |cause: io::Error| vec![(store.describe(""), damage("", cause))];
    let mut damaged = Vec::new();
    for iteration in counting(store).map_err(unreadable)? {
        let name = name_of(iteration);
        match Checkpoint::decode(table, config, |file| store.get(&name, file)) {
            Ok(checkpoint) if checkpoint.progress.iteration == iteration => {
                return Ok(Some(FoundCheckpoint { name, checkpoint, damaged }));
            }
            Ok(other) => {
                let reason = format!("it holds iteration {}", other.progress.iteration);
                damaged.push((name, damage(STATE, reason)));
            }
            Err(damage) => damaged.push((name, damage)),
        }
    }
    if damaged.is_empty() { Ok(None) } else { Err(damaged) }
}

/// Reads the settings of the newest checkpoint with an intact `state.json`, or returns `None` if there is none.
pub fn newest_settings(store: &dyn Store) -> io::Result<Option<String>> {
    let settings = |iteration| Checkpoint::settings(|file| store.get(&name_of(iteration), file)).ok();
    Ok(counting(store)?.into_iter().find_map(settings))
}
