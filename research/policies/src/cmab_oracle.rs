//! The optimal policy of the bandit paper: the r fastest workers, known beforehand.
//!
//! Source: the bandit paper (Egger et al., Entropy 2025, arXiv 2202.08302): the reference for the regret of its policies.

use crate::employment::Schedule;
use ata_scheduler::policy::{Decision, Policy, PolicyEntry, PolicyKind, Round, SchedulerRng};

pub(crate) const ENTRY: PolicyEntry = PolicyEntry {
    name: "cmab-oracle",
    about: "the r fastest workers by means given by the user, one task each",
    parameters: "means=M1/M2/... (default: the means of the emulated task times), and those of cmab-kl",
    kind: PolicyKind::Barrier,
    build: |arguments| {
        let means = arguments.means("cmab-oracle")?;
        Ok(Box::new(CmabOracle { means, schedule: Schedule::from_arguments(arguments)? }))
    },
};

/// Employs the r workers with the smallest given means, one task each.
struct CmabOracle {
    schedule: Schedule,
    means: Vec<f64>,
}

impl Policy for CmabOracle {
    fn name(&self) -> &'static str {
        "cmab-oracle"
    }

    fn decide(&mut self, round: &Round<'_>, rng: &mut SchedulerRng) -> Decision {
        let slowest = self.means.iter().copied().fold(0.0, f64::max);
        let scores = round.workers.iter().map(|worker| *self.means.get(worker.slot()).unwrap_or(&slowest)).collect();
        self.schedule.employ(round, scores, rng)
    }
}

#[cfg(test)]
mod tests {
    use crate::build_policy;
    use crate::tests::decide;
    use ata_scheduler::policy::PolicyContext;

    #[test]
    fn the_fastest_by_the_given_means() {
        let mut policy = build_policy("cmab-oracle:means=3/1/2,r=2", &PolicyContext::default()).unwrap();
        assert_eq!(decide(&mut *policy, 1, 9, &[(1, 0.1), (1, 9.0), (0, 0.0)]).allocation, [0, 1, 1]);
    }
}
