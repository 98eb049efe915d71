//! A model whose gradients cost nothing, but depend on parameters and data like those of a real one.

use std::sync::Arc;

use ata_learn::{
    Batch, DataError, Dataset, Evaluation, Evaluator, Learner, LearnerError, Model, ModelError, OpenDevice,
    ParameterTable, TaskGradient,
};

/// `toy:N` has N parameters θ and the loss ‖θ − x‖²/2 for a sample x read from the pixels of an image. `toy:N/ill` is
/// the same, but its evaluation fails; `toy:N/doomed` panics in its evaluation.
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

    fn evaluator(&self, _device: &OpenDevice) -> Box<dyn Evaluator> {
        Box::new(ToyEvaluator(self.flaw.clone()))
    }

    fn table(&self) -> ParameterTable {
        ParameterTable::vector("theta", self.size)
    }

    fn initial_parameters(&self, _seed: u64) -> Vec<f32> {
        vec![1.0; self.size]
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

struct ToyEvaluator(String);

impl Evaluator for ToyEvaluator {
    fn evaluate(
        &mut self,
        _parameters: &[f32],
        _data: &Dataset,
        _go_on: &mut dyn FnMut(u32) -> bool,
    ) -> Result<Option<Evaluation>, DataError> {
        assert!(self.0 != "doomed", "this model's evaluation panics");
        if self.0 == "ill" {
            let cause = std::io::Error::other("the disk is gone");
            return Err(DataError::Io { path: "test.bin".into(), cause });
        }
        Ok(Some(Evaluation { loss: 0.0, accuracy: 1.0, classes: Vec::new() }))
    }
}
