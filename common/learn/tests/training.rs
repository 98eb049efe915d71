//! Gradients, steps and evaluation of the built-in network on the CPU device.

use std::sync::Arc;

use ata_learn::{
    Batch, Dataset, DeviceChoice, Learner, Model, Split, Synthetic, TaskData, Trainer, TrainerConfig, builtin_model,
    reduce_in_order,
};

const SMALL: &str = "cnn:widths=4/4/8/16";

fn dataset(split: Split) -> Dataset {
    Dataset::Synthetic(Synthetic::new(split, 1))
}

fn batch(samples: u32) -> Batch {
    dataset(Split::Train).batch(0..samples).unwrap()
}

fn parts(specification: &str, learning_rate: f64) -> (Arc<dyn Model>, Box<dyn Learner>, Box<dyn Trainer>) {
    let model = builtin_model(specification).unwrap();
    let cpu = DeviceChoice::Cpu.open().unwrap();
    let trainer = model.trainer(&TrainerConfig { learning_rate, seed: 5 }, &cpu);
    let mut learner = model.learner(&cpu);
    learner.load(&trainer.parameters());
    (model, learner, trainer)
}

/// Along many directions, the slope of the loss agrees with the gradient.
#[test]
fn gradient_agrees_with_finite_differences() {
    let (model, mut learner, trainer) = parts(SMALL, 1e-3);
    let batch = batch(8);
    let parameters = trainer.parameters();
    let task = learner.gradient(&batch).unwrap();
    assert_eq!(task.gradient.len(), model.parameter_count());

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
    let (_, mut a, _) = parts(SMALL, 1e-3);
    let (_, mut b, trainer) = parts(SMALL, 1e-3);
    let expected = a.gradient(&batch).unwrap();
    // Other work in between has no effect.
    b.gradient(&self::batch(3)).unwrap();
    b.load(&trainer.parameters());
    let again = b.gradient(&batch).unwrap();
    assert_eq!((again.gradient, again.loss.to_bits()), (expected.gradient, expected.loss.to_bits()));
}

/// Kingma, Ba, "Adam: A Method for Stochastic Optimization", 2015, Algorithm 1.
#[test]
fn a_step_is_adams() {
    let (_, _, mut trainer) = parts(SMALL, 0.01);
    let mut expected: Vec<f64> = trainer.parameters().iter().map(|p| f64::from(*p)).collect();
    let gradient = |t: i32, at: usize| f64::from((at % 7) as f32 - 3.0) * 0.01 * f64::from(t);
    let (mut m, mut v) = (vec![0.0; expected.len()], vec![0.0; expected.len()]);
    for t in 1..=3 {
        for at in 0..expected.len() {
            let g = gradient(t, at);
            m[at] = 0.9 * m[at] + 0.1 * g;
            v[at] = 0.999 * v[at] + 0.001 * g * g;
            let (m_hat, v_hat): (f64, f64) = (m[at] / (1.0 - 0.9_f64.powi(t)), v[at] / (1.0 - 0.999_f64.powi(t)));
            expected[at] -= 0.01 * m_hat / (v_hat.sqrt() + 1e-8);
        }
        trainer.step(&(0..expected.len()).map(|at| gradient(t, at) as f32).collect::<Vec<_>>(), 1.0);
    }
    for (at, (got, expected)) in trainer.parameters().iter().zip(&expected).enumerate() {
        assert!((f64::from(*got) - expected).abs() < 1e-5, "parameter {at}: {got}, expected {expected}");
    }
}

#[test]
fn initial_parameters_follow_from_the_seed() {
    let model = builtin_model(SMALL).unwrap();
    let cpu = DeviceChoice::Cpu.open().unwrap();
    let initial = |seed| model.trainer(&TrainerConfig { learning_rate: 1e-3, seed }, &cpu).parameters();
    assert_eq!(initial(1), initial(1));
    assert_ne!(initial(1), initial(2));
}

/// A short training by tasks, summed in the fixed tree: the loss falls, and so does that of the evaluation.
#[test]
fn training_on_synthetic_data_learns() {
    let (_, mut learner, mut trainer) = parts("cnn:widths=8/16/16/64", 3e-3);
    let before = trainer.evaluate(&dataset(Split::Test)).unwrap();
    assert!((before.loss - 100_f64.ln()).abs() < 0.1, "an untrained network guesses: {}", before.loss);
    assert!(before.accuracy < 0.03);
    let mut data = TaskData::new(dataset(Split::Train), 1, 4, 32);
    for iteration in 1..=60 {
        learner.load(&trainer.parameters());
        let sum = reduce_in_order(0, 4, |index| {
            let task = learner.gradient(&data.batch(iteration, index).unwrap())?;
            Ok::<_, ata_learn::LearnerError>((task.gradient, task.loss))
        });
        let mean: Vec<f32> = sum.unwrap().gradient.iter().map(|g| g / 4.0).collect();
        trainer.step(&mean, 1.0);
    }
    let after = trainer.evaluate(&dataset(Split::Test)).unwrap();
    assert!(after.loss < before.loss - 0.5, "loss {} after {}", after.loss, before.loss);
    assert!(after.accuracy > 0.05, "accuracy {}", after.accuracy);
}
