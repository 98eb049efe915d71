//! The thread that computes gradients, measures times and, if asked to, emulates slowness.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, mpsc as std_mpsc};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use ata_learn::{Learner, LearnerError, Partial, reduce_in_order};
use ata_wire::Assignment;
use tokio::sync::mpsc;

use crate::config::TaskTime;

/// A job for the thread; jobs run in order.
pub(crate) enum Job {
    /// Compute gradients at these parameters from now on.
    Load(Vec<f32>),
    /// Compute a lease, unless it is cancelled by then.
    Compute { assignment: Assignment, cancelled: CancelFlag },
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
    pub(crate) assignment: Assignment,
    pub(crate) sum: Partial,
    /// Seconds per task, emulated slowness included.
    pub(crate) busy_s: Vec<f64>,
    /// Tasks whose computation outlasted their emulated time.
    pub(crate) outlasted: u64,
}

/// A handle to the running thread.
pub(crate) struct Compute {
    jobs: std_mpsc::Sender<Job>,
    thread: JoinHandle<()>,
}

impl Compute {
    /// Starts the thread: it makes the learner, computes one gradient so that the first measured time does not include
    /// compiling kernels, and reports [`Report::Ready`].
    pub(crate) fn start(
        learner: impl FnOnce() -> Box<dyn Learner> + Send + 'static,
        parameters: usize,
        task_time: Option<TaskTime>,
        reports: mpsc::Sender<Report>,
    ) -> Self {
        let (jobs, received) = std_mpsc::channel();
        let thread = std::thread::Builder::new()
            .name("compute".into())
            .spawn(move || {
                let run = AssertUnwindSafe(|| {
                    let worker = Worker { learner: learner(), task_time, reports: &reports };
                    worker.run(&vec![0.0; parameters], &received)
                });
                // burn panics if a device fails; the session is told, and the process survives.
                let error = match catch_unwind(run) {
                    Ok(Ok(())) => None,
                    Ok(Err(reason)) => Some(reason),
                    Err(panic) => Some(panic_text(panic.as_ref())),
                };
                if let Some(reason) = error {
                    drop(reports.blocking_send(Report::Broken(reason)));
                }
            })
            .expect("a thread can be started");
        Self { jobs, thread }
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
    task_time: Option<TaskTime>,
    reports: &'a mpsc::Sender<Report>,
}

impl Worker<'_> {
    /// Works until the jobs end. An error means that the thread cannot go on.
    fn run(mut self, parameters: &[f32], jobs: &std_mpsc::Receiver<Job>) -> Result<(), String> {
        self.learner.load(parameters);
        self.learner.warm_up(1).map_err(|error| error.to_string())?;
        self.report(Report::Ready);
        for job in jobs {
            match job {
                Job::Load(parameters) => self.learner.load(&parameters),
                Job::Compute { assignment, cancelled } => self.compute(assignment, &cancelled)?,
            }
        }
        Ok(())
    }

    fn report(&self, report: Report) {
        // The receiver is gone if the session is over.
        drop(self.reports.blocking_send(report));
    }

    /// Computes a lease and reports it.
    fn compute(&mut self, assignment: Assignment, cancelled: &CancelFlag) -> Result<(), String> {
        let mut busy_s = Vec::with_capacity(assignment.tasks as usize);
        let mut outlasted = 0;
        let Self { learner, task_time, .. } = self;
        let sum = reduce_in_order(assignment.first_task, assignment.tasks, |index| {
            if cancelled.is_set() {
                return Err(Stop::Cancelled);
            }
            if index + 1 < assignment.first_task + assignment.tasks {
                learner.announce(assignment.iteration, index + 1, 1);
            }
            // Reading its samples is part of the task: the device waits for them.
            let started = Instant::now();
            let task = learner.gradient(assignment.iteration, index).map_err(|error| match error {
                LearnerError::Data(error) => Stop::Failed(error.to_string()),
                LearnerError::Device(_) => Stop::Broken(error.to_string()),
            })?;
            let computed = started.elapsed();
            let mut busy = computed;
            if let Some(task_time) = task_time {
                let target = task_time(computed);
                match target.checked_sub(computed) {
                    Some(rest) => busy += wait(rest, cancelled),
                    None => outlasted += 1,
                }
            }
            busy_s.push(busy.as_secs_f64());
            Ok((task.gradient, task.loss))
        });
        match sum {
            Ok(sum) => self.report(Report::Computed(Computed { assignment, sum, busy_s, outlasted })),
            Err(Stop::Cancelled) => {}
            Err(Stop::Failed(reason)) => self.report(Report::Failed { lease: assignment.lease, reason }),
            Err(Stop::Broken(reason)) => return Err(reason),
        }
        Ok(())
    }
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
