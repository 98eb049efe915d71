//! Measures the cost and the loss of precision of the wire format `compact`, compared with `f32-exact` and with units of whole tensors.
//!
//! `cargo run --release -p ata-learn --example compact [embedding|cnn|resnet20] [STEPS]`

use ata_data::{DataSource, Split, Tasks};
use ata_learn::{DeviceChoice, builtin_model};
use ata_sums::{Optimizer, TensorSizes, TrainingConfig};
use ata_types::{Iteration, WireFormat};
use compact::{Plan, Traffic, Words, train};

#[path = "../tests/suite/compact/mod.rs"]
mod compact;

const RUNS: [(&str, WireFormat, bool); 3] = [
    ("f32-exact", WireFormat::F32Exact, true),
    ("compact, units of tensors", WireFormat::Compact, false),
    ("compact", WireFormat::Compact, true),
];

fn main() {
    let mut arguments = std::env::args().skip(1);
    let subject = arguments.next().unwrap_or_else(|| "embedding".into());
    let steps = arguments.next().map(|steps| steps.parse().expect("a number of steps"));
    for (name, format, has_shifts) in RUNS {
        let (loss, steps, traffic) = match subject.as_str() {
            "embedding" => embedding(format, steps.unwrap_or(40), has_shifts),
            model => builtin(model, format, steps.unwrap_or(200), has_shifts),
        };
        let Traffic { bytes, clamped, vanished, values, lost_sums, sums } = traffic;
        let [vanished, lost_sums] = [(vanished, values), (lost_sums, sums)].map(|(a, b)| 100.0 * a as f64 / b as f64);
        println!(
            "{name}: loss {loss:.4}, {} bytes of gradients a step; of the values that are not 0, {vanished:.2} % vanished, and \
             {lost_sums:.2} % of the sums; {clamped} clamped",
            bytes / steps,
        );
    }
}

/// Trains on 64 tasks of 4,096 words per step, out of 20,000 words, on four workers. Returns the loss on other words.
fn embedding(format: WireFormat, steps: u64, has_shifts: bool) -> (f64, u64, Traffic) {
    let words = Words { rows: 20_000, columns: 16, batch: 4096 };
    let (loss, traffic) = words.outcome(format, 64, Plan { steps, rate: 1e-2, workers: 4, has_shifts });
    (loss, steps, traffic)
}

/// Trains a built-in model on the tasks of a default run, on two workers. Returns the mean loss of the last ten steps' tasks.
fn builtin(model: &str, format: WireFormat, steps: u64, has_shifts: bool) -> (f64, u64, Traffic) {
    let (budget, task_batch) = (16, 6);
    let model = builtin_model(model).expect("a built-in model");
    let config =
        TrainingConfig { optimizer: Optimizer::default(), sizes: TensorSizes::from(&model.table()), format, budget };
    let data = model.open(&DataSource::Generated { seed: 1 }, Split::Train).unwrap();
    let mut learner = data.learner(&DeviceChoice::Cpu.open().unwrap(), Tasks { seed: 1, budget, task_batch });
    let (mut loaded, mut losses) = (0, Vec::new());
    let gradient = |parameters: &[f32], step, task| {
        if loaded != step {
            learner.load(parameters);
            loaded = step;
        }
        let task = learner.gradient(Iteration(step), task).unwrap();
        if step + 10 > steps {
            losses.push(task.loss);
        }
        task.gradient
    };
    let plan = Plan { steps, rate: 1e-3, workers: 2, has_shifts };
    let (_, traffic) = train(config, model.initial_parameters(1).unwrap(), plan, gradient);
    (losses.iter().sum::<f64>() / losses.len() as f64, steps, traffic)
}
