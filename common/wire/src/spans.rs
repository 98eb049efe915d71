//! Spans of an iteration on several threads and machines, as children of one another.

use tracing::Span;

use crate::TraceContext;

/// The target of the spans of an iteration. They are debug spans, so that the ordinary log does not enable them: then one costs
/// as much as a comparison.
pub const TRACE_TARGET: &str = "ata::trace";

/// How spans become children of spans elsewhere. That is the business of whatever keeps them, which only the program knows; by
/// default nothing does.
///
/// A child is not made with its parent at hand, as `tracing` has it, even on the same thread: a span that `tracing` knows to
/// have children is over when they are, and an iteration does not wait for the evaluation that begins at its end.
#[derive(Clone, Copy, Debug)]
pub struct SpanLinks {
    /// Where a span stands; `None` if nothing keeps it.
    pub context_of: fn(&Span) -> Option<TraceContext>,
    /// Makes a span that has no children yet a child of another one.
    pub continue_from: fn(&Span, TraceContext),
}

impl Default for SpanLinks {
    fn default() -> Self {
        Self { context_of: |_| None, continue_from: |_, _| () }
    }
}

impl SpanLinks {
    /// A span below another one, if that is kept.
    pub fn below(&self, parent: Option<TraceContext>, make: impl FnOnce() -> Span) -> Span {
        match parent {
            Some(parent) if parent.is_sampled => {
                let span = make();
                (self.continue_from)(&span, parent);
                span
            }
            _ => Span::none(),
        }
    }
}
