//! The fixed tree by which an iteration's gradients are summed.
//!
//! f32 addition is not associative, so the order of summation affects the result. The order is a binary tree over task
//! indices: a node covers a power of two of indices, starting at a multiple of it, and its value is left + right, or
//! that of its only child. Whichever worker computes a task and whenever its result arrives, the sum is bit-identical.
//!
//! A GPU that computes its whole share as one batch returns the sum of a range that may be no subtree. Such sums take no
//! part in the tree: they are added to its sum in the end, in ascending order.

use std::collections::BTreeMap;

use crate::spread::spread;

/// The sum of a subtree, or of a range computed as one batch: gradients and losses of `count` tasks, starting at `first`.
#[derive(Clone, Debug, PartialEq)]
pub struct Partial {
    /// First task index; of a subtree a multiple of `count`.
    pub first: u64,
    /// Number of task indices covered; of a subtree a power of two.
    pub count: u64,
    /// Σ gradient, one `f32` per parameter.
    pub gradient: Vec<f32>,
    /// Σ loss over the tasks.
    pub loss: f64,
}

impl Partial {
    /// The partial of the parent node, of which this one is the only child.
    fn promoted(mut self) -> Self {
        self.count *= 2;
        self.first -= self.first % self.count;
        self
    }

    /// Adds the partial of the same node's right child, or of one further right.
    fn add(&mut self, other: &Self) {
        let add = |(sums, values): (&mut [f32], &[f32])| {
            for (sum, value) in sums.iter_mut().zip(values) {
                *sum += value;
            }
        };
        if self.gradient.len() < PARALLEL_FROM {
            add((&mut self.gradient, &other.gradient));
        } else {
            spread(self.gradient.chunks_mut(RANGE).zip(other.gradient.chunks(RANGE)).collect(), add);
        }
        self.loss += other.loss;
    }

    fn is_subtree(&self) -> bool {
        self.count.is_power_of_two() && self.first.is_multiple_of(self.count)
    }

    fn is_left(&self) -> bool {
        (self.first / self.count).is_multiple_of(2)
    }
}

/// Collects the partials of one iteration in any order, joining siblings as soon as both are there.
#[derive(Debug, Default)]
pub struct Reduction {
    /// Disjoint, by first index.
    nodes: BTreeMap<u64, Partial>,
    /// Sums of ranges that are no subtrees, by first index.
    ranges: BTreeMap<u64, Partial>,
    /// Vectors that were added to others.
    spent: Vec<Vec<f32>>,
}

/// Fewer numbers are added faster by one thread than handed to several, and the cores have other gradients to receive.
const PARALLEL_FROM: usize = 1 << 20;

/// Numbers that one thread adds at a time: 256 KiB per vector.
const RANGE: usize = 1 << 16;

impl Reduction {
    /// Adds a partial that overlaps no other.
    pub fn add(&mut self, partial: Partial) {
        if !partial.is_subtree() {
            self.ranges.insert(partial.first, partial);
            return;
        }
        let mut node = partial;
        loop {
            let sibling = if node.is_left() { node.first + node.count } else { node.first - node.count };
            match self.nodes.get(&sibling) {
                Some(other) if other.count == node.count => {}
                _ => break,
            }
            let other = self.nodes.remove(&sibling).expect("just found");
            let (mut left, right) = if node.is_left() { (node, other) } else { (other, node) };
            left.add(&right);
            self.spent.push(right.gradient);
            node = left.promoted();
        }
        let overlapped = self.nodes.insert(node.first, node);
        debug_assert!(overlapped.is_none(), "a task is added once");
    }

    /// Vectors that are no longer needed, to be used again.
    pub fn spent(&mut self) -> impl Iterator<Item = Vec<f32>> + '_ {
        self.spent.drain(..)
    }

    /// The sum of everything that was added since the last time; `None` if nothing was. If ranges were among it, `first`
    /// and `count` are those of the tree's root, or of the first range.
    pub fn finish(&mut self) -> Option<Partial> {
        let mut sum = self.finish_tree();
        for range in std::mem::take(&mut self.ranges).into_values() {
            match &mut sum {
                Some(sum) => {
                    sum.add(&range);
                    self.spent.push(range.gradient);
                }
                None => sum = Some(range),
            }
        }
        sum
    }

    fn finish_tree(&mut self) -> Option<Partial> {
        let mut nodes: Vec<Partial> = std::mem::take(&mut self.nodes).into_values().collect();
        // One level of the tree at a time: a node that has no sibling there by now never will.
        let mut count = 1;
        while nodes.len() > 1 {
            let mut above: Vec<Partial> = Vec::with_capacity(nodes.len());
            for node in nodes {
                match above.last_mut() {
                    _ if node.count > count => above.push(node),
                    Some(left) if !node.is_left() && left.count == 2 * count && left.first + count == node.first => {
                        left.add(&node);
                        self.spent.push(node.gradient);
                    }
                    _ => above.push(node.promoted()),
                }
            }
            nodes = above;
            count *= 2;
        }
        nodes.pop()
    }
}

/// Sums the tasks of one subtree in ascending order, holding one vector per level of the tree.
///
/// `task(index)` returns (gradient, loss) of a task.
pub fn reduce_in_order<E>(
    first: u64,
    count: u64,
    mut task: impl FnMut(u64) -> Result<(Vec<f32>, f64), E>,
) -> Result<Partial, E> {
    let mut reduction = Reduction::default();
    for index in first..first + count {
        let (gradient, loss) = task(index)?;
        reduction.add(Partial { first: index, count: 1, gradient, loss });
    }
    Ok(reduction.finish().expect("a subtree has a task"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Values whose sum depends on the order of addition.
    fn leaf(index: u64) -> Partial {
        let gradient =
            (0..3).map(|k| ((index * 31 + k * 17) % 97) as f32 * 10_f32.powi((index % 13) as i32 - 6)).collect();
        Partial { first: index, count: 1, gradient, loss: 1.0 / (index + 1) as f64 }
    }

    /// The definition, recursively: the sum of the leaves in `indices` under the node [first, first + count).
    fn tree(indices: &[u64], first: u64, count: u64) -> Option<(Vec<f32>, f64)> {
        if count == 1 {
            return indices.contains(&first).then(|| (leaf(first).gradient, leaf(first).loss));
        }
        let half = count / 2;
        match (tree(indices, first, half), tree(indices, first + half, half)) {
            (Some((a, a_loss)), Some((b, b_loss))) => {
                Some((a.iter().zip(&b).map(|(a, b)| a + b).collect(), a_loss + b_loss))
            }
            (one, other) => one.or(other),
        }
    }

    fn check(indices: &[u64], partials: Vec<Partial>) {
        let mut reduction = Reduction::default();
        for partial in partials {
            reduction.add(partial);
        }
        let sum = reduction.finish().unwrap();
        let (gradient, loss) = tree(indices, 0, 1 << 12).unwrap();
        assert_eq!(sum.gradient, gradient, "{indices:?}");
        assert_eq!(sum.loss.to_bits(), loss.to_bits());
    }

    fn subtree(first: u64, count: u64) -> Partial {
        reduce_in_order::<()>(first, count, |index| Ok((leaf(index).gradient, leaf(index).loss))).unwrap()
    }

    proptest! {
        /// Invariant 3: the sum depends neither on which worker summed which subtree nor on the order of arrival.
        #[test]
        fn every_split_and_order_gives_the_same_bits(
            budget in 1u64..80,
            splits in prop::collection::vec(any::<bool>(), 200),
            order in Just(()).prop_perturb(|(), mut rng| rng.random::<u64>()),
        ) {
            // Cut 0..budget into maximal subtrees, and cut those further at random.
            let mut splits = splits.into_iter();
            let (mut pending, mut pieces) = (vec![(0, budget.next_power_of_two())], Vec::new());
            while let Some((first, count)) = pending.pop() {
                if first >= budget {
                    continue;
                }
                if first + count > budget || (count > 1 && splits.next() == Some(true)) {
                    pending.extend([(first, count / 2), (first + count / 2, count / 2)]);
                } else {
                    pieces.push(subtree(first, count));
                }
            }
            pieces.sort_by_key(|piece| (piece.first + 1).wrapping_mul(order | 1));
            check(&(0..budget).collect::<Vec<_>>(), pieces);
        }

        /// The step of a racing policy takes any set of tasks.
        #[test]
        fn gaps_are_passed_through(indices in prop::collection::btree_set(0u64..200, 1..60)) {
            let indices: Vec<u64> = indices.into_iter().collect();
            check(&indices, indices.iter().rev().map(|&index| leaf(index)).collect());
        }
    }

    fn sum_of(partials: &[&Partial]) -> Partial {
        let mut reduction = Reduction::default();
        for &partial in partials {
            reduction.add(partial.clone());
        }
        reduction.finish().unwrap()
    }

    /// Ranges that are no subtrees come last, ascending, and leave the tree's sum as it is.
    #[test]
    fn ranges_are_added_to_the_sum_of_the_tree() {
        let range = |first, count| Partial { first, count, ..subtree(first, count) };
        let (a, b, left, right) = (range(6, 5), range(11, 3), subtree(0, 4), subtree(4, 2));
        let mut expected = sum_of(&[&left, &right]);
        expected.add(&a);
        expected.add(&b);
        for order in [[&a, &b, &left, &right], [&right, &b, &left, &a], [&b, &right, &a, &left]] {
            assert_eq!(sum_of(&order), expected);
        }
        assert_eq!(sum_of(&[&a]), a);
    }

    #[test]
    fn nothing_added_is_nothing() {
        assert_eq!(Reduction::default().finish(), None);
    }

    #[test]
    fn an_error_stops_the_sum() {
        let result = reduce_in_order(0, 4, |index| if index == 2 { Err(index) } else { Ok((vec![1.0], 0.0)) });
        assert_eq!(result, Err(2));
    }
}
