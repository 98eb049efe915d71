//! `ata bench`: measures this build on this machine, each figure against a reference in the same run.

mod aggregation;
mod allocation;
mod coordination;
mod engine;
mod gradient;
mod optimizer;
mod planning;
mod protection;
mod simulation;
mod transport;

use std::process::ExitCode;
use std::time::{Duration, Instant};

use clap::ValueEnum;
use serde::Serialize;

use crate::args::{BenchArgs, BenchSubject};
use crate::failure::Failure;
use crate::output::print_json;

/// A measured figure and its reference.
#[derive(Debug, Serialize)]
struct Figure {
    name: String,
    /// Median.
    seconds: f64,
    reference: String,
    /// Median of runs that took turns with those above.
    reference_seconds: f64,
    /// reference_seconds / seconds: above 1 means faster than the reference.
    ratio: f64,
    /// Samples whose gradients are computed per second, where this is what is measured.
    #[serde(skip_serializing_if = "Option::is_none")]
    samples_per_s: Option<f64>,
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

pub(crate) async fn run(args: BenchArgs) -> Result<ExitCode, Failure> {
    let subjects = if args.subjects.is_empty() { BenchSubject::value_variants().to_vec() } else { args.subjects };
    if !args.json {
        println!("{:<52}{:>12}  {:<38}{:>12}{:>8}", "", "median", "reference", "median", "ratio");
    }
    let mut figures = Vec::new();
    for subject in subjects {
        let measured = match subject {
            BenchSubject::Allocation => tokio::task::block_in_place(allocation::measure),
            BenchSubject::Planning => tokio::task::block_in_place(planning::measure)?,
            BenchSubject::Engine => tokio::task::block_in_place(engine::measure)?,
            BenchSubject::Simulation => tokio::task::block_in_place(simulation::measure)?,
            BenchSubject::Aggregation => tokio::task::block_in_place(aggregation::measure),
            BenchSubject::Optimizer => tokio::task::block_in_place(optimizer::measure),
            BenchSubject::Transport => transport::measure().await?,
            BenchSubject::Coordination => Box::pin(coordination::measure()).await?,
            BenchSubject::Gradient => tokio::task::block_in_place(gradient::measure)?,
        };
        if !args.json {
            measured.iter().for_each(print);
        }
        figures.extend(measured);
    }
    if args.json {
        print_json(&figures)?;
    }
    Ok(ExitCode::SUCCESS)
}

fn print(figure: &Figure) {
    let Figure { name, seconds, reference, reference_seconds, ratio, samples_per_s } = figure;
    let rate = samples_per_s.map(|rate| format!("  {rate:.0} samples/s")).unwrap_or_default();
    println!("{name:<52}{:>12}  {reference:<38}{:>12}{ratio:>8.2}{rate}", short(*seconds), short(*reference_seconds));
}

fn short(seconds: f64) -> String {
    match seconds {
        s if s < 1e-6 => format!("{:.0} ns", s * 1e9),
        s if s < 1e-3 => format!("{:.2} us", s * 1e6),
        s => format!("{:.2} ms", s * 1e3),
    }
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
