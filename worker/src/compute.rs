//! The thread that computes gradients, measures times and, if asked to, emulates slowness.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, mpsc as std_mpsc};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use ata_learn::{DataError, Learner, LearnerError, Partial, TaskGradient, reduce_in_order, with_own_threads};
use ata_wire::{Pool, RunSpec};
use tokio::sync::mpsc;

use crate::config::TaskTime;
use crate::trace::Lease;

/// Milliseconds between attempts to read the samples of a task, 1.3 s in all: by then a disk that was busy answers again. What
/// takes longer is reported, for the coordinator has other workers. That is far less than the shortest time after which a
/// lease counts as hung.
const READ_WAITS_MS: [u64; 7] = [10, 20, 40, 80, 160, 320, 640];

/// A job for the thread; jobs run in order.
pub(crate) enum Job {
    /// Compute gradients at these parameters from now on; the buffer goes back to the pool.
    Load(Vec<f32>, Pool),
    /// Compute a lease, unless it is cancelled by then.
    Compute { lease: Lease, cancelled: CancelFlag },
}

/// Whether a lease was cancelled; shared with the thread.
#[derive(Clone, Debug, Default)]
pub(crate) struct CancelFlag(Arc<AtomicBool>);

impl CancelFlag {
    fn is_set(&self) -> bool {
        self.0.load(Ordering::Acquire)
    }
}

/// What the thread reports.
pub(crate) enum Report {
    /// The thread is warmed up and waits for jobs.
    Ready,
    /// A lease was computed.
    Computed(Computed),
    /// A lease could not be computed.
    Failed { lease: u64, reason: String },
    /// The device failed; the thread ends.
    Broken(String),
}

/// A computed lease.
pub(crate) struct Computed {
    pub(crate) lease: Lease,
    pub(crate) sum: Partial,
    /// Seconds per task, or of the whole batch, emulated slowness included.
    pub(crate) busy_s: Vec<f64>,
    /// Tasks whose computation outlasted their emulated time.
    pub(crate) outlasted: u64,
}

/// A handle to the running thread.
pub(crate) struct Compute {
    /// Whether it computes a lease as one batch.
    pub(crate) fuses: bool,
    jobs: std_mpsc::Sender<Job>,
    thread: JoinHandle<()>,
}

impl Compute {
    /// Starts the thread: it makes the learner, warms it up so that the first measured time does not include compiling
    /// kernels, and reports [`Report::Ready`]. If `fuse` is set, or the emulated device does so, it computes a lease, of
    /// up to the run's budget of tasks, as one batch.
    pub(crate) fn start(
        learner: impl FnOnce() -> Box<dyn Learner> + Send + 'static,
        run: &RunSpec,
        fuse: bool,
        task_time: Option<TaskTime>,
        reports: mpsc::Sender<Report>,
    ) -> Self {
        let fuses = fuse || task_time.as_ref().is_some_and(|task_time| task_time.fuses);
        let (parameters, largest) = (run.parameters as usize, if fuses { run.budget } else { 1 });
        let (jobs, received) = std_mpsc::channel();
        let thread = std::thread::Builder::new()
            .name("compute".into())
            .spawn(move || {
                let run = AssertUnwindSafe(|| {
                    let worker = Worker { learner: learner(), fuses, task_time, reports: &reports };
                    worker.run(&vec![0.0; parameters], largest, &received)
                });
                // burn panics if a device fails; the session is told, and the process survives.
                let error = match with_own_threads(|| catch_unwind(run)) {
                    Ok(Ok(())) => None,
                    Ok(Err(reason)) => Some(reason),
                    Err(panic) => Some(panic_text(panic.as_ref())),
                };
                if let Some(reason) = error {
                    drop(reports.blocking_send(Report::Broken(reason)));
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
        // The thread has reported whatever went wrong in it.
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
    reports: &'a mpsc::Sender<Report>,
}

impl Worker<'_> {
    /// Works until the jobs end. An error means that the thread cannot go on.
    fn run(mut self, parameters: &[f32], largest: u64, jobs: &std_mpsc::Receiver<Job>) -> Result<(), String> {
        self.learner.load(parameters);
        self.learner.warm_up(largest).map_err(|error| error.to_string())?;
        self.report(Report::Ready);
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

    fn report(&self, report: Report) {
        // The receiver is gone if the session is over.
        drop(self.reports.blocking_send(report));
    }

    /// Computes a lease and reports it.
    fn compute(&mut self, lease: Lease, cancelled: &CancelFlag) -> Result<(), String> {
        let (assignment, span) = (lease.assignment, lease.computes());
        let mut busy_s = Vec::new();
        let mut outlasted = 0;
        let fuses = self.fuses;
        let end = assignment.first_task + assignment.tasks;
        let mut timed = |tasks: u64, first: u64| {
            if first + tasks < end {
                self.learner.announce(assignment.iteration, first + tasks, tasks);
            }
            let Timed { result, busy, is_outlasted } = self.timed(assignment.iteration, first, tasks, cancelled)?;
            busy_s.push(busy.as_secs_f64());
            outlasted += if is_outlasted { tasks } else { 0 };
            Ok((result.gradient, result.loss))
        };
        let (first, count) = (assignment.first_task, assignment.tasks);
        let sum = if fuses {
            timed(count, first).map(|(gradient, loss)| Partial { first, count, gradient, loss })
        } else {
            reduce_in_order(first, count, |index| timed(1, index))
        };
        if !span.is_disabled() {
            span.record("busy_s", busy_s.iter().sum::<f64>()).record("outlasted", outlasted);
        }
        drop(span);
        match sum {
            Ok(sum) => self.report(Report::Computed(Computed { lease, sum, busy_s, outlasted })),
            Err(Stop::Cancelled) => lease.cancelled(),
            Err(Stop::Failed(reason)) => {
                lease.failed();
                self.report(Report::Failed { lease: assignment.lease, reason });
            }
            Err(Stop::Broken(reason)) => {
                lease.failed();
                return Err(reason);
            }
        }
        Ok(())
    }

    /// Computes some tasks as one batch, and waits until their emulated time has passed.
    fn timed(&mut self, iteration: u64, first: u64, tasks: u64, cancelled: &CancelFlag) -> Result<Timed, Stop> {
        if cancelled.is_set() {
            return Err(Stop::Cancelled);
        }
        // Reading the samples is part of the task: the device waits for them.
        let started = Instant::now();
        let result = self.gradient(iteration, first, tasks, cancelled).map_err(|error| match error {
            LearnerError::Data(_) if cancelled.is_set() => Stop::Cancelled,
            LearnerError::Data(error) => Stop::Failed(error.to_string()),
            LearnerError::Device(_) => Stop::Broken(error.to_string()),
        })?;
        let computed = started.elapsed();
        let emulated = |task_time: &mut TaskTime| (task_time.of_batch)(iteration, tasks, computed);
        let target = self.task_time.as_mut().map_or(computed, emulated);
        let rest = target.checked_sub(computed);
        let busy = computed + rest.map_or(Duration::ZERO, |rest| wait(rest, cancelled));
        Ok(Timed { result, busy, is_outlasted: rest.is_none() })
    }

    /// Computes some tasks as one batch. Samples that cannot be read are tried again.
    fn gradient(
        &mut self,
        iteration: u64,
        first: u64,
        tasks: u64,
        cancelled: &CancelFlag,
    ) -> Result<TaskGradient, LearnerError> {
        let mut waits_ms = READ_WAITS_MS.into_iter();
        loop {
            let learner = &mut self.learner;
            let result =
                if tasks == 1 { learner.gradient(iteration, first) } else { learner.fused(iteration, first, tasks) };
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

/// Tasks that were computed as one batch.
struct Timed {
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
    use ata_wire::{Assignment, DataSpec, SpanLinks};

    use super::*;

    /// Its data cannot be read for so many attempts.
    struct Unreadable(usize);

    impl Learner for Unreadable {
        fn load(&mut self, _parameters: &[f32]) {}

        fn warm_up(&mut self, _largest: u64) -> Result<(), LearnerError> {
            Ok(())
        }

        fn gradient(&mut self, _iteration: u64, _index: u64) -> Result<TaskGradient, LearnerError> {
            if self.0 == 0 {
                return Ok(TaskGradient { gradient: vec![1.0], loss: 0.0 });
            }
            self.0 -= 1;
            Err(DataError::io("train.bin")(std::io::ErrorKind::UnexpectedEof.into()).into())
        }
    }

    /// Whether a lease is computed whose data cannot be read for so many attempts.
    fn is_computed(unreadable: usize) -> bool {
        let run = RunSpec {
            model: String::new(),
            parameters: 1,
            seed: 1,
            budget: 1,
            task_batch: 1,
            data: DataSpec::Generated { seed: 1 },
        };
        let (reports, mut reported) = mpsc::channel(4);
        let compute = Compute::start(move || Box::new(Unreadable(unreadable)), &run, false, None, reports);
        assert!(matches!(reported.blocking_recv(), Some(Report::Ready)));
        let assignment = Assignment { lease: 1, iteration: 1, first_task: 0, tasks: 1, trace: None };
        let lease = Lease::new(assignment, SpanLinks::default(), &"one".parse().unwrap());
        compute.push(Job::Compute { lease, cancelled: CancelFlag::default() });
        matches!(reported.blocking_recv(), Some(Report::Computed(_)))
    }

    #[test]
    fn data_that_cannot_be_read_is_tried_again() {
        assert!(is_computed(3));
        assert!(!is_computed(1 + READ_WAITS_MS.len()), "but not for ever");
    }
}
