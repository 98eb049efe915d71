//! Computes the gradient noise scale of a trained `cnn` from single gradients, for comparison with `ata up --gradient-noise --optimizer sgd`.
//!
//! `cargo run --release -p ata-learn --example noise -- runs/RUN_ID/model.safetensors cifar-100-binary/train.bin TASK_BATCH [TASKS]`

use std::error::Error;

use ata_data::{DataSource, Split, Tasks};
use ata_learn::{DeviceChoice, builtin_model};
use ata_sums::{TensorSizes, decode_model};
use ata_types::Iteration;

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [file, data, task_batch, rest @ ..] = &arguments[..] else {
        return Err("expected MODEL DATA TASK_BATCH".into());
    };
    let count = rest.first().map_or(Ok(500), |count| count.parse::<u64>())?;
    let model = builtin_model("cnn")?;
    let (parameters, _) = decode_model(&model.table(), &std::fs::read(file)?)?;
    let data = model.open(&DataSource::File(data.into()), Split::Train)?;
    // Other tasks than those of the run.
    let tasks = Tasks { seed: 99, budget: count, task_batch: task_batch.parse()? };
    let mut learner = data.learner(&DeviceChoice::Cpu.open()?, tasks);
    learner.load(&parameters);

    let sizes = TensorSizes::from(&model.table());
    let square = |gradient: &[f32]| sizes.squares(gradient).sum::<f64>();
    let (mut sum, mut of_tasks) = (vec![0.0; parameters.len()], 0.0);
    for task in 0..count {
        let gradient = learner.gradient(Iteration::FIRST, task)?.gradient;
        of_tasks += square(&gradient);
        sum.iter_mut().zip(&gradient).for_each(|(sum, value)| *sum += value);
    }
    let (of_sum, count) = (square(&sum), count as f64);
    let variance = (of_tasks - of_sum / count) / (count - 1.0);
    let gradient = of_sum / (count * count) - variance / count;
    println!("variance {variance:.4}, |G|² {gradient:.6}, noise scale {:.1} tasks", variance / gradient);
    Ok(())
}
