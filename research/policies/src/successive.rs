//! Successive: one best worker is fixed per round, and a bandit chooses among the others.
//!
//! Source: Egger, Bitar, Wachter-Zeh, Gündüz, "Cost-Efficient Distributed Learning via Combinatorial Multi-Armed
//! Bandits", Entropy 2025 (arXiv 2202.08302), Remark 1.

use crate::cmab_kl::kl_scores;
use crate::employment::Schedule;
use ata_scheduler::policy::{
    Decision, Policy, PolicyEntry, PolicyKind, PolicyState, Round, SchedulerRng, from_state, to_state,
};
use ata_types::WorkerId;

pub(crate) const ENTRY: PolicyEntry = PolicyEntry {
    name: "successive",
    about: "cmab-kl, but the best worker of each round is kept for good",
    parameters: Schedule::PARAMETERS,
    kind: PolicyKind::Barrier,
    build: |arguments| Ok(Box::new(Successive { schedule: Schedule::from_arguments(arguments)?, fixed: Vec::new() })),
};

/// Fixes one more worker at the end of each round, the observed one with the smallest mean of those not yet fixed.
/// Fixed workers are employed in every iteration, and the KL bound chooses the rest of the r.
struct Successive {
    schedule: Schedule,
    /// The fixed workers, one per completed round, in order.
    fixed: Vec<WorkerId>,
}

impl Successive {
    fn fix_one_per_ended_round(&mut self, round: &Round<'_>) {
        while self.fixed.len() < self.schedule.round(round.iteration.number()) {
            let candidates = (0..round.workers.len())
                .filter(|&i| !self.fixed.contains(&round.workers[i]))
                .filter_map(|i| Some((round.of(i).mean_s()?, round.workers[i])));
            match candidates.min_by(|a, b| a.0.total_cmp(&b.0)) {
                Some((_, worker)) => self.fixed.push(worker),
                None => return,
            }
        }
    }
}

impl Policy for Successive {
    fn name(&self) -> &'static str {
        "successive"
    }

    fn decide(&mut self, round: &Round<'_>, rng: &mut SchedulerRng) -> Decision {
        self.fix_one_per_ended_round(round);
        let mut scores = kl_scores(round);
        for (i, worker) in round.workers.iter().enumerate() {
            if self.fixed.contains(worker) {
                scores[i] = f64::NEG_INFINITY;
            }
        }
        let decision = self.schedule.employ(round, scores, rng);
        let scores: Vec<f64> = decision.scores.iter().map(|score| score.max(0.0)).collect();
        Decision { scores: scores.into(), ..decision }
    }

    /// Makes the next decision fix another worker in place of `worker`.
    fn forget(&mut self, worker: WorkerId) {
        self.fixed.retain(|fixed| *fixed != worker);
    }

    fn save(&self) -> PolicyState {
        to_state(&self.fixed)
    }

    fn restore(&mut self, state: PolicyState) -> Result<(), String> {
        self.fixed = from_state(state)?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use crate::tests::{built, decide};

    /// By Remark 1, the best worker of the first round stays fixed, however promising others look.
    #[test]
    fn the_best_worker_of_a_round_is_kept() {
        let mut policy = built("successive:r=1/2,at=10");
        let observed = [(50, 50.0), (1, 1.2), (1, 1.3)];
        assert_eq!(decide(&mut *policy, 9, 1, &observed).allocation, [0, 1, 0], "the smallest bound");
        assert_eq!(decide(&mut *policy, 10, 1, &observed).allocation, [1, 1, 0], "and the fixed one");
        let later = [(50, 500.0), (9, 9.0), (1, 1.3)];
        assert_eq!(decide(&mut *policy, 11, 1, &later).allocation[0], 1, "fixed for good");
    }
}
