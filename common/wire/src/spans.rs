//! Spans of an iteration on several threads and machines, as children of one another.

use tracing::Span;

use crate::TraceContext;

/// The target of the spans of an iteration. They are debug spans, so that the ordinary log does not enable them, and one costs as
/// much as a comparison.
pub const TRACE_TARGET: &str = "ata::trace";

/// Makes spans children of spans on other threads and machines. The program sets these functions for the backend that keeps the
/// spans; by default no spans are kept.
///
/// `tracing`'s own parents are not used, even on the same thread. For `tracing`, a span ends when its children have ended, but an
/// iteration does not wait for the evaluation that begins at its end.
#[derive(Clone, Copy, Debug)]
pub struct SpanLinks {
    /// The context of a span; `None` if nothing keeps it.
    pub context_of: fn(&Span) -> Option<TraceContext>,
    /// Makes a span without children the child of another one.
    pub continue_from: fn(&Span, TraceContext),
}

impl Default for SpanLinks {
    fn default() -> Self {
        Self { context_of: |_| None, continue_from: |_, _| () }
    }
}

impl SpanLinks {
    /// Makes a child of another span, if that is kept.
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
