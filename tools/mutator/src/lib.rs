//! Development only: mutations of valid inputs, for the tests of whatever reads bytes from outside.
//!
//! A reader gets inputs that are nearly valid, and must return something or an error each time. What it gets follows from a
//! seed. If it panics, the input is printed.
//!
//! # Layout
//! - here: [`feed`], and the exhaustive mutations of a short input
//! - `mutator`: [`Mutator`], which makes one mutated input after the other
//! - `memory`: how much of it this process needs

mod memory;
mod mutator;

use std::path::Path;

pub use memory::{peak_bytes, reset_peak, resident_bytes};
pub use mutator::{MUTATIONS, Mutator};

/// What a reader made of mutated inputs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fed {
    /// Inputs that it accepted.
    pub accepted: u64,
    /// Inputs that it refused.
    pub refused: u64,
}

/// Gives a reader `count` mutated inputs; `read` returns whether it accepted the input.
///
/// # Panics
/// If the reader panics, accepts all, or accepts none: then it would not have been tested. If a kind of mutation was not
/// made.
pub fn feed(mut mutator: Mutator, count: u64, mut read: impl FnMut(&[u8]) -> bool) -> Fed {
    let mut fed = Fed { accepted: 0, refused: 0 };
    for _ in 0..count {
        let input = mutator.next_input();
        let blame = Blame(&input);
        let accepted = read(&input);
        std::mem::forget(blame);
        *(if accepted { &mut fed.accepted } else { &mut fed.refused }) += 1;
    }
    assert!(mutator.made().iter().all(|made| *made > 0), "made of each kind: {:?}", mutator.made());
    assert!(fed.accepted > 0 && fed.refused > 0, "{fed:?} says little about the reader");
    fed
}

/// Every proper beginning of an input.
pub fn truncations(input: &[u8]) -> impl Iterator<Item = &[u8]> {
    (0..input.len()).map(|length| &input[..length])
}

/// An input with one bit flipped, for every bit.
pub fn bit_flips(input: &[u8]) -> impl Iterator<Item = Vec<u8>> {
    (0..8 * input.len()).map(|bit| {
        let mut flipped = input.to_vec();
        flipped[bit / 8] ^= 1 << (bit % 8);
        flipped
    })
}

/// Writes a file for a reader of files. One that is there is removed first: some file systems write a file that is
/// overwritten to the disk at once, which takes milliseconds.
///
/// # Panics
/// If it cannot be written.
pub fn write_file(path: &Path, content: &[u8]) {
    // There is none at first.
    drop(std::fs::remove_file(path));
    std::fs::write(path, content).expect("a file can be written");
}

/// Prints an input if its reader panics.
struct Blame<'a>(&'a [u8]);

impl Drop for Blame<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("the reader panicked on {} bytes: \"{}\"", self.0.len(), self.0.escape_ascii());
        }
    }
}
