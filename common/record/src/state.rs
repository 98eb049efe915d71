//! What a run's events add up to: progress, costs, workers. Its size is bounded by the workers and the budget.

use std::collections::{BTreeMap, VecDeque};

use ata_types::{Iteration, TaskOutcome, WorkerId};

use crate::event::{EndState, RefusalKind, RunEvent};

/// Times kept per worker, of tasks and of assignments: enough for a distribution, and affordable with thousands of workers.
const TIMES_KEPT: usize = 4096;

/// What a run is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RunPhase {
    /// It has not begun, or waits for workers.
    Waiting {
        /// Workers present.
        present: usize,
        /// Workers needed.
        needed: usize,
    },
    /// Iterating.
    Training,
    /// Evaluating on the test data.
    Evaluating,
    /// It is over.
    Over(EndState),
}

impl Default for RunPhase {
    fn default() -> Self {
        Self::Waiting { present: 0, needed: 0 }
    }
}

/// The state of a run so far.
#[derive(Clone, Debug, Default)]
pub struct RunState {
    /// What it is doing.
    pub phase: RunPhase,
    /// Its policy, as `--policy` takes it.
    pub policy: String,
    /// B, the number of tasks per iteration.
    pub budget: u64,
    /// Seed of everything random.
    pub seed: u64,
    /// Steps taken.
    pub iterations: u64,
    /// Sum of C_k, in seconds.
    pub iteration_time_s: f64,
    /// Sum over iterations, in seconds.
    pub total_worker_time_s: f64,
    /// Tasks that entered a step.
    pub tasks_applied: u64,
    /// Wasted tasks: begun, but in no step.
    pub tasks_wasted: u64,
    /// Worker-iterations with at least one task.
    pub employments: u64,
    /// Results that workers sent, each the gradient of one task or the sum of several.
    pub results: u64,
    /// Mean loss of the first step's tasks.
    pub first_loss: Option<f64>,
    /// Mean loss of the last step's tasks.
    pub last_loss: Option<f64>,
    /// When the first iteration began, and when the last step was taken.
    pub span_s: Option<(f64, f64)>,
    /// The allocation of the iteration under way: workers and their tasks.
    pub allocation: Vec<(WorkerId, u64)>,
    /// The workers by number. A number that was reassigned belongs to its last worker.
    pub workers: BTreeMap<WorkerId, WorkerState>,
    /// Tasks whose computation took longer than their emulated time.
    pub tasks_outlasted: u64,
    /// Refusals by kind.
    pub refused: BTreeMap<RefusalKind, u64>,
    /// Loss and accuracy of the last evaluation; no accuracy if the problem has no classes.
    pub evaluation: Option<(f64, Option<f64>)>,
    /// The lowest loss of an evaluation.
    pub lowest_test_loss: Option<f64>,
    /// The last iteration of the newest checkpoint.
    pub saved: Option<Iteration>,
    /// How the run ended, and why.
    pub end: Option<(EndState, String)>,
    /// Applied tasks of the iteration under way.
    pending: Vec<Pending>,
}

/// The state of a worker so far.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct WorkerState {
    /// Its name across sessions.
    pub name: String,
    /// What it computes on.
    pub device: String,
    /// Whether it is present.
    pub present: bool,
    /// When its last rest after a failure ends; may be in the past.
    pub rests_until_s: Option<f64>,
    /// Its results that differ from those on which two other workers agree.
    pub mismatches: u64,
    /// Why it was expelled, if it was.
    pub expelled: Option<String>,
    /// Its tasks that entered a step.
    pub tasks_applied: u64,
    /// Seconds it spent on those.
    pub busy_s: f64,
    /// Seconds that were not computation: transport, waiting, encoding.
    pub overhead_s: f64,
    /// Seconds of each of the last tasks that it completed.
    pub times_s: VecDeque<f64>,
    /// Seconds of each of its last assignments that were not computation.
    pub overheads_s: VecDeque<f64>,
}

#[derive(Clone, Copy, Debug)]
struct Pending {
    worker: WorkerId,
    busy_s: f64,
    overhead_s: f64,
}

impl WorkerState {
    /// Mean seconds of its tasks that entered a step, if any did.
    pub fn mean_task_s(&self) -> Option<f64> {
        (self.tasks_applied > 0).then(|| self.busy_s / self.tasks_applied as f64)
    }
}

impl RunState {
    /// Applies the next event.
    pub fn apply(&mut self, event: &RunEvent) {
        match event {
            RunEvent::Run { policy, budget, seed, .. } => {
                (self.budget, self.seed) = (*budget, *seed);
                self.policy.clone_from(policy);
            }
            RunEvent::Resume { policy, iteration, .. } => {
                self.policy.clone_from(policy);
                (self.phase, self.end, self.saved) = (RunPhase::default(), None, Some(*iteration));
                self.allocation.clear();
                self.pending.clear();
                self.workers.values_mut().for_each(|worker| worker.present = false);
            }
            RunEvent::Wait { present, needed, .. } => {
                self.phase = RunPhase::Waiting { present: *present, needed: *needed };
            }
            RunEvent::Join { worker, name, device, .. } => self.joined(*worker, name, device),
            RunEvent::Loss { worker, .. } => self.worker(*worker).present = false,
            RunEvent::Rest { time_s, worker, rest_s, .. } => {
                self.worker(*worker).rests_until_s = Some(time_s + rest_s);
            }
            RunEvent::Allocation { time_s, workers, allocation, .. } => {
                self.phase = RunPhase::Training;
                self.span_s.get_or_insert((*time_s, *time_s));
                // In an asynchronous run each worker computes one task at a time.
                let tasks = allocation.iter().copied().chain(std::iter::repeat(1));
                self.allocation = workers.iter().copied().zip(tasks).collect();
            }
            RunEvent::Task { worker, busy_s: Some(busy_s), overhead_s, outlasted, outcome, .. } => {
                self.tasks_outlasted += outlasted;
                self.computed(*worker, *busy_s, *overhead_s, *outcome);
            }
            RunEvent::Step { .. } => self.stepped(event),
            RunEvent::Expulsion { worker, why, .. } => self.worker(*worker).expelled = Some(why.clone()),
            RunEvent::Refusal { worker, kind, count, .. } => {
                *self.refused.entry(*kind).or_default() += count;
                if *kind == RefusalKind::Mismatched {
                    self.worker(*worker).mismatches += count;
                }
            }
            RunEvent::Evaluating { .. } => self.phase = RunPhase::Evaluating,
            RunEvent::Evaluation { loss, accuracy, .. } => {
                self.evaluation = Some((*loss, *accuracy));
                self.lowest_test_loss = Some(self.lowest_test_loss.map_or(*loss, |lowest| lowest.min(*loss)));
            }
            RunEvent::End { state, reason, .. } => {
                self.phase = RunPhase::Over(*state);
                self.end = Some((*state, reason.clone()));
            }
            RunEvent::Checkpoint { iteration, .. } => self.saved = Some(*iteration),
            RunEvent::Task { .. } | RunEvent::CheckpointFailed { .. } => {}
        }
    }

    /// Seconds from the first assignment to the last step.
    pub fn runtime_s(&self) -> f64 {
        self.span_s.map_or(0.0, |(first, last)| last - first)
    }

    /// The number of workers present.
    pub fn present(&self) -> usize {
        self.workers.values().filter(|worker| worker.present).count()
    }

    /// The largest number that a worker has had.
    pub fn last_worker(&self) -> u32 {
        self.workers.last_key_value().map_or(0, |(id, _)| id.number())
    }

    fn worker(&mut self, id: WorkerId) -> &mut WorkerState {
        self.workers.entry(id).or_default()
    }

    fn joined(&mut self, id: WorkerId, name: &str, device: &str) {
        let worker = self.worker(id);
        if worker.name != name {
            *worker = WorkerState { name: name.into(), ..WorkerState::default() };
        }
        worker.device = device.into();
        worker.present = true;
    }

    fn computed(&mut self, id: WorkerId, busy_s: f64, overhead_s: Option<f64>, outcome: TaskOutcome) {
        let worker = self.worker(id);
        keep(&mut worker.times_s, busy_s);
        if let Some(overhead_s) = overhead_s {
            keep(&mut worker.overheads_s, overhead_s);
        }
        if outcome == TaskOutcome::Applied {
            self.pending.push(Pending { worker: id, busy_s, overhead_s: overhead_s.unwrap_or(0.0) });
        }
    }

    fn stepped(&mut self, step: &RunEvent) {
        let &RunEvent::Step {
            time_s, loss, runtime_s, total_worker_time_s, tasks, wasted, employments, results, ..
        } = step
        else {
            return;
        };
        self.iterations += 1;
        self.iteration_time_s += runtime_s;
        self.total_worker_time_s += total_worker_time_s;
        self.tasks_applied += tasks;
        self.tasks_wasted += wasted;
        self.employments += employments;
        self.results += results;
        self.first_loss.get_or_insert(loss);
        self.last_loss = Some(loss);
        let (_, last) = self.span_s.get_or_insert((time_s - runtime_s, time_s));
        *last = time_s;
        for Pending { worker, busy_s, overhead_s } in std::mem::take(&mut self.pending) {
            let worker = self.worker(worker);
            worker.tasks_applied += 1;
            worker.busy_s += busy_s;
            worker.overhead_s += overhead_s;
        }
    }
}

/// Adds a time to the last ones.
fn keep(times_s: &mut VecDeque<f64>, time_s: f64) {
    if times_s.len() == TIMES_KEPT {
        times_s.pop_front();
    }
    times_s.push_back(time_s);
}

#[cfg(test)]
mod tests {
    use ata_types::LeaseId;

    use super::*;

    fn task(worker: usize, busy_s: Option<f64>, outcome: TaskOutcome) -> RunEvent {
        RunEvent::Task {
            iteration: Iteration(1),
            task: 0,
            worker: WorkerId::from_slot(worker - 1),
            lease: LeaseId(1),
            time_s: 1.0,
            busy_s,
            censored_s: None,
            overhead_s: Some(0.5),
            outlasted: 1,
            outcome,
        }
    }

    fn step(iteration: u64, time_s: f64, loss: f64) -> RunEvent {
        RunEvent::Step {
            iteration: Iteration(iteration),
            time_s,
            loss,
            runtime_s: 2.0,
            total_worker_time_s: 3.0,
            tasks: 1,
            wasted: 1,
            employments: 2,
            results: 3,
            learning_rate: 0.1,
            gradient_norm: None,
        }
    }

    #[test]
    fn costs_add_up_over_committed_iterations() {
        let mut state = RunState::default();
        let allocation = RunEvent::Allocation {
            iteration: Iteration(1),
            time_s: 1.0,
            workers: vec![WorkerId::from_slot(0), WorkerId::from_slot(2)],
            allocation: vec![1, 1],
            probes: vec![],
            scores_s: vec![],
            rule: "uniform".into(),
        };
        for event in [
            allocation,
            task(1, Some(2.0), TaskOutcome::Applied),
            task(3, None, TaskOutcome::Cancelled),
            task(3, Some(9.0), TaskOutcome::Ignored),
            step(1, 3.5, 4.0),
            task(3, Some(7.0), TaskOutcome::Applied),
            step(2, 6.0, 3.0),
            task(1, Some(5.0), TaskOutcome::Applied),
        ] {
            state.apply(&event);
        }
        assert_eq!((state.iterations, state.iteration_time_s, state.total_worker_time_s), (2, 4.0, 6.0));
        assert_eq!((state.tasks_applied, state.tasks_wasted, state.employments, state.results), (2, 2, 4, 6));
        assert_eq!(state.tasks_outlasted, 4, "of all that were computed");
        assert_eq!((state.first_loss, state.last_loss, state.runtime_s()), (Some(4.0), Some(3.0), 5.0));
        let worker = |number: usize| &state.workers[&WorkerId::from_slot(number - 1)];
        assert_eq!((worker(1).tasks_applied, worker(1).busy_s), (1, 2.0), "the third iteration is not committed");
        assert_eq!((worker(3).tasks_applied, worker(3).overhead_s), (1, 0.5));
        assert_eq!((&worker(1).times_s, &worker(3).times_s), (&[2.0, 5.0].into(), &[9.0, 7.0].into()));
    }

    #[test]
    fn a_number_belongs_to_its_last_worker() {
        let mut state = RunState::default();
        let second = WorkerId::from_slot(1);
        let join = |name: &str| RunEvent::Join { time_s: 0.0, worker: second, name: name.into(), device: "cpu".into() };
        state.apply(&join("a"));
        state.apply(&task(2, Some(1.0), TaskOutcome::Ignored));
        state.apply(&RunEvent::Loss { time_s: 1.0, worker: second, why: "it left".into() });
        assert_eq!(state.present(), 0);
        state.apply(&join("a"));
        assert_eq!((state.present(), state.workers[&second].times_s.len()), (1, 1), "the same one is back");
        state.apply(&join("b"));
        assert_eq!((state.workers[&second].name.as_str(), state.workers[&second].times_s.len()), ("b", 0));
    }
}
