use std::sync::Mutex;

use ata_data::DataError;
use ata_learn::TaskGradient;
use ata_sums::{InnerSteps, LearningRate, Optimizer, Rule};
use ata_types::TaskRanges;

use super::samples::READ_WAITS_MS;
use super::*;

const ITERATION: Iteration = Iteration(1);

/// A learner whose task `i` has the gradient 2^-i.
#[derive(Clone, Default)]
struct Scripted {
    /// The number of attempts for which the data cannot be read.
    unreadable: usize,
    loss: f64,
    /// The number of gradients after which this flag is set.
    cancels: Option<(usize, CancelFlag)>,
    /// The parameters that were loaded last.
    loaded: Arc<Mutex<Vec<f32>>>,
}

impl Learner for Scripted {
    fn load(&mut self, parameters: &[f32]) {
        *self.loaded.lock().unwrap() = parameters.to_vec();
    }

    fn warm_up(&mut self, _largest: u64) -> Result<(), LearnerError> {
        Ok(())
    }

    fn gradient(&mut self, _iteration: Iteration, index: u64) -> Result<TaskGradient, LearnerError> {
        if let Some((left, flag)) = &mut self.cancels {
            *left = left.saturating_sub(1);
            if *left == 0 {
                flag.0.store(CANCELLED, Ordering::Release);
            }
        }
        if self.unreadable == 0 {
            return Ok(TaskGradient { gradient: vec![value(index)], loss: self.loss });
        }
        self.unreadable -= 1;
        Err(DataError::io("train.bin")(std::io::ErrorKind::UnexpectedEof.into()).into())
    }
}

fn value(task: u64) -> f32 {
    2.0_f32.powi(-(task as i32))
}

struct Thread {
    compute: Compute,
    events: mpsc::Receiver<ComputeEvent>,
    iteration: Iteration,
}

impl Thread {
    fn start(learner: Scripted) -> Self {
        Self::with(learner, None, None)
    }

    fn with(learner: Scripted, inner_steps: Option<InnerSteps>, last: Option<LocalSteps>) -> Self {
        let run = RunSpec {
            parameters: 1,
            budget: 8,
            most_tasks: 8,
            task_batch: 1,
            inner_steps: inner_steps.map(Box::new),
            ..RunSpec::default()
        };
        let (sender, mut events) = mpsc::channel(16);
        let compute = Compute::start(move || Box::new(learner), &run, TensorSizes::new([1]), false, None, last, sender);
        assert!(matches!(events.blocking_recv(), Some(ComputeEvent::Ready)));
        Self { compute, events, iteration: ITERATION }
    }

    fn next(&mut self) -> Option<ComputeEvent> {
        self.events.blocking_recv()
    }

    /// Computes a lease, whose id is its first task.
    fn lease(&self, first: u64, count: u64, cancelled: &CancelFlag) {
        self.lease_in(0, first, count, cancelled);
    }

    fn lease_in(&self, round: u64, first: u64, count: u64, cancelled: &CancelFlag) {
        let tasks = TaskRange { first, count };
        let lease = Lease { id: LeaseId(first), iteration: self.iteration, tasks, own: None };
        self.compute_lease(lease, 0, round, cancelled);
    }

    fn compute_lease(&self, lease: Lease, position: u64, round: u64, cancelled: &CancelFlag) {
        self.compute.push(Job::Compute { lease, position, round, cancelled: cancelled.clone(), units: None });
    }

    fn ask(&self, vector: u64, tasks: &[u64], withdrawn: &CancelFlag, units: Option<Units>) {
        let tasks: TaskRanges = tasks.iter().copied().map(TaskRange::single).collect();
        let id = VectorId(vector);
        let request = VectorRequest { id, iteration: self.iteration, tasks, ..VectorRequest::default() };
        self.compute.push(Job::Collect { request, withdrawn: withdrawn.clone(), units });
    }

    /// Returns the next vector that is handed over, skipping the reports on leases, as its id, value and number of tasks.
    fn vector(&mut self) -> (u64, f32, u64) {
        loop {
            match self.next() {
                Some(ComputeEvent::Computed(_)) => {}
                Some(ComputeEvent::Collected(CollectedSum { vector, sums, units })) => {
                    let sum: i32 = sums.iter().map(|sum| sum.values[0]).sum();
                    let unit = 2.0_f32.powi(units.exponents()[0].into());
                    return (vector.0, sum as f32 * unit, sums.iter().map(|sum| sum.tasks).sum());
                }
                _ => panic!("no vector is handed over"),
            }
        }
    }
}

fn total(tasks: &[u64]) -> f32 {
    tasks.iter().copied().map(value).sum()
}

fn compute(learner: Scripted) -> Option<ComputeEvent> {
    let mut thread = Thread::start(learner);
    thread.lease(0, 1, &CancelFlag::default());
    thread.next()
}

#[test]
fn data_that_cannot_be_read_is_tried_again() {
    let is_computed =
        |unreadable| matches!(compute(Scripted { unreadable, ..Scripted::default() }), Some(ComputeEvent::Computed(_)));
    assert!(is_computed(3));
    assert!(!is_computed(1 + READ_WAITS_MS.len()), "but not forever");
}

/// The gradient must not be kept: the coordinator would refuse its lease, and tasks added to it would have to be computed again.
#[test]
fn a_loss_that_is_not_finite_fails_the_lease_on_the_worker() {
    for loss in [f64::NAN, f64::INFINITY] {
        let Some(ComputeEvent::Failed { reason, uncomputable: true, .. }) =
            compute(Scripted { loss, ..Scripted::default() })
        else {
            panic!("a loss of {loss} counts")
        };
        assert!(reason.contains("the loss is"), "{reason}");
    }
}

/// The coordinator treats the lease as cancelled, and asks for the other ones.
#[test]
fn a_lease_that_is_cancelled_in_its_last_task_is_in_no_vector() {
    let (on, cancelled) = (CancelFlag::default(), CancelFlag::default());
    // The first gradient, which only determines the units, is counted too.
    let mut thread = Thread::start(Scripted { cancels: Some((4, cancelled.clone())), ..Scripted::default() });
    thread.lease(0, 1, &CancelFlag::default());
    thread.lease(1, 2, &cancelled);
    thread.lease(3, 1, &CancelFlag::default());
    thread.ask(1, &[0, 1, 2, 3], &on, None);
    thread.ask(2, &[0, 3], &on, None);
    assert_eq!(thread.vector(), (2, total(&[0, 3]), 2));
}

/// The total of the earlier leases includes a lease that is not requested, so the other leases in it are computed again.
#[test]
fn a_lease_that_is_cancelled_two_leases_late_is_in_no_vector() {
    let on = CancelFlag::default();
    let mut thread = Thread::start(Scripted::default());
    (0..6).for_each(|task| thread.lease(task, 1, &CancelFlag::default()));
    thread.compute.push(Job::Discard(LeaseId(1)));
    thread.ask(1, &[0, 2, 3, 4, 5], &on, None);
    assert_eq!(thread.vector(), (1, total(&[0, 2, 3, 4, 5]), 5));
    thread.ask(2, &[0, 2], &on, None);
    assert_eq!(thread.vector(), (2, total(&[0, 2]), 2));
}

/// Tasks are computed again if another worker's units were chosen, and a task may be computed twice.
#[test]
fn tasks_in_other_units_and_tasks_that_were_computed_twice_count_once() {
    let on = CancelFlag::default();
    let mut thread = Thread::start(Scripted::default());
    thread.lease(0, 3, &CancelFlag::default());
    thread.lease(2, 2, &CancelFlag::default());
    let units = Units::from_exponents(&[-12], &TensorSizes::new([1])).unwrap();
    for (vector, units) in [(1, None), (2, Some(units))] {
        thread.ask(vector, &[0, 1, 2, 3], &on, units);
        assert_eq!(thread.vector(), (vector, total(&[0, 1, 2, 3]), 4));
    }
}

/// The vector that is requested next is handed over.
#[test]
fn a_vector_that_is_withdrawn_stops_what_is_computed_for_it() {
    let (on, withdrawn) = (CancelFlag::default(), CancelFlag::default());
    // Six gradients are computed before: those of five tasks, and one for the units.
    let mut thread = Thread::start(Scripted { cancels: Some((7, withdrawn.clone())), ..Scripted::default() });
    (0..5).for_each(|task| thread.lease(task, 1, &CancelFlag::default()));
    thread.ask(1, &[0, 1], &withdrawn, None);
    thread.ask(2, &[1, 2], &on, None);
    assert_eq!(thread.vector(), (2, total(&[1, 2]), 2));
}

/// A worker whose steps have the rate 1, so that a task moves it by its gradient.
fn local_thread(learner: Scripted) -> Thread {
    local_session(learner, 0.0, None)
}

fn local_session(learner: Scripted, momentum: f64, last: Option<LocalSteps>) -> Thread {
    let rule = Rule::Sgd { momentum, nesterov: false };
    let optimizer = Optimizer { rule, ..Optimizer::default() };
    let steps = InnerSteps { optimizer, learning_rate: LearningRate::constant(1.0), difference_bits: 8, overlap: true };
    let thread = Thread::with(learner, Some(steps), last);
    thread.compute.push(Job::Load(ITERATION, vec![8.0].into()));
    thread
}

/// The vector of some tasks is their number times the distance that the worker has moved.
#[test]
fn leases_that_are_asked_for_together_are_a_chain_of_steps() {
    let on = CancelFlag::default();
    let mut thread = local_thread(Scripted::default());
    thread.lease_in(0, 0, 2, &CancelFlag::default());
    thread.lease_in(0, 2, 1, &CancelFlag::default());
    thread.ask(1, &[0, 1, 2], &on, None);
    assert_eq!(thread.vector(), (1, 3.0 * total(&[0, 1, 2]), 3));
    // The next chain begins at the parameters of the round again, and what is asked for in place of both vectors has both.
    thread.lease_in(1, 3, 1, &CancelFlag::default());
    thread.ask(2, &[3], &on, None);
    assert_eq!(thread.vector(), (2, value(3), 1));
    thread.ask(3, &[0, 1, 2, 3], &on, None);
    assert_eq!(thread.vector(), (3, 3.0 * total(&[0, 1, 2]) + value(3), 4));
    // A step that is not asked for stays, without weight.
    thread.ask(4, &[0, 1, 2], &on, Some(Units::from_exponents(&[-12], &TensorSizes::new([1])).unwrap()));
    let ComputeEvent::VectorFailed { vector: VectorId(4), reason, uncomputable: false } = thread.next().unwrap() else {
        panic!("steps cannot be taken again")
    };
    assert!(reason.contains("no longer there"), "{reason}");
}

/// Each step is in one difference, and the worker is where it has moved from the parameters that arrived last.
#[test]
fn steps_that_are_taken_ahead_count_in_the_next_round() {
    let (on, learner) = (CancelFlag::default(), Scripted::default());
    let mut thread = local_thread(learner.clone());
    thread.lease_in(0, 0, 1, &CancelFlag::default());
    thread.ask(1, &[0], &on, None);
    assert_eq!(thread.vector(), (1, value(0), 1));
    thread.iteration = ITERATION.next();
    thread.lease_in(1, 1, 1, &CancelFlag::default());
    thread.compute.push(Job::Load(ITERATION.next(), vec![3.0].into()));
    thread.lease_in(1, 2, 1, &CancelFlag::default());
    thread.ask(2, &[1, 2], &on, None);
    assert_eq!(thread.vector(), (2, 2.0 * total(&[1, 2]), 2));
    assert_eq!(*learner.loaded.lock().unwrap(), [3.0 - total(&[1, 2])]);
}

/// What was begun ahead and given up is in no difference.
#[test]
fn steps_that_are_given_up_are_dropped_with_the_next_parameters() {
    let on = CancelFlag::default();
    let mut thread = local_thread(Scripted::default());
    thread.lease_in(0, 0, 1, &CancelFlag::default());
    thread.ask(1, &[0], &on, None);
    thread.vector();
    thread.iteration = ITERATION.next();
    for id in [7, 8] {
        let ahead = Lease { id: LeaseId(id), iteration: thread.iteration, tasks: TaskRange::single(1), own: None };
        thread.compute_lease(ahead, 0, 1, &CancelFlag::default());
        thread.compute.push(Job::Discard(LeaseId(7)));
    }
    thread.compute.push(Job::Load(ITERATION.next(), vec![3.0].into()));
    thread.ask(2, &[1], &on, None);
    assert_eq!(thread.vector(), (2, value(1), 1), "the same task again is one step");
}

/// With a budget of 8, the tasks after 13 others are the last three of the second iteration, and the first ones of the third.
#[test]
fn steps_are_those_of_a_run_whose_iterations_have_the_budget() {
    let mut thread = local_thread(Scripted::default());
    let tasks = TaskRange { first: 1, count: 4 };
    let lease = Lease { id: LeaseId(1), iteration: ITERATION, tasks, own: None };
    thread.compute_lease(lease, 13, 0, &CancelFlag::default());
    thread.ask(1, &[1, 2, 3, 4], &CancelFlag::default(), None);
    assert_eq!(thread.vector(), (1, 4.0 * total(&[6, 7, 0, 1]), 4));
}

#[test]
fn the_steps_of_a_cancelled_lease_are_taken_back() {
    let (on, cancelled) = (CancelFlag::default(), CancelFlag::default());
    let mut thread = local_thread(Scripted { cancels: Some((3, cancelled.clone())), ..Scripted::default() });
    thread.lease_in(0, 0, 1, &CancelFlag::default());
    thread.lease_in(0, 1, 2, &cancelled);
    thread.lease_in(0, 3, 1, &CancelFlag::default());
    thread.ask(1, &[0, 3], &on, None);
    assert_eq!(thread.vector(), (1, 2.0 * total(&[0, 3]), 2));
}

/// A worker that connects again goes on with the moments of its steps.
#[test]
fn moments_outlast_a_session() {
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    for (momentum, kept) in [(0.5, 0.5 * value(0)), (0.25, 0.0)] {
        let first = local_session(Scripted::default(), 0.5, None);
        first.lease(0, 1, &CancelFlag::default());
        let last = runtime.block_on(first.compute.finish());
        let mut second = local_session(Scripted::default(), momentum, last);
        second.lease(1, 1, &CancelFlag::default());
        second.ask(1, &[1], &CancelFlag::default(), None);
        assert_eq!(second.vector(), (1, value(1) + kept, 1), "a run with other steps begins afresh");
    }
}
