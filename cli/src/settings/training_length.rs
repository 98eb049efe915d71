//! Lengths of a training and of its parts, in iterations or in epochs.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use super::Settings;
use crate::failure::{Failure, require};

/// Has a file hold a type as its text, or as a number if that is one.
macro_rules! as_written {
    ($type:ty) => {
        impl TryFrom<$crate::settings::training_length::Written> for $type {
            type Error = String;

            fn try_from(written: $crate::settings::training_length::Written) -> Result<Self, String> {
                written.text().parse()
            }
        }

        impl From<$type> for $crate::settings::training_length::Written {
            fn from(value: $type) -> Self {
                Self::of(&value)
            }
        }
    };
}
pub(super) use as_written;

/// Parses `N`, `auto` or `auto:M`.
pub(super) fn parse_number_or_auto<T>(text: &str, fixed: fn(u64) -> T, auto: fn(Option<u64>) -> T) -> Option<T> {
    match text.trim().strip_prefix("auto") {
        Some("") => Some(auto(None)),
        Some(number) => number.strip_prefix(':')?.parse().ok().map(Some).map(auto),
        None => text.trim().parse().ok().map(fixed),
    }
}

/// A number of iterations, or of passes over the training data: `500` or `30epochs`.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "Written", into = "Written")]
pub(crate) enum TrainingLength {
    Iterations(u64),
    Epochs(f64),
}

/// The form of a length in a file.
#[derive(Serialize, Deserialize)]
#[serde(untagged)]
pub(super) enum Written {
    Number(u64),
    Text(String),
}

impl Written {
    pub(super) fn text(self) -> String {
        match self {
            Self::Number(number) => number.to_string(),
            Self::Text(text) => text,
        }
    }

    /// Returns the form of a length that is written as a number, if it is one.
    pub(super) fn of(length: &impl fmt::Display) -> Self {
        let text = length.to_string();
        text.parse().map_or(Self::Text(text), Self::Number)
    }
}

as_written!(TrainingLength);

impl FromStr for TrainingLength {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let text = text.trim();
        let epochs = text.strip_suffix("epochs").or_else(|| text.strip_suffix("epoch"));
        let length = match epochs {
            Some(epochs) => epochs.trim().parse().ok().filter(|epochs: &f64| epochs.is_finite()).map(Self::Epochs),
            None => text.parse().ok().map(Self::Iterations),
        };
        length.ok_or_else(|| format!("'{text}': expected a number of iterations, or of epochs, as in 30epochs"))
    }
}

impl fmt::Display for TrainingLength {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Iterations(iterations) => iterations.fmt(f),
            Self::Epochs(epochs) => write!(f, "{epochs}epochs"),
        }
    }
}

impl TrainingLength {
    /// Returns the number of iterations, once [`Settings::count_epochs`] has replaced epochs.
    pub(crate) fn count(self) -> u64 {
        match self {
            Self::Iterations(iterations) => iterations,
            Self::Epochs(_) => unreachable!("epochs were counted when the data was opened"),
        }
    }

    pub(super) fn check(self, name: &str, least: u64) -> Result<(), Failure> {
        let is_good = match self {
            Self::Iterations(iterations) => (least..=u64::MAX >> 1).contains(&iterations),
            Self::Epochs(epochs) => epochs >= 0.0 && (epochs > 0.0 || least == 0),
        };
        require(is_good, || format!("{name} = {self}: expected a number of at least {least}, or of epochs"))
    }
}

impl Settings {
    /// Replaces epochs by iterations, once the number of training samples is known.
    pub(crate) fn count_epochs(&mut self, samples: Option<u64>) -> Result<(), Failure> {
        let of_iteration = self.tasks() as f64 * f64::from(self.task_batch);
        for (name, length) in [
            ("iterations", &mut self.iterations),
            ("lr_warmup", &mut self.lr_warmup),
            ("lr_step_every", &mut self.lr_step_every),
        ] {
            let TrainingLength::Epochs(epochs) = *length else { continue };
            let samples = samples.ok_or_else(|| {
                Failure::usage(format!(
                    "{name} = {length}: this program does not read the data, so it does not know how many iterations an epoch has"
                ))
            })?;
            *length = TrainingLength::Iterations((epochs * samples as f64 / of_iteration).ceil() as u64);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn epochs_are_counted_in_iterations() {
        let mut settings = Settings {
            iterations: "2epochs".parse().unwrap(),
            lr_warmup: "0.5 epoch".parse().unwrap(),
            lr_step_every: "7".parse().unwrap(),
            budget: super::super::Budget::Fixed(10),
            task_batch: 3,
            ..Settings::default()
        };
        let text = settings.to_toml().unwrap();
        assert!(text.contains("iterations = \"2epochs\"") && text.contains("lr_step_every = 7\n"), "{text}");
        assert!(settings.count_epochs(None).unwrap_err().to_string().starts_with("iterations = 2epochs: "));
        settings.count_epochs(Some(100)).unwrap();
        let spans = [settings.iterations, settings.lr_warmup, settings.lr_step_every];
        assert_eq!(spans.map(TrainingLength::count), [7, 2, 7]);
        for bad in ["", "x", "-1", "epochs", "infepochs", "1.5"] {
            assert!(bad.parse::<TrainingLength>().is_err(), "{bad}");
        }
        assert!(
            TrainingLength::Epochs(0.0).check("iterations", 1).is_err()
                && TrainingLength::Epochs(-1.0).check("lr_warmup", 0).is_err()
        );
    }
}
