//! A policy that orders anything, sense or not: the engine must withstand it.

use ata_scheduler::policy::{Midway, Orders, Round, SchedulerRng};
use ata_scheduler::{Collect, Decision, Policy, Rule};
use ata_types::WorkerId;
use rand::seq::IndexedRandom;
use rand::{RngExt, SeedableRng};

/// Begins, copies, stops and asks again at random, with workers that are busy, absent or unknown, and with more tasks than
/// there are.
#[derive(Default)]
pub(crate) struct Unruly {
    rng: Option<SchedulerRng>,
}

/// A worker that may be there, or one that never was.
fn anyone(rng: &mut SchedulerRng, idle: &[WorkerId]) -> WorkerId {
    match idle.choose(rng) {
        Some(worker) if rng.random_bool(0.5) => *worker,
        _ => WorkerId::new(*[1, 2, 3, 4, 5, 6, 77, u32::MAX].choose(rng).unwrap()).unwrap(),
    }
}

impl Policy for Unruly {
    fn name(&self) -> &'static str {
        "unruly"
    }

    fn decide(&mut self, round: &Round<'_>, rng: &mut SchedulerRng) -> Decision {
        self.rng = Some(SchedulerRng::seed_from_u64(rng.random()));
        let n = round.workers.len();
        let allocation: Vec<u64> = (0..n).map(|_| rng.random_range(0..=round.budget / n as u64)).collect();
        let probes = (0..rng.random_range(0..3)).map(|_| rng.random_range(0..n)).collect();
        let collect = Collect::InParts { tasks: round.budget };
        Decision { probes, ..Decision::new(allocation, collect, Rule::Uniform) }
    }

    fn resume(&mut self, midway: &Midway<'_>, orders: &mut Orders) {
        let rng = self.rng.as_mut().expect("it has decided");
        let idle = midway.idle();
        for _ in 0..rng.random_range(0..4) {
            let (one, other) = (anyone(rng, &idle), anyone(rng, &idle));
            let _ = (midway.doing(one), midway.doing(other));
            match rng.random_range(0..4) {
                0 => orders.begin.push((one, rng.random_range(0..=midway.left + 2))),
                1 => orders.begin.push((one, *[1, 1, 1, u64::MAX].choose(rng).unwrap())),
                2 => orders.copy.push((one, other)),
                _ => orders.stop.push(one),
            }
        }
        let later_s = [0.05, 1.0, 9.0, 0.0, -5.0, f64::NAN, f64::INFINITY].choose(rng).unwrap();
        orders.ask_again_s = rng.random_bool(0.5).then_some(midway.now_s + later_s);
    }
}
