//! Keeps the spans of an iteration, in the place of a collector.

use std::collections::BTreeMap;
use std::num::{NonZeroU64, NonZeroU128};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use ata_wire::{SpanLinks, TRACE_TARGET, TraceContext};
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Metadata, Span, Subscriber};

/// A span, over or not.
#[derive(Clone, Debug)]
pub struct KeptSpan {
    /// Its name.
    pub name: &'static str,
    /// Its values, as text.
    pub fields: BTreeMap<&'static str, String>,
    /// The span that it is a child of.
    pub parent: Option<u64>,
    /// What it is called in contexts that cross the wire.
    pub id: u64,
    /// Handles to it; it is over when there are none.
    handles: usize,
}

impl KeptSpan {
    /// The value of a field, or nothing.
    pub fn field(&self, name: &str) -> &str {
        self.fields.get(name).map_or("", String::as_str)
    }

    /// Whether it is over.
    pub fn is_over(&self) -> bool {
        self.handles == 0
    }
}

static SPANS: Mutex<BTreeMap<u64, KeptSpan>> = Mutex::new(BTreeMap::new());
static NEXT: AtomicU64 = AtomicU64::new(1);

fn spans() -> MutexGuard<'static, BTreeMap<u64, KeptSpan>> {
    // A failed assertion elsewhere leaves them whole.
    SPANS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A subscriber that keeps all spans of iterations of this process.
#[derive(Debug)]
pub struct SpanKeeper;

impl SpanKeeper {
    /// Starts to keep them: once in a process.
    pub fn start() {
        tracing::subscriber::set_global_default(Self).expect("no other subscriber");
    }

    /// What makes spans children of one another. Of the iteration [`UNSAMPLED`] it says that its trace is not kept.
    pub fn links() -> SpanLinks {
        SpanLinks { context_of, continue_from }
    }

    /// All spans so far.
    pub fn kept() -> Vec<KeptSpan> {
        spans().values().cloned().collect()
    }
}

/// The iteration whose trace is not kept.
pub const UNSAMPLED: &str = "2";

fn context_of(span: &Span) -> Option<TraceContext> {
    let id = span.id()?.into_u64();
    let spans = spans();
    let mut root = &spans[&id];
    while let Some(parent) = root.parent {
        root = &spans[&parent];
    }
    let trace = NonZeroU128::new(root.id.into())?;
    Some(TraceContext { trace, span: NonZeroU64::new(id)?, is_sampled: root.field("iteration") != UNSAMPLED })
}

fn continue_from(span: &Span, parent: TraceContext) {
    let id = span.id().expect("spans of iterations are kept").into_u64();
    spans().get_mut(&id).expect("it is kept").parent = Some(parent.span.get());
}

impl Subscriber for SpanKeeper {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.is_span() && metadata.target() == TRACE_TARGET
    }

    fn new_span(&self, attributes: &Attributes<'_>) -> Id {
        let id = NEXT.fetch_add(1, Ordering::Relaxed);
        let mut span = KeptSpan {
            name: attributes.metadata().name(),
            fields: BTreeMap::new(),
            parent: attributes.parent().map(Id::into_u64),
            id,
            handles: 1,
        };
        attributes.record(&mut Fields(&mut span.fields));
        spans().insert(id, span);
        Id::from_u64(id)
    }

    fn record(&self, id: &Id, values: &Record<'_>) {
        let mut spans = spans();
        let span = spans.get_mut(&id.into_u64()).expect("it is kept");
        assert!(!span.is_over(), "{span:?} is over");
        values.record(&mut Fields(&mut span.fields));
    }

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, _: &Event<'_>) {}

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}

    fn clone_span(&self, id: &Id) -> Id {
        spans().get_mut(&id.into_u64()).expect("it is kept").handles += 1;
        id.clone()
    }

    fn try_close(&self, id: Id) -> bool {
        let mut spans = spans();
        let span = spans.get_mut(&id.into_u64()).expect("it is kept");
        span.handles -= 1;
        span.is_over()
    }
}

struct Fields<'a>(&'a mut BTreeMap<&'static str, String>);

impl Visit for Fields<'_> {
    fn record_str(&mut self, field: &Field, value: &str) {
        self.0.insert(field.name(), value.to_owned());
    }

    fn record_debug(&mut self, field: &Field, value: &dyn std::fmt::Debug) {
        self.0.insert(field.name(), format!("{value:?}"));
    }
}
