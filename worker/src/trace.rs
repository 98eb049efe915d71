//! What a worker does with a lease, as spans below the coordinator's.
//!
//! ```text
//! lease                   from its assignment to the coordinator's receipt
//!   parameters            waiting for the parameters of its iteration
//!   compute               on the compute thread, emulated slowness included
//!   upload                until the receipt
//! ```

use ata_wire::{Assignment, Receipt, SpanLinks, TRACE_TARGET, WorkerName};
use tracing::field::Empty;
use tracing::{Span, debug_span};

/// A lease that the worker holds.
#[derive(Debug)]
pub(crate) struct Lease {
    pub(crate) assignment: Assignment,
    /// Over when this is dropped.
    span: Span,
}

impl Lease {
    /// A lease that was assigned. It has a span if the coordinator keeps one.
    pub(crate) fn new(assignment: Assignment, links: SpanLinks, worker: &WorkerName) -> Self {
        let Assignment { lease, iteration, first_task, tasks, trace } = assignment;
        let span = links.below(trace, || {
            debug_span!(
                target: TRACE_TARGET,
                parent: None,
                "lease",
                worker = %worker,
                lease,
                iteration,
                first_task,
                tasks,
                outcome = Empty,
                otel.status_code = Empty,
            )
        });
        Self { assignment, span }
    }

    /// Its parameters have not arrived yet.
    pub(crate) fn waits(&self) -> Span {
        self.child(|parent| debug_span!(target: TRACE_TARGET, parent: parent, "parameters"))
    }

    /// It is being computed.
    pub(crate) fn computes(&self) -> Span {
        self.child(
            |parent| debug_span!(target: TRACE_TARGET, parent: parent, "compute", busy_s = Empty, outlasted = Empty),
        )
    }

    /// Its gradient is being sent.
    pub(crate) fn uploads(&self) -> Span {
        self.child(|parent| debug_span!(target: TRACE_TARGET, parent: parent, "upload"))
    }

    /// A part of its span. Where that is not kept, a part of it would be a trace of its own.
    fn child(&self, make: impl FnOnce(&Span) -> Span) -> Span {
        if self.span.is_disabled() { Span::none() } else { make(&self.span) }
    }

    pub(crate) fn cancelled(&self) {
        self.span.record("outcome", "cancelled");
    }

    pub(crate) fn failed(&self) {
        self.span.record("outcome", "failed").record("otel.status_code", "ERROR");
    }

    pub(crate) fn answered(&self, receipt: &Receipt) {
        match receipt {
            Receipt::Accepted => self.span.record("outcome", "accepted"),
            Receipt::NotHeld { .. } => self.span.record("outcome", "no longer held"),
            Receipt::Refused { .. } => self.span.record("outcome", "refused").record("otel.status_code", "ERROR"),
        };
    }
}
