//! The machines of a plan, as users write them.

use std::str::FromStr;

use ata_simulator::{SettingError, time_s};
use serde::Serialize;

/// Machines of one kind that take part, or might take part.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Machine {
    /// The user's name for them.
    pub name: String,
    /// The number of machines of this kind.
    pub count: u32,
    /// Seconds that a batch costs regardless of its number of tasks, if the machine computes its share as one batch.
    pub batch_s: Option<f64>,
    /// Seconds that each task takes.
    pub task_s: f64,
    /// The price of one of these machines for an hour.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub price_per_hour: Option<f64>,
}

/// The longest task, in seconds. A task of more than a week would mean a step of more than a week.
const MAX_TASK_S: f64 = 1e6;

const EXPECTED: &str = "NAME=TIME with the time of a task, as in gpu1=20ms or 3xcpu=0.3s, or NAME=TIME+TIME for a machine that \
                        computes its share as one batch, as in gpu1=15ms+2ms, and then @ and its price for an hour, if it has one, as in \
                        gpu1=20ms@1.20";

impl FromStr for Machine {
    type Err = SettingError;

    /// Parses `gpu1=20ms`, `3xcpu=300ms`, `gpu1=15ms+2ms` or `gpu1=20ms@1.20`.
    fn from_str(text: &str) -> Result<Self, SettingError> {
        let Some((whose, times)) = text.split_once('=') else {
            return Err(SettingError::new("machine", text, EXPECTED));
        };
        // `3xcpu` are three machines; a name without a number is one machine.
        let (count, name) = match whose.trim().split_once('x') {
            Some((count, name)) if !count.is_empty() && count.bytes().all(|byte| byte.is_ascii_digit()) => {
                (count, name)
            }
            _ => ("1", whose.trim()),
        };
        SettingError::check("machine", &text, !name.is_empty(), EXPECTED)?;
        let count: u32 = count.parse().unwrap_or(0);
        SettingError::check(name, &whose, count > 0, "a number of machines before the x, as in 3xcpu")?;
        let expected = "a positive time with its unit (us, ms or s) of at most 1000000s, as in 20ms";
        let seconds = |text: &str| {
            let seconds = time_s(name, text, expected)?;
            SettingError::check(name, &text, seconds <= MAX_TASK_S, expected)?;
            Ok::<_, SettingError>(seconds)
        };
        let (times, price) = times.split_once('@').map_or((times, None), |(times, price)| (times, Some(price)));
        let price_per_hour = price.map(|price| {
            let found = price.trim().parse().ok().filter(|price: &f64| price.is_finite() && *price >= 0.0);
            found.ok_or_else(|| SettingError::new(name, price, "a price for an hour after the @, as in gpu1=20ms@1.20"))
        });
        let (batch_s, task_s) = match times.split_once('+') {
            Some((batch, task)) => (Some(seconds(batch)?), seconds(task)?),
            None => (None, seconds(times)?),
        };
        Ok(Self { name: name.into(), count, batch_s, task_s, price_per_hour: price_per_hour.transpose()? })
    }
}

impl Machine {
    /// Returns the machine's time law in milliseconds, for tasks that are `size` times as large and of which `overhead_s` does not
    /// depend on the number of samples.
    pub(super) fn law(&self, size: f64, overhead_s: f64) -> String {
        let (task_ms, overhead_ms) = (1e3 * self.task_s, 1e3 * overhead_s);
        let task_ms = overhead_ms + (task_ms - overhead_ms) * size;
        match self.batch_s {
            Some(batch_s) => format!("affine({}, {task_ms})", 1e3 * batch_s),
            None => format!("const({task_ms})"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn machines_have_a_name_a_number_and_a_time() {
        for (text, name, count, batch_s, task_s, price_per_hour) in [
            ("gpu1=20ms", "gpu1", 1, None, 0.02, None),
            ("3xcpu=0.3s", "cpu", 3, None, 0.3, None),
            ("xeon=250us", "xeon", 1, None, 250e-6, None),
            ("2xbox=1s@0.4", "box", 2, None, 1.0, Some(0.4)),
            ("gpu=15ms+2 ms @ 2", "gpu", 1, Some(0.015), 0.002, Some(2.0)),
        ] {
            let found: Machine = text.parse().unwrap();
            assert_eq!(found, Machine { name: name.into(), count, batch_s, task_s, price_per_hour }, "{text}");
        }
    }

    #[test]
    fn nonsense_is_refused_with_what_to_type() {
        for (text, message) in [
            ("gpu1", "machine: gpu1, expected NAME=TIME"),
            ("=20ms", "machine: =20ms, expected NAME=TIME"),
            ("3x=20ms", "machine: 3x=20ms, expected NAME=TIME"),
            ("gpu1=20", "gpu1: 20, expected a positive time with its unit (us, ms or s)"),
            ("gpu1=", "gpu1: , expected a positive time"),
            ("gpu1=-3ms", "gpu1: -3ms, expected a positive time"),
            ("gpu1=nans", "gpu1: nans, expected a positive time"),
            ("gpu1=2000000s", "of at most 1000000s"),
            ("gpu1=3ms+0ms", "gpu1: 0ms, expected a positive time"),
            ("gpu1=3ms@", "gpu1: , expected a price for an hour after the @"),
            ("gpu1=3ms@-1", "gpu1: -1, expected a price"),
            ("gpu1=3ms@inf", "gpu1: inf, expected a price"),
            ("gpu1@2=3ms@1@2", "gpu1@2: 1@2, expected a price"),
            ("0xgpu=3ms", "gpu: 0xgpu, expected a number of machines before the x, as in 3xcpu"),
            ("99999999999xgpu=3ms", "expected a number of machines"),
        ] {
            let error = text.parse::<Machine>().unwrap_err().to_string();
            assert!(error.contains(message), "{text}: {error}");
        }
    }
}
