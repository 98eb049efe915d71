//! Figures: their content, the files that they are written to, and errors.

use std::error::Error;
use std::path::{Path, PathBuf};
use std::{fs, io};

use plotters::drawing::DrawingAreaErrorKind;

use crate::{csv, draw};

/// A figure: a plot with its axes and texts.
#[derive(Clone, Debug, PartialEq)]
pub struct Figure {
    /// The stem of the file names.
    pub name: String,
    /// The title above the drawing.
    pub title: String,
    /// The text below the drawing in a [`crate::Report`]; it is not part of the files.
    pub caption: String,
    /// The horizontal axis.
    pub x: Axis,
    /// The vertical axis.
    pub y: Axis,
    /// The data and the kind of plot.
    pub plot: Plot,
}

/// An axis.
#[derive(Clone, Debug, PartialEq)]
pub struct Axis {
    /// The measured quantity, with its unit, such as "virtual time (s)".
    pub label: String,
    /// The spacing of values.
    pub scale: Scale,
}

/// The spacing of values along an axis.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scale {
    /// Equal differences have equal lengths. Values that are not finite are skipped.
    Linear,
    /// Equal ratios have equal lengths. Values that are not finite or not above 0 are skipped.
    Log,
}

/// The data of a figure and the kind of plot.
#[derive(Clone, Debug, PartialEq)]
pub enum Plot {
    /// A line for each series, in the order of x.
    Lines(Vec<Series>),
    /// Shares of a whole over x, the first series at the bottom. A series counts as 0 where only others have a point;
    /// where x is dense, neighbouring columns are averaged, which preserves the totals.
    Stacked(Vec<Series>),
    /// Labelled points that are joined in this order: one quantity against another while a parameter varies.
    Frontier(Vec<Curve>),
}

/// A named sequence of points.
#[derive(Clone, Debug, PartialEq)]
pub struct Series {
    /// The name in the legend.
    pub name: String,
    /// The points; those of a line or a stack may be in any order.
    pub points: Vec<Point>,
}

/// A value y at x, with a band that shows its variation.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Point {
    /// The place on the horizontal axis.
    pub x: f64,
    /// The value.
    pub y: f64,
    /// The lower edge of the band around the value; y if there is no band.
    pub low: f64,
    /// The upper edge of the band around the value; y if there is no band.
    pub high: f64,
}

/// A named sequence of marks of a frontier.
#[derive(Clone, Debug, PartialEq)]
pub struct Curve {
    /// The name in the legend.
    pub name: String,
    /// The marks, joined in this order.
    pub marks: Vec<Mark>,
}

/// A point with a label next to it.
#[derive(Clone, Debug, PartialEq)]
pub struct Mark {
    /// The text next to the point; may be empty.
    pub label: String,
    /// The place of the mark.
    pub point: Point,
}

impl Axis {
    /// Creates a linear axis.
    pub fn linear(label: impl Into<String>) -> Self {
        Self { label: label.into(), scale: Scale::Linear }
    }

    /// Creates a logarithmic axis.
    pub fn log(label: impl Into<String>) -> Self {
        Self { label: label.into(), scale: Scale::Log }
    }
}

impl Point {
    /// Creates a point without a band.
    pub fn new(x: f64, y: f64) -> Self {
        Self { x, y, low: y, high: y }
    }
}

impl Figure {
    pub(crate) fn sizes(&self) -> Vec<(&str, usize)> {
        match &self.plot {
            Plot::Lines(series) | Plot::Stacked(series) => {
                series.iter().map(|one| (one.name.as_str(), one.points.len())).collect()
            }
            Plot::Frontier(curves) => curves.iter().map(|one| (one.name.as_str(), one.marks.len())).collect(),
        }
    }

    /// Renders the drawing as an SVG document.
    pub fn svg(&self) -> Result<String, FigureError> {
        draw::svg(self, &[])
    }

    /// Writes `NAME.svg`, with the looks of series that belong to their places in `order`, and `NAME.csv` into the folder.
    pub(crate) fn write(&self, folder: &Path, order: &[&str]) -> Result<(), FigureError> {
        write_file(folder, &format!("{}.svg", self.name), draw::svg(self, order)?.as_bytes())?;
        write_file(folder, &format!("{}.csv", self.name), csv::text(self, csv::CSV_POINTS).as_bytes())
    }
}

pub(crate) fn write_file(folder: &Path, name: &str, bytes: &[u8]) -> Result<(), FigureError> {
    let path = folder.join(name);
    fs::create_dir_all(folder)
        .and_then(|()| fs::write(&path, bytes))
        .map_err(|source| FigureError::Write { path, source })
}

/// An error of making a figure or a report.
#[derive(Debug, thiserror::Error)]
pub enum FigureError {
    /// The figure has a name that cannot be used for a file, or nothing that can be drawn.
    #[error("figure {0}")]
    Invalid(String),
    /// Drawing failed.
    #[error("drawing failed: {0}")]
    Draw(String),
    /// A file cannot be written.
    #[error("cannot write {}: check the folder, its permissions and the free space", path.display())]
    Write {
        /// The file or folder.
        path: PathBuf,
        /// The error of the system.
        #[source]
        source: io::Error,
    },
}

impl<E: Error + Send + Sync> From<DrawingAreaErrorKind<E>> for FigureError {
    fn from(error: DrawingAreaErrorKind<E>) -> Self {
        Self::Draw(error.to_string())
    }
}
