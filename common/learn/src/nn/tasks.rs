//! The tasks of the batch that a learner computes, for layers whose results depend on more than the samples.

use std::cell::RefCell;

use burn::module::ParamId;
use burn::tensor::Tensor;
use rand::SeedableRng;
use rand::rngs::ChaCha8Rng;

/// The tasks of a batch, which have equally many successive samples.
#[derive(Clone, Debug)]
pub(crate) struct BatchTasks {
    /// The number of tasks, at least one.
    pub(crate) count: usize,
    pub(crate) draws: Vec<u64>,
}

/// The values that the layers of a network leave in averaged parameters: the mean over the tasks of what each of them leaves.
pub(crate) type LeftValues = Vec<(ParamId, Tensor<1>)>;

struct Computing {
    tasks: BatchTasks,
    /// The number of layers so far that drew random bits.
    layers: u64,
    left: LeftValues,
}

thread_local! {
    /// The batch that this thread computes; `None` outside of a learner.
    static COMPUTING: RefCell<Option<Computing>> = const { RefCell::new(None) };
}

/// Runs the forward pass of a batch, whose tasks the layers then know. Returns what they leave, too.
pub(crate) fn computing<T>(tasks: BatchTasks, forward: impl FnOnce() -> T) -> (T, LeftValues) {
    COMPUTING.set(Some(Computing { tasks, layers: 0, left: LeftValues::new() }));
    let result = forward();
    (result, COMPUTING.take().map_or_else(LeftValues::new, |computing| computing.left))
}

/// Returns the number of tasks whose samples these are: one outside of a learner.
pub(super) fn count(samples: usize) -> usize {
    let count = COMPUTING.with_borrow(|computing| computing.as_ref().map_or(1, |computing| computing.tasks.count));
    assert!(samples.is_multiple_of(count), "{samples} samples of {count} tasks: expected equally many of each task");
    count
}

/// Returns a generator of random bits for each sample, which depends on the sample's draw and on the number of layers that have drawn before.
/// Outside of a learner, draws are 0 for the one sample that is assumed then.
pub(super) fn generators() -> Vec<ChaCha8Rng> {
    let (draws, layer) = COMPUTING.with_borrow_mut(|computing| match computing {
        Some(computing) => {
            computing.layers += 1;
            (computing.tasks.draws.clone(), computing.layers)
        }
        None => (vec![0], 0),
    });
    let generator = |draw| {
        let mut generator = ChaCha8Rng::seed_from_u64(draw);
        generator.set_stream(layer);
        generator
    };
    draws.into_iter().map(generator).collect()
}

/// Changes the value that is left in an averaged parameter. `value` is that of the parameter, without autodiff; a layer that is used several
/// times changes what it has left before.
pub(super) fn leave(id: ParamId, value: Tensor<1>, change: impl FnOnce(Tensor<1>) -> Tensor<1>) {
    COMPUTING.with_borrow_mut(|computing| {
        let Some(Computing { left, .. }) = computing else { return };
        match left.iter_mut().find(|(known, _)| *known == id) {
            Some((_, value)) => *value = change(value.clone()),
            None => left.push((id, change(value))),
        }
    });
}
