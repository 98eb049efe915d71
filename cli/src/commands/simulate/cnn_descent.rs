//! Trains the CNN in virtual time, with exactly the gradients and steps of a real run.

use std::collections::BTreeMap;

use ata_experiments::{Descent, DescentStep, StepResult};
use ata_learn::Learner;
use ata_scheduler::StepOutcome;
use ata_sums::{GradientSum, Quantizer, TrainingConfig, TrainingState, Units, maxima};
use ata_types::{Iteration, WireFormat};

pub(super) struct CnnDescent {
    learner: Box<dyn Learner>,
    state: TrainingState,
    learning_rate: f64,
    /// The parameters and the units, by the iteration whose gradients are computed with them.
    versions: BTreeMap<u64, Version>,
}

struct Version {
    parameters: Vec<f32>,
    units: Option<Units>,
}

impl CnnDescent {
    pub(super) fn new(learner: Box<dyn Learner>, state: TrainingState, learning_rate: f64) -> Self {
        let versions = BTreeMap::from([(1, Version { parameters: state.parameters().to_vec(), units: None })]);
        Self { learner, state, learning_rate, versions }
    }

    /// Returns the sum of the gradients of a step's tasks, its units, and the sum of the losses.
    fn gradient(&mut self, step: &DescentStep) -> Result<(GradientSum, Units, f64), String> {
        let TrainingConfig { sizes, budget, .. } = self.state.config().clone();
        let (mut loss, mut total) = (0.0, None);
        let mut sum = GradientSum::new(&sizes);
        for (iteration, range) in &step.tasks {
            let version = &self.versions[iteration];
            self.learner.load(&version.parameters);
            let mut gradient =
                |index| self.learner.gradient(Iteration(*iteration), index).map_err(|error| error.to_string());
            let units = if let Some(units) = version.units.clone() {
                units
            } else {
                let first = maxima(&gradient(0)?.gradient, &sizes).map_err(|error| error.to_string())?;
                Units::first(&first, budget)
            };
            if self.state.units().is_none() {
                self.state.set_units(units.clone());
            }
            let quantizer = Quantizer::new(units.clone(), sizes.clone(), budget, WireFormat::F32Exact);
            for index in range.indices() {
                let task = gradient(index)?;
                sum.add(&task.gradient, 1, &quantizer).map_err(|error| error.to_string())?;
                loss += task.loss;
            }
            total = Some(units);
        }
        // All tasks have the same units: only an asynchronous step has a task of an earlier iteration, and it has no other tasks.
        Ok((sum, total.ok_or("a step without tasks")?, loss))
    }
}

impl Descent for CnnDescent {
    /// The objective is the mean loss of the step's tasks: evaluating a whole data set would take longer than the step.
    fn step(&mut self, step: &DescentStep) -> Result<StepResult, String> {
        let (sum, units, loss) = self.gradient(step)?;
        let values = units.values(&self.state.config().sizes, &sum.values);
        // The product is always computed because runs of several policies share the step, and some of them need it.
        let rate = self.learning_rate * step.lr_factor;
        let gradient_product = self.state.step_whole(values, sum.tasks, rate, true)?.0.gradient_product;
        self.state.commit_step(&sum.maxima);
        let next = Version { parameters: self.state.parameters().to_vec(), units: self.state.units().cloned() };
        self.versions.insert(step.iteration + 1, next);
        self.versions = self.versions.split_off(&step.oldest_iteration);
        let loss = loss / sum.tasks as f64;
        Ok(StepResult {
            outcome: StepOutcome { loss: Some(loss), gradient_product, ..StepOutcome::default() },
            objective: loss,
        })
    }
}
