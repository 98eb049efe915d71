//! The ticks of an axis and their labels, in the form that the drawing library requires.

use std::ops::Range;

use plotters::coord::ranged1d::{KeyPointHint, NoDefaultFormatting, Ranged, ValueFormatter};

use crate::{Scale, number};

/// The approximate largest number of labelled ticks; the smallest number is a third of it.
const LINEAR_TICKS: f64 = 9.0;
const LOG_TICKS: usize = 8;

/// A range of places on an axis, with its ticks; places are logarithms on a log axis.
#[derive(Clone)]
pub(crate) struct Span {
    pub(crate) range: Range<f64>,
    pub(crate) labelled: Vec<(f64, String)>,
    minor: Vec<f64>,
}

impl Span {
    /// Creates the ticks within a range of places, which must not be empty.
    pub(crate) fn of(range: Range<f64>, scale: Scale) -> Self {
        let (labelled, minor) = match scale {
            Scale::Linear => (linear(&range), Vec::new()),
            Scale::Log => log(&range),
        };
        Self { range, labelled, minor }
    }
}

impl Ranged for Span {
    type FormatOption = NoDefaultFormatting;
    type ValueType = f64;

    /// Returns the position of a place; one beyond the range is moved to its end.
    fn map(&self, place: &f64, (start, end): (i32, i32)) -> i32 {
        let part = ((place - self.range.start) / (self.range.end - self.range.start)).clamp(0.0, 1.0);
        start + (part * f64::from(end - start)).round() as i32
    }

    fn key_points<Hint: KeyPointHint>(&self, hint: Hint) -> Vec<f64> {
        if hint.weight().allow_light_points() {
            return self.minor.clone();
        }
        self.labelled.iter().map(|(place, _)| *place).collect()
    }

    fn range(&self) -> Range<f64> {
        self.range.clone()
    }
}

impl ValueFormatter<f64> for Span {
    fn format_ext(&self, place: &f64) -> String {
        self.labelled.iter().find(|(at, _)| at == place).map(|(_, label)| label.clone()).unwrap_or_default()
    }
}

/// Returns ticks at multiples of 1, 2 or 5 times a power of ten.
fn linear(range: &Range<f64>) -> Vec<(f64, String)> {
    let rough = (range.end - range.start) / LINEAR_TICKS;
    let power = 10.0_f64.powi(number::exponent(rough));
    let step = [1.0, 2.0, 5.0, 10.0].map(|factor| factor * power).into_iter().find(|&s| s >= rough * (1.0 - 1e-9));
    let step = step.unwrap_or(10.0 * power);
    let (first, last) = ((range.start / step - 1e-6).ceil() as i64, (range.end / step + 1e-6).floor() as i64);
    let values: Vec<f64> = (first..=last).map(|k| k as f64 * step).collect();
    let labels = number::multiples(&values, step);
    values.into_iter().zip(labels).collect()
}

fn log(range: &Range<f64>) -> (Vec<(f64, String)>, Vec<f64>) {
    let (low, high) = (range.start.floor() as i32, range.end.ceil() as i32);
    let inside = |factors: &[i32], powers: &mut dyn Iterator<Item = i32>| -> Vec<(i32, i32)> {
        let all = powers.flat_map(|power| factors.iter().map(move |&factor| (factor, power)));
        all.filter(|&tick| (range.start - 1e-9..=range.end + 1e-9).contains(&place(tick))).collect()
    };
    let powers = inside(&[1], &mut (low..=high));
    let stride = i32::try_from(powers.len().div_ceil(LOG_TICKS)).unwrap_or(i32::MAX);
    let labelled = match powers.len() {
        0..=2 => inside(&[1, 2, 5], &mut (low..=high)),
        _ => powers.iter().copied().filter(|(_, power)| power % stride == 0).collect(),
    };
    let minor = match stride {
        0 | 1 => inside(&[1, 2, 3, 4, 5, 6, 7, 8, 9], &mut (low..=high)),
        _ => powers,
    };
    let minor = minor.into_iter().map(place).collect();
    if labelled.len() < 3 {
        // A range of less than a decade has equal steps, at their places on the log axis.
        let values = linear(&(10.0_f64.powf(range.start)..10.0_f64.powf(range.end)));
        let labelled =
            values.into_iter().filter(|(value, _)| *value > 0.0).map(|(value, label)| (value.log10(), label));
        return (labelled.collect(), Vec::new());
    }
    let labels = number::scientific(&labelled);
    (labelled.into_iter().map(place).zip(labels).collect(), minor)
}

/// Returns the logarithm of factor · 10^power.
fn place((factor, power): (i32, i32)) -> f64 {
    f64::from(factor).log10() + f64::from(power)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn labels(range: Range<f64>, scale: Scale) -> Vec<String> {
        Span::of(range, scale).labelled.into_iter().map(|(_, label)| label).collect()
    }

    #[test]
    fn linear_ticks_are_round() {
        assert_eq!(labels(0.0..1.0, Scale::Linear), ["0", "0.2", "0.4", "0.6", "0.8", "1.0"]);
        assert_eq!(labels(-3.0..12.5, Scale::Linear), ["−2", "0", "2", "4", "6", "8", "10", "12"]);
        assert_eq!(labels(0.0..52_000.0, Scale::Linear)[1], "10,000");
    }

    #[test]
    fn decades_get_powers_of_ten() {
        assert_eq!(labels(-2.1..2.1, Scale::Log), ["0.01", "0.1", "1", "10", "100"]);
        assert_eq!(labels(0.0..6.0, Scale::Log)[6], "10⁶");
        let wide = labels(-20.0..20.0, Scale::Log);
        assert!((3..=8).contains(&wide.len()) && wide.contains(&"10⁰".to_owned()), "{wide:?}");
    }

    #[test]
    fn less_than_a_decade_still_has_labels() {
        assert_eq!(labels(0.0..1.2, Scale::Log), ["1", "2", "5", "10"]);
        assert_eq!(
            labels(2.0_f64.log10()..6.0_f64.log10(), Scale::Log),
            ["2.0", "2.5", "3.0", "3.5", "4.0", "4.5", "5.0", "5.5", "6.0"]
        );
        for (low, factor) in [(1.7, 1.001), (2.31e-7, 1.3), (9.9, 1.05), (3.3e8, 2.9), (0.7, 9.0)] {
            let found = labels(f64::log10(low)..f64::log10(low * factor), Scale::Log);
            assert!((2..=10).contains(&found.len()), "{low}: {found:?}");
        }
    }
}
