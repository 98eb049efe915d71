//! Finding the newest checkpoint that is whole.

use std::io;

use ata_learn::{Optimizer, ParameterTable};

use super::store::{NAME_PREFIX, Store};
use super::{Checkpoint, Damage};

/// A checkpoint that was found.
#[derive(Debug)]
pub struct Found {
    /// Its name in the store.
    pub name: String,
    /// Its content.
    pub checkpoint: Checkpoint,
    /// Newer ones that are damaged, by name.
    pub damaged: Vec<(String, Damage)>,
}

/// The name of an iteration's checkpoint.
pub(super) fn name_of(iteration: u64) -> String {
    format!("{NAME_PREFIX}{iteration:06}")
}

/// The iteration of a checkpoint with this name.
pub(super) fn iteration_of(name: &str) -> Option<u64> {
    let digits = name.strip_prefix(NAME_PREFIX)?;
    digits.bytes().all(|byte| byte.is_ascii_digit()).then(|| digits.parse().ok())?
}

/// The iterations of all checkpoints in a store, newest first.
pub(super) fn iterations(store: &dyn Store) -> io::Result<Vec<u64>> {
    let mut iterations: Vec<u64> = store.names()?.iter().filter_map(|name| iteration_of(name)).collect();
    iterations.sort_unstable_by(|a, b| b.cmp(a));
    Ok(iterations)
}

/// Those that count: not the ones of iterations that the run, having been resumed before them, has not come to again.
fn counting(store: &dyn Store) -> io::Result<Vec<u64>> {
    let mut all = iterations(store)?;
    if let Some(latest) = store.latest()?.as_deref().and_then(iteration_of) {
        all.retain(|iteration| *iteration <= latest);
    }
    Ok(all)
}

/// A run goes on from the checkpoint of `iteration`: those after it do not count any more.
pub fn go_on_from(store: &dyn Store, iteration: u64) -> io::Result<()> {
    let name = name_of(iteration);
    if store.latest()?.as_ref() == Some(&name) { Ok(()) } else { store.set_latest(&name) }
}

/// Reads the newest checkpoint that is whole. The error lists the damaged ones if there are only such; `None` if the
/// store has no checkpoint.
pub fn newest(
    store: &dyn Store,
    table: &ParameterTable,
    optimizer: Optimizer,
) -> Result<Option<Found>, Vec<(String, Damage)>> {
    let unreadable = |cause: io::Error| vec![(store.describe(""), Damage { file: "", reason: cause.to_string() })];
    let mut damaged = Vec::new();
    for iteration in counting(store).map_err(unreadable)? {
        let name = name_of(iteration);
        match Checkpoint::decode(table, optimizer, |file| store.get(&name, file)) {
            Ok(checkpoint) if checkpoint.progress.iteration == iteration => {
                return Ok(Some(Found { name, checkpoint, damaged }));
            }
            Ok(other) => {
                let reason = format!("it holds iteration {}", other.progress.iteration);
                damaged.push((name, Damage { file: super::STATE, reason }));
            }
            Err(damage) => damaged.push((name, damage)),
        }
    }
    if damaged.is_empty() { Ok(None) } else { Err(damaged) }
}

/// Reads the settings of the newest checkpoint whose `state.json` is whole; `None` if there is none.
pub fn newest_settings(store: &dyn Store) -> io::Result<Option<String>> {
    let settings = |iteration| Checkpoint::settings(|file| store.get(&name_of(iteration), file)).ok();
    Ok(counting(store)?.into_iter().find_map(settings))
}
