//! The engine's events, reports and effects.

#![expect(missing_docs, reason = "the names of most fields say what they are")]

use std::sync::Arc;

use super::FinishReason;
use crate::ledger::IterationCost;
use crate::policy::{Decision, StepOutcome};
use crate::statistics::WorkerStatistics;
use crate::topology::Observed;
use ata_types::{CollectionId, Iteration, Lease, LeaseId, MachineId, TaskOutcome, TaskRange, WorkerId};

/// Something that happened, passed to the engine together with its time. Events are never refused, unlike the reports of workers,
/// which go to [`super::Engine::report`].
#[derive(Clone, Copy, Debug)]
pub enum Event {
    /// A worker is ready to compute. One that is already present is first treated as lost.
    WorkerJoined {
        worker: WorkerId,
        machine: MachineId,
        /// What an earlier run learned about the worker; used only if this run has not observed it. It fades, and is dropped
        /// when observations contradict it.
        prior: WorkerStatistics,
        /// Whether the worker computes a lease as one batch. Its share of an iteration that waits for all of it is then one
        /// lease of any size, and it reports one time for it.
        fuses: bool,
    },
    /// A worker was lost; its leases end.
    WorkerLost { worker: WorkerId },
    /// A worker will leave. It gets no more work, finishes what it has begun, and is kept until its sums are delivered: [`Effect::Left`].
    WorkerLeaving { worker: WorkerId },
    /// The number of an absent worker will be given to another one, so everything known about it is dropped.
    WorkerForgotten { worker: WorkerId },
    /// A worker violated the protocol in a way that no correct worker does, but none of its leases failed by it.
    Violation { worker: WorkerId },
    /// A worker cannot compute before it has received what others send it, so its deadline is suspended.
    Blocked { worker: WorkerId },
    /// A worker that was blocked continues, and its deadline runs again.
    Resumed { worker: WorkerId },
    /// The results of [`Effect::Compare`] were compared.
    Compared { tasks: TaskRange, first: CollectionId, second: CollectionId, agree: bool },
    /// Something was observed about the links. Later decisions take it into account.
    LinkObserved(Observed),
    /// A collection arrived completely: its worker is no longer needed for it.
    Delivered { worker: WorkerId, collection: CollectionId },
    /// A collection was refused, or its worker gave it up. Its tasks are computed again.
    CollectionFailed { worker: WorkerId, collection: CollectionId },
    /// The optimizer step of this iteration was taken. All of its collections count as delivered.
    StepCommitted { iteration: Iteration, outcome: StepOutcome },
    /// The state could not be saved that [`Effect::Committed`] asked for: iterations keep their number of tasks.
    NotSaved,
    /// The next iteration shall begin as soon as there are enough workers. Sent once at the start of a run, and once after
    /// each [`Effect::Committed`], when everything that is to be saved between two iterations is saved.
    Proceed,
    /// The time of [`super::Engine::poll_timeout`] has come. At any other time this does nothing.
    Timeout,
    /// The operator lifts what counts against a worker: its failures and mismatches, and its rest.
    Forgiven { worker: WorkerId },
}

/// A worker's report on a lease.
#[derive(Clone, Copy, Debug)]
pub enum Report<'a> {
    /// The lease is computed.
    Done {
        /// Seconds that each of its tasks took, by the worker's clock. A worker that computes a lease as one batch reports one
        /// time for the lease.
        busy_s: &'a [f64],
        /// Seconds that the worker waited for the parameters of the iteration before it could begin the lease; 0 if an earlier one waited.
        waited_s: f64,
    },
    /// The worker leaves, and has not begun the lease.
    GivenBack,
    /// The lease failed: the worker could not compute it.
    Failed {
        /// Whether the tasks are to blame, and would fail on any correct worker: their gradient is not finite, or the problem's own
        /// code raises an error. Otherwise the failure may be temporary, like an outage of a file server.
        uncomputable: bool,
    },
}

/// Something the driver must do, in order. Each effect holds everything needed to carry it out.
#[derive(Clone, Debug, PartialEq)]
pub enum Effect {
    /// An iteration begins.
    Start {
        iteration: Iteration,
        /// The number of tasks of the run before this iteration's.
        position: u64,
        /// The workers that the decision is about, ascending.
        workers: Arc<[WorkerId]>,
        /// The workers' shares, and the reason for them.
        decision: Arc<Decision>,
    },
    /// Send a worker a lease, and with it the request for the [collection of its own](Lease::own), if it has one. A worker computes its
    /// leases in the order in which they were assigned. Local steps may be assigned before their iteration begins, while workers still have
    /// the parameters of the last one.
    Assign {
        worker: WorkerId,
        lease: Lease,
        /// The number of tasks of the run before those of its iteration.
        position: u64,
    },
    /// Have a worker send bytes that no step waits for, and report [`Observed::Probed`] if they arrive. This can be skipped if the
    /// worker is still sending those of an earlier probe.
    ProbeLink { worker: WorkerId, bytes: u64 },
    /// A lease ended. Every lease that was assigned ends exactly once.
    End {
        worker: WorkerId,
        lease: Lease,
        /// The way in which it ended, which determines what to do.
        outcome: TaskOutcome,
        /// What is known about the time that it took.
        time: LeaseTime,
    },
    /// Close a worker's session: it missed the deadline of a lease. The engine already counts it as lost.
    Evict {
        worker: WorkerId,
        /// Seconds since the worker last reported anything.
        silent_s: f64,
    },
    /// A worker failed or hung, or comes from a machine whose worker did. It gets no work for a while, unless all workers
    /// present rest.
    Rest {
        worker: WorkerId,
        rest_s: f64,
        /// The number of its failures since its last result.
        strikes: u32,
    },
    /// Close a worker's session, and refuse its name from now on: it failed too often. The engine already counts it as
    /// lost.
    Expel {
        worker: WorkerId,
        /// The number of its failures since its last result.
        strikes: u32,
        /// The number of its results that differed from one on which two other workers agree.
        mismatches: u32,
    },
    /// Close the session of a worker that was leaving: the run needs nothing more from it. The engine already counts it as absent.
    Left { worker: WorkerId },
    /// Compare two delivered collections, each of one lease on the same tasks, then send [`Event::Compared`]. Both leases end later.
    Compare { tasks: TaskRange, first: CollectionId, second: CollectionId },
    /// Ask workers for sums of gradients. Everything that follows from one event is asked for together.
    Collect { iteration: Iteration, collections: Vec<Collection> },
    /// Sum the gradients of the collections, divide by the number of their tasks, take the optimizer step, then send
    /// [`Event::StepCommitted`]. If a worker is lost together with a collection, this is sent again when others have computed its
    /// tasks, and replaces the earlier order.
    Step {
        iteration: Iteration,
        /// The tasks, ascending and disjoint. In an asynchronous run it is one task, whose iteration may be earlier.
        tasks: Vec<TaskRange>,
        /// The collections that the step waits for, or already has.
        collections: Vec<CollectionId>,
        /// The leases in the collections; they end once the step is taken.
        collected: Vec<(WorkerId, Lease)>,
        lr_factor: f64,
        /// Whether the inner product of this mean gradient and the last one is wanted.
        with_product: bool,
    },
    /// The iteration has entered the ledger. Save what is to be saved; then, unless [`Effect::Finish`] follows, send
    /// [`Event::Proceed`].
    Committed {
        cost: IterationCost,
        /// Whether the state must be saved, if the run is saved at all: from now on, iterations have another number of tasks, as measured times
        /// suggest. If that fails, send [`Event::NotSaved`].
        must_save: bool,
    },
    /// The run cannot continue, since too few workers are present. Sent once for the same numbers.
    Wait { present: usize, needed: usize },
    /// The run is done.
    Finish { reason: FinishReason },
    /// The run is given up.
    Abort { reason: AbortReason },
}

/// The request to a worker for the sum of the gradients of some of its leases, as one vector, once all are computed. It replaces an
/// earlier request for the same collection; without leases, it withdraws that request.
#[derive(Clone, Debug, PartialEq)]
pub struct Collection {
    pub worker: WorkerId,
    pub id: CollectionId,
    /// The leases, in the order in which they were assigned.
    pub leases: Vec<Lease>,
}

/// What is known about the time that a lease took.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum LeaseTime {
    /// The worker reported a result, including the times of its tasks.
    Reported {
        /// Factor on the reported seconds, at most 1: reports cannot claim more time than has passed.
        factor: f64,
        /// For the last lease that a worker held: the seconds since the first one was assigned that were not computation.
        overhead_s: Option<f64>,
    },
    /// The lease ended without a result.
    Censored {
        /// Seconds that the worker had spent on it; `None` if it had not begun.
        elapsed_s: Option<f64>,
    },
}

/// The reason why a run is given up.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum AbortReason {
    /// The same tasks failed on so many workers that no worker is to blame.
    #[error(
        "{} task(s) from index {} of iteration {iteration} failed {attempts} times, on {workers} worker(s), \
         and nothing succeeded for {lasted_s:.0} s",
        .tasks.count,
        .tasks.first
    )]
    TasksFailed {
        iteration: Iteration,
        tasks: TaskRange,
        /// The number of attempts that failed.
        attempts: u32,
        /// The number of different workers on which they failed.
        workers: usize,
        /// Seconds from the first to the last failure of any tasks, without a result in between.
        lasted_s: f64,
    },
    /// The policy made a decision that cannot be carried out.
    #[error("policy '{policy}' made an allocation that cannot be carried out in iteration {iteration}: {problem}")]
    BadDecision { iteration: Iteration, policy: &'static str, problem: String },
}

/// The reason why a worker's report is refused. A refused report changes nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// The worker does not hold that lease: it is done, cancelled, given to another worker, or never existed.
    #[error("the worker does not hold lease {0}")]
    NotHeld(LeaseId),
    /// The report does not contain the required number of non-negative times with a finite sum.
    #[error("lease {lease} needs {times} non-negative time(s) with a finite sum: one per task, or one for a batch")]
    BadTimes {
        lease: LeaseId,
        /// The number of times that the report must contain.
        times: u64,
    },
}
