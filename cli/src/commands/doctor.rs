//! `ata doctor`: what would prevent a run on this machine, and what to do about it.

use std::net::TcpListener;
use std::process::ExitCode;
use std::time::Instant;

use ata_learn::{DataSource, DeviceChoice, OpenDevice, Split, Tasks, builtin_model, default_cache_dir};
use serde::Serialize;

use crate::args::DoctorArgs;
use crate::failure::Failure;

/// Larger differences than this are not due to rounding.
const LARGEST_DIFFERENCE: f64 = 1e-5;

#[derive(Serialize)]
struct Findings {
    devices: Vec<Found>,
    gradient: Gradient,
    /// Each is a problem and its remedy.
    problems: Vec<String>,
}

#[derive(Serialize)]
struct Found {
    device: String,
    name: String,
}

/// A task's gradient on the device, against the CPU's.
#[derive(Serialize)]
struct Gradient {
    device: String,
    task_batch: u32,
    cpu_ms: f64,
    device_ms: f64,
    /// ‖device − CPU‖ / ‖CPU‖
    relative_l2_difference: f64,
}

pub(crate) fn run(args: &DoctorArgs) -> Result<ExitCode, Failure> {
    if !(1..=4096).contains(&args.task_batch) {
        return Err(Failure::usage("--task-batch: expected 1 to 4096 samples"));
    }
    let choice: DeviceChoice = args.device.parse()?;
    let device = choice.open()?;
    let devices =
        DeviceChoice::list().into_iter().map(|(choice, name)| Found { device: choice.to_string(), name }).collect();
    let gradient = compare(&device, args.task_batch)?;
    let mut problems = Vec::new();
    if gradient.relative_l2_difference > LARGEST_DIFFERENCE {
        problems.push(format!(
            "the gradient on {} differs from the CPU's: update its driver, or use another --device",
            device.name
        ));
    }
    if let Err(cause) = TcpListener::bind(&args.listen) {
        problems
            .push(format!("cannot listen on {}: {cause}. Choose another --listen for the coordinator", args.listen));
    }
    for folder in [std::path::PathBuf::from("."), default_cache_dir()] {
        if let Err(cause) = writable(&folder) {
            let mend = "make it writable, or set --out and ATA_CACHE_DIR to folders that are";
            problems.push(format!("cannot write to {}: {cause}. {}", folder.display(), mend));
        }
    }
    let findings = Findings { devices, gradient, problems };
    if args.json {
        println!("{}", serde_json::to_string_pretty(&findings).map_err(Failure::internal)?);
    } else {
        print(&findings);
    }
    Ok(ExitCode::from(u8::from(!findings.problems.is_empty())))
}

fn print(findings: &Findings) {
    println!("devices of this build on this machine:");
    for found in &findings.devices {
        println!("  --device {:<8} {}", found.device, found.name);
    }
    let Gradient { device, task_batch, cpu_ms, device_ms, relative_l2_difference } = &findings.gradient;
    println!("gradient of {task_batch} samples: {device_ms:.1} ms on {device}, {cpu_ms:.1} ms on the CPU");
    println!(
        "relative L2 difference from the CPU: {relative_l2_difference:.1e} (rounding: below {LARGEST_DIFFERENCE:.0e})"
    );
    match &findings.problems[..] {
        [] => println!("no problems found"),
        problems => problems.iter().for_each(|problem| println!("problem: {problem}")),
    }
}

fn compare(device: &OpenDevice, task_batch: u32) -> Result<Gradient, Failure> {
    let cpu = DeviceChoice::Cpu.open()?;
    let (expected, cpu_ms) = gradient(&cpu, task_batch)?;
    let (found, device_ms) = gradient(device, task_batch)?;
    let norm = |values: &mut dyn Iterator<Item = f64>| values.map(|value| value * value).sum::<f64>().sqrt();
    let difference = norm(&mut found.iter().zip(&expected).map(|(a, b)| f64::from(*a) - f64::from(*b)));
    let relative_l2_difference = difference / norm(&mut expected.iter().map(|b| f64::from(*b)));
    Ok(Gradient { device: device.name.clone(), task_batch, cpu_ms, device_ms, relative_l2_difference })
}

/// The built-in model's gradient, and the milliseconds of the second of two computations.
fn gradient(device: &OpenDevice, task_batch: u32) -> Result<(Vec<f32>, f64), Failure> {
    let model = builtin_model("cnn")?;
    let data = model.open(&DataSource::Generated { seed: 1 }, Split::Train)?;
    let mut learner = data.learner(device, Tasks { seed: 1, budget: 1, task_batch });
    learner.load(&model.initial_parameters(1));
    // The first computation compiles kernels.
    learner.gradient(1, 0).map_err(Failure::internal)?;
    let started = Instant::now();
    let task = learner.gradient(1, 0).map_err(Failure::internal)?;
    Ok((task.gradient, started.elapsed().as_secs_f64() * 1e3))
}

fn writable(folder: &std::path::Path) -> std::io::Result<()> {
    std::fs::create_dir_all(folder)?;
    let probe = folder.join(format!(".ata-doctor-{}", std::process::id()));
    std::fs::write(&probe, "")?;
    std::fs::remove_file(&probe)
}
