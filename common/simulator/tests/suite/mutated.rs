//! Any time law and trace is either refused or usable.

use ata_mutator::{Mutator, feed, write_file};
use ata_simulator::TimeLaws;

const COUNT: u64 = 100_000;

/// Brackets, operators and numbers, alone and many times in a row.
const TOKENS: [&str; 14] =
    ["(", "-", "+1", "*i", "/0", "sqrt(", "ln(", ";exp(1)", "1e999", "NaN", "[", "{a=", "\n[[change]]\n", "é"];

fn mutator(seed: u64, valid: &[&str]) -> Mutator {
    Mutator::new(seed, valid.iter().map(|text| text.as_bytes().to_vec()).collect()).with_tokens(&TOKENS)
}

/// Returns whether a worker has times under a law, which are then positive.
fn has_times(laws: &TimeLaws) -> bool {
    let of_workers: Result<Vec<_>, _> = (1..=3).map(|worker| laws.of_worker(worker, 3)).collect();
    let Ok(of_workers) = of_workers else { return false };
    for law in of_workers {
        assert!(law.mean() > 0.0 && law.mean().is_finite(), "{laws:?} has the mean {}", law.mean());
    }
    true
}

#[test]
fn mutated_time_laws_do_no_harm() {
    let valid = [
        "shifted_exp(29*i, 29*i)",
        "scale(1); scale(2) ;scale(2+i)",
        "uniform(i, 2*(n + sqrt(i)))",
        "affine(1, 2, 3)",
        "const(-ln(1/n))",
        "trace(absent, wall, block=50)",
    ];
    let fed = feed(mutator(1, &valid), COUNT, |bytes| {
        let Ok(text) = std::str::from_utf8(bytes) else { return false };
        // A law that names a file is tested below.
        text.parse().is_ok_and(|laws| has_times(&laws))
    });
    println!("{fed:?}");
}

#[test]
fn mutated_traces_do_no_harm() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("times.csv");
    let valid = ["# seconds\n1.5 2 3\n0.5,1e-3,7\n", "1.5\n2.5\n\n3e99\n"];
    let fed = feed(mutator(2, &valid), COUNT / 5, |bytes| {
        write_file(&path, bytes);
        has_times(&format!("trace({}, block=1)", path.display()).parse().unwrap())
    });
    println!("{fed:?}");
}
