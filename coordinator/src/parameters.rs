//! The parameters at which workers compute gradients.

use std::collections::VecDeque;
use std::sync::mpsc as std_mpsc;
use std::sync::{Arc, LazyLock, Weak};

use ata_sums::SteppedChunk;
use ata_types::{CHUNK_VALUES, Iteration, WireFormat};
use ata_wire::{FramedSet, SetHeader, SetProducer, Stripe};
use bytes::Bytes;
use tokio::sync::watch;
use tokio_stream::wrappers::WatchStream;
use tokio_stream::{Stream, StreamExt};

/// The parameters of one iteration, which can be sent while they are still being written. Clones share the data.
#[derive(Clone, Debug)]
pub(crate) struct ParameterSet {
    /// The iteration whose gradients are computed at these parameters.
    pub(crate) iteration: Iteration,
    whole: FramedSet,
    /// The differences from the set of the previous iteration, if the format has differences.
    differences: Option<FramedSet>,
    /// The subset of the chunks that is sent; `None` for all.
    stripe: Option<Stripe>,
    /// Whether the set is for a worker that may hold only a part of an earlier one.
    is_whole: bool,
    alive: Weak<()>,
}

pub(crate) struct SetWriter {
    whole: SetProducer,
    differences: Option<SetProducer>,
    mark: Arc<()>,
}

/// A chunk's values as bytes. It keeps the mark of its set alive.
struct Values {
    values: Vec<f32>,
    _mark: Arc<()>,
}

impl AsRef<[u8]> for Values {
    fn as_ref(&self) -> &[u8] {
        bytemuck::cast_slice(&self.values)
    }
}

impl SetWriter {
    pub(crate) fn push(&mut self, chunk: SteppedChunk) {
        self.whole.push(Bytes::from_owner(Values { values: chunk.whole, _mark: self.mark.clone() }));
        if let Some((producer, bytes)) = self.differences.as_mut().zip(chunk.differences) {
            producer.push(bytes.into());
        }
    }
}

impl ParameterSet {
    /// Creates a set of `values` numbers that is about to be written, and its writer.
    pub(crate) fn begin(iteration: Iteration, values: usize, format: WireFormat) -> (Self, SetWriter) {
        let chunks = values.div_ceil(CHUNK_VALUES) as u64;
        let producer = |base| SetProducer::new(SetHeader { iteration, base, chunks, stripe: None });
        let whole = producer(None);
        let has_differences = format == WireFormat::Compact && iteration > Iteration::FIRST;
        let differences = has_differences.then(|| producer(Some(Iteration(iteration.since(Iteration::FIRST)))));
        let mark = Arc::new(());
        let set = Self {
            iteration,
            whole: whole.set(),
            differences: differences.as_ref().map(SetProducer::set),
            stripe: None,
            is_whole: false,
            alive: Arc::downgrade(&mark),
        };
        (set, SetWriter { whole, differences, mark })
    }

    pub(crate) fn complete(iteration: Iteration, values: &[f32]) -> Self {
        // No worker holds the previous set, so the format needs no differences.
        let (set, mut writer) = Self::begin(iteration, values.len(), WireFormat::F32Exact);
        for chunk in values.chunks(CHUNK_VALUES) {
            writer.push(SteppedChunk { whole: chunk.to_vec(), differences: None });
        }
        set
    }

    /// The last step included in the parameters; 0 for initial parameters.
    pub(crate) fn last_step(&self) -> Iteration {
        Iteration(self.iteration.since(Iteration::FIRST))
    }

    /// Returns the set as it is sent to a worker that holds the parameters of `held`.
    fn for_holder_of(self, held: Option<Iteration>) -> FramedSet {
        let differences = self.differences.filter(|_| held.map(Iteration::next) == Some(self.iteration));
        differences.unwrap_or(self.whole).stripe(self.stripe)
    }

    pub(crate) fn in_stripe(&self, stripe: Option<Stripe>) -> Self {
        Self { stripe, ..self.clone() }
    }

    /// Returns the set with all of its chunks, and without differences.
    pub(crate) fn whole(&self) -> Self {
        Self { stripe: None, differences: None, is_whole: true, ..self.clone() }
    }
}

/// A copy of the parameters after a step, made by the training thread. Clones share it.
#[derive(Clone, Debug)]
pub(crate) struct TrainedParameters {
    pub(crate) last_step: Iteration,
    values: Arc<LazyLock<Vec<f32>, AwaitCopy>>,
}

type AwaitCopy = Box<dyn FnOnce() -> Vec<f32> + Send>;

impl AsRef<[f32]> for TrainedParameters {
    fn as_ref(&self) -> &[f32] {
        self.values()
    }
}

impl AsRef<[u8]> for TrainedParameters {
    fn as_ref(&self) -> &[u8] {
        bytemuck::cast_slice(self.values())
    }
}

impl TrainedParameters {
    /// Creates the parameters after step `last_step`, which will be received from `copy`.
    pub(crate) fn new(last_step: Iteration, copy: std_mpsc::Receiver<Vec<f32>>) -> Self {
        let wait: AwaitCopy = Box::new(move || copy.recv().unwrap_or_default());
        Self { last_step, values: Arc::new(LazyLock::new(wait)) }
    }

    /// Returns the parameters in flat order. Blocks until the training thread has copied them; they are empty if it has failed.
    pub(crate) fn values(&self) -> &[f32] {
        &self.values
    }

    /// Returns the parameters as they are sent to a worker that evaluates them, without copying. Blocks like [`Self::values`].
    pub(crate) fn framed(&self) -> FramedSet {
        let bytes = Bytes::from_owner(self.clone());
        let chunks = self.values().len().div_ceil(CHUNK_VALUES) as u64;
        let header = SetHeader { iteration: self.last_step.next(), base: None, chunks, stripe: None };
        let mut producer = SetProducer::new(header);
        for first in (0..bytes.len()).step_by(4 * CHUNK_VALUES) {
            producer.push(bytes.slice(first..bytes.len().min(first + 4 * CHUNK_VALUES)));
        }
        producer.set()
    }

    pub(crate) fn sha256(&self) -> [u8; 32] {
        ata_sums::sha256_of_parameters(self.values())
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

    /// Counts a new version. Returns whether the number of versions now exceeds the limit.
    pub(crate) fn add(&mut self, set: &ParameterSet) -> bool {
        self.alive.retain(|version| version.strong_count() > 0);
        self.alive.push_back(set.alive.clone());
        self.alive.len() > self.limit
    }
}

/// The newest set that a worker was not sent. Sending removes it, so that no version is kept in memory for a worker that already has it.
#[derive(Debug, Default)]
pub(crate) struct DueParameters(Arc<watch::Sender<Due>>);

type Due = Option<Box<ParameterSet>>;

impl DueParameters {
    pub(crate) fn put(&self, set: ParameterSet) {
        self.0.send_replace(Some(Box::new(set)));
    }

    /// Returns whether the due set is for a worker that may hold only a part of an earlier one.
    pub(crate) fn is_whole(&self) -> bool {
        self.0.borrow().as_ref().is_some_and(|set| set.is_whole)
    }

    /// Removes the due set if it is of this iteration or an earlier one. Returns whether it was removed.
    pub(crate) fn clear(&self, iteration: Iteration) -> bool {
        take_if(&self.0, |set| set.iteration <= iteration).is_some()
    }

    pub(crate) fn iteration(&self) -> Option<Iteration> {
        self.0.borrow().as_ref().map(|set| set.iteration)
    }

    /// Returns a receiver of the sets as they become due. There can be one receiver at a time.
    pub(crate) fn receiver(&self) -> Option<DueSets> {
        if self.0.receiver_count() > 0 {
            return None;
        }
        let mut changes = self.0.subscribe();
        // A set that is already due is new to this receiver.
        changes.mark_changed();
        Some(DueSets { due: Arc::downgrade(&self.0), changes })
    }
}

impl Drop for DueParameters {
    fn drop(&mut self) {
        // The receiver may keep the channel for a while.
        self.0.send_replace(None);
    }
}

#[derive(Debug)]
pub(crate) struct DueSets {
    /// The sender, until the session is over.
    due: Weak<watch::Sender<Due>>,
    changes: watch::Receiver<Due>,
}

impl DueSets {
    /// Returns the sets as a stream that ends with the session.
    pub(crate) fn into_stream(self) -> impl Stream<Item = FramedSet> + Send + 'static {
        let Self { due, changes } = self;
        let mut held = None;
        WatchStream::from_changes(changes).filter_map(move |_| {
            let open = due.upgrade()?;
            let set = take_if(&open, |_| true)?;
            let before = held.replace(set.iteration);
            Some(set.for_holder_of(before))
        })
    }
}

/// Takes the due set, if `is_wanted` holds for it.
fn take_if(due: &watch::Sender<Due>, is_wanted: impl Fn(&ParameterSet) -> bool) -> Due {
    let mut taken = None;
    due.send_if_modified(|due| {
        taken = due.take_if(|set| is_wanted(set));
        false
    });
    taken
}

#[cfg(test)]
mod tests {
    use super::*;

    impl DueSets {
        /// Takes the set that is due. Returns its iteration, or an error if the session is over.
        pub(crate) fn take(&self) -> Result<Option<Iteration>, ()> {
            let open = self.due.upgrade().ok_or(())?;
            Ok(take_if(&open, |_| true).map(|set| set.iteration))
        }

        /// Takes the set that is due. Returns its iteration, and whether it is for a worker that may hold only a part of an earlier one.
        pub(crate) fn take_whole(&self) -> Option<(u64, bool)> {
            let open = self.due.upgrade()?;
            let set = take_if(&open, |_| true)?;
            Some((set.iteration.number(), set.is_whole))
        }
    }
}
