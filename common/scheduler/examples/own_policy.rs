//! Runs a policy from outside the library on a small cluster in virtual time, and compares its costs with the library's.
//!
//! `Sampled` draws each worker's mean time from a range around the observed mean, wider with fewer observations, and
//! allocates as if the draws were true. As in Thompson sampling, a worker that looked slow is sometimes tried again.
//!
//! To make it one of the library's policies, so that `--policy sampled`, `ata policies` and the simulator know it:
//! 1. put the struct and its `Policy` into `src/policy/sampled.rs`, and name the module in `src/policy/mod.rs`;
//! 2. give it an `ENTRY`, as the others have, and add that to `entries` in `src/policy/registry.rs` and to `POLICIES` of ata-policies;
//! 3. test its formula in the same file, as the others do, citing the source.

use ata_policies::build_policy;
use ata_scheduler::{
    Decision, Effect, Engine, EngineConfig, Event, Policy, PolicyContext, Report, Round, SchedulerRng, StepOutcome,
    WorkerStatistics, allocate_by_score,
};
use ata_types::{Lease, WorkerId};
use rand::RngExt;

/// Allocates by noisy means: scores s_i = m_i · (1 + u_i/√K_i) with u_i uniform in [−1, 1), and 0 before the first
/// observation; a = RAS(s).
struct Sampled;

impl Policy for Sampled {
    fn name(&self) -> &'static str {
        "sampled"
    }

    fn decide(&mut self, round: &Round<'_>, rng: &mut SchedulerRng) -> Decision {
        let mut scores = Vec::with_capacity(round.workers.len());
        for i in 0..round.workers.len() {
            let known = round.of(i);
            let draw = 1.0 + rng.random_range(-1.0..1.0) / (known.observed as f64).sqrt();
            scores.push(known.mean_s().map_or(0.0, |mean_s| mean_s * draw));
        }
        // Workers that were never observed get one task each.
        let (allocation, rule) = allocate_by_score(&scores, |i| round.of(i).observed == 0, round.budget, rng);
        Decision::barrier(allocation, scores, rule)
    }
}

/// Seconds per task of each worker.
const TIME_S: [f64; 5] = [1.0, 2.0, 4.0, 8.0, 16.0];

/// Runs a barrier policy to its end. Returns the mean runtime and the mean total worker time of an iteration, in seconds.
fn run(policy: Box<dyn Policy>) -> (f64, f64) {
    let config = EngineConfig { budget: 31, iterations: 300, min_workers: TIME_S.len(), ..EngineConfig::default() };
    let mut engine = Engine::new(config, policy);
    let mut free_s = [0.0; TIME_S.len()];
    let mut computing: Vec<(f64, WorkerId, Lease)> = Vec::new();
    let mut now_s = 0.0;
    let mut effects = Vec::new();
    for worker in (0..TIME_S.len()).map(WorkerId::from_slot) {
        let (machine, prior) = (worker.into(), WorkerStatistics::default());
        let joined = Event::WorkerJoined { worker, machine, prior, fuses: false };
        engine.handle(now_s, joined, &mut effects);
    }
    engine.handle(now_s, Event::Proceed, &mut effects);
    loop {
        for effect in std::mem::take(&mut effects) {
            match effect {
                Effect::Assign { worker, lease, .. } => {
                    let free_s: &mut f64 = &mut free_s[worker.slot()];
                    *free_s = free_s.max(now_s) + TIME_S[worker.slot()] * lease.tasks.count as f64;
                    computing.push((*free_s, worker, lease));
                }
                Effect::Step { iteration, .. } => {
                    let outcome = StepOutcome::default();
                    engine.handle(now_s, Event::StepCommitted { iteration, outcome }, &mut effects);
                }
                Effect::Committed { .. } => engine.handle(now_s, Event::Proceed, &mut effects),
                Effect::Finish { .. } => {
                    return (engine.ledger().mean_iteration_s(), engine.ledger().mean_total_worker_time_s());
                }
                _ => {}
            }
        }
        if effects.is_empty() {
            computing.sort_by(|a, b| b.0.total_cmp(&a.0));
            let (end_s, worker, lease) = computing.pop().expect("a worker computes until the end");
            now_s = end_s;
            let busy_s = vec![TIME_S[worker.slot()]; lease.tasks.count as usize];
            let done = Report::Done { busy_s: &busy_s, waited_s: 0.0 };
            engine.report(now_s, worker, lease.id, done, &mut effects).expect("the worker holds the lease");
        }
    }
}

fn main() {
    let library = |text: &str| {
        let context = PolicyContext {
            means: Some(TIME_S.to_vec()),
            workers: Some(TIME_S.len() as u32),
            ..PolicyContext::default()
        };
        build_policy(text, &context).expect("a policy of the library")
    };
    println!("per iteration    runtime  worker time");
    for policy in [Box::new(Sampled), library("ata-empirical"), library("fta"), library("uta")] {
        let name = policy.name();
        let (runtime_s, worker_time_s) = run(policy);
        println!("{name:<15}{runtime_s:>7.1} s{worker_time_s:>11.1} s");
    }
}
