//! Finds the newest intact checkpoint.

use std::io;

use ata_sums::{ParameterTable, TrainingConfig};
use ata_types::Iteration;

use super::store::{NAME_PREFIX, Store};
use super::{Checkpoint, Damage, damage};

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

pub(super) fn iteration_of(name: &str) -> Option<Iteration> {
    let digits = name.strip_prefix(NAME_PREFIX)?;
    digits.bytes().all(|byte| byte.is_ascii_digit()).then(|| digits.parse().ok().map(Iteration))?
}

/// Returns the iterations of all checkpoints in a store, newest first.
pub(super) fn iterations(store: &dyn Store) -> io::Result<Vec<Iteration>> {
    let mut iterations: Vec<Iteration> = store.names()?.iter().filter_map(|name| iteration_of(name)).collect();
    iterations.sort_unstable_by(|a, b| b.cmp(a));
    Ok(iterations)
}

/// Returns the iterations of the checkpoints that count. Checkpoints after `latest` do not, since the run was resumed from an earlier one.
fn counting(store: &dyn Store) -> io::Result<Vec<Iteration>> {
    let mut all = iterations(store)?;
    if let Some(latest) = store.latest()?.as_deref().and_then(iteration_of) {
        all.retain(|iteration| *iteration <= latest);
    }
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
                damaged.push((name, damage(super::STATE, reason)));
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
