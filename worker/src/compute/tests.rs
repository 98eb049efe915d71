use ata_types::Lease;
use ata_wire::{Assignment, DataSpec, SpanLinks};

use ata_learn::TaskGradient;

use super::*;

/// A learner whose data cannot be read for this many attempts.
struct Unreadable(usize);

impl Learner for Unreadable {
    fn load(&mut self, _parameters: &[f32]) {}

    fn warm_up(&mut self, _largest: u64) -> Result<(), LearnerError> {
        Ok(())
    }

    fn gradient(&mut self, _iteration: Iteration, _index: u64) -> Result<TaskGradient, LearnerError> {
        if self.0 == 0 {
            return Ok(TaskGradient { gradient: vec![1.0], loss: 0.0 });
        }
        self.0 -= 1;
        Err(DataError::io("train.bin")(std::io::ErrorKind::UnexpectedEof.into()).into())
    }
}

/// Whether a lease is computed if its data cannot be read for this many attempts.
fn is_computed(unreadable: usize) -> bool {
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
    let compute =
        Compute::start(move || Box::new(Unreadable(unreadable)), &run, TensorSizes::new([1]), false, None, events);
    assert!(matches!(received.blocking_recv(), Some(ComputeEvent::Ready)));
    let lease = Lease { id: LeaseId(1), iteration: Iteration(1), tasks: TaskRange::single(0), is_alone: false };
    let assignment = Assignment { lease, trace: None };
    let lease = HeldLease::new(assignment, 0, SpanLinks::default(), &"one".parse().unwrap());
    compute.push(Job::Compute { lease, cancelled: CancelFlag::default(), units: None });
    matches!(received.blocking_recv(), Some(ComputeEvent::Computed { .. }))
}

#[test]
fn data_that_cannot_be_read_is_tried_again() {
    assert!(is_computed(3));
    assert!(!is_computed(1 + READ_WAITS_MS.len()), "but not forever");
}
