//! Draws figures as SVG documents.
//!
//! # Layout
//! - `canvas`: shapes at places on the axes
//! - `frame`: title, axes, ticks and grid
//! - `legend`: the legend next to the frame
//! - `lines`, `stacked`, `frontier`: the plots inside it

mod canvas;
mod frame;
mod frontier;
mod legend;
mod lines;
mod stacked;

use std::ops::Range;

use plotters::backend::SVGBackend;
use plotters::coord::Shift;
use plotters::drawing::{DrawingArea, IntoDrawingArea};
use plotters::style::WHITE;

use crate::{Figure, FigureError, Plot, Scale, report, text};
use canvas::Canvas;
use frontier::Frontier;
use legend::Legend;
use lines::Lines;
use stacked::Stacked;

const SIZE_PX: (u32, u32) = (1000, 620);
/// Units of the drawing per CSS pixel. Coordinates are integers, and with whole pixels lines would be jagged.
const UNITS_PER_PX: u32 = 4;

pub(crate) fn px(length: f64) -> f64 {
    length * f64::from(UNITS_PER_PX)
}

type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;

/// A plot whose values have been converted to places on the axes.
trait Scene {
    /// Returns the ranges of the axes with these scales; `None` if there is nothing to draw.
    fn ranges(&self, x: Scale, y: Scale) -> Option<(Range<f64>, Range<f64>)>;

    fn legend(&self) -> Legend;

    fn draw(&self, canvas: &Canvas<'_>) -> Result<(), FigureError>;
}

/// Renders a figure as one `<svg>` element. Series with a place in `order` have the look that belongs to it.
pub(crate) fn svg(figure: &Figure, order: &[&str]) -> Result<String, FigureError> {
    check(figure).map_err(FigureError::Invalid)?;
    text::register()?;
    let (x, y) = (figure.x.scale, figure.y.scale);
    let scene: Box<dyn Scene> = match &figure.plot {
        Plot::Lines(series) => Box::new(Lines::of(series, x, y, order)),
        Plot::Stacked(series) => Box::new(Stacked::of(series, x)),
        Plot::Frontier(curves) => Box::new(Frontier::of(curves, x, y, order)),
    };
    let expected = "no point can be drawn; expected at least one that is finite, and above 0 on a log axis";
    let nothing = || FigureError::Invalid(format!("{}: {expected}", figure.name));
    let ranges = scene.ranges(x, y).ok_or_else(nothing)?;
    let legend = scene.legend();

    let (width, height) = (SIZE_PX.0 * UNITS_PER_PX, SIZE_PX.1 * UNITS_PER_PX);
    let mut drawing = String::new();
    let area = SVGBackend::with_string(&mut drawing, (width, height)).into_drawing_area();
    area.fill(&WHITE)?;
    let canvas = frame::draw(area, figure, ranges, legend.width_px())?;
    scene.draw(&canvas)?;
    legend.draw(&canvas)?;
    canvas.area.present()?;
    drop(canvas);
    // The library's opening tag is replaced because it lacks a size in CSS pixels and a label for screen readers.
    let content = drawing.split_once('>').map_or("", |(_, content)| content);
    Ok(format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{}\" height=\"{}\" viewBox=\"0 0 {width} {height}\" role=\"img\" \
         aria-label=\"{}\" stroke-linejoin=\"round\">{content}",
        SIZE_PX.0,
        SIZE_PX.1,
        report::escape(&figure.title)
    ))
}

fn check(figure: &Figure) -> Result<(), String> {
    let Figure { name, y, plot, .. } = figure;
    let named = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
    if name.is_empty() || name.starts_with('.') || !name.chars().all(named) {
        let expected = "expected a file stem of letters, digits, '-', '_' and '.', not starting with '.'";
        return Err(format!("name {name:?}: {expected}"));
    }
    let sizes = figure.sizes();
    match sizes.iter().find(|(_, size)| *size == 0) {
        Some((series, _)) => {
            let advice = "leave it out, or find out why its run recorded nothing";
            Err(format!("{name}: series {series:?} has no points; {advice}"))
        }
        None if sizes.is_empty() => Err(format!("{name} has no series: add at least one, or leave the figure out")),
        None if matches!(plot, Plot::Stacked(_)) && y.scale == Scale::Log => {
            Err(format!("{name}: stacked shares need a linear y axis; set the scale of y to Linear"))
        }
        None => Ok(()),
    }
}
