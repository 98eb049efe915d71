//! The training state: parameters, the optimizer's vectors, units, and the number of steps.
//!
//! # Layout
//! - here: [`TrainingState`], and the vectors that are saved
//! - `step`: a step, chunk by chunk or of a whole gradient, which is begun, and then committed or abandoned
//! - `chunk`: the vectors that a step changes, and one chunk's part of a step

mod chunk;
mod step;
#[cfg(test)]
mod tests;

pub use chunk::SteppedChunk;
pub use step::TrainingOutcome;

use ata_types::WireFormat;

use crate::exact::{TensorSizes, Units};
use crate::optimizer::{Optimizer, OwnOptimizer};
use chunk::Vectors;
use step::Begun;

/// The training settings that stay fixed during a run.
#[derive(Clone, Debug, PartialEq)]
pub struct TrainingConfig {
    /// The optimizer.
    pub optimizer: Optimizer,
    /// The model's tensors.
    pub sizes: TensorSizes,
    /// The encoding of vectors on the wire, which determines what workers hold.
    pub format: WireFormat,
    /// The budget B, in tasks per iteration.
    pub budget: u64,
}

/// The state of training. Each vector has one `f32` per parameter, in the model's flat order.
///
/// A step is begun ([`TrainingState::begin_step`]), taken chunk by chunk ([`TrainingState::step_chunk`]), and committed
/// ([`TrainingState::commit_step`]). Until then it changes nothing that can be read or copied: a clone has the state
/// before the step, and beginning another step drops it.
#[derive(Debug)]
pub struct TrainingState {
    trained: Trained,
    /// The vectors after the current step; empty before the first step.
    next: Vectors,
    begun: Option<Begun>,
    /// The optimizer that the program brings, for [`Rule::Own`](crate::Rule::Own).
    own: Option<Box<dyn OwnOptimizer>>,
}

/// The part of the state that committed steps have changed.
#[derive(Clone, Debug, PartialEq)]
struct Trained {
    config: TrainingConfig,
    vectors: Vectors,
    units: Option<Units>,
    steps: u64,
    /// The mean gradient of the last step, if it is to be compared with the next one.
    last_gradient: Option<Vec<f32>>,
    /// What the program's own optimizer keeps, in a state that is to be saved or was restored.
    own_state: Option<Vec<u8>>,
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
        Self { trained, next: Vectors::default(), begun: None, own: None }
    }
}

/// The saved names of vectors: the last mean gradient, the parameters that workers hold, and the moving average.
const LAST_GRADIENT: &str = "last_gradient";
const REPLICA: &str = "replica";
const EMA: &str = "ema";

impl TrainingState {
    /// Creates the state before the first step.
    ///
    /// # Panics
    /// Panics if there is not one number per parameter.
    pub fn new(config: TrainingConfig, parameters: Vec<f32>) -> Self {
        assert_eq!(parameters.len(), config.sizes.values());
        let vectors = Vectors::new(&config.optimizer, config.format, parameters);
        Trained { config, vectors, units: None, steps: 0, last_gradient: None, own_state: None }.into()
    }

    /// Restores a saved state: `saved` holds the vectors of [`TrainingState::vectors`], in any order.
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
        let is_compact = config.format == WireFormat::Compact;
        let replica =
            is_compact.then(|| take(REPLICA).ok_or("'replica' is missing: was it saved with another wire format?"));
        let ema =
            config.optimizer.ema.map(|_| take(EMA).ok_or("'ema' is missing: was it saved by a run without --ema?"));
        let (replica, ema) = (replica.transpose()?, ema.transpose()?);
        let missing = |name: &&str| format!("'{name}' is missing: was it saved by another optimizer?");
        let moments = config.optimizer.rule.moments().iter().map(|name| take(name).ok_or_else(|| missing(name)));
        let vectors = Vectors { moments: moments.collect::<Result<_, _>>()?, parameters, replica, ema };
        Ok(Trained { config, vectors, units, steps, last_gradient, own_state: None }.into())
    }

    /// Sets what the program's own optimizer keeps, as it was saved.
    #[must_use]
    pub fn with_own_state(mut self, state: Option<Vec<u8>>) -> Self {
        self.trained.own_state = state;
        self
    }

    /// Sets the optimizer that the program brings, and restores its state, if it was saved.
    pub fn set_own(&mut self, mut own: Box<dyn OwnOptimizer>) -> Result<(), String> {
        match self.trained.own_state.take() {
            Some(state) => own.restore(&state)?,
            None if self.trained.steps > 0 => {
                return Err("its state is missing: was it saved by another optimizer?".into());
            }
            None => {}
        }
        self.own = Some(own);
        Ok(())
    }

    /// Returns a copy to be saved, which includes what the program's own optimizer keeps.
    pub fn saved(&self) -> Result<Self, String> {
        let state = self.own.as_ref().map(|own| own.state()).transpose()?;
        Ok(self.clone().with_own_state(state))
    }

    /// Returns what the program's own optimizer keeps, in a copy that was made by [`TrainingState::saved`].
    pub fn own_state(&self) -> Option<&[u8]> {
        self.trained.own_state.as_deref()
    }

    /// Returns the parameters.
    pub fn parameters(&self) -> &[f32] {
        &self.trained.vectors.parameters
    }

    /// Replaces the parameters, and nothing else.
    pub(crate) fn set_parameters(&mut self, parameters: &[f32]) {
        self.trained.vectors.parameters.copy_from_slice(parameters);
    }

    /// Returns the parameters that workers compute at: those that they hold, if they are sent rounded differences.
    pub fn working_parameters(&self) -> &[f32] {
        self.trained.vectors.replica.as_deref().unwrap_or(self.parameters())
    }

    /// Returns the moving average of the parameters, if there is one. As in PyTorch's `AveragedModel`, it begins with the first step, and
    /// averaged tensors have their current values.
    pub fn ema(&self) -> Option<&[f32]> {
        self.trained.vectors.ema.as_deref()
    }

    /// Returns the vectors that are saved in addition to the parameters, by name: those of the optimizer, by PyTorch's
    /// names, the last gradient, the parameters that workers hold, and the moving average.
    pub fn vectors(&self) -> impl Iterator<Item = (&'static str, &[f32])> {
        let Trained { config, vectors, last_gradient, .. } = &self.trained;
        let moments = config.optimizer.rule.moments().iter().copied().zip(&vectors.moments);
        let others = [(LAST_GRADIENT, last_gradient), (REPLICA, &vectors.replica), (EMA, &vectors.ema)];
        let others = others.into_iter().filter_map(|(name, values)| Some((name, values.as_ref()?)));
        moments.chain(others).map(|(name, values)| (name, &values[..]))
    }

    /// Returns the fixed settings of the run.
    pub fn config(&self) -> &TrainingConfig {
        &self.trained.config
    }

    /// Returns the number of optimizer steps taken.
    pub fn steps(&self) -> u64 {
        self.trained.steps
    }

    /// Returns the units of the next step's gradients; `None` before [`TrainingState::set_units`].
    pub fn units(&self) -> Option<&Units> {
        self.trained.units.as_ref()
    }

    /// Sets the units of the first step.
    ///
    /// # Panics
    /// Panics if there is not one unit per tensor.
    pub fn set_units(&mut self, units: Units) {
        assert_eq!(units.exponents().len(), self.trained.config.sizes.tensors());
        self.trained.units = Some(units);
    }
}
