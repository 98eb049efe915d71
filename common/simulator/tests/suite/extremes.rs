//! Whatever numbers a saved engine or an earlier run's statistics contain, they are refused, or the run continues with them.

use ata_policies::POLICIES;
use ata_scheduler::{Effect, Engine, EngineConfig, SavedEngine, StepOutcome, WorkerStatistics};
use ata_simulator::{Observer, Simulation, Step};
use serde_json::{Value, json};

use crate::{informed, times};

const WORKERS: u32 = 5;

const SAVED_AFTER: u64 = 5;
const ITERATIONS: u64 = 8;

/// Saves the engine after [`SAVED_AFTER`] iterations.
#[derive(Default)]
struct Saver(Option<SavedEngine>);

impl Observer for Saver {
    fn step(&mut self, _step: &Step<'_>) -> StepOutcome {
        StepOutcome { loss: Some(1.0), gradient_product: Some(-1.0), ..StepOutcome::default() }
    }

    fn committed(&mut self, _now: f64, _clock: f64, engine: &mut Engine, _effects: &mut Vec<Effect>) -> Option<f64> {
        if engine.ledger().iterations == SAVED_AFTER {
            self.0 = Some(engine.save());
        }
        None
    }
}

fn config() -> EngineConfig {
    EngineConfig {
        budget: 7,
        iterations: ITERATIONS,
        min_workers: WORKERS as usize,
        lease_timeout_s: Some(1000.0),
        rest_s: 1.0,
        ..EngineConfig::default()
    }
}

/// Runs the engine to its end, in whatever way that ends.
fn run(engine: &mut Engine, priors: Vec<WorkerStatistics>) -> Option<SavedEngine> {
    let mut simulation = Simulation::new(WORKERS, times("shifted_exp(3*i, 2*i)", WORKERS, 1));
    simulation.priors = priors;
    let mut saver = Saver::default();
    // A run may be aborted, but it is over.
    drop(simulation.run(engine, &mut saver));
    saver.0
}

fn numbers() -> Vec<Value> {
    let whole = [0, u32::MAX.into(), 1 << 32, 1 << 53, 1 << 63, u64::MAX].map(|number: u64| json!(number));
    let others = [-1.0, 0.5, 1e-308, 1e15, 1e20, 1e100, 1e308].map(|number: f64| json!(number));
    whole.into_iter().chain(others).chain([json!(-1), json!(null)]).collect()
}

/// Returns the places in a value that contain a number, or a list.
fn places(value: &Value, wanted: fn(&Value) -> bool) -> Vec<String> {
    let within = |(name, value): (String, &Value)| -> Vec<String> {
        places(value, wanted).into_iter().map(|place| format!("/{name}{place}")).collect()
    };
    let here = wanted(value).then(String::new);
    let inside: Vec<String> = match value {
        Value::Array(items) => (0..).map(|at: u32| at.to_string()).zip(items).flat_map(within).collect(),
        Value::Object(fields) => fields.iter().map(|(name, field)| (name.clone(), field)).flat_map(within).collect(),
        _ => Vec::new(),
    };
    here.into_iter().chain(inside).collect()
}

/// Returns the value with each of its numbers replaced by each of [`numbers`], in turn, and with each of its lists longer.
fn changed(value: &Value) -> Vec<Value> {
    let with = |place: &str, change: &dyn Fn(&mut Value)| {
        let mut value = value.clone();
        change(value.pointer_mut(place).unwrap());
        value
    };
    let replaced = places(value, Value::is_number)
        .into_iter()
        .flat_map(|place| numbers().into_iter().map(move |number| with(&place, &|found| found.clone_from(&number))));
    let longer = places(value, Value::is_array).into_iter().map(|place| {
        with(&place, &|list| {
            let last = list.as_array().and_then(|items| items.last().cloned()).unwrap_or(json!(1));
            list.as_array_mut().unwrap().extend(vec![last; 3]);
        })
    });
    replaced.chain(longer).collect()
}

fn known() -> WorkerStatistics {
    let mut known = WorkerStatistics::default();
    for tasks in [1, 3, 3] {
        known.observe_batch(tasks, 1.0 + tasks as f64);
        known.observe_overhead(0.5);
    }
    known
}

#[test]
fn a_saved_engine_may_hold_any_number() {
    let (mut refused, mut accepted) = (0, 0);
    for entry in POLICIES.entries() {
        let priors = vec![known(); WORKERS as usize - 1];
        let saved = run(&mut Engine::new(config(), informed(entry.name, WORKERS)), priors).unwrap();
        for changed in changed(&serde_json::to_value(saved).unwrap()) {
            let changed = serde_json::from_value::<SavedEngine>(changed);
            match changed.map(|changed| Engine::restore(config(), informed(entry.name, WORKERS), changed)) {
                Ok(Ok(mut engine)) => {
                    run(&mut engine, Vec::new());
                    accepted += 1;
                }
                _ => refused += 1,
            }
        }
    }
    assert!(refused > 1000 && accepted > 1000, "{refused} refused, {accepted} accepted");
}

#[test]
fn an_earlier_run_may_have_learned_any_number() {
    let known = serde_json::to_value(known()).unwrap();
    for entry in POLICIES.entries() {
        for earlier in changed(&known) {
            let Ok(earlier) = serde_json::from_value::<WorkerStatistics>(earlier) else { continue };
            // Either one worker is known among others that are not, or all are known.
            for known in [1, WORKERS as usize] {
                run(&mut Engine::new(config(), informed(entry.name, WORKERS)), vec![earlier; known]);
            }
        }
    }
}
