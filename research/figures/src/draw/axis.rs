//! An axis in the form that the drawing library requires.

use std::ops::Range;

use plotters::coord::ranged1d::{KeyPointHint, NoDefaultFormatting, Ranged, ValueFormatter};

use crate::Scale;
use crate::ticks::Ticks;

/// A range of positions on an axis, with its ticks.
#[derive(Clone)]
pub(super) struct Span {
    pub(super) range: Range<f64>,
    pub(super) ticks: Ticks,
}

impl Span {
    pub(super) fn of(range: Range<f64>, scale: Scale) -> Self {
        Self { ticks: Ticks::of(&range, scale), range }
    }

    /// Returns the relative position of a place on the axis: 0 at or before its start, 1 at or after its end.
    pub(super) fn part(&self, place: f64) -> f64 {
        ((place - self.range.start) / (self.range.end - self.range.start)).clamp(0.0, 1.0)
    }
}

impl Ranged for Span {
    type FormatOption = NoDefaultFormatting;
    type ValueType = f64;

    fn map(&self, place: &f64, (start, end): (i32, i32)) -> i32 {
        start + (self.part(*place) * f64::from(end - start)).round() as i32
    }

    fn key_points<Hint: KeyPointHint>(&self, hint: Hint) -> Vec<f64> {
        if hint.weight().allow_light_points() {
            return self.ticks.minor.clone();
        }
        self.ticks.labelled.iter().map(|(place, _)| *place).collect()
    }

    fn range(&self) -> Range<f64> {
        self.range.clone()
    }
}

impl ValueFormatter<f64> for Span {
    fn format_ext(&self, place: &f64) -> String {
        self.ticks.label(*place)
    }
}
