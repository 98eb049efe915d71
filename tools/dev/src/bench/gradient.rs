//! Benchmarks the gradient of a task, from reading its samples to the flat vector in host memory, against the same network with burn's own
//! operations.

use std::hint::black_box;
use std::path::Path;
use std::thread;

use ata::Failure;
use ata_data::{DataSource, Split, Synthetic, Tasks};
use ata_learn::{DeviceChoice, Learner, OpenDevice, builtin_model, nn, on_one_thread, thread_count, with_own_threads};
use ata_types::Iteration;

use crate::bench::{Figure, pair, unwritable};

/// The measured models, each with its task batch sizes.
const CASES: [(&str, &[u32]); 3] = [("cnn", &[6, 16, 32, 128]), ("resnet20", &[32]), ("resnet20:norm=batch", &[32])];

/// The number of samples that tasks draw from: enough that batches touch as much memory as in a real training set.
const SAMPLES: u64 = 5000;

pub(crate) fn measure() -> Result<Vec<Figure>, Failure> {
    let data = std::env::temp_dir().join(format!("ata-bench-{}.bin", std::process::id()));
    let records = Synthetic::new(Split::Train, 1);
    let records: Vec<u8> = (0..SAMPLES).flat_map(|index| records.record(index)).collect();
    std::fs::write(&data, records).map_err(unwritable)?;
    let figures = of_devices(&data);
    std::fs::remove_file(&data).map_err(unwritable)?;
    figures
}

/// Measures on the CPU with one thread and with all, and on the GPU if there is one.
fn of_devices(data: &Path) -> Result<Vec<Figure>, Failure> {
    let mut figures = Vec::new();
    let (cpu, best) = (DeviceChoice::Cpu.open()?, DeviceChoice::Auto.open()?);
    for (model, batches) in CASES {
        for &batch in batches {
            figures.push(on_one_thread(|| figure(data, model, batch, &cpu, "1 thread"))?);
            if thread_count() > 1 {
                let on = format!("{} threads", thread_count());
                let measure = || with_own_threads(|| figure(data, model, batch, &cpu, &on));
                figures.push(
                    thread::scope(|scope| scope.spawn(measure).join())
                        .map_err(|_| Failure::internal("the measurement panicked"))??,
                );
            }
            if best.name != cpu.name {
                figures.push(figure(data, model, batch, &best, "GPU")?);
            }
        }
    }
    Ok(figures)
}

fn figure(data: &Path, model: &str, batch: u32, device: &OpenDevice, on: &str) -> Result<Figure, Failure> {
    let model_of_tasks = builtin_model(model)?;
    let data = model_of_tasks.open(&DataSource::File(data.into()), Split::Train)?;
    let tasks = Tasks { seed: 1, budget: 1, task_batch: batch };
    let parameters = model_of_tasks.initial_parameters(1)?;
    let [mut own, mut burns] = [(), ()].map(|()| data.clone().learner(device, tasks));
    own.load(&parameters);
    burns.load(&parameters);
    let mut iteration = 3;
    let gradient = |learner: &mut dyn Learner, iteration: u64| {
        black_box(learner.gradient(Iteration(iteration), 0).expect("the samples were read before"));
    };
    // This number of runs takes a few seconds.
    let times = if batch > 64 || model != "cnn" { 5 } else { 15 };
    // The first runs warm up caches and memory pools.
    for iteration in 1..=3 {
        gradient(&mut *own, iteration);
        nn::by_burn(|| gradient(&mut *burns, iteration));
    }
    let (own, burns) = pair(
        times,
        || {
            iteration += 1;
            gradient(&mut *own, iteration);
        },
        || nn::by_burn(|| gradient(&mut *burns, 1)),
    );
    let name = format!("gradient of {model}, batch of {batch}, {}, {on}", device.name);
    let samples_per_s = f64::from(batch) / own.as_secs_f64();
    Ok(Figure { samples_per_s: Some(samples_per_s), ..Figure::new(name, own, "burn's own operations", burns) })
}
