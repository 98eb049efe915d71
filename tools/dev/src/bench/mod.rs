//! The benchmarks of `ata-dev bench`: they measure this build on this machine, and each figure has a reference that is
//! measured in the same run.
//!
//! # Layout
//! - this file: [`measure`], [`Figure`], the alternating timing of work and reference, and runs in virtual time
//! - a file per [`Subject`]; `command`: the command line
//! - `against`: the comparison with another build
//! - `protection`: whether the measured coordinator uses TLS

mod against;
mod aggregation;
mod allocation;
mod command;
mod coordination;
mod engine;
mod gradient;
mod optimizer;
mod planning;
mod protection;
mod simulation;
mod transport;

pub(crate) use command::{BenchArgs, command};

use std::fmt::Display;
use std::hint::black_box;
use std::time::{Duration, Instant};

use ata::Failure;
use ata_scheduler::{Engine, EngineConfig, Policy, StepOutcome};
use ata_simulator::{LawTimes, Simulation, Step};
use clap::ValueEnum;
use serde::Serialize;
use tokio::task::block_in_place;

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Subject {
    /// RAS at n = 51, B = 23 and at n = B = 10^6.
    Allocation,
    /// A decision of ata-auto at n = 10^5, and its plan after a result at n = 51, B = 23.
    Planning,
    /// A result, a step and a join in large runs, against the same in small ones.
    Engine,
    /// An iteration of the simulator, at n = 51 and at n = 10^5.
    Simulation,
    /// Parameters and sums of gradients through gRPC, from vector to vector, against a TCP copy of the same bytes.
    Transport,
    /// Sums of gradients as integers, by a worker and by the coordinator, against a loop that adds the same number of f32 values.
    Aggregation,
    /// The sum, the optimizer step and the next parameters, chunk by chunk, against a memory copy of the same number of bytes.
    Optimizer,
    /// Everything in an iteration that is not gradient computation, at 4 and at 64 workers.
    Coordination,
    /// The gradient of a task of the built-in models, against burn's own layers.
    Gradient,
}

/// A measured figure and its reference.
#[derive(Debug, Serialize)]
pub(crate) struct Figure {
    pub(crate) name: String,
    /// The median time, in seconds.
    pub(crate) seconds: f64,
    pub(crate) reference: String,
    /// The median time of the reference, whose runs alternate with those of the figure.
    pub(crate) reference_seconds: f64,
    /// `reference_seconds / seconds`: above 1 means faster than the reference.
    pub(crate) ratio: f64,
    /// The number of samples whose gradients are computed per second, for figures of gradients.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) samples_per_s: Option<f64>,
}

impl Figure {
    fn new(
        name: impl Into<String>,
        median: Duration,
        reference: impl Into<String>,
        reference_median: Duration,
    ) -> Self {
        let (seconds, reference_seconds) = (median.as_secs_f64(), reference_median.as_secs_f64());
        let ratio = reference_seconds / seconds;
        Self { name: name.into(), seconds, reference: reference.into(), reference_seconds, ratio, samples_per_s: None }
    }
}

/// The mean times of the paper's workers, 58·i.
const LAW: &str = "shifted_exp(29*i, 29*i)";

/// A run in virtual time, ready to begin.
struct TimedRun {
    engine: Engine,
    simulation: Simulation<LawTimes>,
}

impl TimedRun {
    fn new(policy: Box<dyn Policy>, law: &str, workers: u32, config: EngineConfig) -> Result<Self, Failure> {
        let config = EngineConfig { min_workers: workers as usize, seed: 1, ..config };
        let times = LawTimes::new(&law.parse()?, workers, 1)?;
        Ok(Self { engine: Engine::new(config, policy), simulation: Simulation::new(workers, times) })
    }

    fn run(mut self) {
        self.simulation.run(&mut self.engine, &mut |_: &Step<'_>| StepOutcome::default()).expect("workers stay");
        black_box(self.engine.ledger());
    }
}

/// Measures one subject. It must be called on a multi-threaded tokio runtime.
pub(crate) async fn measure(subject: Subject) -> Result<Vec<Figure>, Failure> {
    match subject {
        Subject::Allocation => Ok(block_in_place(allocation::measure)),
        Subject::Planning => block_in_place(planning::measure),
        Subject::Engine => block_in_place(engine::measure),
        Subject::Simulation => block_in_place(simulation::measure),
        Subject::Aggregation => Ok(block_in_place(aggregation::measure)),
        Subject::Optimizer => Ok(block_in_place(optimizer::measure)),
        Subject::Transport => transport::measure().await,
        Subject::Coordination => Box::pin(coordination::measure()).await,
        Subject::Gradient => block_in_place(gradient::measure),
    }
}

/// Returns the failure of a temporary file that cannot be written.
fn unwritable(cause: impl Display) -> Failure {
    Failure::disk(format!("cannot write a temporary file: {cause}"))
}

/// Times `work` and `reference` in turn, and returns their medians.
fn pair(times: usize, mut work: impl FnMut(), mut reference: impl FnMut()) -> (Duration, Duration) {
    let time = |work: &mut dyn FnMut()| {
        let started = Instant::now();
        work();
        started.elapsed()
    };
    let (a, b) = (0..times).map(|_| (time(&mut work), time(&mut reference))).unzip();
    (median(a), median(b))
}

fn median(mut times: Vec<Duration>) -> Duration {
    times.sort_unstable();
    times[times.len() / 2]
}
