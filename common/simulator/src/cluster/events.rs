//! What will happen between workers and coordinator, in order of time.

use std::cmp::Ordering;
use std::collections::BinaryHeap;

use ata_types::WorkerId;

use crate::network::{Message, Session};

/// Something that will happen.
pub(super) struct Event {
    pub(super) at: f64,
    /// Events at the same time happen in this order.
    number: u64,
    pub(super) worker: WorkerId,
    pub(super) kind: EventKind,
}

pub(super) enum EventKind {
    Arrival(Message),
    /// A process sends a heartbeat, or asks for a session.
    Tick(u64),
    /// The coordinator may not have heard from a session for too long.
    Silence(Session),
}

impl PartialEq for Event {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for Event {}

impl PartialOrd for Event {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Event {
    /// The earliest is the greatest, as a heap wants it.
    fn cmp(&self, other: &Self) -> Ordering {
        other.at.total_cmp(&self.at).then(other.number.cmp(&self.number))
    }
}

/// A queue of events.
#[derive(Default)]
pub(super) struct Events {
    heap: BinaryHeap<Event>,
    /// How many events there were.
    numbered: u64,
}

impl Events {
    pub(super) fn push(&mut self, at: f64, worker: WorkerId, kind: EventKind) {
        self.numbered += 1;
        self.heap.push(Event { at, number: self.numbered, worker, kind });
    }

    /// Adds an event that happens before all others of its time.
    pub(super) fn push_first(&mut self, at: f64, worker: WorkerId, kind: EventKind) {
        self.heap.push(Event { at, number: 0, worker, kind });
    }

    pub(super) fn next_at(&self) -> Option<f64> {
        self.heap.peek().map(|event| event.at)
    }

    pub(super) fn pop(&mut self) -> Option<Event> {
        self.heap.pop()
    }
}
