//! Gradients, steps and evaluation of the built-in network on the CPU device.

use ata_learn::{
    Batch, Dataset, DeviceChoice, Evaluation, Evaluator, Learner, Optimizer, Split, Synthetic, TaskData, TrainingState,
    builtin_model, reduce_in_order,
};

const SMALL: &str = "cnn:widths=4/4/8/16";

fn dataset(split: Split) -> Dataset {
    Dataset::Synthetic(Synthetic::new(split, 1))
}

fn batch(samples: u32) -> Batch {
    dataset(Split::Train).batch(0..samples).unwrap()
}

/// A learner, and the state that it computes gradients of.
fn parts(specification: &str) -> (Box<dyn Learner>, Box<dyn Evaluator>, TrainingState) {
    let model = builtin_model(specification).unwrap();
    let cpu = DeviceChoice::Cpu.open().unwrap();
    let state = TrainingState::new(Optimizer::default(), model.initial_parameters(5));
    let mut learner = model.learner(&cpu);
    learner.load(state.parameters());
    (learner, model.evaluator(&cpu), state)
}

/// Along many directions, the slope of the loss agrees with the gradient.
#[test]
fn gradient_agrees_with_finite_differences() {
    let (mut learner, _, state) = parts(SMALL);
    let batch = batch(8);
    let parameters = state.parameters();
    let task = learner.gradient(&batch).unwrap();
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
            learner.gradient(&batch).unwrap().loss
        };
        let step = 2e-3;
        let difference = (loss_at(step) - loss_at(-step)) / (2.0 * f64::from(step));
        let error = (difference / slope - 1.0).abs();
        assert!(error < 0.02, "direction {direction}: slope {slope}, by differences {difference}");
    }
}

#[test]
fn the_gradient_of_a_task_is_the_same_bits_every_time() {
    let batch = batch(16);
    let (mut a, ..) = parts(SMALL);
    let (mut b, _, state) = parts(SMALL);
    let expected = a.gradient(&batch).unwrap();
    // Other work in between has no effect.
    b.gradient(&self::batch(3)).unwrap();
    b.load(state.parameters());
    let again = b.gradient(&batch).unwrap();
    assert_eq!((again.gradient, again.loss.to_bits()), (expected.gradient, expected.loss.to_bits()));
}

#[test]
fn initial_parameters_follow_from_the_seed() {
    let model = builtin_model(SMALL).unwrap();
    assert_eq!(model.initial_parameters(1), model.initial_parameters(1));
    assert_ne!(model.initial_parameters(1), model.initial_parameters(2));
}

/// A short training by tasks, summed in the fixed tree: the loss falls, and so does that of the evaluation.
#[test]
fn training_on_synthetic_data_learns() {
    let (mut learner, mut evaluator, mut state) = parts("cnn:widths=8/16/16/64");
    let test = dataset(Split::Test);
    let mut evaluate = |state: &TrainingState| -> Evaluation {
        evaluator.evaluate(state.parameters(), &test, &mut |_| true).unwrap().unwrap()
    };
    let before = evaluate(&state);
    assert!((before.loss - 100_f64.ln()).abs() < 0.1, "an untrained network guesses: {}", before.loss);
    assert!(before.accuracy < 0.03);
    let mut data = TaskData::new(dataset(Split::Train), 1, 4, 32);
    for iteration in 1..=60 {
        learner.load(state.parameters());
        let sum = reduce_in_order(0, 4, |index| {
            let task = learner.gradient(&data.batch(iteration, index).unwrap())?;
            Ok::<_, ata_learn::LearnerError>((task.gradient, task.loss))
        });
        state.step(sum.unwrap().gradient, 4, 3e-3, false);
    }
    let after = evaluate(&state);
    assert!(after.loss < before.loss - 0.5, "loss {} after {}", after.loss, before.loss);
    assert!(after.accuracy > 0.05, "accuracy {}", after.accuracy);
    assert_eq!(after.classes.iter().map(|class| class.samples).sum::<u32>(), test.len());
}

/// An evaluation that is told to stop has no result.
#[test]
fn an_evaluation_can_be_stopped() {
    let (_, mut evaluator, state) = parts(SMALL);
    let mut done = Vec::new();
    let mut go_on = |samples| {
        done.push(samples);
        done.len() < 3
    };
    assert_eq!(evaluator.evaluate(state.parameters(), &dataset(Split::Test), &mut go_on).unwrap(), None);
    assert_eq!(done, [0, 250, 500]);
}
