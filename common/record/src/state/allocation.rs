//! The allocation of the current iteration.

use std::collections::{BTreeMap, BTreeSet};

use ata_types::{Iteration, WorkerId};
use serde::{Deserialize, Serialize};

use super::{RunPhase, RunState};
use crate::event::RunEvent;

/// The allocation of an iteration.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Allocation {
    /// The iteration; 0 if none has begun.
    pub iteration: Iteration,
    /// The rule that made the allocation.
    pub rule: String,
    /// The number of workers that it covers.
    pub workers: usize,
    /// The number of tasks of each of these workers; empty in an asynchronous run, where each computes one task at a time.
    pub shares: BTreeMap<WorkerId, u64>,
    /// The seconds after which the policy expects these workers to be done with one task less, with their tasks, and with one task more;
    /// empty if it uses no speeds.
    pub finish_s: BTreeMap<WorkerId, [Option<f64>; 3]>,
    /// The workers among these that compute an extra task as a probe.
    pub probes: BTreeSet<WorkerId>,
    /// Whether every worker computes until there are enough results.
    pub is_race: bool,
}

impl RunState {
    pub(super) fn allocate(&mut self, event: &RunEvent) {
        let RunEvent::Allocation { iteration, time_s, workers, allocation, probes, scores_s, finish_s, rule } = event
        else {
            return;
        };
        self.phase = RunPhase::Training;
        self.span_s.get_or_insert((*time_s, *time_s));
        self.allocation = Allocation {
            iteration: *iteration,
            rule: rule.clone(),
            workers: workers.len(),
            shares: workers.iter().copied().zip(allocation.iter().copied()).collect(),
            finish_s: workers.iter().copied().zip(finish_s.iter().copied()).collect(),
            probes: probes.iter().copied().collect(),
            is_race: ["racing", "asynchronous"].contains(&rule.as_str()),
        };
        for (worker, bound_s) in workers.iter().zip(scores_s).filter(|(_, bound_s)| **bound_s > 0.0) {
            self.worker(*worker).bound_s = Some(*bound_s);
        }
        for worker in probes {
            self.worker(*worker).usage.probes += 1;
        }
    }
}
