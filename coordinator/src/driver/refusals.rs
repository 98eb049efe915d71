//! Refused results. All of them are counted, but their journal events are limited, so that no worker can fill the journal.

use std::collections::BTreeMap;

use ata_record::{RefusalKind, RunEvent};
use ata_types::WorkerId;

/// The least time in seconds between two events of the same worker and kind. It limits the journal to a few kilobytes per second and
/// worker, until the worker is expelled.
const EVENT_INTERVAL_S: f64 = 1.0;

/// The counted refusals that are not in the journal yet, at most one entry per worker and kind.
#[derive(Debug, Default)]
pub(crate) struct Refusals {
    recent: BTreeMap<(WorkerId, RefusalKind), RecentRefusals>,
}

#[derive(Debug)]
struct RecentRefusals {
    /// The time at which the last event was written, in seconds.
    written_s: f64,
    count: u64,
    reason: String,
}

impl Refusals {
    /// Counts a refusal. Returns the event to write, unless one was written less than [`EVENT_INTERVAL_S`] ago.
    pub(crate) fn add(&mut self, now_s: f64, worker: WorkerId, kind: RefusalKind, reason: &str) -> Option<RunEvent> {
        if let Some(recent) = self.recent.get_mut(&(worker, kind)) {
            recent.count += 1;
            reason.clone_into(&mut recent.reason);
            return None;
        }
        self.recent.insert((worker, kind), RecentRefusals { written_s: now_s, count: 0, reason: String::new() });
        Some(event(now_s, worker, kind, reason.to_owned(), 1))
    }

    /// Returns the events that are due at `now_s`, or all of them.
    pub(crate) fn due(&mut self, now_s: f64, all: bool) -> Vec<RunEvent> {
        let mut due = Vec::new();
        self.recent.retain(|&(worker, kind), recent| {
            let is_due = all || now_s - recent.written_s >= EVENT_INTERVAL_S;
            if is_due && recent.count > 0 {
                due.push(event(now_s, worker, kind, std::mem::take(&mut recent.reason), recent.count));
                (recent.written_s, recent.count) = (now_s, 0);
                return true;
            }
            !is_due
        });
        due
    }
}

fn event(time_s: f64, worker: WorkerId, kind: RefusalKind, reason: String, count: u64) -> RunEvent {
    RunEvent::Refusal { time_s, worker, kind, reason, count }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flood_is_counted_whole_and_written_once_a_second() {
        let mut refusals = Refusals::default();
        let (mut events, mut sent) = (Vec::new(), 0);
        for millisecond in 0..10_000 {
            let now_s = f64::from(millisecond) / 1000.0;
            for worker in [0, 1] {
                let worker = WorkerId::from_slot(worker);
                events.extend(refusals.add(now_s, worker, RefusalKind::Replayed, "again"));
                sent += 1;
            }
            events.extend(refusals.due(now_s, false));
        }
        events.extend(refusals.due(10.0, true));
        assert!(events.len() <= 2 * 11, "{}", events.len());
        let count = |event: &RunEvent| if let RunEvent::Refusal { count, .. } = event { *count } else { 0 };
        assert_eq!(events.iter().map(count).sum::<u64>(), sent);
        assert!(refusals.due(12.0, false).is_empty() && refusals.recent.is_empty(), "nothing is kept");
    }
}
