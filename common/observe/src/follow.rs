//! Reads the state of the run in a folder, whether or not it is over.

use std::path::{Path, PathBuf};
use std::time::Duration;

use ata_record::{
    Follower, Gap, JOURNAL_FILE, JournalError, PollStatus, Prices, RUN_LOCK, RunEvent, RunState, is_abandoned,
    read_journal,
};
use ata_types::Iteration;
use tokio::sync::watch;

/// The time between two reads of a journal: the maximum age of a page.
const POLL_INTERVAL: Duration = Duration::from_millis(500);

/// Returns the state of the run in a folder, or of a journal, at its last event.
pub fn read_state(journal: &Path, prices: Prices) -> Result<RunState, JournalError> {
    let mut state = RunState::new(prices);
    let gap = read_journal(journal, |event| state.apply(&event))?;
    // A torn last line is an event that is being written.
    if let Some(Gap { line, lines, .. }) = gap.filter(|gap| !gap.is_torn) {
        tracing::warn!("{}: {lines} line(s) cannot be read, from line {line} on; figures lack them", journal.display());
    }
    if has_died(&state, journal) {
        state.abandon();
    }
    Ok(state)
}

/// Returns `true` if the run in a folder has ended without an event that says so.
fn has_died(state: &RunState, folder: &Path) -> bool {
    state.has_begun() && !state.is_over() && is_abandoned(folder, RUN_LOCK)
}

/// Returns the state of the run just after the allocation of an iteration; `None` if it has not begun, an error if its details are gone.
pub fn read_state_at(folder: &Path, iteration: Iteration) -> Result<Option<RunState>, JournalError> {
    let mut state = RunState::default();
    let (mut is_there, mut folded) = (false, Iteration::default());
    read_journal(folder, |event| {
        if !is_there {
            state.apply(&event);
            is_there = matches!(event, RunEvent::Allocation { iteration: at, .. } if at == iteration);
            if let RunEvent::Folded { iteration, .. } = event {
                folded = iteration;
            }
        }
    })?;
    if !is_there && iteration <= folded {
        return Err(JournalError::Folded { path: folder.join(JOURNAL_FILE), iteration, folded });
    }
    Ok(is_there.then_some(state))
}

/// Follows the journal in a folder on a separate thread, as long as the state has a receiver.
pub fn follow(folder: PathBuf, prices: Prices) -> watch::Receiver<RunState> {
    let (sender, state) = watch::channel(RunState::new(prices.clone()));
    let mut follower = Follower::new(&folder);
    let poll = move || {
        while !sender.is_closed() {
            let status = read_new(&sender, &mut follower);
            if let Err(error) = &status {
                tracing::warn!("{error}; reading it from the beginning");
            }
            match status {
                Ok(PollStatus::More) => continue,
                Ok(PollStatus::UpToDate) if has_died(&sender.borrow(), &folder) => {
                    sender.send_modify(RunState::abandon);
                }
                Ok(PollStatus::UpToDate) => {}
                // The coordinator was restarted, and has removed the events that it computes again.
                Ok(PollStatus::Truncated) | Err(_) => {
                    follower = Follower::new(&folder);
                    sender.send_replace(RunState::new(prices.clone()));
                }
            }
            std::thread::sleep(POLL_INTERVAL);
        }
    };
    std::thread::Builder::new().name("follow".into()).spawn(poll).expect("a thread can be started");
    state
}

/// Reads new events. Receivers are notified once for all of them.
fn read_new(sender: &watch::Sender<RunState>, follower: &mut Follower) -> Result<PollStatus, JournalError> {
    // Events are read before the state is locked, so that no reader of the state waits for the disk.
    let mut events = Vec::new();
    let status = follower.poll(|event| events.push(event));
    if !events.is_empty() {
        sender.send_modify(|state| events.iter().for_each(|event| state.apply(event)));
    }
    status
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use ata_record::{FolderLock, Listeners, PastEvents, Writer, resume_journal};
    use ata_types::TaskOutcome;

    use super::*;
    use crate::tests::{join, run, step, task};

    fn until(state: &watch::Receiver<RunState>, what: &str, holds: impl Fn(&RunState) -> bool) {
        let began = Instant::now();
        while !holds(&state.borrow()) {
            assert!(began.elapsed() < Duration::from_secs(20), "never: {what}");
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    fn write(folder: &Path, steps: &[RunEvent]) {
        let writer =
            Writer::open(folder, PastEvents::default(), Listeners::default(), |error| panic!("{error}")).unwrap();
        writer.write(vec![run("uta", 4), join(1), task(1, 1, Some(1.0), TaskOutcome::Applied)]);
        writer.write(steps.to_vec());
        writer.finish().unwrap();
    }

    #[test]
    fn a_journal_is_followed_over_a_resumption() {
        let folder = tempfile::tempdir().unwrap();
        let state = follow(folder.path().to_owned(), Prices::default());
        write(folder.path(), &[step(1, 1.0), step(2, 2.0)]);
        until(&state, "two steps", |state| state.iterations == 2);
        resume_journal(folder.path(), &run("uta", 4), Iteration(1), &RunState::default()).unwrap();
        until(&state, "one step less", |state| state.iterations == 1);
        assert_eq!(read_state(folder.path(), Prices::default()).unwrap().iterations, 1);
    }

    /// An iteration that a journal no longer has is distinguished from one that has not begun.
    #[test]
    fn a_folded_iteration_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let mut state = RunState::default();
        for event in [run("uta", 4), step(7, 1.0)] {
            state.apply(&event);
        }
        resume_journal(folder.path(), &run("uta", 4), Iteration(7), &state).unwrap();
        let at = |iteration| read_state_at(folder.path(), Iteration(iteration)).map(|state| state.is_some());
        let error = at(7).unwrap_err().to_string();
        assert!(error.contains("no details of iteration 7 any more: those of the first 7 iterations"), "{error}");
        assert!(matches!(at(8), Ok(false)));
        let log = read_state(folder.path(), Prices::default()).unwrap().log.since(&mut 0).1;
        assert!(log.last().unwrap().text.contains("no details up to iteration 7"), "{log:?}");
    }

    /// The run was killed after its first step, and continues later.
    #[test]
    fn a_run_whose_process_is_gone_is_over() {
        let folder = tempfile::tempdir().unwrap();
        let lock = || FolderLock::take(folder.path(), RUN_LOCK, "test").unwrap();
        let is_over = || read_state(folder.path(), Prices::default()).unwrap().is_over();
        let alive = lock();
        write(folder.path(), &[step(1, 1.0)]);
        let state = follow(folder.path().to_owned(), Prices::default());
        until(&state, "a step", |state| state.iterations == 1);
        assert!(!is_over());
        drop(alive);
        until(&state, "its death", RunState::is_over);
        assert!(is_over());
        let _alive = lock();
        assert!(!is_over(), "it goes on");
    }
}
