//! The legend to the right of the frame: a row for each series, or a colour ramp for many.

use plotters::style::text_anchor::HPos;

use super::canvas::{Canvas, INK, Spot};
use super::frame::TICK_PX;
use super::px;
use crate::palette::{Palette, Shape};
use crate::{FigureError, text};

/// The largest width of a name; wider names are truncated because the data needs the room.
const MOST_NAME_PX: f64 = 230.0;
const GAP_PX: f64 = 20.0;
const SWATCH_PX: f64 = 28.0;
const ROW_PX: f64 = 25.0;
const RAMP_PX: f64 = 400.0;
const RAMP_NAMES: usize = 6;

/// The sample of a series next to its name.
#[derive(Clone, Copy)]
pub(super) enum Swatch {
    Line(Option<Shape>),
    Area,
}

pub(super) struct Legend {
    names: Vec<String>,
    palette: Palette,
    /// Whether the first series is at the bottom, as in a stack.
    upwards: bool,
    swatch: fn(&Palette, usize) -> Swatch,
}

impl Legend {
    /// Creates a legend, which is empty if there are no series to distinguish.
    pub(super) fn of(
        names: Vec<String>,
        palette: Palette,
        upwards: bool,
        swatch: fn(&Palette, usize) -> Swatch,
    ) -> Self {
        let names = if names.len() < 2 { Vec::new() } else { names };
        let fitted = names.iter().map(|name| text::fit(name, TICK_PX, TICK_PX, MOST_NAME_PX).0);
        Self { names: fitted.collect(), palette, upwards, swatch }
    }

    /// Returns the width of the legend, including the gap to the frame.
    pub(super) fn width_px(&self) -> f64 {
        let widths = self.names.iter().map(|name| text::width(name, TICK_PX));
        widths.reduce(f64::max).map_or(0.0, |widest| GAP_PX + SWATCH_PX + 8.0 + widest + GAP_PX / 2.0)
    }

    pub(super) fn draw(&self, canvas: &Canvas<'_>) -> Result<(), FigureError> {
        if self.palette.ramp && !self.names.is_empty() {
            return self.draw_ramp(canvas);
        }
        let count = self.names.len();
        for row in 0..count {
            let index = if self.upwards { count - 1 - row } else { row };
            let (left, middle) = place(canvas, (row as f64 + 0.5) * ROW_PX);
            let (colour, right) = (self.palette.colour(index), left + px(SWATCH_PX) as i32);
            match (self.swatch)(&self.palette, index) {
                Swatch::Line(shape) => {
                    canvas.line(vec![(left, middle), (right, middle)], colour, 3.0)?;
                    if let Some(shape) = shape {
                        canvas.mark(shape, (i32::midpoint(left, right), middle), colour, 5.0)?;
                    }
                }
                Swatch::Area => {
                    let half = px(7.0) as i32;
                    canvas.rectangle([(left, middle - half), (right, middle + half)], colour)?;
                }
            }
            canvas.text(HPos::Left, &self.names[index], TICK_PX, (right + px(8.0) as i32, middle))?;
        }
        Ok(())
    }

    fn draw_ramp(&self, canvas: &Canvas<'_>) -> Result<(), FigureError> {
        let count = self.names.len();
        let edge = |step: usize| {
            let part = step as f64 / count as f64;
            place(canvas, if self.upwards { 1.0 - part } else { part } * RAMP_PX + 8.0)
        };
        let right = edge(0).0 + px(SWATCH_PX) as i32;
        for index in 0..count {
            // Each part extends to the end of the ramp, under the later parts, because adjacent parts would show a seam.
            let (from, to) = (edge(index).1, edge(count).1);
            let corners = [(edge(0).0, from.min(to)), (right, from.max(to))];
            canvas.rectangle(corners, self.palette.colour(index))?;
        }
        for step in 0..RAMP_NAMES {
            let index = step * (count - 1) / (RAMP_NAMES - 1);
            let middle = i32::midpoint(edge(index).1, edge(index + 1).1);
            canvas.line(vec![(right, middle), (right + px(4.0) as i32, middle)], INK, 1.0)?;
            canvas.text(HPos::Left, &self.names[index], TICK_PX, (right + px(8.0) as i32, middle))?;
        }
        Ok(())
    }
}

/// Returns the left edge of the legend, `below_px` below the top of the frame.
fn place(canvas: &Canvas<'_>, below_px: f64) -> Spot {
    (canvas.columns.end + px(GAP_PX) as i32, canvas.rows.start + px(below_px) as i32)
}
