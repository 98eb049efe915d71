//! Draws shapes at places on the axes, in units of the drawing.

use std::ops::Range;

use plotters::coord::ranged1d::Ranged;
use plotters::element::{Circle, PathElement, Polygon, Rectangle};
use plotters::style::text_anchor::{HPos, VPos};
use plotters::style::{Color, RGBColor, WHITE};

use super::{Area, px};
use crate::axis::Span;
use crate::palette::Shape;
use crate::{FigureError, text};

/// A place in units of the drawing.
pub(super) type Spot = (i32, i32);

/// The colour of text and separating lines.
pub(super) const INK: RGBColor = RGBColor(34, 34, 34);

pub(super) struct Canvas<'a> {
    pub(super) area: Area<'a>,
    pub(super) x: Span,
    pub(super) y: Span,
    /// The columns inside the frame, in units of the drawing.
    pub(super) columns: Range<i32>,
    pub(super) rows: Range<i32>,
}

impl Canvas<'_> {
    /// Returns the position of a point, given its places on the axes. A point beyond the frame is moved to its edge.
    pub(super) fn at(&self, x: f64, y: f64) -> Spot {
        let column = self.x.map(&x, (self.columns.start, self.columns.end));
        (column, self.y.map(&y, (self.rows.end, self.rows.start)))
    }

    pub(super) fn line(&self, spots: Vec<Spot>, colour: RGBColor, width_px: f64) -> Result<(), FigureError> {
        Ok(self.area.draw(&PathElement::new(spots, colour.stroke_width(px(width_px) as u32)))?)
    }

    pub(super) fn fill(&self, corners: Vec<Spot>, colour: RGBColor, opacity: f64) -> Result<(), FigureError> {
        Ok(self.area.draw(&Polygon::new(corners, colour.mix(opacity)))?)
    }

    pub(super) fn rectangle(&self, corners: [Spot; 2], colour: RGBColor) -> Result<(), FigureError> {
        Ok(self.area.draw(&Rectangle::new(corners, colour.filled()))?)
    }

    /// Draws a mark with a white rim, which makes it stand out on lines.
    pub(super) fn mark(&self, shape: Shape, at: Spot, colour: RGBColor, radius_px: f64) -> Result<(), FigureError> {
        self.shape(shape, at, WHITE, radius_px + 1.5)?;
        self.shape(shape, at, colour, radius_px)
    }

    fn shape(&self, shape: Shape, (x, y): Spot, colour: RGBColor, radius_px: f64) -> Result<(), FigureError> {
        let polygon = |size: f64, parts: &[(f64, f64)]| {
            let radius_px = size * radius_px;
            let spot = |(dx, dy): &(f64, f64)| (x + px(dx * radius_px) as i32, y + px(dy * radius_px) as i32);
            self.fill(parts.iter().map(spot).collect(), colour, 1.0)
        };
        match shape {
            Shape::Circle => Ok(self.area.draw(&Circle::new((x, y), px(radius_px) as i32, colour.filled()))?),
            Shape::Square => polygon(0.9, &[(-1.0, -1.0), (1.0, -1.0), (1.0, 1.0), (-1.0, 1.0)]),
            Shape::Triangle => polygon(1.2, &[(0.0, -1.0), (0.95, 0.7), (-0.95, 0.7)]),
            Shape::Diamond => polygon(1.3, &[(0.0, -1.0), (1.0, 0.0), (0.0, 1.0), (-1.0, 0.0)]),
        }
    }

    /// Draws text whose left edge, centre or right edge is at a place.
    pub(super) fn text(&self, edge: HPos, text: &str, size: f64, at: Spot) -> Result<(), FigureError> {
        Ok(self.area.draw_text(text, &text::style(size, INK, (edge, VPos::Center)), at)?)
    }
}
