//! A device whose batches cost o + a·s, next to ordinary workers: `ata-auto` learns the best split.

use ata_simulator::{Change, LawTimes, Moment, Simulation, TaskTimes, TimeLaws, worker_rng};
use ata_types::WorkerId;

use crate::{mean, mean_of, policy, times, times_of};

/// The fixed cost of the device: 20 ms for a batch. Each of its tasks adds half a millisecond.
const FIXED: f64 = 20.0;
const PER_TASK: f64 = 0.5;

const CPU: f64 = 4.0;

/// The number of iterations in which the costs are learned: the largest batch doubles from one to the next.
const LEARNING: usize = 10;

/// The number of iterations until it is known that times do not vary, and so the exact best split.
const CERTAINTY: usize = 80;
const ITERATIONS: usize = 260;

const BUDGETS: [u64; 7] = [5, 16, 23, 46, 128, 512, 3000];

fn run(simulation: Simulation<impl TaskTimes>, budget: u64) -> Vec<f64> {
    times_of(policy("ata-auto", simulation.workers), simulation, budget, ITERATIONS)
}

/// Returns a cluster of devices with these laws, followed by ordinary workers.
fn cluster(devices: &[&str], cpus: u32, seed: u64) -> Simulation<LawTimes> {
    let cpu = format!("const({CPU})");
    let laws: Vec<&str> = devices.iter().copied().chain((0..cpus).map(|_| cpu.as_str())).collect();
    let workers = laws.len() as u32;
    Simulation::new(workers, times(&laws.join("; "), workers, seed))
}

/// Returns the least mean time of an iteration, by trying every split: the device takes any number of tasks, and the others
/// equal shares of the rest. `noise` contains equally likely factors on the device's time.
fn best(cpus: u32, budget: u64, device: impl Fn(u64) -> f64, noise: &[f64]) -> f64 {
    let time = |batch: u64| {
        let others = (budget - batch).div_ceil(cpus.into()) as f64 * CPU;
        let device = if batch == 0 { 0.0 } else { device(batch) };
        mean(&noise.iter().map(|factor| others.max(device * factor)).collect::<Vec<_>>())
    };
    (0..=budget).map(time).fold(f64::INFINITY, f64::min)
}

fn affine(tasks: u64) -> f64 {
    FIXED + tasks as f64 * PER_TASK
}

/// The device costs 20 ms + 0.5 ms a task, and works with CPU workers of 4 ms a task. The iteration time must be within 10 %
/// of the best split by exhaustive search; without noise it is the best split itself.
#[test]
fn the_best_split_is_found() {
    for cpus in 1..=4 {
        for budget in BUDGETS {
            let found = run(cluster(&["affine(20, 0.5)"], cpus, 1), budget);
            let best = best(cpus, budget, affine, &[1.0]);
            let (soon, late) = (mean(&found[LEARNING..CERTAINTY]), mean(&found[CERTAINTY..]));
            assert!(soon <= best * 1.1, "{cpus} CPUs, B = {budget}: {soon} for {best}");
            assert!(late <= best * 1.001, "{cpus} CPUs, B = {budget}: {late} for {best}");
        }
    }
}

/// The device's times vary by a fifth; the best split is the one whose mean time is least. The caution that is added to the times
/// costs most with one ordinary worker.
#[test]
fn with_noise_it_is_nearly_found() {
    const SEEDS: u64 = 10;
    let law: TimeLaws = "affine(0, 1, 0.2)".parse().unwrap();
    let (mut unit, mut rng) = (law.of_worker(1, 1).unwrap(), worker_rng(7, 1));
    let noise: Vec<f64> = (0..2000).map(|_| unit.sample(0.0, &mut rng)).collect();
    for cpus in 1..=4 {
        for budget in BUDGETS {
            let of_seed = |seed| mean(&run(cluster(&["affine(20, 0.5, 0.2)"], cpus, seed), budget)[LEARNING..]);
            let found = mean(&(0..SEEDS).map(of_seed).collect::<Vec<_>>());
            let best = best(cpus, budget, affine, &noise);
            assert!(found <= 1.2 * best, "{cpus} CPUs, B = {budget}: {found} for {best}");
        }
    }
}

/// Two devices get shares according to their own costs: 100 of 128 tasks in 50, 16 in 48 and 12 in 48.
#[test]
fn unlike_devices_share_the_work() {
    let found = run(cluster(&["affine(20, 0.3)", "affine(0, 3)"], 1, 1), 128);
    assert!(found[CERTAINTY..].iter().all(|time| *time <= 50.0 + 1e-9), "{found:?}");
}

/// A device with room for 64 tasks at a time, whose costs do not form a line.
struct Steps;

impl Steps {
    fn time(tasks: u64) -> f64 {
        tasks.div_ceil(64) as f64 * 30.0
    }
}

impl TaskTimes for Steps {
    fn draw(&mut self, worker: WorkerId) -> f64 {
        self.draw_batch(worker, 1)
    }

    fn draw_batch(&mut self, worker: WorkerId, tasks: u64) -> f64 {
        if worker.slot() == 0 { Self::time(tasks) } else { tasks as f64 * CPU }
    }

    fn fuses(&self, worker: WorkerId) -> bool {
        worker.slot() == 0
    }
}

#[test]
fn costs_that_are_no_line_do_no_harm() {
    for budget in [16, 46, 128, 512] {
        let found = run(Simulation::new(3, Steps), budget);
        let (found, best) = (mean(&found[LEARNING..]), best(2, budget, Steps::time, &[1.0]));
        assert!(found <= 1.1 * best, "B = {budget}: {found} for {best}");
    }
}

/// A device that becomes ten times slower is learned anew, like any worker.
#[test]
fn a_slower_device_is_noticed() {
    let slow = (Moment::Iteration(101), Change::SlowDown(WorkerId::from_slot(0), 10.0));
    let simulation = Simulation { changes: vec![slow], ..cluster(&["affine(20, 0.5)"], 4, 1) };
    let found = mean(&run(simulation, 46)[130..]);
    assert!(found <= 48.0 * 1.02, "{found}: four ordinary workers take 48");
}

/// Devices alone, of like or unlike speeds, with knees (the fourth number) or without: no iteration before the costs are known is long.
/// The reference is the policy that begins with equal shares.
#[test]
fn devices_are_used_well_from_the_first_iteration() {
    for (budget, laws) in [
        (512, "affine(20, 0.5); affine(20, 0.5)"),
        (512, "affine(20, 0.5); affine(10, 0.1)"),
        (256, "affine(20, 0.5, 0.1); affine(40, 1, 0.1); affine(10, 4, 0.1); affine(5, 8, 0.1)"),
        (
            1024,
            "affine(5, 0.1, 0.1); affine(10, 0.2, 0.1); affine(15, 0.3, 0.1); affine(20, 0.4, 0.1); affine(25, 0.5, 0.1)",
        ),
        (128, "affine(50, 0.2, 0.2); affine(20, 1, 0.2); affine(5, 3, 0.2)"),
        (512, "affine(5, 0.5, 0.1, 64); affine(5, 1, 0.1, 32)"),
        (256, "affine(1, 0.5, 0.05, 128); affine(2, 1, 0.05, 16); affine(10, 0.2, 0.05, 32)"),
        (64, "affine(2, 1, 0.1, 16); affine(2, 1, 0.1, 16); affine(4, 2, 0.1, 8); affine(4, 2, 0.1, 8)"),
    ] {
        let workers = laws.split("; ").count() as u32;
        for (iterations, most) in [(1, 2.0), (30, 1.1), (40, 1.1), (ITERATIONS, 1.02)] {
            let of = |policy| mean_of(policy, laws, workers, budget, iterations);
            let (found, reference) = (of("ata-auto"), of("affine"));
            assert!(found <= most * reference, "{laws}, {iterations} iterations: {found} ms for {reference} ms");
        }
    }
}
