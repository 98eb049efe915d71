//! The progress of the disturbed run, read from its journal.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use ata::Failure;
use ata_record::{Follower, JOURNAL_FILE, PollStatus, RunEvent, StepEvent};
use ata_types::{TaskOutcome, WorkerId};

/// The number of undisturbed iterations that the median time is taken over.
const USUAL: usize = 31;

pub(crate) struct RunProgress {
    folder: PathBuf,
    follower: Follower,
    /// The step that a new coordinator resumes after, and the length of the journal before it truncates or continues it.
    resumption: Option<(u64, u64)>,
    pub(crate) step: u64,
    /// The last iteration of the newest checkpoint.
    pub(crate) saved: u64,
    /// The number of completed tasks of the step after [`Self::step`].
    tasks: u64,
    pub(crate) present: BTreeSet<WorkerId>,
    /// The durations of the last iterations without a fault, in seconds.
    usual_s: VecDeque<f64>,
    pub(crate) lost_without_fault: u64,
    pub(crate) fault: Option<FaultWindow>,
}

/// The events since a fault was injected.
#[derive(Debug)]
pub(crate) struct FaultWindow {
    /// The last step that is not new: the last one before it, or before the process was restarted or continued.
    pub(crate) step: u64,
    /// The time at which the first step after [`Self::step`] was read.
    pub(crate) first_step: Option<Instant>,
    pub(crate) losses: Vec<WorkerId>,
    iterations: BTreeMap<u64, Iteration>,
}

#[derive(Debug, Default)]
struct Iteration {
    runtime_s: Option<f64>,
    /// The tasks whose lease was lost.
    lost: BTreeSet<u64>,
    /// Seconds spent on computing and sending those tasks again.
    again_s: f64,
}

/// The delay of an iteration by a fault.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Delay {
    pub(crate) extra_s: f64,
    /// Seconds spent on tasks that had to be computed again.
    pub(crate) again_s: f64,
}

impl RunProgress {
    pub(crate) fn new(folder: &Path) -> Self {
        Self {
            folder: folder.into(),
            follower: Follower::new(folder),
            resumption: None,
            step: 0,
            saved: 0,
            tasks: 0,
            present: BTreeSet::new(),
            usual_s: VecDeque::new(),
            lost_without_fault: 0,
            fault: None,
        }
    }

    /// Reads the events that were written since the last call.
    pub(crate) fn read(&mut self) -> Result<(), Failure> {
        let journal = self.folder.join(JOURNAL_FILE).metadata();
        if self.resumption.is_some_and(|(_, bytes)| journal.is_ok_and(|journal| journal.len() == bytes)) {
            return Ok(());
        }
        let mut events = Vec::new();
        while self.follower.poll(|event| events.push(event))? == PollStatus::More {}
        let now = Instant::now();
        for event in &events {
            let Some((after, _)) = self.resumption else {
                self.apply(event, now);
                continue;
            };
            // What stands before that step was read from the earlier coordinator.
            let step = match event {
                RunEvent::Run { .. } => Some(0),
                RunEvent::Step(StepEvent { iteration, .. }) | RunEvent::Folded { iteration, .. } => {
                    Some(iteration.number())
                }
                _ => None,
            };
            self.resumption = self.resumption.filter(|_| step != Some(after));
        }
        Ok(())
    }

    /// Must be called before a fault is injected.
    pub(crate) fn begin(&mut self) {
        let (step, iterations) = (self.step, BTreeMap::new());
        self.fault = Some(FaultWindow { step, first_step: None, losses: Vec::new(), iterations });
    }

    /// Counts only steps from now on as new.
    pub(crate) fn forget_steps(&mut self) {
        let step = self.step;
        if let Some(fault) = &mut self.fault {
            (fault.step, fault.first_step) = (step, None);
        }
    }

    /// Must be called when a new coordinator resumes after `iteration`. `bytes` is the earlier length of the journal.
    pub(crate) fn resumed_after(&mut self, iteration: u64, bytes: u64) {
        self.follower = Follower::new(&self.folder);
        self.resumption = Some((iteration, bytes));
        // Steps that are repeated are not new.
        self.forget_steps();
        self.present.clear();
        self.tasks = 0;
    }

    /// Skips the events that other processes have written.
    pub(crate) fn skip(&mut self, folder: &Path) -> Result<(), Failure> {
        self.follower = Follower::new(folder);
        let (step, saved) = (&mut self.step, &mut self.saved);
        let mut note = |event| match event {
            RunEvent::Step(taken) => *step = taken.iteration.number(),
            RunEvent::Checkpoint { iteration, .. } => *saved = iteration.number(),
            _ => {}
        };
        while self.follower.poll(&mut note)? == PollStatus::More {}
        Ok(())
    }

    /// Whether all results of an iteration with this budget have arrived but its step has not: it is being taken, or waits for a
    /// checkpoint.
    pub(crate) fn is_stepping(&self, budget: u64) -> bool {
        self.tasks >= budget
    }

    /// Returns the time from `instant` to the first new step.
    pub(crate) fn first_step_after(&self, instant: Instant) -> Option<Duration> {
        Some(self.fault.as_ref()?.first_step?.saturating_duration_since(instant))
    }

    /// Returns the median duration of an undisturbed iteration, in seconds.
    pub(crate) fn usual_s(&self) -> f64 {
        median(&self.usual_s)
    }

    /// Returns the longest delay of any iteration that lost tasks, or during which the fault began.
    pub(crate) fn delay(&self) -> Delay {
        let Some(fault) = &self.fault else { return Delay::default() };
        let usual_s = self.usual_s();
        let hit = fault.iterations.iter().filter(|(k, iteration)| **k == fault.step + 1 || !iteration.lost.is_empty());
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
                match &mut self.fault {
                    Some(fault) => fault.losses.push(worker),
                    None => self.lost_without_fault += 1,
                }
            }
            RunEvent::Checkpoint { iteration, .. } => self.saved = iteration.number(),
            RunEvent::Task { iteration, task, busy_s, overhead_s, outcome, .. } => {
                self.tasks += u64::from(outcome == TaskOutcome::Applied && iteration.number() == self.step + 1);
                let Some(fault) = &mut self.fault else { return };
                let iteration = fault.iterations.entry(iteration.number()).or_default();
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
            RunEvent::Step(step) => self.record_step(step.iteration.number(), step.runtime_s, now),
            _ => {}
        }
    }

    fn record_step(&mut self, step: u64, runtime_s: f64, now: Instant) {
        (self.step, self.tasks) = (step, 0);
        if let Some(fault) = &mut self.fault {
            fault.iterations.entry(step).or_default().runtime_s = Some(runtime_s);
            if step > fault.step {
                fault.first_step.get_or_insert(now);
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
    use serde_json::{Value, json};

    use super::*;

    fn step(iteration: u64, runtime_s: f64) -> RunEvent {
        event(json!({"event": "step", "iteration": iteration, "time_s": 0.0, "loss": 1.0, "runtime_s": runtime_s,
                     "total_worker_time_s": 1.0, "tasks": 2, "wasted": 0, "employments": 1, "results": 1,
                     "learning_rate": 0.1}))
    }

    fn task(iteration: u64, task: u64, busy_s: Option<f64>, outcome: TaskOutcome) -> RunEvent {
        event(json!({"event": "task", "iteration": iteration, "task": task, "worker": 1, "lease": 1, "time_s": 0.0,
                     "busy_s": busy_s, "outcome": outcome}))
    }

    fn event(fields: Value) -> RunEvent {
        serde_json::from_value(fields).unwrap()
    }

    #[test]
    fn delays_are_against_what_is_usual() {
        let mut progress = RunProgress::new(Path::new("none"));
        let now = Instant::now();
        for iteration in 1..=9 {
            progress.apply(&step(iteration, 0.1), now);
        }
        assert_eq!(progress.delay(), Delay::default());
        progress.begin();
        for event in [
            RunEvent::Loss { time_s: 0.0, worker: WorkerId::from_slot(0), why: "it left".into() },
            task(10, 1, None, TaskOutcome::Lost),
            task(10, 0, Some(0.1), TaskOutcome::Applied),
            task(10, 1, Some(0.25), TaskOutcome::Applied),
            step(10, 0.5),
            // An iteration without lost tasks is not attributed to the fault.
            step(11, 9.0),
        ] {
            progress.apply(&event, now);
        }
        let delay = progress.delay();
        assert!((delay.extra_s - 0.4).abs() < 1e-9 && (delay.again_s - 0.25).abs() < 1e-9, "{delay:?}");
        assert_eq!(progress.fault.as_ref().unwrap().losses, [WorkerId::from_slot(0)]);
        assert_eq!(progress.first_step_after(now), Some(Duration::ZERO));
        progress.forget_steps();
        assert_eq!((progress.first_step_after(now), progress.step), (None, 11));
    }

    /// Steps that a new coordinator repeats do not count as recovery.
    #[test]
    fn recovery_ends_with_the_first_step_beyond_those_taken_before() {
        let mut progress = RunProgress::new(Path::new("none"));
        let now = Instant::now();
        progress.begin();
        (1..=3).for_each(|iteration| progress.apply(&step(iteration, 0.1), now));
        progress.resumed_after(1, 0);
        for iteration in [2, 3] {
            progress.apply(&step(iteration, 0.1), now);
            assert_eq!(progress.first_step_after(now), None, "iteration {iteration} is computed again");
        }
        progress.apply(&step(4, 0.1), now);
        assert_eq!(progress.first_step_after(now), Some(Duration::ZERO));
    }
}
