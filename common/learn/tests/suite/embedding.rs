//! Compares the compact format with the exact one, for gradients whose values differ by more than 16 bits.

use crate::compact::{Plan, Words};
use ata_types::WireFormat::{Compact, F32Exact};

/// Rare words are learned from one occurrence in a quarter of a million. With the same unit in all of the embedding, it rounds to 0.
#[test]
fn rare_rows_of_an_embedding_are_learned() {
    let words = Words { rows: 20_000, columns: 8, batch: 16_384 };
    let plan = Plan { steps: 40, rate: 1e-2, workers: 2, has_shifts: true };
    let (exact, _) = words.outcome(F32Exact, 16, plan);
    let (compact, traffic) = words.outcome(Compact, 16, plan);
    let (whole, without) = words.outcome(Compact, 16, Plan { has_shifts: false, ..plan });
    println!("{exact:.4}, {compact:.4} {traffic:?}, {whole:.4} {without:?}");
    assert!((compact - exact).abs() <= 0.005, "{compact} is not {exact}");
    assert!(whole > exact + 0.02, "the test shows nothing: {whole} with units of tensors, {exact} exactly");
    assert!(traffic.vanished * 4 < without.vanished && traffic.clamped == 0, "{traffic:?}, {without:?}");
}
