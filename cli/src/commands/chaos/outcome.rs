//! What came of the faults, as numbers for people and scripts.

use ata_figures::Table;
use serde::Serialize;

use crate::args::FaultKind;
use ata_observe::seconds;

/// What came of a fault.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Outcome {
    pub(super) kind: FaultKind,
    /// The iteration under way.
    pub(super) iteration: u64,
    /// The worker that it hit.
    pub(super) worker: Option<u32>,
    /// Until the first step after it; for a fault of a worker, what an iteration took longer.
    pub(super) recovery_s: f64,
    /// How long that may be.
    pub(super) allowed_s: Option<f64>,
    pub(super) steps_again: u64,
    /// How many they may be.
    pub(super) steps_allowed: Option<u64>,
    /// Steps that were in a checkpoint, and had to be taken again.
    pub(super) saved_steps_lost: u64,
    /// Workers that were lost, and should not have been.
    pub(super) lost_wrongly: u64,
    /// Whether it was aimed at an optimizer step, and one was under way.
    pub(super) in_step: bool,
}

impl Outcome {
    pub(super) fn new(kind: FaultKind, iteration: u64) -> Self {
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

/// What came of the faults of a kind.
#[derive(Debug, Serialize)]
pub(super) struct OfKind {
    kind: FaultKind,
    /// How many were injected; each was seen to have its effect.
    pub(super) fired: usize,
    /// How many of them while an optimizer step was known to be under way.
    in_step: usize,
    steps_again: u64,
    steps_again_worst: u64,
    recovery_median_s: f64,
    recovery_p99_s: f64,
    recovery_worst_s: f64,
    /// How many took longer than is promised.
    late: usize,
    lost_wrongly: u64,
    saved_steps_lost: u64,
    /// How many of them had more steps taken again than are promised.
    too_many_again: usize,
}

impl OfKind {
    pub(super) fn new(kind: FaultKind, outcomes: &[Outcome]) -> Self {
        let of_kind: Vec<&Outcome> = outcomes.iter().filter(|outcome| outcome.kind == kind).collect();
        let mut sorted: Vec<f64> = of_kind.iter().map(|outcome| outcome.recovery_s).collect();
        sorted.sort_by(f64::total_cmp);
        // The nearest rank.
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

    /// The promises that were broken.
    pub(super) fn broken(&self) -> Vec<String> {
        let Self { kind, fired, late, lost_wrongly, saved_steps_lost, too_many_again, .. } = self;
        let name = kind.name();
        let mut broken = Vec::new();
        // A coordinator is promised to be back in time at the 99th percentile, a worker's tasks always.
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

    fn row(&self) -> Vec<String> {
        vec![
            self.kind.name(),
            self.fired.to_string(),
            self.in_step.to_string(),
            format!("{} ({})", self.steps_again, self.steps_again_worst),
            seconds(self.recovery_median_s),
            seconds(self.recovery_p99_s),
            seconds(self.recovery_worst_s),
            self.late.to_string(),
            self.lost_wrongly.to_string(),
            self.saved_steps_lost.to_string(),
        ]
    }
}

/// The table of all kinds.
pub(super) fn table(kinds: &[OfKind]) -> Table {
    let header = [
        "fault",
        "fired",
        "in a step",
        "steps again (worst)",
        "median",
        "99 %",
        "worst",
        "late",
        "workers lost wrongly",
        "saved steps lost",
    ];
    Table {
        title: "Recovery: to the first step after it; for faults of a worker, what an iteration took longer".into(),
        header: header.map(String::from).into(),
        rows: kinds.iter().map(OfKind::row).collect(),
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
        let of = |outcomes: &[Outcome]| OfKind::new(FaultKind::KillCoordinator, outcomes);
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
        let broken = OfKind::new(FaultKind::KillCoordinator, &[lost]).broken();
        assert_eq!(broken.len(), 3, "{broken:?}");
        assert_eq!(broken[2], "kill-coordinator: 1 of 1 took more steps again than since their checkpoints");
        let often = Outcome { steps_again: 1, steps_allowed: Some(1), ..Outcome::new(FaultKind::KillCoordinator, 1) };
        let seldom = Outcome { steps_again: 25, ..Outcome::new(FaultKind::KillCoordinator, 1) };
        assert_eq!(OfKind::new(FaultKind::KillCoordinator, &[often, seldom]).broken(), Vec::<String>::new());
    }
}
