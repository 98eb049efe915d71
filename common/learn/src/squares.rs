//! A model whose tasks tally the squares of their gradients.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use ata_data::{DataError, DataSource, FolderOptions, PackProgress, Split, Tasks};
use ata_sums::{Metadata, OwnOptimizer, ParameterTable, TensorSizes};
use ata_types::{Iteration, TaskRange};

use crate::device::OpenDevice;
use crate::evaluator::{EvaluationBatches, Evaluator};
use crate::learner::{Learner, LearnerError, TaskGradient};
use crate::model::{Dataset, Model};
use crate::problem::{Adaptation, Adapted, Measurement};
use crate::sift::Sifted;

/// Returns a model whose vectors end in a tally of the squares of tasks' gradients in each trained tensor.
pub fn with_squares(model: Arc<dyn Model>) -> Arc<dyn Model> {
    Arc::new(Squared(model))
}

struct Squared(Arc<dyn Model>);

impl Model for Squared {
    fn table(&self) -> ParameterTable {
        self.0.table().with_squares()
    }

    fn initial_parameters(&self, seed: u64) -> Result<Vec<f32>, DataError> {
        let mut parameters = self.0.initial_parameters(seed)?;
        parameters.resize(self.parameter_count(), 0.0);
        Ok(parameters)
    }

    fn adapt(&self, data: &Path, options: FolderOptions, progress: PackProgress<'_>) -> Adaptation<Arc<dyn Model>> {
        let adapted = self.0.adapt(data, options, progress)?;
        Ok(adapted.map(|adapted| Adapted { model: with_squares(adapted.model), ..adapted }))
    }

    fn locate(&self, data: &Path, split: Split) -> Result<PathBuf, DataError> {
        self.0.locate(data, split)
    }

    fn open(&self, source: &DataSource, split: Split) -> Result<Arc<dyn Dataset>, DataError> {
        let sizes = TensorSizes::from(&self.0.table());
        Ok(Arc::new(SquaredData { data: self.0.open(source, split)?, sizes }))
    }

    fn class_names(&self) -> Vec<String> {
        self.0.class_names()
    }

    fn metadata(&self) -> Metadata {
        self.0.metadata()
    }

    fn optimizer(&self) -> Result<Option<Box<dyn OwnOptimizer>>, DataError> {
        self.0.optimizer()
    }
}

struct SquaredData {
    data: Arc<dyn Dataset>,
    /// The tensors without the tally.
    sizes: TensorSizes,
}

impl Dataset for SquaredData {
    fn count(&self) -> u64 {
        self.data.count()
    }

    fn fuses(&self) -> bool {
        self.data.fuses()
    }

    fn learner(self: Arc<Self>, device: &OpenDevice, tasks: Tasks) -> Box<dyn Learner> {
        let learner = self.data.clone().learner(device, tasks);
        Box::new(SquaredLearner { learner, sizes: self.sizes.clone() })
    }

    fn evaluator(self: Arc<Self>, device: &OpenDevice) -> Box<dyn Evaluator> {
        let evaluator = self.data.clone().evaluator(device);
        Box::new(SquaredEvaluator { evaluator, values: self.sizes.values() })
    }
}

struct SquaredLearner {
    learner: Box<dyn Learner>,
    sizes: TensorSizes,
}

impl SquaredLearner {
    /// Adds the squares to a gradient, the sum over some tasks.
    fn tallied(&self, mut task: TaskGradient, tasks: u64) -> TaskGradient {
        let squares: Vec<f64> = self.sizes.squares(&task.gradient).collect();
        task.gradient.extend(squares.into_iter().map(|square| (square / tasks as f64) as f32));
        task
    }
}

/// Sums stay in host memory: a device's own do not know the squares of tasks.
impl Learner for SquaredLearner {
    fn load(&mut self, parameters: &[f32]) {
        self.learner.load(&parameters[..self.sizes.values()]);
    }

    fn gradient(&mut self, iteration: Iteration, index: u64) -> Result<TaskGradient, LearnerError> {
        self.fused(iteration, TaskRange::single(index))
    }

    fn fused(&mut self, iteration: Iteration, tasks: TaskRange) -> Result<TaskGradient, LearnerError> {
        let sum = self.learner.fused(iteration, tasks)?;
        Ok(self.tallied(sum, tasks.count))
    }

    fn sift(&mut self, iteration: Iteration, index: u64) -> Result<Option<Sifted>, LearnerError> {
        let sifted = self.learner.sift(iteration, index)?;
        Ok(sifted.map(|sifted| Sifted { rest: sifted.rest.map(|rest| self.tallied(rest, 1)), ..sifted }))
    }

    fn announce(&mut self, iteration: Iteration, tasks: TaskRange, at_once: u64) {
        self.learner.announce(iteration, tasks, at_once);
    }

    fn warm_up(&mut self, largest: u64) -> Result<(), LearnerError> {
        self.learner.warm_up(largest)
    }
}

struct SquaredEvaluator {
    evaluator: Box<dyn Evaluator>,
    values: usize,
}

impl Evaluator for SquaredEvaluator {
    fn load(&mut self, parameters: &[f32]) {
        self.evaluator.load(&parameters[..self.values]);
    }

    fn batches(&self) -> EvaluationBatches {
        self.evaluator.batches()
    }

    fn measure(&mut self, batch: u64) -> Result<Measurement, DataError> {
        self.evaluator.measure(batch)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{DeviceChoice, builtin_model};

    #[test]
    fn a_gradient_ends_in_its_squares() {
        let model = builtin_model("cnn:widths=4/4/8/16").unwrap();
        let squared = with_squares(model.clone());
        let device = DeviceChoice::Cpu.open().unwrap();
        let source = DataSource::Generated { seed: 1 };
        let tasks = Tasks { seed: 1, budget: 8, task_batch: 4 };
        let tensors = model.table().tensors.len();
        assert_eq!(squared.parameter_count(), model.parameter_count() + tensors);
        let parameters = squared.initial_parameters(1).unwrap();
        assert_eq!(parameters[model.parameter_count()..], vec![0.0; tensors]);
        let [mut plain, mut tallied] = [&model, &squared].map(|model| {
            let mut learner = model.open(&source, Split::Train).unwrap().learner(&device, tasks);
            learner.load(&parameters[..model.parameter_count()]);
            learner
        });
        for range in [TaskRange::single(3), TaskRange { first: 1, count: 5 }] {
            let gradient = plain.fused(Iteration::FIRST, range).unwrap().gradient;
            let found = tallied.fused(Iteration::FIRST, range).unwrap().gradient;
            let (of_model, squares) = found.split_at(gradient.len());
            assert_eq!((of_model, squares.len()), (&gradient[..], tensors));
            let expected = gradient.iter().map(|value| f64::from(value * value)).sum::<f64>() / range.count as f64;
            let total: f32 = squares.iter().sum();
            assert!((f64::from(total) / expected - 1.0).abs() < 1e-4, "{total}, {expected}");
        }
        let evaluated = [model, squared].map(|model| {
            let test = model.open(&source, Split::Test).unwrap();
            let of_model = &parameters[..model.parameter_count()];
            test.evaluator(&device).evaluate(of_model, &mut |_| true).unwrap()
        });
        assert_eq!(evaluated[0], evaluated[1]);
    }
}
