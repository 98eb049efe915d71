//! Fuzzes the frames of every RPC, in both directions. The first byte selects the RPC and the direction.
#![no_main]

use ata_harness::{Frames, Reader};
use libfuzzer_sys::fuzz_target;

thread_local!(static READER: Reader = Reader::default());

fuzz_target!(|input: &[u8]| {
    if let Some((kind, frame)) = input.split_first() {
        let frames = Frames::ALL[usize::from(*kind) % Frames::ALL.len()];
        READER.with(|reader| reader.accepts(frames, frame));
    }
});
