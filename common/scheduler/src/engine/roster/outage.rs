//! Rests during an outage that most workers share.

use std::cmp::Reverse;

use super::{MAX_DOUBLINGS, Roster, Strikes};
use crate::engine::WorkerSet;
use ata_types::{Time, WorkerId};

impl Roster {
    /// Shortens rests after a failure that a worker reported, if most of the workers that count have failed since their last results.
    /// These failures share a cause, and their cost says nothing about any single worker. So the workers rest as if their failures had cost
    /// nothing, beginning with `least_s` and doubling each time, so that an outage costs them about its own time again. Returns
    /// the workers whose rests are shorter now, the time until these end, and the number of failures.
    pub(crate) fn shorten_rests(&mut self, now_s: f64, worker: WorkerId, least_s: f64) -> Vec<(WorkerId, f64, u32)> {
        self.members[worker.slot()].strikes.failed_s = Some(now_s);
        let is_outage = self.most_have_failed();
        let was_outage = std::mem::replace(&mut self.is_outage, is_outage);
        let (begins, goes_on) = (is_outage && !was_outage, is_outage && was_outage);
        let all = if begins { self.present.iter().collect() } else { Vec::new() };
        let one = goes_on.then_some(worker);
        let counted: Vec<WorkerId> = all.into_iter().chain(one).filter(self.counts()).collect();
        counted.into_iter().filter_map(|worker| self.ease_one(now_s, worker, least_s)).collect()
    }

    fn ease_one(&mut self, now_s: f64, worker: WorkerId, least_s: f64) -> Option<(WorkerId, f64, u32)> {
        let Strikes { count, rests_until_s, failed_s, .. } = &mut self.members[worker.slot()].strikes;
        // A later result of the worker clears its failures, but does not end its rest.
        let failures = (*count).max(1);
        let rest_s = least_s * f64::from(1_u32 << (failures - 1).min(MAX_DOUBLINGS));
        let until_s = ((*failed_s)? + rest_s).max(now_s);
        if until_s >= *rests_until_s {
            return None;
        }
        *rests_until_s = until_s;
        self.rests.push(Reverse((Time(until_s), worker)));
        Some((worker, until_s - now_s, failures))
    }

    /// Returns whether most of the workers that count, and more than one, have failed since their last results.
    fn most_have_failed(&self) -> bool {
        let Self { struck, present, proven, .. } = self;
        let counted = match WorkerSet::common([present, proven]) {
            0 => present,
            _ => proven,
        };
        let failed = WorkerSet::common([struck, present, counted]);
        failed > 1 && 2 * failed > WorkerSet::common([present, counted])
    }
}
