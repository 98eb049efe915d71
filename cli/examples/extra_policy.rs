//! A custom policy in addition to the built-in ones, on the cluster and in the simulator.
//!
//! cargo run --release --example extra_policy -- up --policy proportional
//! cargo run --release --example extra_policy -- simulate --policy fta,ata-auto,proportional

use std::process::ExitCode;

use ata::Extensions;
use ata_policies::build_policy;
use ata_scheduler::{Decision, Policy, PolicyContext, PolicyError, Round, Rule, SchedulerRng, allocate_by_score};

/// A policy with shares proportional to the observed speeds, rounded down; RAS allocates the remaining tasks.
struct Proportional;

impl Policy for Proportional {
    fn name(&self) -> &'static str {
        "proportional"
    }

    fn decide(&mut self, round: &Round<'_>, rng: &mut SchedulerRng) -> Decision {
        let means = round.bounds(0.0, |mean_s, _observed| mean_s);
        // Until all workers have been observed, each new one gets a task.
        if means.contains(&0.0) {
            let (allocation, rule) = allocate_by_score(&means, |i| round.of(i).observed == 0, round.budget, rng);
            return Decision::barrier(allocation, means, rule);
        }
        let speed: f64 = means.iter().map(|mean_s| 1.0 / mean_s).sum();
        let share = |mean_s: &f64| (round.budget as f64 / (mean_s * speed)) as u64;
        let mut allocation: Vec<u64> = means.iter().map(share).collect();
        let left = round.budget - allocation.iter().sum::<u64>();
        let (rest, _) = allocate_by_score(&means, |_| false, left, rng);
        allocation.iter_mut().zip(rest).for_each(|(tasks, more)| *tasks += more);
        Decision::barrier(allocation, means, Rule::Named("proportional"))
    }
}

fn policies(text: &str, context: &PolicyContext) -> Result<Box<dyn Policy>, PolicyError> {
    match text {
        "proportional" => Ok(Box::new(Proportional)),
        other => build_policy(other, context),
    }
}

fn main() -> ExitCode {
    ata::main(Extensions { policies, ..Extensions::default() })
}
