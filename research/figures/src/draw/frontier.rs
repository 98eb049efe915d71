//! Draws labelled points that are joined by lines.

use std::ops::Range;

use plotters::style::text_anchor::HPos;

use super::canvas::{Canvas, INK, Spot};
use super::frame::TICK_PX;
use super::legend::{Legend, Swatch};
use super::lines::{noted, place};
use super::{Scene, px};
use crate::axis::Margin;
use crate::palette::Palette;
use crate::{Curve, FigureError, Point, Scale, text};

const RADIUS_PX: f64 = 6.0;
/// The smallest distance of a label from other marks, which makes clear what it belongs to.
const CLEAR_PX: f64 = 3.5;
const LINE_PX: f64 = 2.0;
/// The distances of a label from its mark; from the second one on, a thin line connects the two.
const DISTANCES_PX: [f64; 3] = [4.0, 18.0, 34.0];
const LEADER_PX: f64 = 1.0;

/// The curves to draw, each with its labels and its points as places on the axes.
pub(super) struct Frontier {
    names: Vec<String>,
    curves: Vec<Vec<(String, Point)>>,
    palette: Palette,
    /// Whether each curve is a single labelled point, which makes a legend redundant.
    labels_suffice: bool,
}

/// A box in units of the drawing: left, top, right, bottom.
type Box4 = [i32; 4];

impl Frontier {
    pub(super) fn of(curves: &[Curve], x: Scale, y: Scale, order: &[&str]) -> Self {
        let marks = |curve: &Curve| -> Vec<(String, Point)> {
            curve.marks.iter().filter_map(|mark| Some((mark.label.clone(), place(&mark.point, x, y)?))).collect()
        };
        let placed: Vec<Vec<(String, Point)>> = curves.iter().map(marks).collect();
        let names = curves.iter().zip(&placed).map(|(curve, marks)| noted(&curve.name, marks.is_empty())).collect();
        let labels_suffice = placed.iter().all(|marks| matches!(marks.as_slice(), [(label, _)] if !label.is_empty()));
        let palette = Palette::in_order(curves.iter().map(|curve| curve.name.as_str()), order);
        Self { names, curves: placed, palette, labels_suffice }
    }

    /// Draws each label where it covers the least, as near to its point as possible.
    fn draw_labels(&self, canvas: &Canvas<'_>) -> Result<(), FigureError> {
        let mut taken = self.obstacles(canvas);
        let frame = [canvas.columns.start, canvas.rows.start, canvas.columns.end, canvas.rows.end];
        for (label, point) in self.curves.iter().flatten().filter(|(label, _)| !label.is_empty()) {
            let (label, size) = text::fit(label, TICK_PX, TICK_PX, 260.0);
            let spot = canvas.at(point.x, point.y);
            let (width, height) = (px(text::width(&label, size)) as i32, px(size) as i32);
            let places = DISTANCES_PX.iter().flat_map(|&away_px| places(spot, width, height, away_px));
            let covered = |place: &Place| -> i64 {
                let outside = area(place.at) - overlap(&place.at, &frame);
                4 * outside + taken.iter().map(|other| overlap(&place.at, other)).sum::<i64>()
            };
            let Some(best) = places.min_by_key(covered) else { continue };
            if best.away_px > DISTANCES_PX[0] {
                canvas.line(best.leader(spot), INK, LEADER_PX)?;
            }
            canvas.text(best.edge, &label, size, best.anchor())?;
            taken.push(best.at);
        }
        Ok(())
    }

    /// Returns the boxes that labels should avoid: marks, whiskers and, in small pieces, the lines between marks.
    fn obstacles(&self, canvas: &Canvas<'_>) -> Vec<Box4> {
        let around = |(x, y): Spot, radius: i32| [x - radius, y - radius, x + radius, y + radius];
        let mut boxes = Vec::new();
        for curve in &self.curves {
            let spots: Vec<Spot> = curve.iter().map(|(_, point)| canvas.at(point.x, point.y)).collect();
            boxes.extend(spots.iter().map(|&spot| around(spot, px(RADIUS_PX + CLEAR_PX) as i32)));
            for (_, point) in curve {
                let (low, high) = (canvas.at(point.x, point.low), canvas.at(point.x, point.high));
                boxes.push([high.0 - px(2.0) as i32, high.1, high.0 + px(2.0) as i32, low.1]);
            }
            for pair in spots.windows(2) {
                let pieces = 40;
                let between = |from: i32, to: i32, piece: i32| from + (to - from) * piece / pieces;
                let spot = |piece| (between(pair[0].0, pair[1].0, piece), between(pair[0].1, pair[1].1, piece));
                boxes.extend((1..pieces).map(|piece| around(spot(piece), px(3.0) as i32)));
            }
        }
        boxes
    }
}

impl Scene for Frontier {
    fn ranges(&self, x: Scale, y: Scale) -> Option<(Range<f64>, Range<f64>)> {
        let points = || self.curves.iter().flatten().map(|(_, point)| point);
        let values = points().flat_map(|point| [point.y, point.low, point.high]);
        Some((x.range(points().map(|point| point.x), Margin::Marks)?, y.range(values, Margin::Marks)?))
    }

    fn legend(&self) -> Legend {
        let names = if self.labels_suffice { Vec::new() } else { self.names.clone() };
        Legend::of(names, self.palette.clone(), false, |palette, index| Swatch::Line(Some(palette.shape(index))))
    }

    fn draw(&self, canvas: &Canvas<'_>) -> Result<(), FigureError> {
        for (index, curve) in self.curves.iter().enumerate() {
            let colour = self.palette.colour(index);
            if curve.len() > 1 {
                let spots = curve.iter().map(|(_, point)| canvas.at(point.x, point.y)).collect();
                canvas.line(spots, colour, LINE_PX)?;
            }
            for (_, point) in curve.iter().filter(|(_, point)| point.low < point.high) {
                canvas.line(vec![canvas.at(point.x, point.low), canvas.at(point.x, point.high)], colour, LINE_PX)?;
            }
            for (_, point) in curve {
                canvas.mark(self.palette.shape(index), canvas.at(point.x, point.y), colour, RADIUS_PX)?;
            }
        }
        self.draw_labels(canvas)
    }
}

struct Place {
    at: Box4,
    /// The edge of the text that is nearest to its mark.
    edge: HPos,
    away_px: f64,
}

impl Place {
    /// Returns the position of that edge, halfway up.
    fn anchor(&self) -> Spot {
        let [left, top, right, bottom] = self.at;
        let x = match self.edge {
            HPos::Left => left,
            HPos::Center => i32::midpoint(left, right),
            HPos::Right => right,
        };
        (x, i32::midpoint(top, bottom))
    }

    /// Returns a line from the rim of the mark to the label.
    fn leader(&self, (x, y): Spot) -> Vec<Spot> {
        let gap = match self.edge {
            HPos::Left => -px(2.0) as i32,
            HPos::Center => 0,
            HPos::Right => px(2.0) as i32,
        };
        let to = (self.anchor().0 + gap, y.clamp(self.at[1], self.at[3]));
        let (dx, dy) = (f64::from(to.0 - x), f64::from(to.1 - y));
        let part = px(RADIUS_PX + 2.0) / dx.hypot(dy).max(1.0);
        vec![(x + (part * dx) as i32, y + (part * dy) as i32), to]
    }
}

/// Returns the places for the label of a point at a distance, the best first.
fn places((x, y): Spot, width: i32, height: i32, away_px: f64) -> [Place; 8] {
    let gap = px(RADIUS_PX + away_px) as i32;
    let near = px(0.6 * (RADIUS_PX + away_px - DISTANCES_PX[0])) as i32;
    let place = |edge: HPos, left: i32, top: i32| {
        let at = [left, top, left + width, top + height];
        Place { at, edge, away_px }
    };
    let (right, left, middle) = (x + gap, x - gap - width, x - width / 2);
    let (above, below) = (y - gap - height, y + gap);
    [
        place(HPos::Left, right, y - height / 2),
        place(HPos::Right, left, y - height / 2),
        place(HPos::Center, middle, above),
        place(HPos::Center, middle, below),
        place(HPos::Left, x + near, above),
        place(HPos::Left, x + near, below),
        place(HPos::Right, x - near - width, above),
        place(HPos::Right, x - near - width, below),
    ]
}

fn overlap(a: &Box4, b: &Box4) -> i64 {
    let (width, height) = (a[2].min(b[2]) - a[0].max(b[0]), a[3].min(b[3]) - a[1].max(b[1]));
    i64::from(width.max(0)) * i64::from(height.max(0))
}

fn area([left, top, right, bottom]: Box4) -> i64 {
    i64::from(right - left) * i64::from(bottom - top)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// No place covers its own mark, the first places are the nearest, and text ends at its edge.
    #[test]
    fn places_surround_a_mark() {
        let (spot, width, height) = ((1000, 800), 300, 60);
        let radius = px(RADIUS_PX + CLEAR_PX) as i32;
        let mark = [spot.0 - radius, spot.1 - radius, spot.0 + radius, spot.1 + radius];
        for away_px in DISTANCES_PX {
            for place in places(spot, width, height, away_px) {
                assert_eq!(overlap(&place.at, &mark), 0, "{:?}", place.at);
                assert_eq!(area(place.at), i64::from(width * height));
                let (x, y) = place.anchor();
                let [left, top, right, bottom] = place.at;
                assert!((left..=right).contains(&x) && (top..=bottom).contains(&y));
                assert!(matches!(place.edge, HPos::Center) || x == left || x == right);
            }
        }
    }
}
