//! What the journal of the disturbed run shows.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::path::Path;
use std::time::{Duration, Instant};

use ata_record::{Follower, PollStatus, RunEvent};
use ata_types::{TaskOutcome, WorkerId};

use crate::failure::Failure;

/// Undisturbed iterations whose median is what an iteration takes.
const USUAL: usize = 31;

/// What was seen of the run.
pub(super) struct Seen {
    follower: Follower,
    /// The last step.
    pub(super) step: u64,
    /// The last iteration of the newest checkpoint.
    pub(super) saved: u64,
    /// Tasks of the step after [`Self::step`] that are done.
    tasks: u64,
    /// The workers that are present, by number.
    pub(super) present: BTreeSet<WorkerId>,
    /// Seconds of the last iterations without a fault.
    usual_s: VecDeque<f64>,
    /// How often a worker was lost while there was no fault.
    pub(super) lost_without_fault: u64,
    /// Since the fault that is under way.
    pub(super) since: Option<Since>,
}

/// What was seen since a fault.
#[derive(Debug)]
pub(super) struct Since {
    /// The last step before it.
    pub(super) step: u64,
    /// When the first new step was seen.
    pub(super) first_step: Option<Instant>,
    /// Workers that were lost.
    pub(super) losses: Vec<WorkerId>,
    iterations: BTreeMap<u64, Iteration>,
}

/// An iteration during a fault.
#[derive(Debug, Default)]
struct Iteration {
    runtime_s: Option<f64>,
    /// Tasks whose lease was lost.
    lost: BTreeSet<u64>,
    /// Seconds that those took when they were computed again, on their way included.
    again_s: f64,
}

/// How much longer an iteration took by a fault.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Delay {
    pub(super) extra_s: f64,
    /// Seconds of the tasks that had to be computed again.
    pub(super) again_s: f64,
}

impl Seen {
    pub(super) fn new(folder: &Path) -> Self {
        Self {
            follower: Follower::new(folder),
            step: 0,
            saved: 0,
            tasks: 0,
            present: BTreeSet::new(),
            usual_s: VecDeque::new(),
            lost_without_fault: 0,
            since: None,
        }
    }

    /// Reads what was written since the last time.
    pub(super) fn look(&mut self) -> Result<(), Failure> {
        let mut events = Vec::new();
        self.follower.poll(|event| events.push(event))?;
        let now = Instant::now();
        for event in &events {
            self.apply(event, now);
        }
        Ok(())
    }

    /// A fault begins.
    pub(super) fn begin(&mut self) {
        let (step, iterations) = (self.step, BTreeMap::new());
        self.since = Some(Since { step, first_step: None, losses: Vec::new(), iterations });
    }

    /// Only steps from now on are new.
    pub(super) fn forget_steps(&mut self) {
        let step = self.step;
        if let Some(since) = &mut self.since {
            (since.step, since.first_step) = (step, None);
        }
    }

    /// A new coordinator goes on after this iteration, with a journal that had so many bytes before.
    pub(super) fn resumed_after(&mut self, iteration: u64, bytes: u64) {
        self.follower.resume_after(ata_types::Iteration(iteration), bytes);
        if let Some(since) = &mut self.since {
            (since.step, since.first_step) = (iteration, None);
        }
        self.present.clear();
        self.tasks = 0;
    }

    /// Other processes have taken the run to another step: all that they wrote is passed over.
    pub(super) fn pass_over(&mut self, folder: &Path) -> Result<(), Failure> {
        self.follower = Follower::new(folder);
        let (step, saved) = (&mut self.step, &mut self.saved);
        let mut note = |event| match event {
            RunEvent::Step { iteration, .. } => *step = iteration.number(),
            RunEvent::Checkpoint { iteration, .. } => *saved = iteration.number(),
            _ => {}
        };
        while self.follower.poll(&mut note)? == PollStatus::More {}
        Ok(())
    }

    /// Whether all results of an iteration with this budget have come, and its step has not: it is being taken, or waits for a
    /// checkpoint.
    pub(super) fn is_stepping(&self, budget: u64) -> bool {
        self.tasks >= budget
    }

    /// How long after `instant` the first new step came.
    pub(super) fn first_step_after(&self, instant: Instant) -> Option<Duration> {
        Some(self.since.as_ref()?.first_step?.saturating_duration_since(instant))
    }

    /// Seconds that an iteration takes.
    pub(super) fn usual_s(&self) -> f64 {
        median(&self.usual_s)
    }

    /// The worst delay of an iteration that lost tasks, or that was under way when the fault began.
    pub(super) fn delay(&self) -> Delay {
        let Some(since) = &self.since else { return Delay::default() };
        let usual_s = self.usual_s();
        let hit = since.iterations.iter().filter(|(k, iteration)| **k == since.step + 1 || !iteration.lost.is_empty());
        let delays = hit.filter_map(|(_, iteration)| {
            let extra_s = (iteration.runtime_s? - usual_s).max(0.0);
            Some(Delay { extra_s, again_s: iteration.again_s })
        });
        delays.max_by(|a, b| (a.extra_s - a.again_s).total_cmp(&(b.extra_s - b.again_s))).unwrap_or_default()
    }

    fn apply(&mut self, event: &RunEvent, now: Instant) {
        match *event {
            RunEvent::Join { worker, .. } => {
                self.present.insert(worker);
            }
            RunEvent::Loss { worker, .. } => {
                self.present.remove(&worker);
                match &mut self.since {
                    Some(since) => since.losses.push(worker),
                    None => self.lost_without_fault += 1,
                }
            }
            RunEvent::Checkpoint { iteration, .. } => self.saved = iteration.number(),
            RunEvent::Task { iteration, task, busy_s, overhead_s, outcome, .. } => {
                self.tasks += u64::from(outcome == TaskOutcome::Applied && iteration.number() == self.step + 1);
                let Some(since) = &mut self.since else { return };
                let iteration = since.iterations.entry(iteration.number()).or_default();
                match outcome {
                    TaskOutcome::Lost | TaskOutcome::Failed | TaskOutcome::Mismatched | TaskOutcome::Disputed => {
                        iteration.lost.insert(task);
                    }
                    TaskOutcome::Applied if iteration.lost.contains(&task) => {
                        iteration.again_s += busy_s.unwrap_or(0.0) + overhead_s.unwrap_or(0.0);
                    }
                    _ => {}
                }
            }
            RunEvent::Step { iteration, runtime_s, .. } => self.stepped(iteration.number(), runtime_s, now),
            _ => {}
        }
    }

    fn stepped(&mut self, step: u64, runtime_s: f64, now: Instant) {
        (self.step, self.tasks) = (step, 0);
        if let Some(since) = &mut self.since {
            since.iterations.entry(step).or_default().runtime_s = Some(runtime_s);
            if step > since.step {
                since.first_step.get_or_insert(now);
            }
            return;
        }
        if self.usual_s.len() == USUAL {
            self.usual_s.pop_front();
        }
        self.usual_s.push_back(runtime_s);
    }
}

fn median(values: &VecDeque<f64>) -> f64 {
    let mut sorted: Vec<f64> = values.iter().copied().collect();
    sorted.sort_by(f64::total_cmp);
    sorted.get(sorted.len() / 2).copied().unwrap_or(0.0)
}

#[cfg(test)]
mod tests {
    use ata_types::LeaseId;

    use super::*;

    fn step(iteration: u64, runtime_s: f64) -> RunEvent {
        RunEvent::Step {
            iteration: ata_types::Iteration(iteration),
            time_s: 0.0,
            loss: 1.0,
            runtime_s,
            total_worker_time_s: 1.0,
            tasks: 2,
            wasted: 0,
            employments: 1,
            results: 1,
            learning_rate: 0.1,
            gradient_norm: None,
        }
    }

    fn task(iteration: u64, task: u64, busy_s: Option<f64>, outcome: TaskOutcome) -> RunEvent {
        RunEvent::Task {
            iteration: ata_types::Iteration(iteration),
            task,
            worker: WorkerId::from_slot(0),
            lease: LeaseId(1),
            time_s: 0.0,
            busy_s,
            censored_s: None,
            overhead_s: None,
            outlasted: 0,
            outcome,
        }
    }

    #[test]
    fn delays_are_against_what_is_usual() {
        let mut seen = Seen::new(Path::new("none"));
        let now = Instant::now();
        for iteration in 1..=9 {
            seen.apply(&step(iteration, 0.1), now);
        }
        assert_eq!(seen.delay(), Delay::default());
        seen.begin();
        for event in [
            RunEvent::Loss { time_s: 0.0, worker: WorkerId::from_slot(0), why: "it left".into() },
            task(10, 1, None, TaskOutcome::Lost),
            task(10, 0, Some(0.1), TaskOutcome::Applied),
            task(10, 1, Some(0.25), TaskOutcome::Applied),
            step(10, 0.5),
            // Without lost tasks, an iteration is not the fault's.
            step(11, 9.0),
        ] {
            seen.apply(&event, now);
        }
        let delay = seen.delay();
        assert!((delay.extra_s - 0.4).abs() < 1e-9 && (delay.again_s - 0.25).abs() < 1e-9, "{delay:?}");
        assert_eq!(seen.since.as_ref().unwrap().losses, [WorkerId::from_slot(0)]);
        assert_eq!(seen.first_step_after(now), Some(Duration::ZERO));
        seen.forget_steps();
        assert_eq!((seen.first_step_after(now), seen.step), (None, 11));
    }
}
