//! The engine in virtual time: under faults, over links, with extreme numbers.

mod affine;
mod costs;
mod extremes;
mod failures;
mod faults;
mod links;
mod lockstep;
mod mutated;
mod saved;

use ata_scheduler::{Effect, StepOutcome};
use ata_simulator::{Observer, Step};

/// Records the time of each iteration.
#[derive(Default)]
struct Clock(Vec<f64>);

impl Observer for Clock {
    fn step(&mut self, _step: &Step<'_>) -> StepOutcome {
        StepOutcome::default()
    }

    fn effect(&mut self, _now: f64, effect: &Effect) {
        if let Effect::Committed { cost } = effect {
            self.0.push(cost.runtime_s);
        }
    }
}
