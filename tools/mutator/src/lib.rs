//! Mutates valid inputs, to test readers of untrusted bytes. The crate is for development only.
//!
//! A reader is given inputs that are nearly valid, and must return a value or an error for each. The inputs are derived from a seed. If the
//! reader panics, the input is printed.
//!
//! # Layout
//! - here: [`feed`], and the exhaustive mutations of a short input
//! - `mutator`: [`Mutator`], which generates mutated inputs
//! - `memory`: the memory of this process

mod memory;
mod mutator;

use std::path::Path;

pub use memory::{peak_bytes, reset_peak, resident_bytes};
pub use mutator::{MUTATIONS, Mutator};

/// The numbers of accepted and refused inputs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fed {
    /// The number of inputs that the reader accepted.
    pub accepted: u64,
    /// The number of inputs that the reader refused.
    pub refused: u64,
}

/// Feeds `count` mutated inputs to a reader. `read` returns whether it accepted the input.
///
/// # Panics
/// Panics if the reader panics, or if it accepts all inputs or none, since it would not have been tested. Also panics if a kind of mutation
/// was never made.
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

/// Returns every proper prefix of an input.
pub fn truncations(input: &[u8]) -> impl Iterator<Item = &[u8]> {
    (0..input.len()).map(|length| &input[..length])
}

/// Returns copies of an input, each with one bit flipped, for every bit.
pub fn bit_flips(input: &[u8]) -> impl Iterator<Item = Vec<u8>> {
    (0..8 * input.len()).map(|bit| {
        let mut flipped = input.to_vec();
        flipped[bit / 8] ^= 1 << (bit % 8);
        flipped
    })
}

/// Writes a file for a reader of files. An existing file is removed first, since some file systems flush an overwritten
/// file to the disk at once, which takes milliseconds.
///
/// # Panics
/// Panics if the file cannot be written.
pub fn write_file(path: &Path, content: &[u8]) {
    // The file does not exist at first.
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
