//! Decides when a checkpoint is due, and which ones are kept.

use std::fmt;
use std::str::FromStr;

use ata_types::Iteration;

/// The interval at which checkpoints are written.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Cadence {
    /// No checkpoint is written, not even at the end.
    Never,
    /// A checkpoint is due each time this many iterations have passed. The run waits until a checkpoint is durable
    /// before the next one is due.
    Iterations(u64),
    /// A checkpoint is due after the first iteration, and whenever this many seconds have passed since the last one.
    Seconds(f64),
}

impl FromStr for Cadence {
    type Err = String;

    /// Parses `never`, a number of iterations (`100`) or a time (`60s`, `10m`, `1h`).
    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || format!("'{text}': expected a number of iterations (100), a time (60s, 10m, 1h) or never");
        if text == "never" {
            return Ok(Self::Never);
        }
        if let Ok(iterations) = text.parse() {
            return if iterations == 0 { Err(wrong()) } else { Ok(Self::Iterations(iterations)) };
        }
        let (number, unit) = text.split_at(text.len() - text.chars().next_back().map_or(0, char::len_utf8));
        let seconds_each = match unit {
            "s" => 1.0,
            "m" => 60.0,
            "h" => 3600.0,
            _ => return Err(wrong()),
        };
        let number: f64 = number.trim().parse().map_err(|_| wrong())?;
        let seconds = number * seconds_each;
        if seconds.is_finite() && seconds > 0.0 { Ok(Self::Seconds(seconds)) } else { Err(wrong()) }
    }
}

impl fmt::Display for Cadence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Never => f.write_str("never"),
            Self::Iterations(iterations) => write!(f, "{iterations}"),
            Self::Seconds(seconds) => write!(f, "{seconds}s"),
        }
    }
}

impl Cadence {
    /// Returns whether a checkpoint is due after an iteration, at `now_s`, if the last one was begun at `last_s`.
    pub(crate) fn is_due(self, iteration: u64, now_s: f64, last_s: f64) -> bool {
        match self {
            Self::Never => false,
            Self::Iterations(every) => iteration.is_multiple_of(every),
            // The first iteration is saved so that a run that is killed early can be resumed.
            Self::Seconds(every) => iteration == 1 || now_s - last_s >= every,
        }
    }
}

/// Which checkpoints are kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Retention {
    /// The number of newest checkpoints that are kept.
    pub newest: usize,
    /// The interval, in iterations, of the checkpoints that are kept in addition.
    pub every: Option<u64>,
}

impl Retention {
    /// Returns the iterations whose checkpoints are dropped once that of `current` is written: also later ones, from before a resume.
    pub(crate) fn dropped(&self, mut iterations: Vec<Iteration>, current: Iteration) -> Vec<Iteration> {
        iterations.sort_unstable_by(|a, b| b.cmp(a));
        let is_kept = |iteration: Iteration| self.every.is_some_and(|every| iteration.number().is_multiple_of(every));
        let (later, others): (Vec<_>, Vec<_>) = iterations.into_iter().partition(|at| *at > current);
        let dropped = others.into_iter().skip(self.newest).filter(|iteration| !is_kept(*iteration));
        later.into_iter().chain(dropped).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cadences() {
        for (text, cadence) in [
            ("never", Cadence::Never),
            ("1", Cadence::Iterations(1)),
            ("60s", Cadence::Seconds(60.0)),
            ("1.5 m", Cadence::Seconds(90.0)),
            ("2h", Cadence::Seconds(7200.0)),
        ] {
            assert_eq!(text.parse(), Ok(cadence), "{text}");
            assert_eq!(cadence.to_string().parse(), Ok(cadence));
        }
        for text in ["", "0", "-1", "s", "0s", "-1s", "1 day", "infs", "NaNs", "10µ", "often"] {
            assert!(text.parse::<Cadence>().is_err(), "{text}");
        }
    }

    #[test]
    fn the_newest_and_every_so_many_are_kept() {
        let retention = Retention { newest: 2, every: None };
        let dropped = |retention: Retention, current| {
            let dropped = retention.dropped([10, 40, 20, 30].map(Iteration).to_vec(), Iteration(current));
            dropped.into_iter().map(Iteration::number).collect::<Vec<_>>()
        };
        assert_eq!(dropped(retention, 40), [20, 10]);
        assert_eq!(dropped(Retention { every: Some(20), ..retention }, 40), [10]);
        assert_eq!(dropped(retention, 30), [40, 10], "the run went back behind 40");
        assert!(retention.dropped(vec![Iteration(7)], Iteration(7)).is_empty());
    }
}
