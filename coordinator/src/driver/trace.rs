//! The spans of an iteration.
//!
//! ```text
//! iteration             from the decision to the commit
//!   lease               from its assignment to its end; below it, in the worker's process, what the worker does with it
//!   step                on the training thread: the end of the sum, and the optimizer
//!   checkpoint          until it is durable
//!   evaluation          of the parameters after the step
//! ```
//! An iteration whose trace is not kept costs nothing.

use std::collections::HashMap;

use ata_scheduler::{Decision, IterationCost};
use ata_types::{Iteration, Lease, LeaseId, TaskOutcome, WorkerId};
use ata_wire::{SpanLinks, TRACE_TARGET, TraceContext};
use tracing::field::Empty;
use tracing::{Span, debug_span};

/// The spans of the current iteration and of its leases.
pub(crate) struct Trace {
    links: SpanLinks,
    run: String,
    policy: String,
    iteration: Span,
    /// The parent of the iteration's spans until the next iteration begins, since checkpoint and evaluation follow the step.
    place: Option<TraceContext>,
    leases: HashMap<LeaseId, Span>,
}

impl Trace {
    pub(crate) fn new(links: SpanLinks, run: &str, policy: &str) -> Self {
        Self {
            links,
            run: run.to_owned(),
            policy: policy.to_owned(),
            iteration: Span::none(),
            place: None,
            leases: HashMap::new(),
        }
    }

    /// The parent of the current iteration's spans on other threads.
    pub(crate) fn place(&self) -> Option<TraceContext> {
        self.place
    }

    pub(crate) fn iteration_begins(&mut self, iteration: Iteration, decision: &Decision) {
        self.iteration = debug_span!(
            target: TRACE_TARGET,
            parent: None,
            "iteration",
            run = self.run,
            policy = self.policy,
            iteration = iteration.number(),
            rule = %decision.rule,
            runtime_s = Empty,
            total_worker_time_s = Empty,
            tasks = Empty,
            wasted = Empty,
            loss = Empty,
        );
        self.place = (self.links.context_of)(&self.iteration);
    }

    /// Begins the span of a lease. Returns the parent of the worker's spans.
    pub(crate) fn lease_begins(&mut self, worker: WorkerId, lease: &Lease) -> Option<TraceContext> {
        let span = self.links.below(self.place, || {
            debug_span!(
                target: TRACE_TARGET,
                parent: None,
                "lease",
                worker = worker.number(),
                lease = lease.id.0,
                iteration = lease.iteration.number(),
                first_task = lease.tasks.first,
                tasks = lease.tasks.count,
                outcome = Empty,
                otel.status_code = Empty,
            )
        });
        let place = (!span.is_disabled()).then(|| (self.links.context_of)(&span)).flatten();
        if place.is_some() {
            self.leases.insert(lease.id, span);
        }
        place
    }

    pub(crate) fn lease_ends(&mut self, lease: LeaseId, outcome: TaskOutcome) {
        let Some(span) = self.leases.remove(&lease) else { return };
        let (outcome, is_error) = match outcome {
            TaskOutcome::Applied => ("applied", false),
            TaskOutcome::Ignored => ("ignored", false),
            TaskOutcome::Cancelled => ("cancelled", false),
            TaskOutcome::Lost => ("lost", true),
            TaskOutcome::Failed => ("failed", true),
            TaskOutcome::Mismatched => ("mismatched", true),
            TaskOutcome::Disputed => ("disputed", true),
        };
        span.record("outcome", outcome);
        if is_error {
            span.record("otel.status_code", "ERROR");
        }
    }

    pub(crate) fn committed(&mut self, cost: &IterationCost, loss: f64) {
        let span = std::mem::replace(&mut self.iteration, Span::none());
        span.record("runtime_s", cost.runtime_s);
        span.record("total_worker_time_s", cost.total_worker_time_s);
        span.record("tasks", cost.tasks_applied);
        span.record("wasted", cost.tasks_wasted);
        span.record("loss", loss);
    }

    /// The span of a checkpoint of the current iteration.
    pub(crate) fn checkpoint_span(&self, iteration: Iteration) -> Span {
        self.links.below(self.place, || {
            debug_span!(
                target: TRACE_TARGET,
                parent: None,
                "checkpoint",
                iteration = iteration.number(),
                failed = Empty,
                otel.status_code = Empty,
            )
        })
    }

    /// The span of an evaluation of the parameters after an iteration.
    pub(crate) fn evaluation_span(&self, iteration: Iteration) -> Span {
        self.links.below(self.place, || {
            debug_span!(
                target: TRACE_TARGET,
                parent: None,
                "evaluation",
                iteration = iteration.number(),
                loss = Empty,
                accuracy = Empty,
            )
        })
    }
}
