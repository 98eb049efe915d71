//! The thread that computes gradients, measures times and, on request, emulates slowness.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, mpsc as std_mpsc};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use ata_learn::{DataError, Learner, LearnerError, Partial, TaskGradient, reduce_in_order, with_own_threads};
use ata_types::{Iteration, LeaseId, TaskRange};
use ata_wire::{LeaseTimes, Pool, RunSpec};
use tokio::sync::mpsc;

use crate::config::TaskTime;
use crate::trace::HeldLease;

/// Milliseconds between attempts to read the samples of a task, 1.3 s in all, after which a disk that was busy answers again. If
/// it does not, the lease fails, and another worker computes it. The sum is far below the shortest lease timeout.
const READ_WAITS_MS: [u64; 7] = [10, 20, 40, 80, 160, 320, 640];

/// A job for the thread; jobs run in order.
pub(crate) enum Job {
    /// Use these parameters from now on; the buffer goes back to the pool.
    Load(Vec<f32>, Pool),
    /// Compute a lease, unless it is cancelled by then.
    Compute { lease: HeldLease, cancelled: CancelFlag },
}

/// Whether a lease was cancelled; shared with the thread.
#[derive(Clone, Debug, Default)]
pub(crate) struct CancelFlag(Arc<AtomicBool>);

impl CancelFlag {
    fn is_set(&self) -> bool {
        self.0.load(Ordering::Acquire)
    }
}

/// A message from the thread.
pub(crate) enum ComputeEvent {
    /// The thread is warmed up and waits for jobs.
    Ready,
    /// A lease was computed.
    Computed(ComputedLease),
    /// A lease could not be computed.
    Failed { lease: LeaseId, reason: String },
    /// The device failed; the thread ends.
    Broken(String),
}

/// A computed lease.
pub(crate) struct ComputedLease {
    pub(crate) lease: HeldLease,
    pub(crate) sum: Partial,
    /// Emulated slowness included.
    pub(crate) times: LeaseTimes,
}

/// A handle to the running thread.
pub(crate) struct Compute {
    /// Whether it computes a lease as one batch.
    pub(crate) fuses: bool,
    jobs: std_mpsc::Sender<Job>,
    thread: JoinHandle<()>,
}

impl Compute {
    /// Starts the thread. It makes the learner, warms it up so that the first measured time does not include compiling
    /// kernels, and reports [`ComputeEvent::Ready`]. If `fuse` is set, or the emulated device does so, it computes a lease, of
    /// up to the run's budget of tasks, as one batch.
    pub(crate) fn start(
        learner: impl FnOnce() -> Box<dyn Learner> + Send + 'static,
        run: &RunSpec,
        fuse: bool,
        task_time: Option<TaskTime>,
        events: mpsc::Sender<ComputeEvent>,
    ) -> Self {
        let fuses = fuse || task_time.as_ref().is_some_and(|task_time| task_time.fuses);
        let (parameters, largest) = (run.parameters as usize, if fuses { run.budget } else { 1 });
        let (jobs, received) = std_mpsc::channel();
        let thread = std::thread::Builder::new()
            .name("compute".into())
            .spawn(move || {
                let run = AssertUnwindSafe(|| {
                    let worker = Worker { learner: learner(), fuses, task_time, events: &events };
                    worker.run(&vec![0.0; parameters], largest, &received)
                });
                // burn panics if a device fails. The session is notified, and the process survives.
                let error = match with_own_threads(|| catch_unwind(run)) {
                    Ok(Ok(())) => None,
                    Ok(Err(reason)) => Some(reason),
                    Err(panic) => Some(panic_text(panic.as_ref())),
                };
                if let Some(reason) = error {
                    drop(events.blocking_send(ComputeEvent::Broken(reason)));
                }
            })
            .expect("a thread can be started");
        Self { fuses, jobs, thread }
    }

    /// Queues a job.
    pub(crate) fn push(&self, job: Job) {
        // If the thread is gone, it has reported why.
        drop(self.jobs.send(job));
    }

    /// Cancels a lease; if the thread is emulating slowness for it, the wait ends.
    pub(crate) fn cancel(&self, flag: &CancelFlag) {
        flag.0.store(true, Ordering::Release);
        self.thread.thread().unpark();
    }

    /// Waits until the thread has done its jobs and ended.
    pub(crate) async fn finish(self) {
        drop(self.jobs);
        // The thread has reported its failure, if there was one.
        drop(tokio::task::spawn_blocking(move || self.thread.join()).await);
    }
}

fn panic_text(panic: &(dyn std::any::Any + Send)) -> String {
    let text = panic.downcast_ref::<String>().map(String::as_str).or_else(|| panic.downcast_ref::<&str>().copied());
    text.unwrap_or("the compute thread panicked").to_owned()
}

struct Worker<'a> {
    learner: Box<dyn Learner>,
    fuses: bool,
    task_time: Option<TaskTime>,
    events: &'a mpsc::Sender<ComputeEvent>,
}

impl Worker<'_> {
    /// Works until the jobs end. An error is one that the thread cannot continue after.
    fn run(mut self, parameters: &[f32], largest: u64, jobs: &std_mpsc::Receiver<Job>) -> Result<(), String> {
        self.learner.load(parameters);
        self.learner.warm_up(largest).map_err(|error| error.to_string())?;
        self.report(ComputeEvent::Ready);
        for job in jobs {
            match job {
                Job::Load(parameters, pool) => {
                    self.learner.load(&parameters);
                    pool.give(parameters);
                }
                Job::Compute { lease, cancelled } => self.compute(lease, &cancelled)?,
            }
        }
        Ok(())
    }

    fn report(&self, event: ComputeEvent) {
        // The receiver is gone if the session is over.
        drop(self.events.blocking_send(event));
    }

    /// Computes a lease and reports it.
    fn compute(&mut self, lease: HeldLease, cancelled: &CancelFlag) -> Result<(), String> {
        let (iteration, tasks, span) = (lease.iteration(), lease.tasks(), lease.compute_span());
        let mut times = LeaseTimes::default();
        let fuses = self.fuses;
        let mut timed = |batch: TaskRange| {
            if batch.end() < tasks.end() {
                self.learner.announce(iteration, TaskRange { first: batch.end(), count: batch.count });
            }
            let Measurement { result, busy, is_outlasted } = self.timed(iteration, batch, cancelled)?;
            times.busy_s.push(busy.as_secs_f64());
            times.outlasted += if is_outlasted { batch.count } else { 0 };
            Ok((result.gradient, result.loss))
        };
        let TaskRange { first, count } = tasks;
        let sum = if fuses {
            timed(tasks).map(|(gradient, loss)| Partial { first, count, gradient, loss })
        } else {
            reduce_in_order(first, count, |index| timed(TaskRange::single(index)))
        };
        if !span.is_disabled() {
            span.record("busy_s", times.busy_s.iter().sum::<f64>()).record("outlasted", times.outlasted);
        }
        drop(span);
        match sum {
            Ok(sum) => self.report(ComputeEvent::Computed(ComputedLease { lease, sum, times })),
            Err(Stop::Cancelled) => lease.record_cancelled(),
            Err(Stop::Failed(reason)) => {
                lease.record_failed();
                self.report(ComputeEvent::Failed { lease: lease.id(), reason });
            }
            Err(Stop::Broken(reason)) => {
                lease.record_failed();
                return Err(reason);
            }
        }
        Ok(())
    }

    /// Computes some tasks as one batch, and waits until their emulated time has passed.
    fn timed(&mut self, iteration: Iteration, tasks: TaskRange, cancelled: &CancelFlag) -> Result<Measurement, Stop> {
        if cancelled.is_set() {
            return Err(Stop::Cancelled);
        }
        // Reading the samples is part of the task, since the device waits for them.
        let started = Instant::now();
        let result = self.gradient(iteration, tasks, cancelled).map_err(|error| match error {
            LearnerError::Data(_) if cancelled.is_set() => Stop::Cancelled,
            LearnerError::Data(error) => Stop::Failed(error.to_string()),
            LearnerError::Device(_) => Stop::Broken(error.to_string()),
        })?;
        let computed = started.elapsed();
        let emulated = |task_time: &mut TaskTime| (task_time.of_batch)(iteration, tasks.count, computed);
        let target = self.task_time.as_mut().map_or(computed, emulated);
        let rest = target.checked_sub(computed);
        let busy = computed + rest.map_or(Duration::ZERO, |rest| wait(rest, cancelled));
        Ok(Measurement { result, busy, is_outlasted: rest.is_none() })
    }

    /// Computes some tasks as one batch. Samples that cannot be read are read again.
    fn gradient(
        &mut self,
        iteration: Iteration,
        tasks: TaskRange,
        cancelled: &CancelFlag,
    ) -> Result<TaskGradient, LearnerError> {
        let mut waits_ms = READ_WAITS_MS.into_iter();
        loop {
            let result = match tasks {
                TaskRange { first, count: 1 } => self.learner.gradient(iteration, first),
                tasks => self.learner.fused(iteration, tasks),
            };
            let is_unreadable = matches!(result, Err(LearnerError::Data(DataError::Io { .. })));
            match waits_ms.next() {
                Some(wait_ms) if is_unreadable && !cancelled.is_set() => {
                    wait(Duration::from_millis(wait_ms), cancelled);
                }
                _ => return result,
            }
        }
    }
}

/// The gradient of tasks that were computed as one batch, and how long it took.
struct Measurement {
    result: TaskGradient,
    /// Emulated slowness included.
    busy: Duration,
    /// Whether the computation outlasted the emulated time.
    is_outlasted: bool,
}

/// Why a lease was not computed.
enum Stop {
    /// The lease was cancelled.
    Cancelled,
    /// Its data cannot be read.
    Failed(String),
    /// The device failed.
    Broken(String),
}

/// Waits for `duration`, or until the lease is cancelled; returns the time waited.
fn wait(duration: Duration, cancelled: &CancelFlag) -> Duration {
    let started = Instant::now();
    while !cancelled.is_set() {
        let left = duration.saturating_sub(started.elapsed());
        if left.is_zero() {
            break;
        }
        std::thread::park_timeout(left);
    }
    started.elapsed()
}

#[cfg(test)]
mod tests {
    use ata_types::Lease;
    use ata_wire::{Assignment, DataSpec, SpanLinks};

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
        };
        let (events, mut received) = mpsc::channel(4);
        let compute = Compute::start(move || Box::new(Unreadable(unreadable)), &run, false, None, events);
        assert!(matches!(received.blocking_recv(), Some(ComputeEvent::Ready)));
        let lease = Lease { id: LeaseId(1), iteration: Iteration(1), tasks: TaskRange::single(0) };
        let assignment = Assignment { lease, trace: None };
        let lease = HeldLease::new(assignment, SpanLinks::default(), &"one".parse().unwrap());
        compute.push(Job::Compute { lease, cancelled: CancelFlag::default() });
        matches!(received.blocking_recv(), Some(ComputeEvent::Computed(_)))
    }

    #[test]
    fn data_that_cannot_be_read_is_tried_again() {
        assert!(is_computed(3));
        assert!(!is_computed(1 + READ_WAITS_MS.len()), "but not forever");
    }
}
