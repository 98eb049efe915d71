//! The state of a [`Lockstep`] that outlives the process, as plain data.

use serde::{Deserialize, Serialize};

use super::probes::ProbeBudget;
use super::rounds::SavedRounds;
use super::{Lockstep, MAX_BUDGET, MAX_REPORTS, TimedShare};
use crate::batches::MOST;
use crate::engine::{RestoreError, check_progress, demand, teach};
use crate::policy::PolicyState;
use crate::statistics::WorkerStatistics;
use ata_types::Iteration;

const VERSION: u32 = 1;

/// What is known about the workers, and the iteration that comes next. The set of present workers is not part of it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SavedLockstep {
    version: u32,
    next_iteration: Iteration,
    statistics: Vec<WorkerStatistics>,
    reports: Vec<TimedShare>,
    probes: ProbeBudget,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    rounds: Option<SavedRounds>,
    policy: String,
    policy_state: PolicyState,
}

impl SavedLockstep {
    /// Refuses a state that was never saved, except for the state of its policy.
    fn check(&self) -> Result<(), RestoreError> {
        if self.version != VERSION {
            return Err(RestoreError::version(self.version, VERSION));
        }
        check_progress(self.next_iteration, &self.statistics)?;
        let is_report = |report: &TimedShare| {
            report.worker.slot() < self.statistics.len()
                && (1..=MAX_BUDGET).contains(&report.tasks)
                && (0.0..=MOST).contains(&report.seconds)
        };
        demand(
            self.reports.len() <= MAX_REPORTS && self.reports.iter().all(is_report),
            "an observation that cannot have been made",
        )?;
        demand(self.probes.is_valid(), "probes that cannot have been paid for")?;
        demand(self.rounds.as_ref().is_none_or(SavedRounds::is_valid), "rounds that cannot have been measured")
    }
}

impl Lockstep {
    /// Returns the state to save, at any time.
    pub fn save(&self) -> SavedLockstep {
        SavedLockstep {
            version: VERSION,
            next_iteration: self.next,
            statistics: self.statistics.clone(),
            reports: self.reports.clone(),
            probes: self.probes,
            rounds: self.rounds.as_ref().map(|rounds| rounds.save(self.budget)),
            policy: self.policy.name().into(),
            policy_state: self.policy.save(),
        }
    }

    /// Continues from a saved state. A policy other than the saved one starts with only the workers' statistics. Budget (unless
    /// it is chosen), seed and the set of present workers stay as they are. A refused state changes nothing.
    pub fn restore(&mut self, saved: SavedLockstep) -> Result<(), RestoreError> {
        saved.check()?;
        let mut policy = self.policies.build(&self.specification, &self.context).expect("it was built before");
        teach(&mut *policy, &saved.policy, &saved.policy_state, &saved.statistics)?;
        self.policy = policy;
        self.next = saved.next_iteration;
        self.statistics = saved.statistics;
        let slots = self.statistics.len().max(self.slots);
        self.statistics.resize(slots, WorkerStatistics::default());
        (self.reports, self.probes) = (saved.reports, saved.probes);
        if let Some((rounds, saved)) = self.rounds.as_mut().zip(saved.rounds) {
            self.budget = rounds.restore(saved);
        }
        Ok(())
    }
}
