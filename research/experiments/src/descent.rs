//! Learning in virtual time. Gradients are actually computed, once per distinct sequence of steps.
//!
//! The policy determines when a step is taken, but its gradient depends only on its tasks, and every barrier policy that uses all B tasks
//! takes the same ones. Steps are identified by the hash of their sequence, and a run computes only those that no other run has computed.

use std::collections::{BTreeMap, HashMap};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::{Arc, Mutex, PoisonError};

use ata_scheduler::StepOutcome;
use ata_simulator::Step;
use ata_types::TaskRange;

use crate::problem::Problem;

/// A process that takes optimizer steps.
pub trait Descent: Send {
    /// Takes one step. An error is a message.
    fn step(&mut self, step: &DescentStep) -> Result<StepResult, String>;
}

/// The input of an optimizer step.
#[derive(Clone, Debug)]
pub struct DescentStep {
    /// The iteration, k.
    pub iteration: u64,
    /// The tasks, ascending, each with the iteration at whose parameters its gradient is computed: k, or an earlier one if asynchronous.
    pub tasks: Vec<(u64, TaskRange)>,
    /// Factor on the learning rate.
    pub lr_factor: f64,
    /// Parameters of iterations before this one will not be needed again.
    pub oldest_iteration: u64,
}

impl DescentStep {
    fn new(step: &Step<'_>) -> Self {
        let mut tasks: Vec<_> = step.leases.iter().map(|lease| (lease.iteration.number(), lease.tasks)).collect();
        tasks.sort_unstable();
        // Adjacent ranges are merged, so that a step does not depend on the allocation.
        tasks.dedup_by(|next, last| {
            let adjacent = last.0 == next.0 && last.1.end() == next.1.first;
            if adjacent {
                last.1.count += next.1.count;
            }
            adjacent
        });
        let oldest_iteration = step.oldest_iteration.min(step.iteration + 1);
        Self { iteration: step.iteration, tasks, lr_factor: step.lr_factor, oldest_iteration }
    }

    /// Returns the hash of the sequence that ends with this step, where `before` is the hash of the steps before it.
    fn hash_after(&self, before: u64) -> u64 {
        let mut hasher = DefaultHasher::new();
        before.hash(&mut hasher);
        self.tasks.hash(&mut hasher);
        self.lr_factor.to_bits().hash(&mut hasher);
        hasher.finish()
    }
}

/// The result of a step.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct StepResult {
    /// The outcome that is reported to the engine.
    pub outcome: StepOutcome,
    /// The objective after the step or, if that is too expensive to compute, the mean loss of its tasks. It is shown in figures.
    pub objective: f64,
}

type Start = dyn Fn() -> Box<dyn Descent> + Send + Sync;

/// A cache of the steps that the runs of an experiment have taken.
pub struct DescentCache {
    start: Box<Start>,
    known: Mutex<HashMap<u64, StepResult>>,
}

impl DescentCache {
    /// Creates an empty cache for runs that begin with the state that `start` returns.
    pub fn new(start: impl Fn() -> Box<dyn Descent> + Send + Sync + 'static) -> Self {
        Self { start: Box::new(start), known: Mutex::new(HashMap::new()) }
    }

    pub(crate) fn descent(problem: Arc<dyn Problem>, step_size: f64) -> Self {
        Self::new(move || {
            let (problem, parameters) = (Arc::clone(&problem), BTreeMap::from([(1, problem.initial())]));
            Box::new(GradientDescent { problem, step_size, parameters, last_gradient: None })
        })
    }

    pub(crate) fn begin(&self) -> CachedDescent<'_> {
        CachedDescent { cache: self, hash: 0, skipped: Vec::new(), descent: None }
    }

    /// Returns the number of steps that have been computed.
    pub fn computed(&self) -> usize {
        self.known.lock().unwrap_or_else(PoisonError::into_inner).len()
    }
}

pub(crate) struct CachedDescent<'a> {
    cache: &'a DescentCache,
    hash: u64,
    /// Steps that other runs computed, in case this run diverges from them.
    skipped: Vec<DescentStep>,
    descent: Option<Box<dyn Descent>>,
}

impl CachedDescent<'_> {
    /// Returns the result of a step, which is computed unless another run has done so.
    pub(crate) fn step(&mut self, step: &Step<'_>) -> Result<StepResult, String> {
        let step = DescentStep::new(step);
        self.hash = step.hash_after(self.hash);
        let known = self.cache.known.lock().unwrap_or_else(PoisonError::into_inner).get(&self.hash).copied();
        if let Some(result) = known {
            self.skipped.push(step);
            return Ok(result);
        }
        let descent = self.descent.get_or_insert_with(|| (self.cache.start)());
        for skipped in self.skipped.drain(..) {
            descent.step(&skipped)?;
        }
        let result = descent.step(&step)?;
        self.cache.known.lock().unwrap_or_else(PoisonError::into_inner).insert(self.hash, result);
        Ok(result)
    }
}

/// Stochastic gradient descent: x − γ·mean of the tasks' gradients.
struct GradientDescent {
    problem: Arc<dyn Problem>,
    step_size: f64,
    /// The parameters by the iteration whose gradients are computed at them.
    parameters: BTreeMap<u64, Vec<f64>>,
    last_gradient: Option<Vec<f64>>,
}

impl Descent for GradientDescent {
    fn step(&mut self, step: &DescentStep) -> Result<StepResult, String> {
        let current = self.parameters.get(&step.iteration).expect("the last step made them");
        let mut gradient = vec![0.0; current.len()];
        let (mut loss, mut tasks) = (0.0, 0);
        for (iteration, range) in &step.tasks {
            let parameters = &self.parameters[iteration];
            for index in range.indices() {
                loss += self.problem.add_gradient(parameters, *iteration, index, &mut gradient);
            }
            tasks += range.count;
        }
        for value in &mut gradient {
            *value /= tasks as f64;
        }
        let rate = self.step_size * step.lr_factor;
        let next: Vec<f64> = current.iter().zip(&gradient).map(|(x, g)| x - rate * g).collect();

        let objective = self.problem.objective(&next);
        let product = |last: &Vec<f64>| gradient.iter().zip(last).map(|(a, b)| a * b).sum();
        let gradient_product = self.last_gradient.as_ref().map(product);
        self.last_gradient = Some(gradient);
        self.parameters.insert(step.iteration + 1, next);
        self.parameters = self.parameters.split_off(&step.oldest_iteration);
        let outcome = StepOutcome { loss: Some(loss / tasks as f64), gradient_product, ..StepOutcome::default() };
        Ok(StepResult { outcome, objective })
    }
}
