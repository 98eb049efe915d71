//! Figures of experiments on scheduling: each as SVG, PNG and the CSV behind it, and one page that shows them all.
//!
//! The text of a PNG is set in a font that is part of the program, so that a figure is the same on a machine without
//! fonts. An SVG uses the reader's sans-serif font.
//!
//! # Layout
//! - `figure`: [`Figure`] and its parts
//! - `scale`, `ticks`, `number`: from values to places on an axis and to their labels
//! - `thin`: shortens long series without losing their extremes
//! - `draw`: one drawing for both formats
//! - `svg`, `png`, `csv`: the three files
//! - `report`: [`Report`], the page

mod csv;
mod draw;
mod error;
mod figure;
mod number;
mod palette;
mod png;
mod report;
mod scale;
mod svg;
mod text;
mod thin;
mod ticks;

pub use csv::CSV_POINTS;
pub use error::FigureError;
pub use figure::{Axis, Curve, Figure, Mark, Plot, Point, Scale, Series};
pub use png::PNG_SCALE;
pub use report::{Report, Table};

/// Width and height of every figure in CSS pixels; a PNG has [`PNG_SCALE`] times as many in each direction.
pub const SIZE_PX: (u32, u32) = (1000, 620);
