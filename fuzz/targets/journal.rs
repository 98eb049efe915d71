//! Fuzzes journals.
#![no_main]

use ata_fuzz::Folder;
use ata_record::{JOURNAL_FILE, RunState, read_journal, resume_journal};
use ata_types::Iteration;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &[u8]| {
    let folder = Folder::default();
    folder.file(JOURNAL_FILE, input);
    let mut state = RunState::default();
    let _ = read_journal(folder.path(), |event| state.apply(&event));
    if resume_journal(folder.path(), "run", Iteration(1), RunState::default()).is_ok() {
        read_journal(folder.path(), |event| state.apply(&event)).expect("a journal that is resumed can be read");
    }
});
