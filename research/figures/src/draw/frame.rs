//! The frame of a figure: title, axes, ticks and grid.

use std::ops::Range;

use plotters::backend::DrawingBackend;
use plotters::chart::ChartBuilder;
use plotters::coord::Shift;
use plotters::drawing::DrawingArea;
use plotters::style::text_anchor::{HPos, VPos};
use plotters::style::{Color, RGBColor};

use super::axis::Span;
use super::canvas::{Canvas, INK};
use super::px;
use crate::{Figure, FigureError, SIZE_PX, text};

const TITLE_PX: f64 = 21.0;
const LABEL_PX: f64 = 17.0;
pub(super) const TICK_PX: f64 = 15.5;
/// The smallest size of titles and labels; text that is still too wide is truncated.
const LEAST_PX: f64 = 15.0;

const MARGIN_PX: f64 = 18.0;
const TOP_PX: f64 = 58.0;
const BOTTOM_PX: f64 = 66.0;
/// The margin for half a tick label at the end of an axis without a legend next to it.
const RIGHT_PX: f64 = 42.0;

const GRID: RGBColor = RGBColor(214, 214, 214);
const MINOR_GRID: RGBColor = RGBColor(238, 238, 238);

/// The frame of a figure's axes.
pub(super) struct Frame {
    title: (String, f64),
    labels: [(String, f64); 2],
    x: Span,
    y: Span,
    left_px: f64,
    right_px: f64,
}

impl Frame {
    /// Creates a frame that leaves `legend_px` for a legend on the right.
    pub(super) fn of(figure: &Figure, (x, y): (Range<f64>, Range<f64>), legend_px: f64) -> Self {
        let (width, height) = (f64::from(SIZE_PX.0), f64::from(SIZE_PX.1));
        let (x, y) = (Span::of(x, figure.x.scale), Span::of(y, figure.y.scale));
        let widest = y.ticks.labelled.iter().map(|(_, label)| text::width(label, TICK_PX)).fold(0.0, f64::max);
        let left_px = MARGIN_PX + LABEL_PX * 1.6 + widest + 12.0;
        let right_px = legend_px.max(RIGHT_PX);
        let labels = [
            text::fit(&figure.x.label, LABEL_PX, LEAST_PX, width - left_px - right_px),
            text::fit(&figure.y.label, LABEL_PX, LEAST_PX, height - TOP_PX - BOTTOM_PX),
        ];
        let title = text::fit(&figure.title, TITLE_PX, LEAST_PX, width - 2.0 * MARGIN_PX);
        Self { title, labels, x, y, left_px, right_px }
    }

    /// Draws the frame, and returns the canvas inside it.
    pub(super) fn draw<'a, DB: DrawingBackend>(
        &self,
        area: &'a DrawingArea<DB, Shift>,
    ) -> Result<Canvas<'a, DB>, FigureError> {
        let units = |length_px: f64| px(length_px) as i32;
        let title_style = text::style(self.title.1, INK, (HPos::Left, VPos::Center));
        area.draw_text(&self.title.0, &title_style, (units(MARGIN_PX), units(TOP_PX / 2.0)))?;

        let mut chart = ChartBuilder::on(area)
            .margin_top(units(TOP_PX))
            .margin_bottom(units(MARGIN_PX - 6.0))
            .margin_left(units(MARGIN_PX - 4.0))
            .margin_right(units(self.right_px))
            .x_label_area_size(units(BOTTOM_PX - MARGIN_PX + 6.0))
            .y_label_area_size(units(self.left_px - MARGIN_PX + 4.0))
            .build_cartesian_2d(self.x.clone(), self.y.clone())?;
        let centred = (HPos::Center, VPos::Center);
        chart
            .configure_mesh()
            .bold_line_style(GRID.stroke_width(px(1.0) as u32))
            .light_line_style(MINOR_GRID.stroke_width(px(1.0) as u32))
            .axis_style(INK.stroke_width(px(1.0) as u32))
            .label_style(text::style(TICK_PX, INK, centred))
            .axis_desc_style(text::style(self.labels[0].1.min(self.labels[1].1), INK, centred))
            .set_all_tick_mark_size(units(5.0))
            .x_desc(self.labels[0].0.as_str())
            .y_desc(self.labels[1].0.as_str())
            .draw()?;
        let (columns, rows) = chart.plotting_area().get_pixel_range();
        Ok(Canvas { area, x: self.x.clone(), y: self.y.clone(), columns, rows })
    }
}
