//! A model whose gradients take no time, but depend on parameters and data like those of a real model.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use ata_data::{DataError, DataSource, Images, Split, TaskSampler, Tasks};
use ata_learn::{
    ClassCount, Dataset, EvaluationBatches, Evaluator, ImageBatch, Learner, LearnerError, Measurement, Model,
    ModelError, OpenDevice, Sifted, TaskGradient, sift,
};
use ata_sums::{Metadata, ParameterTable};
use ata_types::Iteration;

/// Resolves a toy model. `toy:N` has N parameters θ and the loss ‖θ − x‖²/2 for a sample x read from the pixels of an
/// image. The evaluation of `toy:N/ill` fails, that of `toy:N/doomed` panics, and that of `toy:N/stuck` never ends. Sample 5 of
/// `toy:N/spoilt` has no finite gradient.
pub fn toy(specification: &str) -> Result<Arc<dyn Model>, ModelError> {
    parse(specification, None)
}

/// Resolves a toy model on a machine that computes garbage: every gradient contains a NaN.
pub fn poisoned_toy(specification: &str) -> Result<Arc<dyn Model>, ModelError> {
    parse(specification, Some(f32::NAN))
}

/// Resolves a toy model on a byzantine machine that multiplies every gradient by 1.001.
pub fn wrong_toy(specification: &str) -> Result<Arc<dyn Model>, ModelError> {
    parse(specification, Some(1.001))
}

fn parse(specification: &str, factor: Option<f32>) -> Result<Arc<dyn Model>, ModelError> {
    let unknown = || ModelError::Unknown(specification.into());
    let text = specification.strip_prefix("toy:").ok_or_else(unknown)?;
    let (size, flaw) = text.split_once('/').unwrap_or((text, ""));
    let size = size.parse().map_err(|_| unknown())?;
    Ok(Arc::new(Toy { size, flaw: flaw.into(), factor }))
}

#[derive(Clone)]
struct Toy {
    size: usize,
    flaw: String,
    /// The factor by which the gradients are wrong. If it is NaN, it applies only to the first number, otherwise to all.
    factor: Option<f32>,
}

impl Model for Toy {
    fn parameter_count(&self) -> usize {
        self.size
    }

    fn table(&self) -> ParameterTable {
        ParameterTable::vector("theta", self.size)
    }

    fn initial_parameters(&self, _seed: u64) -> Result<Vec<f32>, DataError> {
        Ok(vec![1.0; self.size])
    }

    fn locate(&self, data: &Path, split: Split) -> Result<PathBuf, DataError> {
        Images::locate(data, split)
    }

    fn open(&self, source: &DataSource, split: Split) -> Result<Arc<dyn Dataset>, DataError> {
        Ok(Arc::new(ToyData { toy: self.clone(), images: Images::open(source, split)? }))
    }

    fn class_names(&self) -> Vec<String> {
        Vec::new()
    }

    fn metadata(&self) -> Metadata {
        Metadata::new()
    }
}

struct ToyData {
    toy: Toy,
    images: Images,
}

impl Dataset for ToyData {
    fn count(&self) -> u64 {
        self.images.count()
    }

    fn learner(self: Arc<Self>, _device: &OpenDevice, tasks: Tasks) -> Box<dyn Learner> {
        let tasks = TaskSampler::new(tasks, self.count(), None);
        Box::new(ToyLearner { data: self, tasks, parameters: Vec::new() })
    }

    fn evaluator(self: Arc<Self>, _device: &OpenDevice) -> Box<dyn Evaluator> {
        Box::new(ToyEvaluator { data: self, parameters: Vec::new() })
    }
}

/// The index of the sample that is bad in a spoilt model.
const BAD_SAMPLE: u64 = 5;

struct ToyLearner {
    data: Arc<ToyData>,
    tasks: TaskSampler,
    parameters: Vec<f32>,
}

impl ToyLearner {
    fn gradient_of(&self, samples: &[u64]) -> Result<TaskGradient, LearnerError> {
        let batch = ImageBatch::read(&self.data.images, samples)?;
        let sample = batch.images.iter().cycle();
        let mut gradient: Vec<f32> = self.parameters.iter().zip(sample).map(|(theta, x)| theta - x).collect();
        let loss = gradient.iter().map(|value| f64::from(value * value)).sum::<f64>() / 2.0;
        if let Some(factor) = self.data.toy.factor {
            let wrong = if factor.is_nan() { 1 } else { gradient.len() };
            gradient[..wrong].iter_mut().for_each(|value| *value *= factor);
        }
        if self.data.toy.flaw == "spoilt" && samples.contains(&BAD_SAMPLE) {
            gradient[0] = f32::NAN;
        }
        Ok(TaskGradient { gradient, loss })
    }
}

impl Learner for ToyLearner {
    fn load(&mut self, parameters: &[f32]) {
        self.parameters = parameters.to_vec();
    }

    fn gradient(&mut self, iteration: Iteration, index: u64) -> Result<TaskGradient, LearnerError> {
        let samples = self.tasks.samples(iteration, index);
        self.gradient_of(&samples)
    }

    fn sift(&mut self, iteration: Iteration, index: u64) -> Result<Option<Sifted>, LearnerError> {
        let samples = self.tasks.samples(iteration, index);
        sift(&samples, |sample| *sample, |samples| self.gradient_of(samples)).map(Some)
    }
}

const EVALUATION_BATCH: u32 = 500;

struct ToyEvaluator {
    data: Arc<ToyData>,
    parameters: Vec<f32>,
}

impl Evaluator for ToyEvaluator {
    fn load(&mut self, parameters: &[f32]) {
        self.parameters = parameters.to_vec();
    }

    fn batches(&self) -> EvaluationBatches {
        EvaluationBatches { samples: self.data.count(), batch_samples: EVALUATION_BATCH }
    }

    /// The loss depends on the parameters and the batch, and every prediction is right.
    fn measure(&mut self, batch: u64) -> Result<Measurement, DataError> {
        let flaw = &self.data.toy.flaw;
        assert!(flaw != "doomed", "this model's evaluation panics");
        if flaw == "stuck" {
            loop {
                std::thread::park();
            }
        }
        if flaw == "ill" {
            let cause = std::io::Error::other("the disk is gone");
            return Err(DataError::Io { path: "test.bin".into(), cause });
        }
        let samples = self.batches().samples_of(batch);
        let count = (samples.end - samples.start) as u32;
        let loss = self.parameters.iter().map(|theta| f64::from(*theta)).sum::<f64>() / (batch + 3) as f64;
        Ok(Measurement { classes: vec![ClassCount { samples: count, correct: count }], ..Measurement::of_loss(loss) })
    }
}
