//! The frame of a figure: title, axes, ticks and grid.

use std::ops::Range;

use plotters::chart::ChartBuilder;
use plotters::style::text_anchor::{HPos, VPos};
use plotters::style::{Color, RGBColor};

use super::canvas::{Canvas, INK};
use super::{Area, SIZE_PX, px};
use crate::axis::Span;
use crate::{Figure, FigureError, text};

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

/// Draws the frame of a figure's axes, and returns the canvas inside it. It leaves `legend_px` for a legend on the right.
pub(super) fn draw<'a>(
    area: Area<'a>,
    figure: &Figure,
    (x, y): (Range<f64>, Range<f64>),
    legend_px: f64,
) -> Result<Canvas<'a>, FigureError> {
    let (width, height) = (f64::from(SIZE_PX.0), f64::from(SIZE_PX.1));
    let (x, y) = (Span::of(x, figure.x.scale), Span::of(y, figure.y.scale));
    let widest = y.labelled.iter().map(|(_, label)| text::width(label, TICK_PX)).fold(0.0, f64::max);
    let left_px = MARGIN_PX + LABEL_PX * 1.6 + widest + 12.0;
    let right_px = legend_px.max(RIGHT_PX);
    let (title, title_px) = text::fit(&figure.title, TITLE_PX, LEAST_PX, width - 2.0 * MARGIN_PX);
    let (x_label, x_label_px) = text::fit(&figure.x.label, LABEL_PX, LEAST_PX, width - left_px - right_px);
    let (y_label, y_label_px) = text::fit(&figure.y.label, LABEL_PX, LEAST_PX, height - TOP_PX - BOTTOM_PX);

    let units = |length_px: f64| px(length_px) as i32;
    let title_style = text::style(title_px, INK, (HPos::Left, VPos::Center));
    area.draw_text(&title, &title_style, (units(MARGIN_PX), units(TOP_PX / 2.0)))?;

    let mut chart = ChartBuilder::on(&area)
        .margin_top(units(TOP_PX))
        .margin_bottom(units(MARGIN_PX - 6.0))
        .margin_left(units(MARGIN_PX - 4.0))
        .margin_right(units(right_px))
        .x_label_area_size(units(BOTTOM_PX - MARGIN_PX + 6.0))
        .y_label_area_size(units(left_px - MARGIN_PX + 4.0))
        .build_cartesian_2d(x.clone(), y.clone())?;
    let centred = (HPos::Center, VPos::Center);
    chart
        .configure_mesh()
        .bold_line_style(GRID.stroke_width(px(1.0) as u32))
        .light_line_style(MINOR_GRID.stroke_width(px(1.0) as u32))
        .axis_style(INK.stroke_width(px(1.0) as u32))
        .label_style(text::style(TICK_PX, INK, centred))
        .axis_desc_style(text::style(x_label_px.min(y_label_px), INK, centred))
        .set_all_tick_mark_size(units(5.0))
        .x_desc(x_label.as_str())
        .y_desc(y_label.as_str())
        .draw()?;
    let (columns, rows) = chart.plotting_area().get_pixel_range();
    drop(chart);
    Ok(Canvas { area, x, y, columns, rows })
}
