//! Tests gradients, steps and evaluations of the built-in network on the CPU device.

use std::sync::Arc;

use ata_data::{DataSource, Split, Tasks};
use ata_learn::{Dataset, DeviceChoice, Evaluation, Evaluator, Learner, builtin_model};
use ata_sums::{Optimizer, TensorSizes, TrainingConfig, TrainingState};
use ata_types::{Iteration, WireFormat};

use crate::compact::{Plan, train};

const SMALL: &str = "cnn:widths=4/4/8/16";

fn dataset(specification: &str, split: Split) -> Arc<dyn Dataset> {
    builtin_model(specification).unwrap().open(&DataSource::Generated { seed: 1 }, split).unwrap()
}

fn parts(specification: &str, tasks: Tasks) -> (Box<dyn Learner>, Box<dyn Evaluator>, TrainingState) {
    let model = builtin_model(specification).unwrap();
    let cpu = DeviceChoice::Cpu.open().unwrap();
    let sizes = TensorSizes::from(&model.table());
    let optimizer = Optimizer::default();
    let config = TrainingConfig { optimizer, sizes, format: WireFormat::F32Exact, budget: tasks.budget };
    let state = TrainingState::new(config, model.initial_parameters(5).unwrap());
    let mut learner = dataset(specification, Split::Train).learner(&cpu, tasks);
    learner.load(state.parameters());
    (learner, dataset(specification, Split::Test).evaluator(&cpu), state)
}

fn tasks(budget: u64, task_batch: u32) -> Tasks {
    Tasks { seed: 1, budget, task_batch }
}

fn task_of(specification: &str, seed: u64, iteration: u64, index: u64) -> (Vec<f32>, f64) {
    let (mut learner, _, _) = parts(specification, Tasks { seed, budget: 4, task_batch: 8 });
    let task = learner.gradient(Iteration(iteration), index).unwrap();
    (task.gradient, task.loss)
}

/// Invariant 2: a task's gradient depends on (seed, iteration, index), not on what was computed before, with any normalisation and augmentation.
#[test]
fn tasks_are_the_same_for_every_worker() {
    let augmented = format!("{SMALL},augment=crop/flip/mixup");
    let residual = ["resnet20:width=8", "resnet20:norm=batch,width=8", "resnet50:norm=batch,width=8"];
    for specification in residual.into_iter().chain([&*augmented]) {
        let (mut used, _, _) = parts(specification, tasks(4, 8));
        used.gradient(Iteration(1), 0).unwrap();
        used.gradient(Iteration(2), 1).unwrap();
        let task = used.gradient(Iteration(2), 3).unwrap();
        assert!(task.is_finite() && task.loss < 7.0, "{}", task.loss);
        assert_eq!((task.gradient, task.loss), task_of(specification, 1, 2, 3), "{specification}");
    }
    let expected = task_of(&augmented, 1, 2, 3);
    assert_ne!(task_of(SMALL, 1, 2, 3), expected, "the images are changed");
    for other in ["flip", "crop/flip", "mixup"] {
        assert_ne!(task_of(&format!("{SMALL},augment={other}"), 1, 2, 3), expected);
    }
    assert_ne!(task_of(&augmented, 1, 3, 3), task_of(&augmented, 1, 2, 3));
}

#[test]
fn evaluations_take_images_and_labels_as_they_are() {
    let evaluation = |specification: &str| {
        let (_, mut evaluator, state) = parts(specification, tasks(1, 1));
        evaluator.evaluate(state.parameters(), &mut |_| true).unwrap().unwrap()
    };
    assert_eq!(evaluation(&format!("{SMALL},augment=crop/flip/mixup,label_smoothing=0.2")), evaluation(SMALL));
    let smoothed = task_of(&format!("{SMALL},label_smoothing=0.2"), 1, 1, 0);
    assert_ne!(smoothed, task_of(SMALL, 1, 1, 0));
}

/// Along many directions, the slope of the loss agrees with the gradient.
#[test]
fn gradient_agrees_with_finite_differences() {
    let (mut learner, _, state) = parts(&format!("{SMALL},augment=mixup,label_smoothing=0.3"), tasks(1, 8));
    let parameters = state.parameters();
    let task = learner.gradient(Iteration(1), 0).unwrap();
    assert_eq!(task.gradient.len(), parameters.len());

    // Each direction weights every parameter differently, and leans towards the gradient so that the slope is far above
    // the rounding of f32.
    for direction in 0..8_u32 {
        let weight: Vec<f32> = (0..parameters.len() as u32)
            .map(|at| if at.wrapping_mul(2_654_435_761 + 2 * direction) >> 31 == 0 { 1.0 } else { 0.25 })
            .collect();
        let ahead: Vec<f32> = task.gradient.iter().zip(&weight).map(|(g, w)| g * w).collect();
        let slope: f64 = ahead.iter().zip(&task.gradient).map(|(a, g)| f64::from(*a) * f64::from(*g)).sum();
        let mut loss_at = |step: f32| {
            let moved: Vec<f32> = parameters.iter().zip(&ahead).map(|(p, a)| p + step * a).collect();
            learner.load(&moved);
            learner.gradient(Iteration(1), 0).unwrap().loss
        };
        let step = 2e-3;
        let difference = (loss_at(step) - loss_at(-step)) / (2.0 * f64::from(step));
        let error = (difference / slope - 1.0).abs();
        assert!(error < 0.02, "direction {direction}: slope {slope}, by differences {difference}");
    }
}

#[test]
fn initial_parameters_follow_from_the_seed() {
    let model = builtin_model(SMALL).unwrap();
    assert_eq!(model.initial_parameters(1).unwrap(), model.initial_parameters(1).unwrap());
    assert_ne!(model.initial_parameters(1).unwrap(), model.initial_parameters(2).unwrap());
}

#[test]
fn training_on_synthetic_data_learns() {
    let (mut learner, mut evaluator, state) = parts("cnn:widths=8/16/16/64", tasks(4, 32));
    let mut evaluate = |state: &TrainingState| -> Evaluation {
        evaluator.evaluate(state.parameters(), &mut |_| true).unwrap().unwrap()
    };
    let before = evaluate(&state);
    assert!((before.loss - 100_f64.ln()).abs() < 0.1, "an untrained network guesses: {}", before.loss);
    assert!(before.accuracy.unwrap() < 0.03);
    let plan = Plan { steps: 60, rate: 3e-3, workers: 1, has_shifts: true };
    let gradient = |parameters: &[f32], step, task| {
        learner.load(parameters);
        learner.gradient(Iteration(step), task).unwrap().gradient
    };
    let (state, _) = train(state.config().clone(), state.parameters().to_vec(), plan, gradient);
    let after = evaluate(&state);
    assert!(after.loss < before.loss - 0.5, "loss {} after {}", after.loss, before.loss);
    assert!(after.accuracy > Some(0.05), "accuracy {:?}", after.accuracy);
    assert_eq!(after.classes.iter().map(|class| class.samples).sum::<u32>(), 2_000);
}

#[test]
fn an_evaluation_can_be_stopped() {
    let (_, mut evaluator, state) = parts(SMALL, tasks(1, 1));
    let mut done = Vec::new();
    let mut go_on = |samples| {
        done.push(samples);
        done.len() < 3
    };
    assert_eq!(evaluator.evaluate(state.parameters(), &mut go_on).unwrap(), None);
    assert_eq!(done, [0, 250, 500]);
}
