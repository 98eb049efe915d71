use ata_types::Lease;
use ata_wire::{Assignment, DataSpec, SpanLinks};

use ata_learn::TaskGradient;

use super::*;

/// A learner of a finite gradient.
#[derive(Clone, Copy)]
struct Scripted {
    /// Attempts for which its data cannot be read.
    unreadable: usize,
    loss: f64,
}

impl Learner for Scripted {
    fn load(&mut self, _parameters: &[f32]) {}

    fn warm_up(&mut self, _largest: u64) -> Result<(), LearnerError> {
        Ok(())
    }

    fn gradient(&mut self, _iteration: Iteration, _index: u64) -> Result<TaskGradient, LearnerError> {
        if self.unreadable == 0 {
            return Ok(TaskGradient { gradient: vec![1.0], loss: self.loss });
        }
        self.unreadable -= 1;
        Err(DataError::io("train.bin")(std::io::ErrorKind::UnexpectedEof.into()).into())
    }
}

/// What becomes of a lease.
fn compute(learner: Scripted) -> Option<ComputeEvent> {
    let run = RunSpec {
        model: String::new(),
        parameters: 1,
        seed: 1,
        budget: 1,
        task_batch: 1,
        data: DataSpec::Generated { seed: 1 },
        test_data: DataSpec::Generated { seed: 1 },
        format: WireFormat::F32Exact,
    };
    let (events, mut received) = mpsc::channel(4);
    let compute = Compute::start(move || Box::new(learner), &run, TensorSizes::new([1]), false, None, events);
    assert!(matches!(received.blocking_recv(), Some(ComputeEvent::Ready)));
    let lease = Lease { id: LeaseId(1), iteration: Iteration(1), tasks: TaskRange::single(0), is_alone: false };
    let assignment = Assignment { lease, trace: None };
    let lease = HeldLease::new(assignment, 0, SpanLinks::default(), &"one".parse().unwrap());
    compute.push(Job::Compute { lease, cancelled: CancelFlag::default(), units: None });
    received.blocking_recv()
}

#[test]
fn data_that_cannot_be_read_is_tried_again() {
    let is_computed =
        |unreadable| matches!(compute(Scripted { unreadable, loss: 0.0 }), Some(ComputeEvent::Computed { .. }));
    assert!(is_computed(3));
    assert!(!is_computed(1 + READ_WAITS_MS.len()), "but not forever");
}

/// Its gradient must not be kept: a lease that the coordinator refuses cannot be separated from the others of its sum.
#[test]
fn a_loss_that_is_not_finite_fails_the_lease_on_the_worker() {
    for loss in [f64::NAN, f64::INFINITY] {
        let Some(ComputeEvent::Failed { reason, uncomputable: true, .. }) = compute(Scripted { unreadable: 0, loss })
        else {
            panic!("a loss of {loss} counts")
        };
        assert!(reason.contains("the loss is"), "{reason}");
    }
}
