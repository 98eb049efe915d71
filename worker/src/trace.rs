//! The spans of a lease in the worker, as children of the coordinator's span of that lease.
//!
//! ```text
//! lease                   from its assignment until its gradient is kept
//!   parameters            waiting for the parameters of its iteration
//!   compute               on the compute thread, emulated slowness included
//! ```

use ata_types::{Iteration, Lease, LeaseId, TaskRange};
use ata_wire::{Assignment, SpanLinks, TRACE_TARGET, WorkerName};
use tracing::field::Empty;
use tracing::{Span, debug_span};

/// A lease that the worker holds, with its span, which ends when this is dropped.
#[derive(Debug)]
pub(crate) struct HeldLease {
    lease: Lease,
    round: u64,
    span: Span,
}

impl HeldLease {
    /// Begins the span of a lease, if the coordinator keeps a trace. Sums of the session were asked for `round` times so far.
    pub(crate) fn new(assignment: Assignment, round: u64, links: SpanLinks, worker: &WorkerName) -> Self {
        let Assignment { lease, vector: _, trace } = assignment;
        let span = links.below(trace, || {
            debug_span!(
                target: TRACE_TARGET,
                parent: None,
                "lease",
                worker = %worker,
                lease = lease.id.0,
                iteration = lease.iteration.number(),
                first_task = lease.tasks.first,
                tasks = lease.tasks.count,
                outcome = Empty,
                otel.status_code = Empty,
            )
        });
        Self { lease, round, span }
    }

    pub(crate) fn id(&self) -> LeaseId {
        self.lease.id
    }

    pub(crate) fn iteration(&self) -> Iteration {
        self.lease.iteration
    }

    /// Leases of the same round are asked for together.
    pub(crate) fn round(&self) -> u64 {
        self.round
    }

    pub(crate) fn tasks(&self) -> TaskRange {
        self.lease.tasks
    }

    /// Begins the span of waiting for the parameters.
    pub(crate) fn wait_span(&self) -> Span {
        self.child(|parent| debug_span!(target: TRACE_TARGET, parent: parent, "parameters"))
    }

    /// Begins the span of the computation.
    pub(crate) fn compute_span(&self) -> Span {
        self.child(
            |parent| debug_span!(target: TRACE_TARGET, parent: parent, "compute", busy_s = Empty, outlasted = Empty),
        )
    }

    /// A child of the lease's span. If that is not kept, a child would be a trace of its own, so there is none.
    fn child(&self, make: impl FnOnce(&Span) -> Span) -> Span {
        if self.span.is_disabled() { Span::none() } else { make(&self.span) }
    }

    pub(crate) fn record_kept(&self) {
        self.span.record("outcome", "kept");
    }

    pub(crate) fn record_cancelled(&self) {
        self.span.record("outcome", "cancelled");
    }

    pub(crate) fn record_failed(&self) {
        self.span.record("outcome", "failed").record("otel.status_code", "ERROR");
    }
}
