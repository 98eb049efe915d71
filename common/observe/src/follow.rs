//! A view of the run in a folder, over or not.

use std::path::{Path, PathBuf};
use std::time::Duration;

use ata_record::{Follower, JournalError, PollStatus, RunEvent, read_journal};
use ata_types::Iteration;
use tokio::sync::watch;

use crate::view::{Prices, View};

/// Time between two looks at a journal: what a page shows is as old as that.
const LOOK_INTERVAL: Duration = Duration::from_millis(500);

/// The run in a folder, or of a journal, as far as it got.
pub fn viewed(journal: &Path, prices: Prices) -> Result<View, JournalError> {
    let mut view = View::new(prices);
    // A torn last line is an event that was not written to its end.
    read_journal(journal, |event| view.apply(&event))?;
    Ok(view)
}

/// The run when the allocation of an iteration had just been made; `None` if it has no such iteration.
pub fn explained_at(journal: &Path, iteration: Iteration) -> Result<Option<View>, JournalError> {
    let mut view = View::new(Prices::default());
    let mut is_there = false;
    read_journal(journal, |event| {
        if !is_there {
            view.apply(&event);
            is_there = matches!(event, RunEvent::Allocation { iteration: at, .. } if at == iteration);
        }
    })?;
    Ok(is_there.then_some(view))
}

/// A view that follows the journal in a folder for as long as someone looks at it, on a thread of its own.
pub fn follow(folder: PathBuf, prices: Prices) -> watch::Receiver<View> {
    let (sender, view) = watch::channel(View::new(prices.clone()));
    let mut follower = Follower::new(&folder);
    let look = move || {
        while !sender.is_closed() {
            let polled = read_new(&sender, &mut follower);
            if let Err(error) = &polled {
                tracing::warn!("{error}; reading it from the beginning");
            }
            match polled {
                Ok(PollStatus::More) => continue,
                Ok(PollStatus::UpToDate) => {}
                // Its coordinator was started again, and has cut what it computes again.
                Ok(PollStatus::Truncated) | Err(_) => {
                    follower = Follower::new(&folder);
                    sender.send_replace(View::new(prices.clone()));
                }
            }
            std::thread::sleep(LOOK_INTERVAL);
        }
    };
    std::thread::Builder::new().name("follow".into()).spawn(look).expect("a thread can be started");
    view
}

/// Reads what is new. What others see changes once, however many events those are.
fn read_new(sender: &watch::Sender<View>, follower: &mut Follower) -> Result<PollStatus, JournalError> {
    // Read before the view is held, so that nobody who looks at it waits for the disk.
    let mut events = Vec::new();
    let polled = follower.poll(|event| events.push(event));
    if !events.is_empty() {
        sender.send_modify(|view| events.iter().for_each(|event| view.apply(event)));
    }
    polled
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use ata_record::{Listeners, Writer, resume_journal};
    use ata_types::{TaskOutcome, WorkerId};

    use super::*;
    use crate::testing::{join, run, step, task};

    /// Waits until the view says so.
    fn until(view: &watch::Receiver<View>, what: &str, is_so: impl Fn(&View) -> bool) {
        let began = Instant::now();
        while !is_so(&view.borrow()) {
            assert!(began.elapsed() < Duration::from_secs(20), "never: {what}");
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    #[test]
    fn a_journal_is_followed_over_a_resumption() {
        let folder = tempfile::tempdir().unwrap();
        let view = follow(folder.path().to_owned(), Prices::default());
        let writer = Writer::create(folder.path(), Listeners::default(), |error| panic!("{error}")).unwrap();
        writer.write(vec![
            run("uta", 4),
            join(1),
            task(1, 1, Some(1.0), TaskOutcome::Applied),
            step(1, 1.0),
            step(2, 2.0),
        ]);
        writer.finish().unwrap();
        until(&view, "two steps", |view| view.state.iterations == 2);
        resume_journal(folder.path(), "test-run", Iteration(1), |_| ()).unwrap();
        until(&view, "one step less", |view| view.state.iterations == 1);
        assert_eq!(viewed(folder.path(), Prices::default()).unwrap().state.iterations, 1);
    }

    #[test]
    fn an_iteration_is_explained_as_it_began() {
        let folder = tempfile::tempdir().unwrap();
        let allocation = |iteration| RunEvent::Allocation {
            iteration: Iteration(iteration),
            time_s: iteration as f64,
            workers: vec![WorkerId::from_slot(0)],
            allocation: vec![4],
            probes: vec![],
            scores_s: vec![1.0],
            rule: "test".into(),
        };
        let writer = Writer::create(folder.path(), Listeners::default(), |error| panic!("{error}")).unwrap();
        writer.write(vec![
            run("uta", 4),
            join(1),
            allocation(1),
            task(1, 1, Some(1.0), TaskOutcome::Applied),
            step(1, 1.0),
        ]);
        writer.write(vec![allocation(2), task(2, 1, Some(3.0), TaskOutcome::Applied), step(2, 2.0)]);
        writer.finish().unwrap();
        let view = explained_at(folder.path(), Iteration(2)).unwrap().unwrap();
        assert_eq!((view.state.iterations, view.attendance[&WorkerId::from_slot(0)].completed), (1, 1));
        assert!(explained_at(folder.path(), Iteration(3)).unwrap().is_none());
    }
}
