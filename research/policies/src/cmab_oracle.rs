//! The optimal policy of the bandit paper: the r fastest workers, known beforehand.
//!
//! Source: the bandit paper (Egger et al., Entropy 2025, arXiv 2202.08302): the reference for the regret of its policies.

use crate::employment::Schedule;
use ata_scheduler::policy::{PolicyEntry, PolicyKind, Truth, stateless};

/// Employs the r workers with the smallest given means, one task each.
pub(crate) const ENTRY: PolicyEntry = PolicyEntry {
    name: "cmab-oracle",
    about: "the r fastest workers by means given by the user, one task each",
    parameters: "means=M1/M2/... (default: the means of the emulated task times), and those of cmab-kl",
    kind: PolicyKind::Barrier,
    build: |arguments| {
        let means = arguments.means("cmab-oracle")?;
        let schedule = Schedule::from_arguments(arguments)?;
        Ok(stateless("cmab-oracle", move |round, rng| {
            let scores = round.workers.iter().map(|worker| means.mean_s(*worker)).collect();
            schedule.employ(round, scores, rng)
        }))
    },
};

#[cfg(test)]
mod tests {
    use crate::tests::{built, decide};

    #[test]
    fn the_fastest_by_the_given_means() {
        let mut policy = built("cmab-oracle:means=3/1/2,r=2");
        assert_eq!(decide(&mut *policy, 1, 9, &[(1, 0.1), (1, 9.0), (0, 0.0)]).allocation, [0, 1, 1]);
    }
}
