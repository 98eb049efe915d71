//! The state as checkpoints and [`RunEvent::Folded`] hold it. Numbers that are not finite are null.

use ata_types::Iteration;
use serde::de::Error;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::Value;

use super::RunState;
use super::curve::{Curve, SavedCurve};
use crate::event::RunEvent;
use crate::limits::{MAX_BUDGET, MAX_TIME_S};

/// The number of times of each kind that are kept per worker: enough for a distribution, and affordable with thousands of workers.
const TIMES_KEPT: usize = 4096;

/// The number of them that a checkpoint holds, which is written every minute: enough for a mean, and 3 kB per worker.
const TIMES_SAVED: usize = 128;

/// The largest count in a saved state, so that sums of thousands do not overflow: no run comes near.
const MAX_SUM: u64 = 1 << 53;

/// The counts that may be larger: a seed is any number, and the others stop at the largest number.
const ANY_NUMBER: [&str; 3] = ["seed", "saturated", "vanished"];

impl RunState {
    /// Returns the state with as many times of each worker as a checkpoint holds, now and later.
    pub(crate) fn for_checkpoints(mut self) -> Self {
        self.is_for_checkpoints = true;
        self.workers.values_mut().for_each(|worker| worker.forget_times(TIMES_SAVED));
        self
    }

    pub(super) fn times_kept(&self) -> usize {
        if self.is_for_checkpoints { TIMES_SAVED } else { TIMES_KEPT }
    }

    /// Returns the state as JSON.
    pub fn saved(&self) -> Value {
        serde_json::to_value(self).expect("names and numbers can be written")
    }

    /// Returns the event that stands in the place of all those that the state was made from.
    pub(crate) fn folded(&self) -> RunEvent {
        RunEvent::Folded { time_s: self.now_s, iteration: Iteration(self.last_step), state: self.saved() }
    }

    /// Reads a saved state, and refuses values that no run reaches.
    pub fn restored(saved: Value) -> Result<Self, String> {
        let mut counts =
            saved.as_object().into_iter().flatten().filter(|(name, _)| !ANY_NUMBER.contains(&name.as_str()));
        if let Some((name, _)) = counts.find(|(_, value)| !is_bounded(value)) {
            return Err(format!("the state's {name} has a number beyond {MAX_SUM}"));
        }
        let mut state: Self = serde_json::from_value(saved).map_err(|error| format!("the state: {error}"))?;
        // Every saved state has the losses of steps.
        for loss in [&mut state.totals.first_loss, &mut state.totals.last_loss] {
            loss.get_or_insert(f64::NAN);
        }
        if state.heat.is_too_long() {
            return Err("the state's map of tasks has too many columns".into());
        }
        let budget = state.budget.max(state.most_tasks.unwrap_or(0));
        if budget > MAX_BUDGET {
            return Err(format!("the state's budget is {budget}: expected at most {MAX_BUDGET}"));
        }
        let (began_s, last_s) = state.span_s.unwrap_or_default();
        let times_s = state.workers.values().flat_map(|worker| worker.times_s.iter().chain(&worker.overheads_s));
        let sums_s = [state.now_s, state.totals.iteration_time_s, state.totals.total_worker_time_s, began_s, last_s];
        match times_s.chain(&sums_s).find(|time_s| !(0.0..=MAX_TIME_S).contains(*time_s)) {
            Some(time_s) => Err(format!("the state has a time of {time_s} s: expected one from 0 to {MAX_TIME_S:e}")),
            None => Ok(state),
        }
    }

    /// Replaces all but the prices by a saved state, which was checked when it was read.
    pub(super) fn replace(&mut self, saved: &Value) {
        if let Ok(state) = Self::restored(saved.clone()) {
            let (prices, is_for_checkpoints) = (self.prices.clone(), self.is_for_checkpoints);
            *self = Self { prices, is_for_checkpoints, ..state };
        }
    }

    /// Returns the state with the prices of another one.
    #[must_use]
    pub fn priced_as(self, other: &Self) -> Self {
        Self { prices: other.prices.clone(), ..self }
    }
}

/// Returns whether all whole numbers in a value are at most [`MAX_SUM`].
fn is_bounded(value: &Value) -> bool {
    match value {
        Value::Array(values) => values.iter().all(is_bounded),
        Value::Object(values) => values.values().all(is_bounded),
        value => value.as_u64().is_none_or(|number| number <= MAX_SUM),
    }
}

pub(super) fn evaluation<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<(f64, Option<f64>)>, D::Error> {
    let saved: Option<(Option<f64>, Option<f64>)> = Option::deserialize(deserializer)?;
    Ok(saved.map(|(loss, accuracy)| (loss.unwrap_or(f64::NAN), accuracy)))
}

impl<P, const N: usize> Serialize for Curve<P, N>
where
    P: From<[f64; N]> + Into<[f64; N]> + Serialize,
{
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.saved().serialize(serializer)
    }
}

impl<'de, P, const N: usize> Deserialize<'de> for Curve<P, N>
where
    P: From<[f64; N]> + Into<[f64; N]> + Deserialize<'de>,
    Self: Default,
{
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Self::default().restored(SavedCurve::deserialize(deserializer)?).map_err(D::Error::custom)
    }
}
