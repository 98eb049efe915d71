//! The places of values on an axis, its range, its ticks and their labels, in the form that the drawing library requires.

use std::ops::Range;

use plotters::coord::ranged1d::{KeyPointHint, NoDefaultFormatting, Ranged, ValueFormatter};

use crate::Scale;

/// The largest absolute value: beyond it, padding an axis could overflow f64.
const LARGEST: f64 = 1e300;
const SMALLEST: f64 = 1e-300;
/// The smallest span as a fraction of the values: below it, tick labels would need too many digits.
const FINEST: f64 = 1e-9;

/// The margin between the extremes of the data and the frame, as a fraction of the span.
#[derive(Clone, Copy)]
pub(crate) enum Margin {
    /// No margin: lines run from edge to edge along this axis.
    Tight,
    /// A margin that keeps lines off the frame.
    Line,
    /// A margin in which marks and their labels fit.
    Marks,
}

impl Scale {
    /// Returns the place of a value: the value itself, or its decimal logarithm. `None` if the axis has no such place.
    pub(crate) fn place(self, value: f64) -> Option<f64> {
        match self {
            Self::Linear => (value.abs() <= LARGEST).then_some(value),
            Self::Log => (SMALLEST..=LARGEST).contains(&value).then(|| value.log10()),
        }
    }

    /// Returns the range of an axis that shows all of these places; `None` if there are none.
    pub(crate) fn range(self, places: impl Iterator<Item = f64>, margin: Margin) -> Option<Range<f64>> {
        let (low, high) = places.fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), v| (low.min(v), high.max(v)));
        if low > high {
            return None;
        }
        let largest = low.abs().max(high.abs());
        if high - low <= FINEST * largest {
            let around = match self {
                Self::Log => 0.5,
                Self::Linear if largest == 0.0 => 1.0,
                Self::Linear => 0.5 * largest,
            };
            return Some(low - around..high + around);
        }
        let part = match margin {
            Margin::Tight => 0.0,
            Margin::Line => 0.04,
            Margin::Marks => 0.1,
        };
        let room = part * (high - low);
        let (mut from, to) = (low - room, high + room);
        // If 0 is near, positive values are compared with it. The axis must not show negative values that cannot occur.
        let starts_at_zero = matches!(margin, Margin::Line) && low <= 0.3 * high;
        if self == Self::Linear && low >= 0.0 && (starts_at_zero || from < 0.0) {
            from = 0.0;
        }
        Some(from..to)
    }
}

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
    let power = 10.0_f64.powi(exponent(rough));
    let step = [1.0, 2.0, 5.0, 10.0].map(|factor| factor * power).into_iter().find(|&s| s >= rough * (1.0 - 1e-9));
    let step = step.unwrap_or(10.0 * power);
    let (first, last) = ((range.start / step - 1e-6).ceil() as i64, (range.end / step + 1e-6).floor() as i64);
    let values: Vec<f64> = (first..=last).map(|k| k as f64 * step).collect();
    let labels = multiples(&values, step);
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
    let labels = scientific(&labelled);
    (labelled.into_iter().map(place).zip(labels).collect(), minor)
}

/// Returns the logarithm of factor · 10^power.
fn place((factor, power): (i32, i32)) -> f64 {
    f64::from(factor).log10() + f64::from(power)
}

/// The first number that is written with a power of ten, because readers would have to count its zeros.
const LARGEST_PLAIN: f64 = 1e6;
const SMALLEST_PLAIN: f64 = 1e-3;

/// Returns the labels of multiples of `step`, all with the same number of decimals and, for large or small ones, the same power.
fn multiples(values: &[f64], step: f64) -> Vec<String> {
    let largest = values.iter().fold(0.0_f64, |largest, value| largest.max(value.abs()));
    let plain = largest == 0.0 || (SMALLEST_PLAIN..LARGEST_PLAIN).contains(&largest);
    let power = if plain { 0 } else { exponent(largest) };
    let unit = 10.0_f64.powi(power);
    let decimals = usize::try_from(-exponent(step / unit)).unwrap_or(0);
    let label = |value: &f64| match (value / unit, power) {
        (scaled, _) if scaled.abs() < step / unit / 2.0 => "0".to_owned(),
        (scaled, 0) => plain_label(scaled, decimals),
        (scaled, _) => format!("{}×10{}", plain_label(scaled, decimals), superscript(power)),
    };
    values.iter().map(label).collect()
}

/// Returns the labels of (factor, power of ten), as on a log axis: plain if all are short enough to read, else with powers.
fn scientific(values: &[(i32, i32)]) -> Vec<String> {
    let plain = values.iter().all(|(_, power)| (-3..=5).contains(power));
    let label = |&(factor, power): &(i32, i32)| match factor {
        _ if plain => plain_label(f64::from(factor) * 10.0_f64.powi(power), usize::try_from(-power).unwrap_or(0)),
        1 => format!("10{}", superscript(power)),
        _ => format!("{factor}×10{}", superscript(power)),
    };
    values.iter().map(label).collect()
}

/// Returns the exponent of the largest power of ten that is not above a positive value.
fn exponent(value: f64) -> i32 {
    // The computed logarithm of a step such as 0.001 may be slightly below the integer.
    (value.log10() + 1e-9).floor() as i32
}

/// Formats a decimal number with commas between thousands, and a minus sign instead of a hyphen.
fn plain_label(value: f64, decimals: usize) -> String {
    let digits = format!("{:.decimals$}", value.abs());
    let (whole, rest) = digits.split_at(digits.find('.').unwrap_or(digits.len()));
    let sign = if value < 0.0 { "−" } else { "" };
    format!("{sign}{}{rest}", with_commas(whole))
}

/// Inserts commas between thousands: 10000 becomes 10,000.
pub(crate) fn with_commas(whole: &str) -> String {
    let mut text = String::new();
    for (index, digit) in whole.chars().enumerate() {
        if index > 0 && (whole.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

fn superscript(power: i32) -> String {
    const DIGITS: [char; 10] = ['⁰', '¹', '²', '³', '⁴', '⁵', '⁶', '⁷', '⁸', '⁹'];
    let raised = |digit: char| digit.to_digit(10).map_or('⁻', |digit| DIGITS[digit as usize]);
    power.to_string().chars().map(raised).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_that_do_not_exist_are_none() {
        for value in [f64::NAN, f64::INFINITY, f64::NEG_INFINITY, 1e301] {
            assert_eq!(Scale::Linear.place(value), None);
            assert_eq!(Scale::Log.place(value), None);
        }
        assert_eq!(Scale::Log.place(0.0), None);
        assert_eq!(Scale::Log.place(-1.0), None);
        assert_eq!(Scale::Log.place(1000.0), Some(3.0));
        assert_eq!(Scale::Linear.place(-1.0), Some(-1.0));
    }

    #[test]
    fn a_range_is_never_empty() {
        let linear = [0.0, 1.0, -3.5, 1e300, 1e-300].map(|value| (Scale::Linear, value));
        let log = [-300.0, -1.0, 0.0, 2.5, 300.0].map(|value| (Scale::Log, value));
        for (scale, value) in linear.into_iter().chain(log) {
            let range = scale.range([value, value].into_iter(), Margin::Line).unwrap();
            assert!(range.start < range.end && range.contains(&value), "{scale:?} {value}: {range:?}");
        }
        assert_eq!(Scale::Linear.range(std::iter::empty(), Margin::Line), None);
        let above_zero = Scale::Linear.range([1.0, 10.0].into_iter(), Margin::Line).unwrap();
        assert_eq!(above_zero.start, 0.0, "lines are read against zero");
    }

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

    fn check(values: &[f64], step: f64, expected: &[&str]) {
        assert_eq!(multiples(values, step), expected);
    }

    #[test]
    fn labels_of_one_axis_share_decimals_and_power() {
        check(&[0.0, 0.5, 1.0], 0.5, &["0", "0.5", "1.0"]);
        check(&[-20.0, 0.0, 20.0], 20.0, &["−20", "0", "20"]);
        check(&[0.0, 5e3, 1e4], 5e3, &["0", "5,000", "10,000"]);
        check(&[5e5, 1e6, 1.5e6], 5e5, &["0.5×10⁶", "1.0×10⁶", "1.5×10⁶"]);
        check(&[2e-5, 4e-5], 2e-5, &["2×10⁻⁵", "4×10⁻⁵"]);
        check(&[0.1 + 0.2], 0.1, &["0.3"]);
    }
}
