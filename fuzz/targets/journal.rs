//! Journals.
#![no_main]

use ata_fuzz::Folder;
use ata_record::{JOURNAL_FILE, RunState, read_journal, resume_journal};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &[u8]| {
    let folder = Folder::default();
    folder.file(JOURNAL_FILE, input);
    let mut state = RunState::default();
    if read_journal(folder.path(), |event| state.apply(&event)).is_ok() {
        resume_journal(folder.path(), 1, |_| ()).expect("what can be read can be resumed");
    }
});
