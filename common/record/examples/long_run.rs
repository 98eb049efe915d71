//! Writes the journal of a long run, and measures how long a resumption waits for it:
//! `long_run ITERATIONS FOLDER [full]`.

use std::path::Path;
use std::time::Instant;

use ata_record::{PastEvents, RunEvent, RunState, Writer, resume_journal, steps_after};
use ata_types::Iteration;
use serde_json::{Value, json};

/// As in issue-sized runs: 8 tasks, 4 workers, 155 steps a second.
const TASKS: u64 = 8;
const WORKERS: u64 = 4;
const STEP_S: f64 = 1.0 / 155.0;

fn event(fields: Value) -> RunEvent {
    serde_json::from_value(fields).expect("an event")
}

fn iteration(k: u64) -> Vec<RunEvent> {
    let time_s = k as f64 * STEP_S + 0.123_456_789;
    let allocation = event(json!({"event": "allocation", "iteration": k, "time_s": time_s, "workers": [1, 2, 3, 4],
        "allocation": [2, 2, 2, 2], "scores_s": [0.001_234_567_89, 0.002_345_678_91, 0.003_456_789_12, 0.004_567_891_23],
        "rule": "ata-auto"}));
    let task = |task: u64| {
        event(json!({"event": "task", "iteration": k, "task": task, "worker": task % WORKERS + 1,
            "lease": k * WORKERS + task % WORKERS, "time_s": time_s + 0.004_567_891, "busy_s": 0.001 / (task + 3) as f64,
            "overhead_s": 0.000_765_432_198, "outcome": "applied"}))
    };
    let step =
        event(json!({"event": "step", "iteration": k, "time_s": time_s + 0.0056, "loss": 4.0 / (1.0 + k as f64).ln(),
        "runtime_s": 0.005_123_456_78, "total_worker_time_s": 0.012_345_678_9, "tasks": TASKS, "wasted": 0,
        "employments": WORKERS, "results": WORKERS, "learning_rate": 0.001, "gradient_norm": 1.234_567_89}));
    std::iter::once(allocation).chain((0..TASKS).map(task)).chain([step]).collect()
}

fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let (iterations, folder) = (args[0].parse().expect("a number"), Path::new(&args[1]));
    let is_full = args.get(2).is_some_and(|arg| arg == "full");
    std::fs::create_dir_all(folder).expect("a folder");
    let run = event(json!({"event": "run", "version": 4, "run_id": "long", "policy": "ata-auto", "budget": TASKS,
        "iterations": iterations, "task_batch": 6, "seed": 1, "model": "cnn"}));
    let began = Instant::now();
    let history = PastEvents { is_full, ..PastEvents::default() };
    let writer = Writer::open(folder, history, Vec::new(), |error| panic!("{error}")).expect("an empty folder");
    writer.write(vec![run.clone()]);
    let mut saved = RunState::default();
    for k in 1..=iterations {
        writer.write(iteration(k));
        if k == iterations - iterations / 1000 {
            saved = writer.state().recv().expect("a state");
        }
    }
    writer.finish().expect("a disk with room");
    println!("{iterations} iterations in {:.1} s", began.elapsed().as_secs_f64());
    for file in ["events.jsonl", "metrics.csv"] {
        println!("{file}: {:.1} MB", folder.join(file).metadata().expect("a file").len() as f64 / 1e6);
    }
    let (at, kilobytes) = (saved.iterations, saved.saved().to_string().len() / 1000);
    let began = Instant::now();
    let later = steps_after(folder, Iteration(at)).expect("a journal");
    resume_journal(folder, &run, Iteration(at), &saved).expect("a journal");
    let seconds = began.elapsed().as_secs_f64();
    println!("resumed after {at} ({later} later steps, {kilobytes} kB in the checkpoint) in {seconds:.3} s");
}
