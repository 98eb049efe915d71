//! Workers of equal speed: what they are observed to differ in is chance.

use crate::mean_of;

/// 64 workers compute one noisy task each (σ = 0.3). Two tasks for those that were lucky and none for the others would take longer.
#[test]
fn equal_workers_get_equal_shares() {
    for (workers, budget, law) in
        [(64, 64, "gamma(0, 11.1, 9)"), (64, 128, "gamma(0, 11.1, 9)"), (8, 32, "gamma(0, 4, 25)")]
    {
        for iterations in [20, 100, 500] {
            let [found, equal] = ["ata-auto", "uta"].map(|policy| mean_of(policy, law, workers, budget, iterations));
            let what = format!("{workers} workers, B = {budget}, {iterations} iterations");
            assert!(found <= 1.02 * equal, "{what}: {found} for {equal}");
        }
    }
}
