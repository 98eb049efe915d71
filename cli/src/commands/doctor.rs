//! `ata doctor`: what would prevent a run on this machine, and what to do about it.

use std::net::TcpListener;
use std::process::ExitCode;
use std::time::Instant;

use ata_learn::{
    DataSource, DeviceChoice, LearnerError, OpenDevice, Split, TaskGradient, Tasks, builtin_model, default_cache_dir,
    reduce_in_order,
};
use serde::Serialize;

use crate::args::DoctorArgs;
use crate::failure::Failure;

/// Larger differences than this are not due to rounding.
const LARGEST_DIFFERENCE: f64 = 1e-5;

/// Tasks of the lease that is computed as one batch.
const LEASE: u64 = 4;

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
    /// Tasks of a lease.
    lease: u64,
    /// One after the other, on the device.
    tasks_ms: f64,
    /// As one batch, on the device.
    fused_ms: f64,
    /// ‖device, as one batch − CPU, summed‖ / ‖CPU, summed‖
    fused_relative_l2_difference: f64,
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
    let differences = [gradient.relative_l2_difference, gradient.fused_relative_l2_difference];
    // Not the other way round: a NaN is no agreement.
    if !differences.iter().all(|difference| *difference <= LARGEST_DIFFERENCE) {
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
    let Gradient { device, task_batch, cpu_ms, device_ms, lease, tasks_ms, fused_ms, .. } = &findings.gradient;
    println!("gradient of {task_batch} samples: {device_ms:.1} ms on {device}, {cpu_ms:.1} ms on the CPU");
    println!("{lease} of them on {device}: {tasks_ms:.1} ms one by one, {fused_ms:.1} ms as one batch");
    println!(
        "relative L2 difference from the CPU: {:.1e}, as one batch {:.1e} (rounding: at most {LARGEST_DIFFERENCE:.0e})",
        findings.gradient.relative_l2_difference, findings.gradient.fused_relative_l2_difference
    );
    match &findings.problems[..] {
        [] => println!("no problems found"),
        problems => problems.iter().for_each(|problem| println!("problem: {problem}")),
    }
}

fn compare(device: &OpenDevice, task_batch: u32) -> Result<Gradient, Failure> {
    let cpu = Computed::on(&DeviceChoice::Cpu.open()?, task_batch)?;
    let found = Computed::on(device, task_batch)?;
    Ok(Gradient {
        device: device.name.clone(),
        task_batch,
        cpu_ms: cpu.task_ms,
        device_ms: found.task_ms,
        relative_l2_difference: relative_difference(&found.task, &cpu.task),
        lease: LEASE,
        tasks_ms: found.tasks_ms,
        fused_ms: found.fused_ms,
        fused_relative_l2_difference: relative_difference(&found.fused, &cpu.tasks),
    })
}

/// Gradients of the built-in model, and how long each took.
struct Computed {
    task: Vec<f32>,
    task_ms: f64,
    /// The sum over a lease, task by task.
    tasks: Vec<f32>,
    tasks_ms: f64,
    /// The same as one batch.
    fused: Vec<f32>,
    fused_ms: f64,
}

impl Computed {
    fn on(device: &OpenDevice, task_batch: u32) -> Result<Self, Failure> {
        let model = builtin_model("cnn")?;
        let data = model.open(&DataSource::Generated { seed: 1 }, Split::Train)?;
        let mut learner = data.learner(device, Tasks { seed: 1, budget: LEASE, task_batch });
        learner.load(&model.initial_parameters(1));
        let (task, task_ms) = timed(|| learner.gradient(1, 0))?;
        let (tasks, tasks_ms) = timed(|| {
            let task = |index| learner.gradient(1, index).map(|task| (task.gradient, task.loss));
            reduce_in_order(0, LEASE, task).map(|sum| TaskGradient { gradient: sum.gradient, loss: sum.loss })
        })?;
        let (fused, fused_ms) = timed(|| learner.fused(1, 0, LEASE))?;
        Ok(Self { task, task_ms, tasks, tasks_ms, fused, fused_ms })
    }
}

/// A gradient, and the milliseconds of the second of two computations: the first one compiles kernels.
fn timed(mut compute: impl FnMut() -> Result<TaskGradient, LearnerError>) -> Result<(Vec<f32>, f64), Failure> {
    compute().map_err(Failure::internal)?;
    let started = Instant::now();
    let gradient = compute().map_err(Failure::internal)?.gradient;
    Ok((gradient, started.elapsed().as_secs_f64() * 1e3))
}

/// ‖found − expected‖ / ‖expected‖
fn relative_difference(found: &[f32], expected: &[f32]) -> f64 {
    let norm = |values: &mut dyn Iterator<Item = f64>| values.map(|value| value * value).sum::<f64>().sqrt();
    let difference = norm(&mut found.iter().zip(expected).map(|(a, b)| f64::from(*a) - f64::from(*b)));
    difference / norm(&mut expected.iter().map(|value| f64::from(*value)))
}

fn writable(folder: &std::path::Path) -> std::io::Result<()> {
    std::fs::create_dir_all(folder)?;
    let probe = folder.join(format!(".ata-doctor-{}", std::process::id()));
    std::fs::write(&probe, "")?;
    std::fs::remove_file(&probe)
}
