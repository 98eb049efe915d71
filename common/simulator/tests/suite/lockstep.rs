//! Workers that step together get the shares that an engine gives them in a simulation, for the same times.

use std::sync::{Arc, Mutex};

use ata_policies::POLICIES;
use ata_scheduler::{Decision, Engine, EngineConfig, Lockstep, Policy, Round, SchedulerRng, StepOutcome, Verify};
use ata_simulator::{Change, Moment, Simulation, Step};
use ata_types::{Iteration, WorkerId};

use crate::times;

const WORKERS: u32 = 4;
/// The number of tasks. It is not a multiple of the workers, so that the seed breaks ties.
const BUDGET: u64 = 67;
const SEED: u64 = 11;

/// A share that a worker computed: its slot, the tasks and the seconds.
type Share = (usize, u64, f64);

/// A policy for an engine that handles batches as shares, and stores them by iteration.
struct OfShares {
    policy: Box<dyn Policy>,
    computed: Arc<Mutex<Vec<Vec<Share>>>>,
}

impl Policy for OfShares {
    fn name(&self) -> &'static str {
        self.policy.name()
    }

    fn decide(&mut self, round: &Round<'_>, rng: &mut SchedulerRng) -> Decision {
        self.computed.lock().unwrap().push(Vec::new());
        let decision = self.policy.decide(&Round { fuses: &[], ..*round }, rng);
        assert!(decision.probes.is_empty(), "an engine cancels probes");
        decision
    }

    fn observe_batch(&mut self, worker: WorkerId, tasks: u64, busy_s: f64) {
        self.policy.observe_share(worker, tasks, busy_s);
        self.computed.lock().unwrap().last_mut().unwrap().push((worker.slot(), tasks, busy_s));
    }

    fn stepped(&mut self, step: &StepOutcome) {
        self.policy.stepped(step);
    }
}

/// Returns what the workers compute in the iterations of a simulated run, with noisy batches and two speeds that are swapped.
fn simulated(policy: &str, iterations: u64) -> Vec<Vec<Share>> {
    let computed = Arc::new(Mutex::new(Vec::new()));
    let policy = OfShares { policy: crate::policy(policy, WORKERS), computed: Arc::clone(&computed) };
    // With spot checks of no share, the engine hands out whole shares.
    let whole = Some(Verify { share: 0.0, secret: 0 });
    let min_workers = WORKERS as usize;
    let config =
        EngineConfig { budget: BUDGET, iterations, min_workers, seed: SEED, verify: whole, ..EngineConfig::default() };
    let mut simulation = Simulation::new(WORKERS, times("affine(i, i, 0.2)", WORKERS, SEED));
    let swap = Change::Swap(WorkerId::from_slot(0), WorkerId::from_slot(3));
    simulation.changes = vec![(Moment::Iteration(iterations / 2), swap)];
    let mut engine = Engine::new(config, Box::new(policy));
    simulation.run(&mut engine, &mut |_: &Step<'_>| StepOutcome::default()).unwrap();
    drop(engine);
    Arc::into_inner(computed).unwrap().into_inner().unwrap()
}

#[test]
fn the_shares_are_those_of_the_engine() {
    for policy in
        ["ata-auto", "ata", "ata-empirical", "uta", "fta:means=1/2/4/8", "ema", "proportional", "controller", "affine"]
    {
        let mut lockstep = Lockstep::new(WORKERS, BUDGET, POLICIES, policy, SEED).unwrap();
        for (computed, iteration) in simulated(policy, 60).iter().zip(1..) {
            let mut shares = vec![0; WORKERS as usize];
            for &(worker, tasks, _) in computed {
                shares[worker] += tasks;
            }
            assert_eq!(lockstep.next().unwrap(), shares, "{policy} in iteration {}", Iteration(iteration));
            // The shares are observed in a different order than that in which they were done.
            for &(worker, tasks, seconds) in computed.iter().rev() {
                lockstep.observe(worker, tasks, seconds).unwrap();
            }
        }
        assert_eq!(lockstep.iteration(), 60);
    }
}
