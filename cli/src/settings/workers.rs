//! The setting `workers`: the number of workers that `ata up` starts, and their prices.

use std::collections::BTreeMap;

use ata_net::limits::MAX_WORKERS;
use ata_record::{Prices, WorkerPrice};
use serde::{Deserialize, Serialize};
use toml::Table;

use super::in_range;
use crate::failure::{Failure, require};

/// The value of `workers = 4`, or of a table `[workers.NAME]` for each worker with a price. `[workers]` may contain `count = 4`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "WorkersForm", into = "WorkersForm")]
pub(crate) struct Workers {
    pub(crate) count: u32,
    pub(crate) prices: Prices,
}

impl Workers {
    pub(super) fn check(&self) -> Result<(), Failure> {
        in_range("workers", self.count.into(), 1, MAX_WORKERS as u64)?;
        for (name, WorkerPrice { price_per_hour, watts }) in &self.prices {
            for (what, value) in [("price_per_hour", price_per_hour), ("watts", watts)] {
                let is_price = value.is_none_or(|value| value.is_finite() && value >= 0.0);
                require(is_price, || format!("workers.{name}.{what}: expected a number of at least 0"))?;
            }
        }
        Ok(())
    }
}

impl Default for Workers {
    fn default() -> Self {
        Self { count: 4, prices: Prices::new() }
    }
}

/// The two forms of the setting.
#[derive(Serialize, Deserialize)]
#[serde(untagged, expecting = "expected a number of workers, or tables [workers.NAME] with price_per_hour and watts")]
enum WorkersForm {
    Count(u32),
    Table(BTreeMap<String, WorkersEntry>),
}

#[derive(Serialize, Deserialize)]
#[serde(untagged)]
enum WorkersEntry {
    Count(u32),
    Price(WorkerPrice),
}

impl From<Workers> for WorkersForm {
    fn from(Workers { count, prices }: Workers) -> Self {
        if prices.is_empty() {
            return Self::Count(count);
        }
        let prices = prices.into_iter().map(|(name, price)| (name, WorkersEntry::Price(price)));
        Self::Table(prices.chain([("count".to_owned(), WorkersEntry::Count(count))]).collect())
    }
}

impl TryFrom<WorkersForm> for Workers {
    type Error = String;

    fn try_from(form: WorkersForm) -> Result<Self, String> {
        let table = match form {
            WorkersForm::Count(count) => return Ok(Self { count, ..Self::default() }),
            WorkersForm::Table(table) => table,
        };
        let mut workers = Self::default();
        for (name, entry) in table {
            match entry {
                WorkersEntry::Count(count) if name == "count" => workers.count = count,
                WorkersEntry::Price(price) if name != "count" => drop(workers.prices.insert(name, price)),
                _ => return Err(format!("workers.{name}: expected a table with price_per_hour and watts")),
            }
        }
        Ok(workers)
    }
}

/// Merges workers with those of earlier settings: a new number keeps the prices, and new prices keep the number and the others.
pub(super) fn add_workers(earlier: &Table, over: &mut Table) {
    if let (Some(was), Some(is)) = (earlier.get("workers"), over.get("workers"))
        && (was.is_table() || is.is_table())
    {
        let mut both = as_table(was);
        both.extend(as_table(is));
        over.insert("workers".into(), both.into());
    }
}

/// Converts `4` to `{ count = 4 }`.
fn as_table(workers: &toml::Value) -> Table {
    workers.as_table().cloned().unwrap_or_else(|| Table::from_iter([("count".to_owned(), workers.clone())]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_and_prices_leave_each_other_alone() {
        let table = |text: &str| text.parse::<Table>().unwrap();
        for (one, other) in [
            ("workers = 8", "[workers.a]\nwatts = 2"),
            ("[workers.a]\nwatts = 2", "workers = 8"),
            ("[workers]\ncount = 3\na = { watts = 1 }", "[workers]\ncount = 8\na = { watts = 2 }"),
        ] {
            let mut merged = table(one);
            crate::settings::sources::merge(&mut merged, table(other));
            let workers: Workers = merged["workers"].clone().try_into().unwrap();
            assert_eq!((workers.count, workers.prices["a"].watts), (8, Some(2.0)), "{one}, {other}");
            let again = Table::from_iter([("workers".to_owned(), toml::Value::try_from(&workers).unwrap())]);
            assert_eq!(again["workers"].clone().try_into::<Workers>().unwrap(), workers);
        }
    }

    #[test]
    fn what_is_no_price_is_refused() {
        for bad in ["workers = 'many'", "[workers.a]\nwats = 2", "[workers.count]\nwatts = 2", "[workers]\na = 3"] {
            let table: Table = bad.parse().unwrap();
            assert!(table["workers"].clone().try_into::<Workers>().is_err(), "{bad}");
        }
    }
}
