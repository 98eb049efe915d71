//! Selects the times of links that are written to the journal.

use std::collections::BTreeMap;

use ata_record::{RunEvent, WorkerLink};
use ata_scheduler::LinkRates;
use ata_types::WorkerId;

/// The relative change after which a time is recorded again. Smaller changes are noise, as are those of less than a millisecond.
const CHANGE: f64 = 0.1;

/// The maximum number of workers in an event. Further workers follow after the next steps.
const MOST_WORKERS: usize = 64;

/// The times that were recorded last, in seconds.
#[derive(Debug, Default)]
pub(crate) struct RecordedLinks {
    /// The times of a gradient and of parameters on the coordinator's link, and the longest time on a worker's own link.
    shared: Option<[f64; 3]>,
    /// The time of each worker's gradient on its own link.
    up_s: BTreeMap<WorkerId, f64>,
}

impl RecordedLinks {
    /// Returns the event to record, if a time has changed.
    pub(crate) fn changed(
        &mut self,
        time_s: f64,
        links: &LinkRates,
        present: impl Iterator<Item = WorkerId>,
    ) -> Option<RunEvent> {
        let times = links.times();
        let shared @ [up_s, down_s, own_s] = [times.up_s, times.down_s, times.others.longest_s()];
        let mut workers = Vec::new();
        for worker in present {
            let Some(bytes_per_s) = links.up_per_s(worker) else { continue };
            let up_s = times.own(worker).up_s;
            if self.up_s.get(&worker).is_none_or(|last_s| has_changed(up_s, *last_s)) && workers.len() < MOST_WORKERS {
                self.up_s.insert(worker, up_s);
                workers.push(WorkerLink { worker, up_s, bytes_per_s });
            }
        }
        let is_same = |last: [f64; 3]| shared.into_iter().zip(last).all(|(now_s, last_s)| !has_changed(now_s, last_s));
        if workers.is_empty() && self.shared.is_some_and(is_same) {
            return None;
        }
        self.shared = Some(shared);
        Some(RunEvent::Links { time_s, up_s, down_s, own_s, workers })
    }
}

fn has_changed(now_s: f64, last_s: f64) -> bool {
    (now_s - last_s).abs() > (CHANGE * last_s).max(1e-3)
}

#[cfg(test)]
mod tests {
    use super::*;
    use ata_scheduler::{Observed, Seen, Topology};

    /// Observes a step in which each worker's vector took this long. Returns the recorded workers.
    fn step(recorded: &mut RecordedLinks, links: &mut LinkRates, workers: usize, seconds: f64) -> Option<Vec<usize>> {
        let all = || (0..workers).map(WorkerId::from_slot);
        for worker in all() {
            links.observe(Observed::Gradient { worker, bytes: 1e6, seconds, seen: Seen::Alone });
        }
        links.observe(Observed::Step { up_bytes: 1e6, down_bytes: 5e5, topology: Topology::Star, chunk: 1.0 });
        match recorded.changed(1.0, links, all())? {
            RunEvent::Links { workers, .. } => Some(workers.iter().map(|link| link.worker.slot()).collect()),
            event => panic!("{event:?}"),
        }
    }

    #[test]
    fn only_changes_are_recorded_and_of_a_bounded_number_of_workers() {
        let (mut recorded, mut links) = (RecordedLinks::default(), LinkRates::default());
        assert_eq!(step(&mut recorded, &mut links, 2, 1.0), Some(vec![0, 1]));
        assert_eq!(step(&mut recorded, &mut links, 2, 1.05), None);
        assert_eq!(step(&mut recorded, &mut links, 3, 1.0), Some(vec![2]));
        assert_eq!(step(&mut recorded, &mut links, 3, 9.0), Some(vec![0, 1, 2]));
        let (mut recorded, mut links) = (RecordedLinks::default(), LinkRates::default());
        let of_one_machine = [1e-5, 1e-4, 9e-4].map(|seconds| step(&mut recorded, &mut links, 2, seconds));
        assert_eq!(of_one_machine, [Some(vec![0, 1]), None, None]);
        let (mut recorded, mut links) = (RecordedLinks::default(), LinkRates::default());
        assert_eq!(step(&mut recorded, &mut links, 70, 1.0).unwrap().len(), 64);
        assert_eq!(step(&mut recorded, &mut links, 70, 1.0), Some((64..70).collect()));
        assert_eq!(step(&mut recorded, &mut links, 70, 1.0), None);
    }
}
