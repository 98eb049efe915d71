//! Everything that training changes: parameters, the optimizer's vectors, units, and the number of steps.
//!
//! # Layout
//! - here: [`TrainingState`], and what is saved of it
//! - `step`: a step, chunk by chunk or of a whole gradient, which is begun, and then committed or abandoned
//! - `vectors`: the vectors that a step changes; `chunk`: a step of one chunk of them

mod chunk;
mod step;
#[cfg(test)]
mod tests;
mod vectors;

pub use chunk::SteppedChunk;
pub use step::StepOutcome;

use ata_types::WireFormat;

use crate::exact::{TensorSizes, Units};
use crate::optimizer::Optimizer;
use step::Begun;
use vectors::Vectors;

/// What a run fixes about its training.
#[derive(Clone, Debug, PartialEq)]
pub struct TrainingConfig {
    /// The optimizer.
    pub optimizer: Optimizer,
    /// The model's tensors.
    pub sizes: TensorSizes,
    /// The representation of vectors on the wire, which decides what workers hold.
    pub format: WireFormat,
    /// Tasks per iteration, B.
    pub budget: u64,
}

/// The state of training. One `f32` per parameter in each vector, in the model's flat order.
///
/// A step is begun ([`TrainingState::begin_step`]), taken chunk by chunk ([`TrainingState::step_chunk`]), and committed
/// ([`TrainingState::commit_step`]). Until then it changes nothing that can be read or copied: a clone is that of the state before
/// it, and beginning another step drops it.
#[derive(Debug)]
pub struct TrainingState {
    trained: Trained,
    /// The vectors after the step that was begun; empty before the first step.
    next: Vectors,
    begun: Option<Begun>,
}

/// The part of the state that committed steps have changed.
#[derive(Clone, Debug, PartialEq)]
struct Trained {
    config: TrainingConfig,
    vectors: Vectors,
    units: Option<Units>,
    steps: u64,
    /// The mean gradient of the last step, if that was to be compared with the next one.
    last_gradient: Option<Vec<f32>>,
}

impl Clone for TrainingState {
    fn clone(&self) -> Self {
        self.trained.clone().into()
    }
}

impl PartialEq for TrainingState {
    fn eq(&self, other: &Self) -> bool {
        self.trained == other.trained
    }
}

impl From<Trained> for TrainingState {
    fn from(trained: Trained) -> Self {
        Self { trained, next: Vectors::default(), begun: None }
    }
}

/// The saved name of the last mean gradient.
const LAST_GRADIENT: &str = "last_gradient";

/// The saved name of the parameters that workers hold.
const REPLICA: &str = "replica";

impl TrainingState {
    /// A state before the first step.
    ///
    /// # Panics
    /// If there is not one number per parameter.
    pub fn new(config: TrainingConfig, parameters: Vec<f32>) -> Self {
        assert_eq!(parameters.len(), config.sizes.values());
        let vectors = Vectors::new(config.optimizer.rule, config.format, parameters);
        Trained { config, vectors, units: None, steps: 0, last_gradient: None }.into()
    }

    /// A state as it was saved: `saved` are the vectors of [`TrainingState::vectors`], in any order.
    pub fn restore(
        config: TrainingConfig,
        parameters: Vec<f32>,
        mut saved: Vec<(String, Vec<f32>)>,
        steps: u64,
        units: Option<Units>,
    ) -> Result<Self, String> {
        let length = config.sizes.values();
        let lengths = saved.iter().map(|(name, values)| (name.as_str(), values.len()));
        if let Some((name, _)) = lengths.chain([("parameters", parameters.len())]).find(|(_, found)| *found != length) {
            return Err(format!("'{name}' does not have one number per parameter"));
        }
        if units.as_ref().is_some_and(|units| units.exponents().len() != config.sizes.tensors()) {
            return Err("the units are not one per tensor".into());
        }
        let mut take = |name: &str| {
            let at = saved.iter().position(|(found, _)| found == name)?;
            Some(saved.swap_remove(at).1)
        };
        let last_gradient = take(LAST_GRADIENT);
        let replica = match config.format {
            WireFormat::F32Exact => None,
            WireFormat::Compact => {
                Some(take(REPLICA).ok_or("'replica' is missing: was it saved with another wire format?")?)
            }
        };
        let missing = |name: &&str| format!("'{name}' is missing: was it saved by another optimizer?");
        let moments = config.optimizer.rule.moments().iter().map(|name| take(name).ok_or_else(|| missing(name)));
        let vectors = Vectors { moments: moments.collect::<Result<_, _>>()?, parameters, replica };
        Ok(Trained { config, vectors, units, steps, last_gradient }.into())
    }

    /// The parameters.
    pub fn parameters(&self) -> &[f32] {
        &self.trained.vectors.parameters
    }

    /// The parameters that workers compute at: those that they hold, if they are sent rounded differences.
    pub fn working_parameters(&self) -> &[f32] {
        self.trained.vectors.replica.as_deref().unwrap_or(self.parameters())
    }

    /// The vectors that are saved in addition to the parameters, by name: those of the optimizer, by PyTorch's names, the last
    /// gradient, and what workers hold.
    pub fn vectors(&self) -> impl Iterator<Item = (&'static str, &[f32])> {
        let Trained { config, vectors, last_gradient, .. } = &self.trained;
        let moments = config.optimizer.rule.moments().iter().copied().zip(&vectors.moments);
        let others = [(LAST_GRADIENT, last_gradient), (REPLICA, &vectors.replica)];
        let others = others.into_iter().filter_map(|(name, values)| Some((name, values.as_ref()?)));
        moments.chain(others).map(|(name, values)| (name, &values[..]))
    }

    /// What the run fixes.
    pub fn config(&self) -> &TrainingConfig {
        &self.trained.config
    }

    /// Optimizer steps taken.
    pub fn steps(&self) -> u64 {
        self.trained.steps
    }

    /// The units of the next step's gradients; `None` before [`TrainingState::set_units`].
    pub fn units(&self) -> Option<&Units> {
        self.trained.units.as_ref()
    }

    /// Sets the units of the first step.
    ///
    /// # Panics
    /// If there is not one per tensor.
    pub fn set_units(&mut self, units: Units) {
        assert_eq!(units.exponents().len(), self.trained.config.sizes.tensors());
        self.trained.units = Some(units);
    }
}
