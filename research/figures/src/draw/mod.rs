//! Draws a figure, for every format.
//!
//! # Layout
//! - `axis`: ranges of places with their ticks
//! - `canvas`: shapes at places on the axes
//! - `frame`: title, axes, ticks and grid
//! - `legend`: the legend next to the frame
//! - `lines`, `stacked`, `frontier`: the plots inside it

mod axis;
mod canvas;
mod frame;
mod frontier;
mod legend;
mod lines;
mod stacked;

use std::ops::Range;

use plotters::backend::DrawingBackend;
use plotters::drawing::IntoDrawingArea;
use plotters::style::WHITE;

use crate::{Figure, FigureError, Plot, text};
use canvas::Canvas;
use frame::Frame;
use frontier::Frontier;
use legend::Legend;
use lines::Lines;
use stacked::Stacked;

/// Units of the drawing per CSS pixel. Coordinates are integers, and with whole pixels lines would be jagged.
pub(crate) const UNITS_PER_PX: u32 = 4;

/// Converts a length in CSS pixels to units of the drawing.
pub(crate) fn px(length: f64) -> f64 {
    length * f64::from(UNITS_PER_PX)
}

/// A plot whose values have been converted to places on the axes.
enum Scene {
    Lines(Lines),
    Stacked(Stacked),
    Frontier(Frontier),
}

impl Scene {
    fn of(figure: &Figure) -> Self {
        let (x, y) = (figure.x.scale, figure.y.scale);
        match &figure.plot {
            Plot::Lines(series) => Self::Lines(Lines::of(series, x, y)),
            Plot::Stacked(series) => Self::Stacked(Stacked::of(series, x)),
            Plot::Frontier(curves) => Self::Frontier(Frontier::of(curves, x, y)),
        }
    }

    /// Returns the ranges of the axes; `None` if there is nothing to draw.
    fn ranges(&self, figure: &Figure) -> Option<(Range<f64>, Range<f64>)> {
        match self {
            Self::Lines(lines) => lines.ranges(figure.x.scale, figure.y.scale),
            Self::Stacked(stacked) => stacked.ranges(figure.x.scale),
            Self::Frontier(frontier) => frontier.ranges(figure.x.scale, figure.y.scale),
        }
    }

    fn legend(&self) -> Legend {
        match self {
            Self::Lines(lines) => lines.legend(),
            Self::Stacked(stacked) => stacked.legend(),
            Self::Frontier(frontier) => frontier.legend(),
        }
    }

    fn draw<DB: DrawingBackend>(&self, canvas: &Canvas<'_, DB>) -> Result<(), FigureError> {
        match self {
            Self::Lines(lines) => lines.draw(canvas),
            Self::Stacked(stacked) => stacked.draw(canvas),
            Self::Frontier(frontier) => frontier.draw(canvas),
        }
    }
}

/// Draws a figure.
pub(crate) fn figure<DB: DrawingBackend>(figure: &Figure, backend: DB) -> Result<(), FigureError> {
    check(figure)?;
    text::register()?;
    let scene = Scene::of(figure);
    let ranges = scene.ranges(figure).ok_or_else(|| FigureError::NothingToDraw { figure: figure.name.clone() })?;
    let legend = scene.legend();
    let frame = Frame::of(figure, ranges, legend.width_px());

    let area = backend.into_drawing_area();
    area.fill(&WHITE)?;
    let canvas = frame.draw(&area)?;
    scene.draw(&canvas)?;
    legend.draw(&canvas)?;
    area.present()?;
    Ok(())
}

fn check(figure: &Figure) -> Result<(), FigureError> {
    let named = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
    if figure.name.is_empty() || figure.name.starts_with('.') || !figure.name.chars().all(named) {
        return Err(FigureError::Name(figure.name.clone()));
    }
    let sizes: Vec<(&str, usize)> = match &figure.plot {
        Plot::Lines(series) | Plot::Stacked(series) => {
            series.iter().map(|s| (s.name.as_str(), s.points.len())).collect()
        }
        Plot::Frontier(curves) => curves.iter().map(|c| (c.name.as_str(), c.marks.len())).collect(),
    };
    let name = figure.name.clone();
    match sizes.iter().find(|(_, size)| *size == 0) {
        Some((series, _)) => Err(FigureError::EmptySeries { figure: name, series: (*series).to_owned() }),
        None if sizes.is_empty() => Err(FigureError::NoSeries { figure: name }),
        None if matches!(figure.plot, Plot::Stacked(_)) && figure.y.scale == crate::Scale::Log => {
            Err(FigureError::StackedOnLog { figure: name })
        }
        None => Ok(()),
    }
}
