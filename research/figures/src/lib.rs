//! Figures of experiments on scheduling: each as SVG and the CSV behind it, and one page that shows them all.
//!
//! An SVG uses the reader's sans-serif font. Its text is measured in a font that is included in the program.
//!
//! # Layout
//! - `figure`: [`Figure`] and its parts
//! - `axis`: from values to places on an axis and to their labels
//! - `thin`: shortens long series without losing their extremes
//! - `draw`, `csv`: the files of a figure
//! - `report`: [`Report`], the page

mod axis;
mod csv;
mod draw;
mod figure;
mod palette;
mod report;
mod text;
mod thin;

pub use figure::{Axis, Curve, Figure, FigureError, Mark, Plot, Point, Scale, Series};
pub use report::{Report, Table};
