//! Fuzzes journals.
#![no_main]

use ata_fuzz::Folder;
use ata_record::{JOURNAL_FILE, JOURNAL_VERSION, Labels, RunEvent, RunStart, RunState, read_journal, resume_journal};
use ata_types::Iteration;
use libfuzzer_sys::fuzz_target;

/// Returns the first event of the run that is resumed.
fn run() -> RunEvent {
    RunEvent::Run(RunStart {
        version: JOURNAL_VERSION,
        written_by: String::new(),
        run_id: "run".into(),
        policy: "uta".into(),
        budget: 4,
        most_tasks: None,
        iterations: 9,
        task_batch: 1,
        seed: 1,
        model: "cnn".into(),
        samples: None,
        labels: Labels::default(),
    })
}

fuzz_target!(|input: &[u8]| {
    let folder = Folder::default();
    folder.file(JOURNAL_FILE, input);
    let mut state = RunState::default();
    let is_read = read_journal(folder.path(), |event| state.apply(&event)).is_ok();
    let resumed = resume_journal(folder.path(), &run(), Iteration(1), &RunState::default());
    if is_read && resumed.is_ok() {
        read_journal(folder.path(), |event| state.apply(&event)).expect("a journal that is resumed can be read");
    }
});
