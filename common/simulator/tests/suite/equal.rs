//! Workers of equal speed: what they are observed to differ in is chance.

use ata_simulator::LawTimes;

use crate::{mean, times_of};

/// 64 workers compute one noisy task each (σ = 0.3). Two tasks for those that were lucky and none for the others would take longer.
#[test]
fn equal_workers_get_equal_shares() {
    const SEEDS: u64 = 5;
    for (workers, budget, law) in
        [(64, 64, "gamma(0, 11.1, 9)"), (64, 128, "gamma(0, 11.1, 9)"), (8, 32, "gamma(0, 4, 25)")]
    {
        let mean_of = |policy: &str, iterations: usize| {
            let of_seed = |seed| {
                let times = LawTimes::new(&law.parse().unwrap(), workers, seed).unwrap();
                mean(&times_of(policy, times, workers, budget, (iterations as u64, vec![])))
            };
            mean(&(1..=SEEDS).map(of_seed).collect::<Vec<_>>())
        };
        for iterations in [20, 100, 500] {
            let (found, equal) = (mean_of("ata-auto", iterations), mean_of("uta", iterations));
            assert!(
                found <= 1.02 * equal,
                "{workers} workers, B = {budget}, {iterations} iterations: {found} for {equal}"
            );
        }
    }
}
