//! A policy that takes arbitrary actions, which the engine must withstand.

use ata_scheduler::policy::{Actions, IterationView, Round, SchedulerRng};
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

/// Returns a worker that may be present, or one that never was.
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

    fn replan(&mut self, view: &IterationView<'_>, actions: &mut Actions) {
        let rng = self.rng.as_mut().expect("it has decided");
        let idle = view.idle();
        for _ in 0..rng.random_range(0..4) {
            let (one, other) = (anyone(rng, &idle), anyone(rng, &idle));
            let _ = (view.activity(one), view.activity(other));
            match rng.random_range(0..4) {
                0 => actions.begin.push((one, rng.random_range(0..=view.left + 2))),
                1 => actions.begin.push((one, *[1, 1, 1, u64::MAX].choose(rng).unwrap())),
                2 => actions.copy.push((one, other)),
                _ => actions.stop.push(one),
            }
        }
        let later_s = [0.05, 1.0, 9.0, 0.0, -5.0, f64::NAN, f64::INFINITY].choose(rng).unwrap();
        actions.ask_again_s = rng.random_bool(0.5).then_some(view.now_s + later_s);
    }
}
