//! The cost of workers in money and energy.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::worker::WorkerState;

/// The price and the power of a worker. The price counts while it is present, the power while it is busy.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct WorkerPrice {
    /// Price in a currency of the user's choice.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub price_per_hour: Option<f64>,
    /// Power under load, in watts.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub watts: Option<f64>,
}

/// Prices by worker name.
pub type Prices = BTreeMap<String, WorkerPrice>;

/// Money and energy spent; `None` if no price is known.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Spending {
    /// Money, in the currency of the prices.
    pub price: Option<f64>,
    /// Energy in watt-hours.
    pub energy_wh: Option<f64>,
}

impl Spending {
    /// Returns what a worker has cost until `now_s`.
    pub(super) fn of(worker: &WorkerState, prices: &Prices, now_s: f64) -> Self {
        let Some(price) = prices.get(&worker.name) else { return Self::default() };
        Self {
            price: price.price_per_hour.map(|price| price * worker.usage.present_s(now_s) / 3600.0),
            energy_wh: price.watts.map(|watts| watts * worker.usage.busy_s / 3600.0),
        }
    }

    pub(super) fn add(&mut self, other: Self) {
        let sum = |a: Option<f64>, b: Option<f64>| a.zip(b).map(|(a, b)| a + b).or(a).or(b);
        *self = Self { price: sum(self.price, other.price), energy_wh: sum(self.energy_wh, other.energy_wh) };
    }
}
