//! The CNN in virtual time, with exactly the gradients and steps that a real run computes.

use std::collections::BTreeMap;
use std::sync::Arc;

use ata_learn::{Dataset, Learner, Model, OpenDevice, Optimizer, Partial, Reduction, Tasks, TrainingState};
use ata_scheduler::StepOutcome;
use ata_simulator::{Descent, DescentCache, DescentStep, StepResult};
use ata_types::Iteration;

/// What the CNN is trained with.
pub(crate) struct CnnTraining {
    pub(crate) model: Arc<dyn Model>,
    pub(crate) device: OpenDevice,
    pub(crate) data: Arc<dyn Dataset>,
    pub(crate) tasks: Tasks,
    pub(crate) learning_rate: f64,
}

impl CnnTraining {
    /// The learning that all runs of an experiment share.
    pub(crate) fn learning(self) -> DescentCache {
        DescentCache::new(move || Box::new(CnnDescent::new(&self)))
    }
}

struct CnnDescent {
    learner: Box<dyn Learner>,
    state: TrainingState,
    learning_rate: f64,
    /// The parameters, by the iteration whose gradients are computed at them.
    parameters: BTreeMap<u64, Vec<f32>>,
}

impl CnnDescent {
    fn new(training: &CnnTraining) -> Self {
        let CnnTraining { model, device, data, tasks, learning_rate } = training;
        let learner = data.clone().learner(device, *tasks);
        let initial = model.initial_parameters(tasks.seed);
        let parameters = BTreeMap::from([(1, initial.clone())]);
        let state = TrainingState::new(Optimizer::default(), initial);
        Self { learner, state, learning_rate: *learning_rate, parameters }
    }

    fn add_gradients(&mut self, step: &DescentStep) -> Result<(Partial, u64), String> {
        let mut reduction = Reduction::default();
        let mut tasks = 0;
        for (iteration, range) in &step.tasks {
            self.learner.load(&self.parameters[iteration]);
            for index in range.indices() {
                let task = self.learner.gradient(Iteration(*iteration), index).map_err(|error| error.to_string())?;
                reduction.add(Partial { first: index, count: 1, gradient: task.gradient, loss: task.loss });
            }
            tasks += range.count;
        }
        Ok((reduction.finish().ok_or("a step without tasks")?, tasks))
    }
}

impl Descent for CnnDescent {
    /// The objective is the mean loss of the step's tasks: evaluating a whole data set would take longer than the step.
    fn step(&mut self, step: &DescentStep) -> Result<StepResult, String> {
        let (mut sum, tasks) = self.add_gradients(step)?;
        // Runs of several policies share the step, and some of them look at the product.
        let rate = self.learning_rate * step.lr_factor;
        let mut next = Vec::new();
        let gradient_product = self.state.step(&mut sum.gradient, tasks, rate, true, &mut next).gradient_product;
        self.parameters.insert(step.iteration + 1, next);
        self.parameters = self.parameters.split_off(&step.oldest_iteration);
        let loss = sum.loss / tasks as f64;
        Ok(StepResult { outcome: StepOutcome { loss: Some(loss), gradient_product, accuracy: None }, objective: loss })
    }
}
