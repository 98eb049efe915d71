//! Assigns samples to tasks.

use std::collections::BTreeMap;

use ata_types::Iteration;
use rand::rngs::ChaCha8Rng;
use rand::seq::SliceRandom;
use rand::{RngExt, SeedableRng};

/// The tasks of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tasks {
    /// Seed of the order of samples.
    pub seed: u64,
    /// B, tasks per iteration.
    pub budget: u64,
    /// Samples per task.
    pub task_batch: u32,
}

/// Chooses the samples of each task.
///
/// A task's samples depend on (seed, iteration, index) only. The samples of iteration 1's tasks 0..B, then of iteration
/// 2's, and so on, run through one random permutation of the data set per epoch. The extra tasks of a racing iteration
/// (index ≥ B) draw theirs at random, so as not to use up those of later tasks.
#[derive(Debug)]
pub struct TaskSampler {
    tasks: Tasks,
    /// Samples of the data set.
    count: u32,
    /// By epoch; only those that the last task spans are kept.
    permutations: BTreeMap<u64, Vec<u32>>,
}

impl TaskSampler {
    /// For tasks on a data set of `count` samples, at least one.
    pub fn new(tasks: Tasks, count: u32) -> Self {
        Self { tasks, count, permutations: BTreeMap::new() }
    }

    /// The indices of a task's samples.
    pub fn samples(&mut self, iteration: Iteration, index: u64) -> Vec<u32> {
        let Tasks { seed, budget, task_batch } = self.tasks;
        let count = self.count;
        let size = u64::from(task_batch);
        if index >= budget {
            let mut rng =
                stream(seed, Purpose::ExtraTask, iteration.number().wrapping_mul(1 << 32).wrapping_add(index));
            return (0..size).map(|_| rng.random_range(0..count)).collect();
        }
        // Positions wrap around, as a coordinator may name any iteration.
        let first = (iteration.number() - 1).wrapping_mul(budget).wrapping_add(index).wrapping_mul(size);
        let epoch_of = |position: u64| position / u64::from(count);
        let oldest = epoch_of(first);
        self.permutations.retain(|&epoch, _| epoch >= oldest && epoch <= epoch_of(first.wrapping_add(size)));
        (0..size)
            .map(|at| {
                let position = first.wrapping_add(at);
                let permutation = self.permutations.entry(epoch_of(position)).or_insert_with_key(|&epoch| {
                    let mut permutation: Vec<u32> = (0..count).collect();
                    permutation.shuffle(&mut stream(seed, Purpose::Epoch, epoch));
                    permutation
                });
                permutation[(position % u64::from(count)) as usize]
            })
            .collect()
    }
}

#[derive(Clone, Copy)]
enum Purpose {
    Epoch = 1,
    ExtraTask = 2,
}

/// An independent random stream for each purpose and number.
fn stream(seed: u64, purpose: Purpose, number: u64) -> ChaCha8Rng {
    let mut key = [0; 32];
    key[..8].copy_from_slice(&seed.to_le_bytes());
    key[8] = purpose as u8;
    let mut rng = ChaCha8Rng::from_seed(key);
    rng.set_stream(number);
    rng
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tasks(seed: u64, budget: u64, task_batch: u32) -> TaskSampler {
        TaskSampler::new(Tasks { seed, budget, task_batch }, 2_000)
    }

    /// 2,000 records in tasks of 16, 4 per iteration: the first epoch ends in the middle of iteration 32.
    #[test]
    fn an_epoch_takes_each_record_once() {
        let mut data = tasks(3, 4, 16);
        let all: Vec<u32> = (1..=32)
            .flat_map(|k| (0..4).map(move |b| (k, b)))
            .flat_map(|(k, b)| data.samples(Iteration(k), b))
            .collect();
        let mut epoch = all[..2_000].to_vec();
        assert_ne!(epoch[..3], [0, 1, 2]);
        epoch.sort_unstable();
        assert!(epoch.iter().copied().eq(0..2_000));
        assert_ne!(all[2_000..], all[..48], "each epoch has its own permutation");
    }

    /// Invariant 2: only (seed, iteration, index) matters, not what was asked for before.
    #[test]
    fn a_task_is_the_same_whoever_asks_and_when() {
        let (mut a, mut b) = (tasks(3, 4, 16), tasks(3, 4, 16));
        let expected = a.samples(Iteration(157), 0);
        for iteration in [400, 2, 157, 1] {
            b.samples(Iteration(iteration), 3);
        }
        assert_eq!(b.samples(Iteration(157), 0), expected);
        assert_ne!(tasks(4, 4, 16).samples(Iteration(157), 0), expected);
    }

    /// The order of samples is part of what a seed means; this pins it.
    #[test]
    fn the_order_is_the_same_on_every_machine() {
        assert_eq!(tasks(3, 4, 4).samples(Iteration(2), 1), [954, 290, 691, 1321]);
        assert_eq!(tasks(3, 4, 4).samples(Iteration(2), 4), [608, 88, 1490, 1455]);
    }

    /// The positions of this task's samples end where numbers do.
    #[test]
    fn any_iteration_has_samples() {
        let last = u64::MAX / 3 + 1;
        assert_eq!(tasks(3, 1, 3).samples(Iteration(last), 0).len(), 3);
    }

    #[test]
    fn extra_tasks_draw_at_random() {
        let mut data = tasks(3, 4, 16);
        assert_eq!(data.samples(Iteration(5), 9), data.samples(Iteration(5), 9));
        assert_ne!(data.samples(Iteration(5), 9), data.samples(Iteration(5), 10));
        assert_ne!(
            data.samples(Iteration(5), 4),
            data.samples(Iteration(6), 0),
            "the next iteration's tasks are not used up"
        );
    }

    /// A task of more samples than there are records spans several epochs.
    #[test]
    fn a_task_may_be_larger_than_the_data_set() {
        assert_eq!(tasks(1, 2, 25_000).samples(Iteration(2), 1).len(), 25_000);
    }
}
