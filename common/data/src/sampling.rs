//! Assigns samples to tasks.

use std::collections::BTreeMap;

use ata_types::Iteration;
use rand::rngs::ChaCha8Rng;
use rand::{RngExt, SeedableRng};

use crate::permutation::Permutation;
use crate::windows::Windows;

/// The parameters that determine a run's tasks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tasks {
    /// The seed of the order of samples.
    pub seed: u64,
    /// The budget B, in tasks per iteration.
    pub budget: u64,
    /// The number of samples per task.
    pub task_batch: u32,
}

/// A sample of a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TaskSample {
    /// The index of the sample in the data set.
    pub index: u64,
    /// Random bits that depend on (seed, iteration, task, position in the task) only, for all random decisions about
    /// the sample, such as augmentation.
    pub draw: u64,
    /// The offset from the sample to the next one of its task in a batch; the last one is followed by the first.
    pub next: isize,
}

impl TaskSample {
    /// Makes samples a task of their own: each is followed by the next one, and the last by the first.
    pub fn ring(mut samples: Vec<Self>) -> Vec<Self> {
        let last = samples.len().cast_signed() - 1;
        for (at, sample) in (0..).zip(&mut samples) {
            sample.next = if at < last { 1 } else { -last };
        }
        samples
    }
}

/// Chooses the samples of each task.
///
/// A task's samples depend on (seed, iteration, index) only. The samples of iteration 1's tasks 0..B, then of iteration
/// 2's, and so on, run through one random permutation of the data set per epoch. The extra tasks of a racing iteration
/// (index ≥ B) draw theirs at random, so as not to use up those of later tasks.
///
/// If the data set is in shards, an epoch is shuffled by windows of eight shards, and extra tasks draw from the window of their iteration.
#[derive(Debug)]
pub struct TaskSampler {
    tasks: Tasks,
    count: u64,
    /// The number of samples per shard, if the data set is in shards.
    shard: Option<u64>,
    /// The order of each epoch; only those that the last task spans are kept.
    orders: BTreeMap<u64, SampleOrder>,
    /// The epoch and the window whose shards [`Self::next_shards`] returned last.
    window: Option<(u64, u64)>,
}

#[derive(Debug)]
enum SampleOrder {
    Whole(Permutation),
    InWindows(Windows),
}

impl TaskSampler {
    /// Creates a sampler for a data set of `count` samples, at least one; if it is in shards, each has `shard` of them, or fewer if it is the last.
    pub fn new(tasks: Tasks, count: u64, shard: Option<u64>) -> Self {
        Self { tasks, count, shard, orders: BTreeMap::new(), window: None }
    }

    /// Returns the shards that a task and those after it need first, in this order. Returns `None` if the data set is
    /// not in shards, or if the shards are those that this returned last.
    pub fn next_shards(&mut self, iteration: Iteration, index: u64) -> Option<Vec<u64>> {
        // Without shards the data set need not be shuffled here.
        self.shard?;
        let position = self.first_position(iteration, index.min(self.tasks.budget - 1));
        let (epoch, at) = (position / self.count, position % self.count);
        let SampleOrder::InWindows(windows) = self.order(epoch) else { return None };
        let window = windows.window(at);
        let shards = [windows.shards(window), windows.shards(window + 1)].concat();
        (self.window.replace((epoch, window)) != Some((epoch, window))).then_some(shards)
    }

    /// Returns the position of a task's first sample in the sequence of all iterations. It wraps around, as a
    /// coordinator may name any iteration.
    fn first_position(&self, iteration: Iteration, index: u64) -> u64 {
        let Tasks { budget, task_batch, .. } = self.tasks;
        (iteration.number() - 1).wrapping_mul(budget).wrapping_add(index).wrapping_mul(task_batch.into())
    }

    fn order(&mut self, epoch: u64) -> &mut SampleOrder {
        self.orders.entry(epoch).or_insert_with(|| {
            let rng = stream(self.tasks.seed, DrawPurpose::Epoch, epoch);
            match self.shard {
                None => SampleOrder::Whole(Permutation::new(self.count, rng)),
                Some(shard) => SampleOrder::InWindows(Windows::new(self.count, shard, rng)),
            }
        })
    }

    /// Returns the sample at a position in the sequence of all iterations.
    fn sample(&mut self, position: u64) -> u64 {
        let (epoch, at) = (position / self.count, position % self.count);
        let seed = self.tasks.seed;
        match self.order(epoch) {
            SampleOrder::Whole(permutation) => permutation.at(at),
            // Epochs and windows both number far fewer than 2³².
            SampleOrder::InWindows(windows) => {
                windows.at(at, |window| stream(seed, DrawPurpose::Window, (epoch << 32).wrapping_add(window)))
            }
        }
    }

    /// Returns a task's samples with their random draws.
    pub fn task(&mut self, iteration: Iteration, index: u64) -> Vec<TaskSample> {
        let mut draws = stream(self.tasks.seed, DrawPurpose::Draw, number_of(iteration, index));
        let samples = self.samples(iteration, index).into_iter();
        TaskSample::ring(samples.map(|index| TaskSample { index, draw: draws.random(), next: 0 }).collect())
    }

    /// Returns the indices of a task's samples.
    pub fn samples(&mut self, iteration: Iteration, index: u64) -> Vec<u64> {
        let Tasks { seed, budget, task_batch } = self.tasks;
        let size = u64::from(task_batch);
        if index >= budget {
            let mut rng = stream(seed, DrawPurpose::ExtraTask, number_of(iteration, index));
            return (0..size).map(|_| self.extra_sample(iteration, &mut rng)).collect();
        }
        let first = self.first_position(iteration, index);
        let epochs = first / self.count..=first.wrapping_add(size) / self.count;
        self.orders.retain(|epoch, _| epochs.contains(epoch));
        (0..size).map(|at| self.sample(first.wrapping_add(at))).collect()
    }

    /// Returns a random sample, from the window of the iteration if there are windows.
    fn extra_sample(&mut self, iteration: Iteration, rng: &mut ChaCha8Rng) -> u64 {
        let position = self.first_position(iteration, 0);
        let (epoch, count) = (position / self.count, self.count);
        if self.shard.is_none() {
            return random_below(count, rng);
        }
        let SampleOrder::InWindows(windows) = self.order(epoch) else { unreachable!("the data set is in shards") };
        let range = windows.positions(windows.window(position % count));
        let at = range.start + random_below(range.end - range.start, rng);
        self.sample(epoch * count + at)
    }
}

/// Returns a random number below `count`. Small ranges take other values from the stream than large ones, which keeps
/// the results of existing seeds.
fn random_below(count: u64, rng: &mut ChaCha8Rng) -> u64 {
    match u32::try_from(count) {
        Ok(count) => rng.random_range(0..count).into(),
        Err(_) => rng.random_range(0..count),
    }
}

/// Returns the number of a task in the sequence of all iterations.
fn number_of(iteration: Iteration, index: u64) -> u64 {
    iteration.number().wrapping_mul(1 << 32).wrapping_add(index)
}

#[derive(Clone, Copy)]
enum DrawPurpose {
    Epoch = 1,
    ExtraTask = 2,
    Draw = 3,
    Window = 4,
}

/// Returns an independent random stream for each purpose and number.
fn stream(seed: u64, purpose: DrawPurpose, number: u64) -> ChaCha8Rng {
    let mut key = [0; 32];
    key[..8].copy_from_slice(&seed.to_le_bytes());
    key[8] = purpose as u8;
    let mut rng = ChaCha8Rng::from_seed(key);
    rng.set_stream(number);
    rng
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    fn tasks(seed: u64, budget: u64, task_batch: u32) -> TaskSampler {
        TaskSampler::new(Tasks { seed, budget, task_batch }, 2_000, None)
    }

    /// With 2,000 records in tasks of 16, and 4 tasks per iteration, the first epoch ends in the middle of iteration 32.
    #[test]
    fn an_epoch_takes_each_record_once() {
        let mut data = tasks(3, 4, 16);
        let all: Vec<u64> = (1..=32)
            .flat_map(|k| (0..4).map(move |b| (k, b)))
            .flat_map(|(k, b)| data.samples(Iteration(k), b))
            .collect();
        let mut epoch = all[..2_000].to_vec();
        assert_ne!(epoch[..3], [0, 1, 2]);
        epoch.sort_unstable();
        assert!(epoch.iter().copied().eq(0..2_000));
        assert_ne!(all[2_000..], all[..48], "each epoch has its own permutation");
    }

    /// Invariant 2: a task depends on (seed, iteration, index) only, not on earlier requests.
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

    #[test]
    fn the_order_is_the_same_on_every_machine() {
        let mut data = tasks(3, 4, 4);
        assert_eq!(data.samples(Iteration(2), 1), [954, 290, 691, 1321]);
        assert_eq!(data.samples(Iteration(2), 4), [608, 88, 1490, 1455], "an extra task");
        let next = data.samples(Iteration(3), 0);
        assert!([1, 4].map(|index| data.samples(Iteration(2), index)).iter().all(|other| *other != next));
    }

    /// Invariant 2 holds for draws. The second line pins them, since a seed determines them.
    #[test]
    fn draws_depend_on_the_task_and_the_position() {
        let draws = |seed, iteration, index| {
            tasks(seed, 4, 4).task(Iteration(iteration), index).iter().map(|sample| sample.draw).collect()
        };
        let first: Vec<u64> = draws(3, 2, 1);
        assert_eq!(first[..2], [563_063_351_925_287_752, 2_007_747_621_655_385_299]);
        let all = [first, draws(4, 2, 1), draws(3, 3, 1), draws(3, 2, 2), draws(3, 2, 4)].concat();
        assert_eq!(BTreeSet::from_iter(all).len(), 20, "no draw comes twice");
    }

    /// Invariant 2 holds for sharded data, and a task takes samples of the shards that were named before it.
    #[test]
    fn tasks_of_sharded_data_take_the_shards_that_are_expected() {
        let new = || TaskSampler::new(Tasks { seed: 3, budget: 4, task_batch: 16 }, 2_000, Some(60));
        let (mut data, mut other) = (new(), new());
        let (mut expected, mut times, mut all) = (Vec::new(), 0, Vec::new());
        for (iteration, index) in (1..=32).flat_map(|iteration| (0..4).map(move |index| (Iteration(iteration), index)))
        {
            if let Some(shards) = data.next_shards(iteration, index) {
                assert!(shards.len() <= 16);
                (expected, times) = (shards, times + 1);
            }
            let samples = data.samples(iteration, index);
            // A task may begin in the last window of an epoch and end in the first window of the next.
            let known = samples.iter().filter(|sample| expected.contains(&(**sample / 60))).count();
            assert!(known == 16 || (iteration.number(), index) == (32, 1), "{iteration} {index}: {known}");
            all.extend(samples);
        }
        assert_eq!(times, 6, "34 shards are five windows, and the next epoch has begun");
        let (mut epoch, next) = (all[..2_000].to_vec(), &all[2_000..]);
        assert_ne!(epoch[..48], next[..]);
        epoch.sort_unstable();
        assert!(epoch.iter().copied().eq(0..2_000));
        for (iteration, index) in [(30, 3), (1, 0), (17, 2)] {
            let at = (iteration as usize - 1) * 64 + index as usize * 16;
            assert_eq!(other.samples(Iteration(iteration), index), all[at..at + 16]);
        }
        let extra = other.samples(Iteration(17), 9);
        let shards = new().next_shards(Iteration(17), 0).unwrap();
        assert!(extra.iter().all(|sample| shards[..8].contains(&(sample / 60))), "extra tasks need no more shards");
    }

    /// With a trillion samples, nothing is kept for each, and the rules are those of a small data set.
    #[test]
    fn a_data_set_may_be_far_larger_than_memory() {
        const COUNT: u64 = 1 << 40;
        let samples = |iteration, index| {
            TaskSampler::new(Tasks { seed: 3, budget: 4, task_batch: 16 }, COUNT, None)
                .samples(Iteration(iteration), index)
        };
        let first = samples(1, 0);
        assert_eq!(first[..3], [1_080_580_757_458, 695_008_743_512, 274_264_639_499], "a seed means this order");
        assert_eq!(samples(1, 4)[..2], [734_120_473_047, 399_003_396_815], "so is an extra task");
        // The task is the same one in the next epoch, 2^40 / 64 iterations later.
        assert_ne!(samples((1 << 34) + 1, 0), first, "each epoch has its own permutation");
        let iteration: BTreeSet<u64> = (0..4).flat_map(|index| samples(1, index)).collect();
        assert!(iteration.len() == 64 && iteration.last() < Some(&COUNT), "an epoch takes each sample once");
    }

    /// A task may span several epochs, and end at the end of the range of numbers.
    #[test]
    fn any_task_has_samples() {
        assert_eq!(tasks(1, 2, 25_000).samples(Iteration(2), 1).len(), 25_000);
        assert_eq!(tasks(3, 1, 3).samples(Iteration(u64::MAX / 3 + 1), 0).len(), 3);
    }
}
