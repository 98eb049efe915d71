//! Tests of checkpoints in an object store, in memory and in a folder.

use object_store::local::LocalFileSystem;
use object_store::memory::InMemory;
use tempfile::TempDir;

use super::super::MODEL;
use super::super::tests::{check_saving, found, save};
use super::*;

const PLACE: &str = "memory:///some/prefix";

fn store(backend: &Arc<dyn Backend>) -> ObjectStore {
    ObjectStore::new(Objects::new(backend.clone(), Path::from("some/prefix"), PLACE).unwrap())
}

fn on_both(test: impl Fn(Arc<dyn Backend>)) {
    test(Arc::new(InMemory::new()));
    let folder = TempDir::new().unwrap();
    test(Arc::new(LocalFileSystem::new_with_prefix(folder.path()).unwrap().with_fsync(true)));
}

#[test]
fn what_is_saved_is_found_and_old_ones_are_dropped() {
    on_both(|backend| {
        check_saving(|| store(&backend));
        let store = store(&backend);
        let left = store.wait(|it| async move { it.files().await }).unwrap();
        assert_eq!(left.len(), 3, "all files of the others are gone: {left:?}");
        assert_eq!(["", "step-1"].map(|name| store.describe(name)), ["", "/step-1"].map(|end| format!("{PLACE}{end}")));
    });
}

/// A process that ends while it writes or removes a checkpoint leaves files without `state.json`.
#[test]
fn a_checkpoint_without_its_state_does_not_exist() {
    on_both(|backend| {
        save(store(&backend), 2, &[1, 2]);
        let again = || store(&backend);
        let store = again();
        store.wait(|it| async move { it.delete(&it.path("step-000002", STATE)).await }).unwrap();
        assert_eq!(store.names().unwrap(), ["step-000001"]);
        assert_eq!(found(&store), "step-000001");
        // The next checkpoint removes the leftover files.
        save(again(), 2, &[3]);
        assert!(store.get("step-000002", MODEL).is_err());
        assert_eq!(found(&store), "step-000003");
    });
}

#[test]
fn the_last_to_start_writes() {
    on_both(|backend| {
        let (first, second) = (store(&backend), store(&backend));
        let put = |store: &ObjectStore, name| store.put(name, &[(STATE, b"{}".to_vec())]);
        put(&first, "step-000001").unwrap();
        put(&first, "step-000002").unwrap();
        put(&second, "step-000003").unwrap();
        let refused = put(&first, "step-000004").unwrap_err().to_string();
        assert!(refused.contains("another coordinator saves there now"), "{refused}");
        put(&second, "step-000005").unwrap();
        assert_eq!(second.names().unwrap().len(), 4);
    });
}

/// The file is sent in several parts.
#[test]
fn a_large_file_comes_back_as_it_was() {
    on_both(|backend| {
        let store = store(&backend);
        let large: Vec<u8> = (0..40_000_000_u32).map(|at| (at % 251) as u8).collect();
        store.put("step-000001", &[(MODEL, large.clone()), (STATE, b"{}".to_vec())]).unwrap();
        assert!(store.get("step-000001", MODEL).unwrap() == large);
    });
}
