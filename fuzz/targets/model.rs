//! Fuzzes models and vectors in the safetensors format.
#![no_main]

use ata_sums::{ParameterTable, decode_metadata, decode_model, decode_vectors};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &[u8]| {
    let model = decode_model(&ParameterTable::vector("theta", 5), input);
    assert!(model.is_err() || decode_metadata(input).is_ok());
    drop(decode_vectors(input, 5));
});
