//! Fuzzes the state of a checkpoint, with a matching SHA-256.
#![no_main]

use ata_coordinator::Checkpoint;
use ata_data::hex;
use ata_sums::{Optimizer, ParameterTable, TensorSizes, TrainingConfig};
use ata_types::WireFormat;
use libfuzzer_sys::fuzz_target;
use sha2::{Digest, Sha256};

fuzz_target!(|rest: &[u8]| {
    let digest = hex(&Sha256::digest(rest));
    let state = [b"{\"sha256\":\"", digest.as_bytes(), rest].concat();
    let table = ParameterTable::vector("theta", 5);
    let (optimizer, sizes) = (Optimizer::default(), TensorSizes::from(&table));
    let config = TrainingConfig { optimizer, sizes, format: WireFormat::Compact, budget: 4 };
    let settings = Checkpoint::settings(|_| Ok(state.clone()));
    let checkpoint = Checkpoint::decode(&table, &config, |_| Ok(state.clone()));
    assert!(settings.is_ok() || checkpoint.is_err());
});
