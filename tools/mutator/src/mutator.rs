//! The generator of mutated inputs.

use rand::rngs::ChaCha8Rng;
use rand::{RngExt, SeedableRng};

/// The kinds of mutations, in the order of [`Mutator::made`].
pub const MUTATIONS: [&str; 8] =
    ["a bit flipped", "bytes overwritten", "a number", "cut", "bytes removed", "bytes repeated", "spliced", "a token"];

const MOST_MUTATIONS: u32 = 4;

/// The number of times that a token is repeated now and then, which is enough to overflow the stack of a reader that recurses at each.
const DEEP: usize = 1 << 14;

/// Tokens whose effect does not depend on the format: the longest varint, and one that is too long.
const TOKENS: [&[u8]; 2] =
    [b"\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01", b"\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff"];

/// Generates mutated inputs.
#[derive(Debug)]
pub struct Mutator {
    rng: ChaCha8Rng,
    corpus: Vec<Vec<u8>>,
    tokens: Vec<Vec<u8>>,
    made: [u64; MUTATIONS.len()],
}

impl Mutator {
    /// Creates a mutator of these valid inputs.
    /// Panics if there are none.
    pub fn new(seed: u64, corpus: Vec<Vec<u8>>) -> Self {
        assert!(!corpus.is_empty(), "valid inputs are needed");
        let tokens = TOKENS.map(<[u8]>::to_vec).into();
        Self { rng: ChaCha8Rng::seed_from_u64(seed), corpus, tokens, made: [0; MUTATIONS.len()] }
    }

    /// Adds tokens to insert: words, brackets and numbers of a text format.
    #[must_use]
    pub fn with_tokens(mut self, tokens: &[&str]) -> Self {
        self.tokens.extend(tokens.iter().map(|token| token.as_bytes().to_vec()));
        self
    }

    /// Returns how often each of [`MUTATIONS`] was made.
    pub fn made(&self) -> &[u64] {
        &self.made
    }

    /// Returns the next input.
    pub fn next_input(&mut self) -> Vec<u8> {
        let mut input = self.valid().to_vec();
        for _ in 0..self.rng.random_range(1..=MOST_MUTATIONS) {
            let kind = self.rng.random_range(0..MUTATIONS.len());
            self.made[kind] += 1;
            self.mutate(kind, &mut input);
        }
        input
    }

    fn valid(&mut self) -> &[u8] {
        let at = self.rng.random_range(0..self.corpus.len());
        &self.corpus[at]
    }

    /// Returns a range of an input's bytes, which is usually short.
    fn range(&mut self, input: &[u8]) -> std::ops::Range<usize> {
        let start = self.rng.random_range(0..=input.len());
        let longest = input.len() - start;
        let longest = if self.rng.random_bool(0.2) { longest } else { longest.min(8) };
        start..start + self.rng.random_range(0..=longest)
    }

    fn mutate(&mut self, kind: usize, input: &mut Vec<u8>) {
        match kind {
            0 if !input.is_empty() => {
                let bit = self.rng.random_range(0..8 * input.len());
                input[bit / 8] ^= 1 << (bit % 8);
            }
            1 => {
                let range = self.range(input);
                self.rng.fill(&mut input[range]);
            }
            2 => self.number(input),
            3 => input.truncate(self.rng.random_range(0..=input.len())),
            4 => drop(input.drain(self.range(input))),
            5 => {
                let bytes = input[self.range(input)].to_vec();
                self.insert(input, &bytes);
            }
            6 => {
                let from = self.rng.random_range(0..=input.len());
                let other = self.valid().to_vec();
                input.truncate(from);
                input.extend_from_slice(&other[self.rng.random_range(0..=other.len())..]);
            }
            _ => self.token(input),
        }
    }

    /// Overwrites a number, which may be a length or a count, of any width and byte order.
    fn number(&mut self, input: &mut [u8]) {
        let width = 1_usize << self.rng.random_range(0..4);
        let Some(last) = input.len().checked_sub(width) else { return };
        let at = self.rng.random_range(0..=last);
        let length = input.len() as u64;
        let numbers = [0, 1, length, length + 1, 0x7f, 0x80, i64::MAX as u64, u64::MAX, u64::MAX - 7, 1 << 31, 1 << 20];
        let number = numbers[self.rng.random_range(0..numbers.len())];
        let (little, big) = (number.to_le_bytes(), number.to_be_bytes());
        let bytes = if self.rng.random_bool(0.5) { &little[..width] } else { &big[8 - width..] };
        input[at..at + width].copy_from_slice(bytes);
    }

    fn token(&mut self, input: &mut Vec<u8>) {
        let token = &self.tokens[self.rng.random_range(0..self.tokens.len())];
        let times = if self.rng.random_bool(0.001) { DEEP } else { 1 };
        let bytes = token.repeat(times);
        self.insert(input, &bytes);
    }

    fn insert(&mut self, input: &mut Vec<u8>, bytes: &[u8]) {
        let at = self.rng.random_range(0..=input.len());
        input.splice(at..at, bytes.iter().copied());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Fed, bit_flips, feed, truncations};

    #[test]
    fn a_seed_makes_the_same_inputs() {
        let inputs = |seed| {
            let mut mutator = Mutator::new(seed, vec![b"valid".to_vec(), Vec::new()]);
            (0..1000).map(|_| mutator.next_input()).collect::<Vec<_>>()
        };
        assert_eq!(inputs(1), inputs(1));
        assert_ne!(inputs(1), inputs(2));
    }

    #[test]
    fn a_reader_is_fed_what_is_valid_and_what_is_not() {
        let Fed { accepted, refused } =
            feed(Mutator::new(1, vec![b"valid".to_vec()]), 10_000, |input| input.starts_with(b"va"));
        assert!(accepted > 1000 && refused > 1000 && accepted + refused == 10_000);
        assert_eq!((truncations(b"abc").count(), bit_flips(b"abc").count()), (3, 24));
    }

    #[test]
    #[should_panic(expected = "says little")]
    fn a_reader_that_accepts_all_is_not_tested() {
        feed(Mutator::new(1, vec![b"valid".to_vec()]), 1000, |_| true);
    }
}
