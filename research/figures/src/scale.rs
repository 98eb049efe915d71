//! The places of values on an axis, and the range of the axis.

use std::ops::Range;

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
}
