//! Slow workers that join a fast device.

use std::collections::BTreeSet;

use ata_simulator::{Change, LawTimes, Moment, Simulation, TaskTimes};
use ata_types::WorkerId;

use crate::{mean, policy, times, times_of};

/// Times by law, except that the first worker compiles its kernels at the first batch of each size that is no power of two.
struct Compiling {
    times: LawTimes,
    compile_s: f64,
    known: BTreeSet<u64>,
}

impl TaskTimes for Compiling {
    fn draw(&mut self, worker: WorkerId) -> f64 {
        self.draw_batch(worker, 1)
    }

    fn draw_batch(&mut self, worker: WorkerId, tasks: u64) -> f64 {
        let is_new = worker.slot() == 0 && !tasks.is_power_of_two() && self.known.insert(tasks);
        self.times.draw_batch(worker, tasks) + if is_new { self.compile_s } else { 0.0 }
    }

    fn fuses(&self, worker: WorkerId) -> bool {
        self.times.fuses(worker)
    }
}

/// A GPU that computes 32 tasks in 10 ms is joined by CPUs that take as long for one or two. Its share then differs from iteration to
/// iteration, and so do the kernels that it needs. As seen on an H200: it was thought to have become slow, and was left out for good.
#[test]
fn a_device_that_compiles_kernels_is_still_used() {
    for compile_s in [0.0, 30.0, 100.0, 200.0, 400.0, 1000.0] {
        for seed in 1..=10 {
            let times = times("affine(8, 0.05, 0.05); const(6.5); const(14); const(28); const(55)", 5, seed);
            let times = Compiling { times, compile_s, known: BTreeSet::new() };
            let join = |slot| (Moment::Iteration(200), Change::Join(WorkerId::from_slot(slot)));
            let simulation = Simulation { changes: (1..5).map(join).collect(), ..Simulation::new(5, times) };
            let found = times_of(policy("ata-auto", 5), simulation, 32, 400);
            let (alone, together) = (mean(&found[100..200]), mean(&found[300..]));
            assert!(together <= 1.03 * alone, "{compile_s} ms, seed {seed}: {together} ms, alone {alone} ms");
        }
    }
}
