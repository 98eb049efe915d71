//! The thread that computes gradients, measures times and, on request, emulates slowness.

mod collect;
mod local;
mod samples;

use std::collections::BTreeSet;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, mpsc as std_mpsc};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use ata_learn::{Learner, LearnerError, with_own_threads};
use ata_sums::{GradientSum, Quantizer, TensorSizes, Units};
use ata_types::{Iteration, Lease, LeaseId, TaskRange, VectorId};
use ata_wire::{ComputedLease, LeaseTimes, RunSpec, VectorRequest};
use tokio::sync::mpsc;

use crate::config::TaskTime;
use crate::kept::{KeptGradients, KeptSum};
use crate::transfer::CollectedSum;
pub(crate) use local::LocalSteps;

/// A job for the thread; jobs run in order.
pub(crate) enum Job {
    /// Loads the parameters of an iteration.
    Load(Iteration, Arc<Vec<f32>>),
    /// Computes a lease of the iteration after `position` tasks of the run, unless it is cancelled by then. Without units, the iteration's
    /// first task determines them. The round is the number of vectors that were requested before: leases of a round are requested together.
    Compute { lease: Lease, position: u64, round: u64, cancelled: CancelFlag, units: Option<Units> },
    /// Drops the gradient of a computed lease.
    Discard(LeaseId),
    /// Hands over a vector in these units, unless it is withdrawn by then.
    Collect { request: VectorRequest, withdrawn: CancelFlag, units: Option<Units> },
}

/// A flag that a lease was begun or cancelled, or a vector withdrawn, shared with the thread.
#[derive(Clone, Debug, Default)]
pub(crate) struct CancelFlag(Arc<AtomicU8>);

const OPEN: u8 = 0;
const BEGUN: u8 = 1;
const CANCELLED: u8 = 2;

impl CancelFlag {
    fn is_set(&self) -> bool {
        self.0.load(Ordering::Acquire) == CANCELLED
    }

    /// Begins a lease, unless it was cancelled. Returns whether it may be computed.
    fn begin(&self) -> bool {
        self.change(BEGUN)
    }

    /// Cancels a lease, unless the thread has begun it. Returns whether it will not be computed.
    pub(crate) fn give_back(&self) -> bool {
        self.change(CANCELLED)
    }

    fn change(&self, to: u8) -> bool {
        self.0.compare_exchange(OPEN, to, Ordering::AcqRel, Ordering::Acquire).is_ok()
    }

    /// Waits for `duration`, or until the lease is cancelled. Returns the time waited.
    fn wait(&self, duration: Duration) -> Duration {
        let started = Instant::now();
        while !self.is_set() {
            let left = duration.saturating_sub(started.elapsed());
            if left.is_zero() {
                break;
            }
            std::thread::park_timeout(left);
        }
        started.elapsed()
    }
}

pub(crate) enum ComputeEvent {
    /// The thread is warmed up and waits for jobs.
    Ready,
    /// A lease was computed.
    Computed(ComputedLease),
    /// A vector can be sent.
    Collected(CollectedSum),
    /// The tasks of a vector could not be computed again.
    VectorFailed { vector: VectorId, reason: String, uncomputable: bool },
    /// A lease could not be computed. `uncomputable` says whether its tasks fail on any worker.
    Failed { lease: LeaseId, reason: String, uncomputable: bool },
    /// The device failed; the thread ends.
    Broken(String),
}

pub(crate) struct Compute {
    pub(crate) fuses: bool,
    pub(crate) sizes: TensorSizes,
    jobs: std_mpsc::Sender<Job>,
    /// Returns the own parameters of a worker that takes local steps.
    thread: JoinHandle<Option<LocalSteps>>,
}

impl Compute {
    /// Starts the thread. It warms the learner up, so that the first measured time does not include compiling kernels. If `fuses` is set, it
    /// computes each lease as one batch. A worker that takes local steps continues with those of its `last` session of the run.
    pub(crate) fn start(
        learner: impl FnOnce() -> Box<dyn Learner> + Send + 'static,
        run: &RunSpec,
        sizes: TensorSizes,
        fuses: bool,
        task_time: Option<TaskTime>,
        last: Option<LocalSteps>,
        events: mpsc::Sender<ComputeEvent>,
    ) -> Self {
        let largest = if fuses { run.budget } else { 1 };
        let (local, run, tensors) = (LocalSteps::of(run, &sizes, last), run.clone(), sizes.clone());
        let (jobs, received) = std_mpsc::channel();
        let thread = std::thread::Builder::new()
            .name("compute".into())
            .spawn(move || {
                let work = AssertUnwindSafe(|| {
                    let worker = Worker {
                        learner: learner(),
                        run,
                        fuses,
                        task_time,
                        events: &events,
                        cancelled: CancelFlag::default(),
                        local,
                        sizes: tensors,
                        position: 0,
                        quantizer: None,
                        kept: KeptGradients::default(),
                        skipped: BTreeSet::new(),
                    };
                    worker.run(largest, &received)
                });
                // burn panics if a device fails. The panic is caught to notify the session and to keep the process alive.
                let reason = match with_own_threads(|| catch_unwind(work)) {
                    Ok(Ok(local)) => return local,
                    Ok(Err(reason)) => reason,
                    Err(panic) => panic_text(panic.as_ref()),
                };
                drop(events.blocking_send(ComputeEvent::Broken(reason)));
                None
            })
            .expect("a thread can be started");
        Self { fuses, sizes, jobs, thread }
    }

    pub(crate) fn push(&self, job: Job) {
        // If the thread has ended, it has reported why.
        drop(self.jobs.send(job));
    }

    /// Cancels a lease or withdraws a vector. If the thread is emulating slowness for it, the wait ends.
    pub(crate) fn cancel(&self, flag: &CancelFlag) {
        flag.0.store(CANCELLED, Ordering::Release);
        self.thread.thread().unpark();
    }

    /// Waits until the thread has finished its jobs and ended. Returns what a worker that takes local steps can continue with.
    pub(crate) async fn finish(self) -> Option<LocalSteps> {
        drop(self.jobs);
        // A failure of the thread has already been reported.
        tokio::task::spawn_blocking(move || self.thread.join()).await.ok()?.ok()?
    }
}

fn panic_text(panic: &(dyn std::any::Any + Send)) -> String {
    let text = panic.downcast_ref::<String>().map(String::as_str).or_else(|| panic.downcast_ref::<&str>().copied());
    text.unwrap_or("the compute thread panicked").to_owned()
}

struct Worker<'a> {
    learner: Box<dyn Learner>,
    run: RunSpec,
    fuses: bool,
    task_time: Option<TaskTime>,
    events: &'a mpsc::Sender<ComputeEvent>,
    cancelled: CancelFlag,
    local: Option<LocalSteps>,
    sizes: TensorSizes,
    /// The number of tasks before the current iteration.
    position: u64,
    /// The quantizer of the last iteration.
    quantizer: Option<(Iteration, Quantizer)>,
    kept: KeptGradients,
    /// The samples that were left out so far, each of which is logged once.
    skipped: BTreeSet<u64>,
}

impl Worker<'_> {
    /// Runs jobs until the queue is closed, and returns the worker's own parameters. An error means that the thread cannot continue.
    fn run(mut self, largest: u64, jobs: &std_mpsc::Receiver<Job>) -> Result<Option<LocalSteps>, String> {
        match self.learner.warm_up(largest) {
            Ok(()) => {}
            Err(LearnerError::Device(reason)) => return Err(reason),
            // The samples may be readable later. Otherwise leases fail, and the coordinator decides what to do.
            Err(error) => tracing::warn!(%error, "the first computation failed"),
        }
        self.report(ComputeEvent::Ready);
        for job in jobs {
            match job {
                Job::Load(iteration, parameters) => self.load(iteration, parameters),
                Job::Compute { lease, position, round, cancelled, units } => {
                    if cancelled.begin() {
                        tracing::debug!(lease = %lease.id, "a lease is begun");
                        self.cancelled = cancelled;
                        self.compute(&lease, position, round, units)?;
                    }
                }
                Job::Discard(lease) => {
                    self.kept.discard(lease);
                    self.drop_steps(lease);
                }
                Job::Collect { request, withdrawn, units } => {
                    self.cancelled = withdrawn;
                    self.collect(&request, units)?;
                }
            }
        }
        Ok(self.local)
    }

    fn report(&self, event: ComputeEvent) {
        // The receiver is closed if the session is over.
        drop(self.events.blocking_send(event));
    }

    fn compute(&mut self, lease: &Lease, position: u64, round: u64, units: Option<Units>) -> Result<(), String> {
        let computed = if self.local.is_some() {
            self.take_steps(lease, position, round, units)
        } else {
            self.position = position;
            self.keep_sum(lease, round, units)
        };
        let lease = lease.id;
        let failed = |reason, uncomputable| ComputeEvent::Failed { lease, reason, uncomputable };
        self.report_result(computed.map(ComputeEvent::Computed), failed)
    }

    /// Reports an event, or what failed, unless it was cancelled. An error means that the thread cannot continue.
    fn report_result(
        &self,
        result: Result<ComputeEvent, Stop>,
        failed: impl FnOnce(String, bool) -> ComputeEvent,
    ) -> Result<(), String> {
        match result {
            Ok(event) => self.report(event),
            Err(Stop::Cancelled) => {}
            Err(Stop::Failed { reason, uncomputable }) => self.report(failed(reason, uncomputable)),
            Err(Stop::Broken(reason)) => return Err(reason),
        }
        Ok(())
    }

    fn keep_sum(&mut self, lease: &Lease, round: u64, units: Option<Units>) -> Result<ComputedLease, Stop> {
        let quantizer = self.quantizer(lease.iteration, units)?;
        let (mut times, mut losses) = (LeaseTimes::default(), Vec::new());
        let sum = self.sum(lease.iteration, [lease.tasks], &quantizer, |at_once, measured| {
            times.busy_s.push(measured.busy.as_secs_f64());
            times.outlasted += if measured.is_outlasted { at_once } else { 0 };
            losses.push(measured.loss);
        })?;
        let (tasks, sum) = (lease.tasks.into(), Arc::new(sum));
        let sum = KeptSum { tasks, lease: Some(lease.id), round: Some(round), sum };
        self.kept.add(lease.iteration, quantizer.units(), sum);
        Ok(ComputedLease { lease: lease.id, times, losses })
    }

    fn sum(
        &mut self,
        iteration: Iteration,
        tasks: impl IntoIterator<Item = TaskRange>,
        quantizer: &Quantizer,
        mut measure: impl FnMut(u64, MeasuredTask),
    ) -> Result<GradientSum, Stop> {
        let mut sum = self.kept.empty_sum(&self.sizes);
        for range in tasks {
            let added = self.add(iteration, range, quantizer, &mut sum, &mut measure);
            // Also after a failure, so that nothing of these tasks stays on the device.
            let finished = self.learner.finish(&mut sum).map_err(|error| self.stop(&error));
            if let Err(stop) = added.and(finished) {
                self.kept.give_back(sum);
                return Err(stop);
            }
        }
        Ok(sum)
    }

    fn add(
        &mut self,
        iteration: Iteration,
        tasks: TaskRange,
        quantizer: &Quantizer,
        sum: &mut GradientSum,
        mut measure: impl FnMut(u64, MeasuredTask),
    ) -> Result<(), Stop> {
        let at_once = if self.fuses { tasks.count } else { 1 };
        for first in tasks.indices().step_by(at_once as usize) {
            let place = self.numbered(iteration, TaskRange { first, count: at_once });
            let (of, announced) = self.numbered(iteration, TaskRange { first, count: tasks.end() - first });
            self.learner.announce(of, announced, at_once);
            let measured = self.timed(iteration, at_once, |worker| worker.add_batch(place, quantizer, sum))?;
            measure(at_once, measured);
        }
        // A lease that was cancelled during its last task must not be kept.
        if self.cancelled.is_set() { Err(Stop::Cancelled) } else { Ok(()) }
    }

    fn quantizer(&mut self, iteration: Iteration, units: Option<Units>) -> Result<Quantizer, Stop> {
        if let Some((known, quantizer)) = &self.quantizer
            && *known == iteration
            && units.as_ref().is_none_or(|units| units == quantizer.units())
        {
            return Ok(quantizer.clone());
        }
        let units = if let Some(units) = units {
            units
        } else {
            // All workers compute the same task for this, whatever tasks they hold.
            let maxima = self.first_maxima(iteration).map_err(|error| self.stop(&error))?;
            Units::first(&maxima, self.run.most_tasks)
        };
        let quantizer = Quantizer::new(units, self.sizes.clone(), self.run.most_tasks, self.run.format);
        self.quantizer = Some((iteration, quantizer.clone()));
        Ok(quantizer)
    }

    /// Computes tasks as one batch, and waits until their emulated time has passed.
    fn timed(
        &mut self,
        iteration: Iteration,
        tasks: u64,
        compute: impl FnOnce(&mut Self) -> Result<f64, LearnerError>,
    ) -> Result<MeasuredTask, Stop> {
        if self.cancelled.is_set() {
            return Err(Stop::Cancelled);
        }
        // Reading the samples is part of the task, since the device waits for them.
        let started = Instant::now();
        let loss = compute(self);
        let loss = loss.map_err(|error| self.stop(&error))?;
        let computed = started.elapsed();
        let emulated = |task_time: &mut TaskTime| (task_time.of_batch)(iteration, tasks, computed);
        let target = self.task_time.as_mut().map_or(computed, emulated);
        let rest = target.checked_sub(computed);
        let busy = computed + rest.map_or(Duration::ZERO, |rest| self.cancelled.wait(rest));
        Ok(MeasuredTask { loss, busy, is_outlasted: rest.is_none() })
    }

    fn stop(&self, error: &LearnerError) -> Stop {
        match error {
            LearnerError::Data(_) if self.cancelled.is_set() => Stop::Cancelled,
            LearnerError::Data(_) => Stop::Failed { reason: error.to_string(), uncomputable: false },
            LearnerError::NotFinite(_) | LearnerError::Loss(_) | LearnerError::Problem(_) => {
                Stop::Failed { reason: error.to_string(), uncomputable: true }
            }
            LearnerError::Device(reason) => Stop::Broken(reason.clone()),
        }
    }
}

/// The loss of tasks that were computed as one batch, and their time.
struct MeasuredTask {
    loss: f64,
    busy: Duration,
    /// Whether the computation took longer than the emulated time.
    is_outlasted: bool,
}

enum Stop {
    /// They are no longer needed.
    Cancelled,
    /// The data cannot be read, or the tasks fail on any worker.
    Failed { reason: String, uncomputable: bool },
    /// The device failed.
    Broken(String),
}

#[cfg(test)]
mod tests;
