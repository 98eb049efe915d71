//! A model whose gradients cost nothing, but depend on parameters and data like those of a real one.

use std::sync::Arc;

use ata_learn::{
    Batch, DataError, Dataset, Evaluation, Learner, LearnerError, Model, ModelError, OpenDevice, TaskGradient, Trainer,
    TrainerConfig,
};

/// `toy:N` has N parameters θ and the loss ‖θ − x‖²/2 for a sample x read from the pixels of an image. `toy:N/ill` is
/// the same, but its evaluation fails; `toy:N/doomed` fails in its third step.
pub fn toy(specification: &str) -> Result<Arc<dyn Model>, ModelError> {
    parse(specification, false)
}

/// The same on a machine that computes garbage: every gradient contains a NaN.
pub fn poisoned_toy(specification: &str) -> Result<Arc<dyn Model>, ModelError> {
    parse(specification, true)
}

fn parse(specification: &str, poisoned: bool) -> Result<Arc<dyn Model>, ModelError> {
    let unknown = || ModelError::Unknown(specification.into());
    let text = specification.strip_prefix("toy:").ok_or_else(unknown)?;
    let (size, flaw) = text.split_once('/').unwrap_or((text, ""));
    let size = size.parse().map_err(|_| unknown())?;
    Ok(Arc::new(Toy { size, flaw: flaw.into(), poisoned }))
}

struct Toy {
    size: usize,
    flaw: String,
    poisoned: bool,
}

impl Model for Toy {
    fn parameter_count(&self) -> usize {
        self.size
    }

    fn learner(&self, _device: &OpenDevice) -> Box<dyn Learner> {
        Box::new(ToyLearner { parameters: Vec::new(), poisoned: self.poisoned })
    }

    fn trainer(&self, config: &TrainerConfig, _device: &OpenDevice) -> Box<dyn Trainer> {
        Box::new(ToyTrainer {
            parameters: vec![1.0; self.size],
            learning_rate: config.learning_rate as f32,
            steps: 0,
            flaw: self.flaw.clone(),
        })
    }
}

struct ToyLearner {
    parameters: Vec<f32>,
    poisoned: bool,
}

impl Learner for ToyLearner {
    fn load(&mut self, parameters: &[f32]) {
        self.parameters = parameters.to_vec();
    }

    fn gradient(&mut self, batch: &Batch) -> Result<TaskGradient, LearnerError> {
        let sample = batch.images.iter().cycle();
        let mut gradient: Vec<f32> = self.parameters.iter().zip(sample).map(|(theta, x)| theta - x).collect();
        let loss = gradient.iter().map(|value| f64::from(value * value)).sum::<f64>() / 2.0;
        if self.poisoned {
            gradient[0] = f32::NAN;
        }
        Ok(TaskGradient { gradient, loss })
    }
}

struct ToyTrainer {
    parameters: Vec<f32>,
    learning_rate: f32,
    steps: u64,
    flaw: String,
}

impl Trainer for ToyTrainer {
    fn parameters(&self) -> Vec<f32> {
        self.parameters.clone()
    }

    fn step(&mut self, gradient: &[f32], lr_factor: f64) {
        self.steps += 1;
        assert!(self.flaw != "doomed" || self.steps < 3, "this model fails in its third step");
        let rate = self.learning_rate * lr_factor as f32;
        for (parameter, slope) in self.parameters.iter_mut().zip(gradient) {
            *parameter -= rate * slope;
        }
    }

    fn evaluate(&self, _data: &Dataset) -> Result<Evaluation, DataError> {
        if self.flaw == "ill" {
            let cause = std::io::Error::other("the disk is gone");
            return Err(DataError::Io { path: "test.bin".into(), cause });
        }
        Ok(Evaluation { loss: 0.0, accuracy: 1.0 })
    }
}
