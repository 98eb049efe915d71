//! The parameters that workers compute at.

use std::collections::VecDeque;
use std::sync::{Arc, Weak};

use ata_types::Iteration;
use ata_wire::{FramedTensor, Pool};
use bytes::Bytes;
use tokio::sync::watch;
use tokio_stream::wrappers::WatchStream;
use tokio_stream::{Stream, StreamExt};

/// The parameters of one iteration, ready to be sent. Clones share them.
#[derive(Clone, Debug)]
pub(crate) struct ParameterSet {
    /// The iteration whose gradients are computed at them.
    pub(crate) iteration: Iteration,
    /// Little-endian f32.
    values: Bytes,
    /// The same, as they are sent.
    framed: FramedTensor,
    alive: Weak<()>,
}

/// The memory of a set, with a mark that lives as long.
struct Version {
    values: Bytes,
    _mark: Arc<()>,
}

impl AsRef<[u8]> for Version {
    fn as_ref(&self) -> &[u8] {
        &self.values
    }
}

impl ParameterSet {
    /// Parameters in a buffer that goes back to `pool`.
    pub(crate) fn new(iteration: Iteration, parameters: Vec<f32>, pool: &Pool) -> Self {
        let mark = Arc::new(());
        let alive = Arc::downgrade(&mark);
        let values = Bytes::from_owner(Version { values: pool.lend(parameters), _mark: mark });
        Self { iteration, framed: FramedTensor::new(iteration, values.clone()), values, alive }
    }

    /// The last step that they hold; 0 for initial parameters.
    pub(crate) fn last_step(&self) -> Iteration {
        Iteration(self.iteration.since(Iteration::FIRST))
    }

    /// The parameters, in the model's flat order.
    pub(crate) fn values(&self) -> &[f32] {
        bytemuck::cast_slice(&self.values)
    }

    /// SHA-256 of the parameters as little-endian f32.
    pub(crate) fn sha256(&self) -> [u8; 32] {
        ata_learn::sha256_of_parameters(self.values())
    }
}

/// The versions of the parameters that are in memory.
#[derive(Debug)]
pub(crate) struct Versions {
    alive: VecDeque<Weak<()>>,
    limit: usize,
}

impl Versions {
    pub(crate) fn new(limit: usize) -> Self {
        Self { alive: VecDeque::new(), limit }
    }

    /// Counts a new version. Returns whether there are more than the limit now.
    pub(crate) fn add(&mut self, set: &ParameterSet) -> bool {
        self.alive.retain(|version| version.strong_count() > 0);
        self.alive.push_back(set.alive.clone());
        self.alive.len() > self.limit
    }
}

/// The parameters that are due to a worker: the newest set that it was not sent. Sending takes the set out, so that no version is
/// kept in memory for a worker that has it.
#[derive(Debug, Default)]
pub(crate) struct DueParameters(watch::Sender<Due>);

#[derive(Clone, Debug, Default)]
enum Due {
    #[default]
    Nothing,
    Set(ParameterSet),
    SessionOver,
}

impl Due {
    fn take(&mut self) -> Self {
        if matches!(self, Self::Set(_)) { std::mem::take(self) } else { self.clone() }
    }
}

impl DueParameters {
    /// Makes a set due, instead of an older one.
    pub(crate) fn put(&self, set: ParameterSet) {
        self.0.send_replace(Due::Set(set));
    }

    /// Makes nothing due. Returns whether something was.
    pub(crate) fn clear(&self) -> bool {
        let mut was_due = false;
        self.0.send_if_modified(|due| {
            was_due = matches!(due.take(), Due::Set(_));
            false
        });
        was_due
    }

    /// The iteration of the set that is due.
    pub(crate) fn iteration(&self) -> Option<Iteration> {
        match &*self.0.borrow() {
            Due::Set(set) => Some(set.iteration),
            Due::Nothing | Due::SessionOver => None,
        }
    }

    /// The sets as they become due, for one receiver at a time.
    pub(crate) fn receiver(&self) -> Option<DueSets> {
        if self.0.receiver_count() > 0 {
            return None;
        }
        let mut changes = self.0.subscribe();
        // A set that was due before is new to this receiver.
        changes.mark_changed();
        Some(DueSets { due: self.0.clone(), changes })
    }
}

impl Drop for DueParameters {
    fn drop(&mut self) {
        self.0.send_replace(Due::SessionOver);
    }
}

/// Receives the sets that become due.
#[derive(Debug)]
pub(crate) struct DueSets {
    due: watch::Sender<Due>,
    changes: watch::Receiver<Due>,
}

impl DueSets {
    /// The sets, until the session is over.
    pub(crate) fn into_stream(self) -> impl Stream<Item = FramedTensor> + Send + 'static {
        let Self { due, changes } = self;
        let taken = WatchStream::from_changes(changes).map(move |_| take(&due));
        taken.take_while(|due| !matches!(due, Due::SessionOver)).filter_map(|due| match due {
            Due::Set(set) => Some(set.framed),
            Due::Nothing | Due::SessionOver => None,
        })
    }

    /// Takes the set that is due, and returns its iteration; an error means that the session is over.
    pub(crate) fn take(&self) -> Result<Option<Iteration>, ()> {
        match take(&self.due) {
            Due::Set(set) => Ok(Some(set.iteration)),
            Due::Nothing => Ok(None),
            Due::SessionOver => Err(()),
        }
    }
}

fn take(due: &watch::Sender<Due>) -> Due {
    let mut taken = Due::Nothing;
    due.send_if_modified(|due| {
        taken = due.take();
        false
    });
    taken
}
