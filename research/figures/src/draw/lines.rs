//! Draws lines with bands.

use std::ops::Range;

use super::Scene;
use super::canvas::Canvas;
use super::frame::TICK_PX;
use super::legend::{Legend, Swatch};
use crate::axis::Margin;
use crate::palette::{Palette, Shape};
use crate::{FigureError, Point, Scale, Series, text, thin};

/// The number of columns of a thinned line, each of at most four points: about two points per pixel of the frame.
const COLUMNS: usize = 400;
const MOST_POINTS: usize = 1_000;
const BAND_OPACITY: f64 = 0.18;
const LINE_PX: f64 = 2.25;
const MARKERS: usize = 8;
/// The width in the legend of a name that is followed by a note.
const NOTED_PX: f64 = 140.0;

pub(super) struct Lines {
    names: Vec<String>,
    points: Vec<Vec<Point>>,
    palette: Palette,
}

impl Lines {
    pub(super) fn of(series: &[Series], x: Scale, y: Scale, order: &[&str]) -> Self {
        let placed = |one: &Series| {
            let mut placed: Vec<Point> = one.points.iter().filter_map(|point| place(point, x, y)).collect();
            placed.sort_by(|a, b| a.x.total_cmp(&b.x));
            if placed.len() <= MOST_POINTS { placed } else { thin::thin(&placed, COLUMNS, |x| x) }
        };
        let points: Vec<Vec<Point>> = series.iter().map(placed).collect();
        let names = series.iter().zip(&points).map(|(one, line)| noted(&one.name, line.is_empty())).collect();
        Self { names, points, palette: Palette::in_order(series.iter().map(|one| one.name.as_str()), order) }
    }

    fn draw_band(&self, canvas: &Canvas<'_>, index: usize, line: &[Point]) -> Result<(), FigureError> {
        let colour = self.palette.colour(index);
        if line.iter().all(|point| point.low == point.high) {
            return Ok(());
        }
        if let [point] = line {
            return canvas.line(vec![canvas.at(point.x, point.low), canvas.at(point.x, point.high)], colour, LINE_PX);
        }
        let upper = line.iter().map(|point| canvas.at(point.x, point.high));
        let lower = line.iter().rev().map(|point| canvas.at(point.x, point.low));
        canvas.fill(upper.chain(lower).collect(), colour, BAND_OPACITY)
    }

    fn draw_line(&self, canvas: &Canvas<'_>, index: usize, line: &[Point]) -> Result<(), FigureError> {
        let colour = self.palette.colour(index);
        if let [point] = line {
            return canvas.mark(Shape::Circle, canvas.at(point.x, point.y), colour, 4.5);
        }
        if line.is_empty() {
            return Ok(());
        }
        canvas.line(line.iter().map(|point| canvas.at(point.x, point.y)).collect(), colour, LINE_PX)?;
        let Some(shape) = self.palette.marker(index) else { return Ok(()) };
        let span = canvas.x.range.end - canvas.x.range.start;
        for step in 0..MARKERS {
            // Markers are shifted from line to line, so that those of coinciding lines do not hide each other.
            let x = canvas.x.range.start + span * (step as f64 + (index % 8) as f64 / 8.0) / MARKERS as f64;
            let nearest = line.iter().min_by(|a, b| (a.x - x).abs().total_cmp(&(b.x - x).abs()));
            if let Some(point) = nearest {
                canvas.mark(shape, canvas.at(point.x, point.y), colour, 4.5)?;
            }
        }
        Ok(())
    }
}

impl Scene for Lines {
    fn ranges(&self, x: Scale, y: Scale) -> Option<(Range<f64>, Range<f64>)> {
        let points = || self.points.iter().flatten();
        let values = points().flat_map(|point| [point.y, point.low, point.high]);
        Some((x.range(points().map(|point| point.x), Margin::Tight)?, y.range(values, Margin::Line)?))
    }

    fn legend(&self) -> Legend {
        Legend::of(self.names.clone(), self.palette.clone(), false, |palette, index| {
            Swatch::Line(palette.marker(index))
        })
    }

    /// Draws all bands first, so that none covers a line.
    fn draw(&self, canvas: &Canvas<'_>) -> Result<(), FigureError> {
        for (index, line) in self.points.iter().enumerate() {
            self.draw_band(canvas, index, line)?;
        }
        for (index, line) in self.points.iter().enumerate() {
            self.draw_line(canvas, index, line)?;
        }
        Ok(())
    }
}

/// Returns the name for the legend, with a note if the series has no visible points.
pub(super) fn noted(name: &str, empty: bool) -> String {
    if empty { format!("{} (off scale)", text::fit(name, TICK_PX, TICK_PX, NOTED_PX).0) } else { name.to_owned() }
}

/// Converts a point to places on the axes, if it has any. An edge of the band that has none is moved to the point.
pub(super) fn place(point: &Point, x: Scale, y: Scale) -> Option<Point> {
    let middle = y.place(point.y)?;
    let edge = |value: f64| y.place(value).unwrap_or(middle);
    let (low, high) = (edge(point.low).min(middle), edge(point.high).max(middle));
    Some(Point { x: x.place(point.x)?, y: middle, low, high })
}
