//! The state of an engine that outlives the process, as plain data.

use serde::{Deserialize, Serialize};

use super::noise::NoiseScale;
use super::phase::{Between, Phase};
use super::roster::Strikes;
use super::task_count::TaskCount;
use super::{Engine, EngineConfig, FinishReason, Leases, Limits, Priors, Roster, Shared};
use crate::batches::MOST;
use crate::ledger::{Ledger, WorkerCost};
use crate::policy::{Policy, PolicyState};
use crate::statistics::WorkerStatistics;
use ata_types::{Iteration, WorkerId};

const VERSION: u32 = 3;

/// The last iteration or lease of any state that is not damaged.
const LAST: u64 = u64::MAX >> 1;

/// The state that outlives an engine's process: statistics, priors, costs, failures, the policy's state, and the next iteration.
/// Leases and sessions are not part of it, because they end with the process, and so does a running iteration.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SavedEngine {
    version: u32,
    next_iteration: Iteration,
    /// The limit that ended the run before its last iteration, if one did.
    ended_by: Option<LimitReached>,
    /// The number of the next lease; no lease with this number or a later one was granted.
    next_lease: u64,
    began_s: Option<f64>,
    last_step_s: Option<f64>,
    statistics: Vec<WorkerStatistics>,
    priors: Priors,
    strikes: Vec<Strikes>,
    /// The workers that have delivered a result, ascending.
    proven: Vec<WorkerId>,
    ledger: Ledger,
    /// How noisy gradients are, if that is measured.
    #[serde(default, skip_serializing_if = "is_unknown")]
    noise: NoiseScale,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    task_count: Option<TaskCount>,
    policy: String,
    policy_state: PolicyState,
}

/// The limit that a run reached. The run is over for as long as its limits stay the same.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct LimitReached {
    reason: FinishReason,
    limits: Limits,
}

/// The reason why an engine cannot continue from a saved state.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct RestoreError(String);

impl RestoreError {
    pub(crate) fn version(found: u32, read: u32) -> Self {
        Self(format!("engine state of version {found}: this release reads version {read}"))
    }
}

pub(crate) fn demand(is_good: bool, problem: &str) -> Result<(), RestoreError> {
    if is_good { Ok(()) } else { Err(RestoreError(format!("engine state: {problem}"))) }
}

/// Refuses a state whose next iteration or statistics are impossible.
pub(crate) fn check_progress(next: Iteration, statistics: &[WorkerStatistics]) -> Result<(), RestoreError> {
    demand((1..=LAST).contains(&next.number()), "an iteration that no run reaches")?;
    demand(statistics.iter().all(WorkerStatistics::is_valid), "statistics that cannot have been observed")
}

/// Passes its saved state to a policy or, if another policy saved it, what is known about the workers.
pub(crate) fn teach(
    policy: &mut dyn Policy,
    saved_by: &str,
    state: &PolicyState,
    statistics: &[WorkerStatistics],
) -> Result<(), RestoreError> {
    if saved_by == policy.name() {
        let wrong = |problem| RestoreError(format!("state of policy '{saved_by}': {problem}"));
        return policy.restore(state.clone()).map_err(wrong);
    }
    for (slot, known) in statistics.iter().enumerate().filter(|(_, known)| known.observed > 0) {
        policy.learned(WorkerId::from_slot(slot), known);
    }
    Ok(())
}

impl SavedEngine {
    /// Returns the iteration that begins next.
    pub fn next_iteration(&self) -> Iteration {
        self.next_iteration
    }

    /// Returns the number of tasks that entered a step.
    pub fn tasks_applied(&self) -> u64 {
        self.ledger.tasks_applied
    }

    /// Returns the reason why a run with these settings is over after the saved state, if it is.
    pub fn finished(&self, config: &EngineConfig) -> Option<FinishReason> {
        let is_last = config.is_over(config.position(self.next_iteration, self.ledger.tasks_applied));
        let same_limits = self.ended_by.filter(|ended| ended.limits == config.limits);
        same_limits.map(|ended| ended.reason).or(is_last.then_some(FinishReason::Iterations))
    }

    /// Passes its state to a policy or, if the saved policy was another one, what is known about the workers.
    pub fn teach(&self, policy: &mut dyn Policy) -> Result<(), RestoreError> {
        teach(policy, &self.policy, &self.policy_state, &self.statistics)
    }

    /// Refuses a state that no engine can have saved, except for the state of its policy.
    pub fn check(&self) -> Result<(), RestoreError> {
        if self.version != VERSION {
            return Err(RestoreError::version(self.version, VERSION));
        }
        let workers = self.statistics.len();
        check_progress(self.next_iteration, &self.statistics)?;
        demand(self.next_lease <= LAST, "a lease that no run reaches")?;
        demand(
            self.ledger.iterations == self.next_iteration.number() - 1,
            "the ledger and the next iteration do not agree",
        )?;
        demand(self.task_count.as_ref().is_none_or(TaskCount::is_valid), "a number of tasks that nothing leads to")?;
        demand(self.noise.is_valid(), "a noise that no gradients have")?;
        demand(self.priors.is_valid(workers), "priors that cannot have been learned")?;
        demand(self.strikes.len() == workers && self.ledger.workers.len() == workers, "workers are missing")?;
        demand(self.proven.iter().all(|worker| worker.slot() < workers), "a result of a worker never seen")?;
        let times =
            self.strikes.iter().map(|strikes| strikes.rests_until_s).chain(self.began_s).chain(self.last_step_s);
        demand(times.into_iter().all(|time_s| time_s.abs() <= MOST), "a time that no clock shows")
    }
}

fn is_unknown(noise: &NoiseScale) -> bool {
    *noise == NoiseScale::default()
}

impl Engine {
    /// Returns the state to save. A running iteration begins again in an engine that is restored from it. A run that is over can
    /// be saved and continued as well.
    pub fn save(&self) -> SavedEngine {
        let Self { shared, phase } = self;
        let finished = match phase {
            Phase::Between(between) => between.finished,
            Phase::Over { finished, .. } => *finished,
            Phase::Collecting(_) | Phase::Committing(_) => None,
        };
        let by_limit = finished.filter(|reason| *reason != FinishReason::Iterations);
        let mut strikes = shared.roster.strikes();
        let slots = shared.slots_to_save(&strikes);
        strikes.truncate(slots);
        let workers = shared.ledger.workers[..slots].to_vec();
        SavedEngine {
            version: VERSION,
            next_iteration: phase.next_iteration(),
            ended_by: by_limit.map(|reason| LimitReached { reason, limits: shared.config.limits }),
            next_lease: shared.leases.next_id,
            began_s: shared.began_s,
            last_step_s: shared.last_step_s,
            statistics: shared.statistics[..slots].to_vec(),
            priors: shared.priors.clone(),
            strikes,
            proven: shared.roster.proven.iter().collect(),
            ledger: Ledger { workers, ..shared.ledger },
            noise: shared.noise,
            task_count: shared.task_count.clone(),
            policy: shared.policy.name().into(),
            policy_state: shared.policy.save(),
        }
    }

    /// Creates an engine that continues from a saved state. Its clock continues as well: no event may be earlier than the save. No
    /// worker is present. A policy other than the saved one starts with only the workers' statistics. If the run is over, its first
    /// [`super::Event::Proceed`] reports it.
    ///
    /// # Panics
    /// As [`Engine::new`].
    pub fn restore(
        config: EngineConfig,
        mut policy: Box<dyn Policy>,
        saved: SavedEngine,
    ) -> Result<Self, RestoreError> {
        saved.check()?;
        saved.teach(&mut *policy)?;
        let finished = saved.finished(&config);
        let mut engine = Self::new(config, policy);
        engine.phase = Phase::Between(Between::new(saved.next_iteration, finished));
        let chooses = engine.shared.config.choice.is_some();
        engine.shared.task_count = saved.task_count.filter(|_| chooses);
        engine.shared.noise = saved.noise;
        let Shared { roster, leases, statistics, priors, ledger, began_s, last_step_s, .. } = &mut engine.shared;
        *roster = Roster::restored(&saved.strikes, &saved.proven);
        *leases = Leases::numbered_from(saved.next_lease, saved.statistics.len());
        (*statistics, *priors, *ledger) = (saved.statistics, saved.priors, saved.ledger);
        (*began_s, *last_step_s) = (saved.began_s, saved.last_step_s);
        Ok(engine)
    }
}

impl Shared {
    /// Returns the number of slots up to the last one that contains anything: later slots may belong to workers that were forgotten.
    fn slots_to_save(&self, strikes: &[Strikes]) -> usize {
        let is_new = |slot: &usize| {
            self.statistics[*slot] == WorkerStatistics::default()
                && strikes[*slot] == Strikes::default()
                && !self.roster.proven.contains(WorkerId::from_slot(*slot))
                && self.ledger.workers[*slot] == WorkerCost::default()
        };
        let new = (0..strikes.len()).rev().take_while(is_new).count();
        (strikes.len() - new).max(self.priors.slots())
    }
}
