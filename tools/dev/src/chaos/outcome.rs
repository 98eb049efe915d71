//! The outcomes of faults as numbers, and the result of a chaos run.

use serde::Serialize;

use super::ending::RunResult;
use super::schedule::FaultKind;

#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Outcome {
    pub(crate) kind: FaultKind,
    /// The iteration during which it was injected.
    pub(crate) iteration: u64,
    /// The affected worker; `None` if the coordinator was affected.
    pub(crate) worker: Option<u32>,
    /// Seconds until the first new step or, for a fault of a worker, seconds by which an iteration was delayed.
    pub(crate) recovery_s: f64,
    pub(crate) allowed_s: Option<f64>,
    /// The number of steps that were taken a second time.
    pub(crate) steps_again: u64,
    pub(crate) steps_allowed: Option<u64>,
    /// The number of steps that were in a checkpoint and still had to be taken again.
    pub(crate) saved_steps_lost: u64,
    /// The number of workers that were lost but should not have been.
    pub(crate) lost_wrongly: u64,
    /// Whether the fault was aimed at an optimizer step and occurred during one.
    pub(crate) in_step: bool,
}

impl Outcome {
    pub(crate) fn new(kind: FaultKind, iteration: u64) -> Self {
        Self {
            kind,
            iteration,
            worker: None,
            recovery_s: 0.0,
            allowed_s: None,
            steps_again: 0,
            steps_allowed: None,
            saved_steps_lost: 0,
            lost_wrongly: 0,
            in_step: false,
        }
    }
}

/// The outcomes of the faults of one kind. Times are in seconds.
#[derive(Debug, Serialize)]
pub(crate) struct KindSummary {
    pub(crate) kind: FaultKind,
    /// The number of faults that were injected and took effect.
    pub(crate) fired: usize,
    /// The number of faults that occurred during an optimizer step.
    pub(crate) in_step: usize,
    /// The number of steps that were taken a second time.
    pub(crate) steps_again: u64,
    /// The most steps that one fault caused to be taken again.
    pub(crate) steps_again_worst: u64,
    pub(crate) recovery_median_s: f64,
    pub(crate) recovery_p99_s: f64,
    pub(crate) recovery_worst_s: f64,
    /// The number of recoveries that took longer than promised.
    pub(crate) late: usize,
    /// The number of workers that were lost but should not have been.
    pub(crate) lost_wrongly: u64,
    /// The number of steps that were in a checkpoint and still had to be taken again.
    pub(crate) saved_steps_lost: u64,
    /// The number of faults that caused more steps to be taken again than promised.
    pub(crate) too_many_again: usize,
}

impl KindSummary {
    pub(crate) fn new(kind: FaultKind, outcomes: &[Outcome]) -> Self {
        let of_kind: Vec<&Outcome> = outcomes.iter().filter(|outcome| outcome.kind == kind).collect();
        let mut sorted: Vec<f64> = of_kind.iter().map(|outcome| outcome.recovery_s).collect();
        sorted.sort_by(f64::total_cmp);
        // This is the nearest-rank method.
        let quantile = |q: f64| sorted.get((sorted.len() as f64 * q).ceil() as usize - 1).copied();
        let quantile = |q: f64| if sorted.is_empty() { 0.0 } else { quantile(q).unwrap_or(0.0) };
        let is_late = |outcome: &&&Outcome| outcome.allowed_s.is_some_and(|allowed_s| outcome.recovery_s > allowed_s);
        let has_too_many = |outcome: &&&Outcome| outcome.steps_allowed.is_some_and(|most| outcome.steps_again > most);
        Self {
            kind,
            fired: of_kind.len(),
            in_step: of_kind.iter().filter(|outcome| outcome.in_step).count(),
            steps_again: of_kind.iter().map(|outcome| outcome.steps_again).sum(),
            steps_again_worst: of_kind.iter().map(|outcome| outcome.steps_again).max().unwrap_or(0),
            recovery_median_s: quantile(0.5),
            recovery_p99_s: quantile(0.99),
            recovery_worst_s: quantile(1.0),
            late: of_kind.iter().filter(is_late).count(),
            lost_wrongly: of_kind.iter().map(|outcome| outcome.lost_wrongly).sum(),
            saved_steps_lost: of_kind.iter().map(|outcome| outcome.saved_steps_lost).sum(),
            too_many_again: of_kind.iter().filter(has_too_many).count(),
        }
    }

    pub(crate) fn broken(&self) -> Vec<String> {
        let Self { kind, fired, late, lost_wrongly, saved_steps_lost, too_many_again, .. } = self;
        let name = kind.name();
        let mut broken = Vec::new();
        // For coordinators the bound is promised for the 99th percentile, for a worker's tasks it always holds.
        let may_be_late = if *kind == FaultKind::KillCoordinator { fired / 100 } else { 0 };
        if *late > may_be_late {
            broken.push(format!("{name}: {late} of {fired} recovered too late"));
        }
        if *lost_wrongly > 0 {
            broken.push(format!("{name}: {lost_wrongly} workers lost that were well"));
        }
        if *saved_steps_lost > 0 {
            broken.push(format!("{name}: {saved_steps_lost} saved steps lost"));
        }
        if *too_many_again > 0 {
            broken.push(format!(
                "{name}: {too_many_again} of {fired} took more steps again than since their checkpoints"
            ));
        }
        broken
    }
}

/// The result of a chaos run. Times are in seconds.
#[derive(Debug, Default, Serialize)]
pub(crate) struct Verdict {
    pub(crate) seed: u64,
    pub(crate) iterations: u64,
    pub(crate) faults: Vec<KindSummary>,
    pub(crate) coordinator_stopped_s: f64,
    pub(crate) workers_stopped_s: f64,
    pub(crate) processes_left: usize,
    pub(crate) parameters_sha256: Option<String>,
    pub(crate) undisturbed_sha256: Option<String>,
    pub(crate) broken: Vec<String>,
}

impl Verdict {
    pub(crate) fn compare(&mut self, disturbed: RunResult, undisturbed: RunResult, takes_local_steps: bool) {
        let tasks = |run: &RunResult| (run.iterations, run.tasks_applied);
        if tasks(&disturbed) != tasks(&undisturbed) {
            self.broken.push("the tasks of its steps are not those of the run without faults".into());
        }
        if !takes_local_steps && disturbed != undisturbed {
            self.broken.push("the parameters are not those of the run without faults".into());
        }
        if disturbed.model_sha256 != disturbed.parameters_sha256 {
            self.broken.push("the model's file does not hold the parameters of the last step".into());
        }
        self.parameters_sha256 = Some(disturbed.parameters_sha256);
        self.undisturbed_sha256 = Some(undisturbed.parameters_sha256);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kills(recoveries_s: impl IntoIterator<Item = f64>) -> Vec<Outcome> {
        let kill = Outcome { allowed_s: Some(5.0), ..Outcome::new(FaultKind::KillCoordinator, 1) };
        recoveries_s.into_iter().map(|recovery_s| Outcome { recovery_s, ..kill.clone() }).collect()
    }

    #[test]
    fn one_of_a_hundred_kills_may_be_late() {
        let mut outcomes = kills((1..=99).map(|i| f64::from(i) / 100.0).chain([9.0]));
        let of = |outcomes: &[Outcome]| KindSummary::new(FaultKind::KillCoordinator, outcomes);
        let summed = of(&outcomes);
        assert_eq!((summed.fired, summed.late), (100, 1));
        assert_eq!((summed.recovery_median_s, summed.recovery_p99_s, summed.recovery_worst_s), (0.5, 0.99, 9.0));
        assert_eq!(summed.broken(), Vec::<String>::new());
        outcomes[0].recovery_s = 6.0;
        assert_eq!(of(&outcomes).broken(), ["kill-coordinator: 2 of 100 recovered too late"]);
        assert_eq!(of(&kills([6.0])).broken().len(), 1, "of few, none may be late");
        assert_eq!((of(&[]).fired, of(&[]).broken().len()), (0, 0));
    }

    #[test]
    fn every_broken_promise_is_named() {
        let lost = Outcome {
            lost_wrongly: 1,
            saved_steps_lost: 2,
            steps_again: 3,
            steps_allowed: Some(1),
            ..Outcome::new(FaultKind::KillCoordinator, 1)
        };
        let broken = KindSummary::new(FaultKind::KillCoordinator, &[lost]).broken();
        assert_eq!(broken.len(), 3, "{broken:?}");
        assert_eq!(broken[2], "kill-coordinator: 1 of 1 took more steps again than since their checkpoints");
        let often = Outcome { steps_again: 1, steps_allowed: Some(1), ..Outcome::new(FaultKind::KillCoordinator, 1) };
        let seldom = Outcome { steps_again: 25, ..Outcome::new(FaultKind::KillCoordinator, 1) };
        assert_eq!(KindSummary::new(FaultKind::KillCoordinator, &[often, seldom]).broken(), Vec::<String>::new());
    }
}
