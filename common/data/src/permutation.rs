//! The order of an epoch: a random permutation of the data set.

use rand::Rng;
use rand::rngs::ChaCha8Rng;
use rand::seq::SliceRandom;

/// The largest number of samples whose permutations are tables. A table is the fastest, and keeps the results of existing seeds; one of
/// 2^24 samples takes 64 MiB and 0.3 s to shuffle, and each worker needs one per epoch. Beyond that, memory and the pause at the beginning
/// of an epoch would grow with the data set, so the order is computed instead, in constant time and memory.
const MOST_IN_TABLE: u64 = 1 << 24;

/// A random permutation of `0..count`.
#[derive(Debug)]
pub(crate) enum Permutation {
    /// A table of the samples, by position.
    Table(Vec<u32>),
    Computed(Feistel),
}

impl Permutation {
    /// Derives a permutation of at least one sample from a random stream.
    pub(crate) fn new(count: u64, mut rng: ChaCha8Rng) -> Self {
        if count > MOST_IN_TABLE {
            return Self::Computed(Feistel::new(count, &mut rng));
        }
        let mut table: Vec<u32> = (0..count as u32).collect();
        table.shuffle(&mut rng);
        Self::Table(table)
    }

    /// Returns the sample at a position below `count`.
    pub(crate) fn at(&self, position: u64) -> u64 {
        match self {
            Self::Table(table) => table[position as usize].into(),
            Self::Computed(computed) => computed.at(position),
        }
    }
}

/// The number of rounds of the network. Four make a random-looking permutation of random-looking functions (Luby &
/// Rackoff, "How to construct pseudorandom permutations from pseudorandom functions", 1988). Twice as many make up for
/// functions that are only well mixed, and still take less time than reading the sample.
const ROUNDS: usize = 8;

/// A keyed bijection on `0..count`: a generalized Feistel network on pairs of digits below `side`, which is applied again while the result
/// is out of the range ("cycle walking"). Both are from Black & Rogaway, "Ciphers with arbitrary finite domains", CT-RSA 2002, methods 3
/// and 2. As `side` is the root of `count`, rounded up, all but 2 · side of the side² pairs are in the range.
#[derive(Debug)]
pub(crate) struct Feistel {
    count: u64,
    /// The least number whose square is at least `count`; it is at most 2^32.
    side: u64,
    keys: [u64; ROUNDS],
}

impl Feistel {
    fn new(count: u64, rng: &mut ChaCha8Rng) -> Self {
        Self { count, side: (count - 1).isqrt() + 1, keys: std::array::from_fn(|_| rng.next_u64()) }
    }

    fn at(&self, position: u64) -> u64 {
        // A bijection returns to the range, at the latest to where it began.
        let mut number = self.network(position);
        while number >= self.count {
            number = self.network(number);
        }
        number
    }

    /// Applies the network, a bijection on the numbers below side².
    fn network(&self, number: u64) -> u64 {
        let (mut left, mut right) = (number / self.side, number % self.side);
        for key in self.keys {
            (left, right) = (right, (left + mixed(right.wrapping_add(key)) % self.side) % self.side);
        }
        left * self.side + right
    }
}

/// Computes the finalizer of SplitMix64 (Steele, Lea & Flood, "Fast splittable pseudorandom number generators", OOPSLA 2014).
fn mixed(number: u64) -> u64 {
    let number = (number ^ (number >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    let number = (number ^ (number >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    number ^ (number >> 31)
}

#[cfg(test)]
mod tests {
    use rand::SeedableRng;

    use super::*;

    fn feistel(count: u64, seed: u64) -> Feistel {
        Feistel::new(count, &mut ChaCha8Rng::seed_from_u64(seed))
    }

    #[test]
    fn the_network_is_a_bijection_on_any_range() {
        for count in (1..=70).chain([99, 100, 101, 1 << 12, 9_999]) {
            let network = feistel(count, count);
            let mut found: Vec<u64> = (0..count).map(|position| network.at(position)).collect();
            found.sort_unstable();
            assert!(found.into_iter().eq(0..count), "{count}");
        }
    }

    /// Each position gets each sample about equally often, and neighbours have each distance about equally often.
    #[test]
    fn samples_are_spread_evenly() {
        const COUNT: u64 = 10;
        const EPOCHS: u64 = 20_000;
        let (mut places, mut distances) = ([[0_u32; COUNT as usize]; COUNT as usize], [0_u32; COUNT as usize]);
        for epoch in 0..EPOCHS {
            let network = feistel(COUNT, epoch);
            for position in 0..COUNT {
                places[position as usize][network.at(position) as usize] += 1;
            }
            distances[((network.at(1) + COUNT - network.at(0)) % COUNT) as usize] += 1;
        }
        // The tolerance is six standard deviations of a binomial distribution: √(20,000 · 0.1 · 0.9) = 42, and √(20,000 · 8/81) = 44.
        assert!(places.as_flattened().iter().all(|found| found.abs_diff(2_000) < 6 * 42), "{places:?}");
        assert!(distances[1..].iter().all(|found| found.abs_diff(2_222) < 6 * 44), "{distances:?}");
        assert_eq!(distances[0], 0);
    }

    #[test]
    fn the_order_is_the_same_on_every_machine() {
        let of = |count| [0, 1, 2, count - 1].map(|position| feistel(count, 3).at(position));
        assert_eq!(of(MOST_IN_TABLE + 1), [1_468_450, 15_305_069, 10_496_081, 1_289_461]);
        let largest = [
            17_231_132_709_638_662_369,
            8_663_658_282_826_669_692,
            795_947_073_169_192_621,
            13_040_006_338_130_762_702,
        ];
        assert_eq!(of(u64::MAX), largest);
    }

    #[test]
    fn data_sets_up_to_the_limit_have_tables() {
        let new = |count| Permutation::new(count, ChaCha8Rng::seed_from_u64(1));
        assert!(matches!(new(MOST_IN_TABLE), Permutation::Table(_)));
        assert!(matches!(new(MOST_IN_TABLE + 1), Permutation::Computed(_)));
    }
}
