//! Errors of figures and reports.

use std::error::Error;
use std::io;
use std::path::PathBuf;

use plotters::drawing::DrawingAreaErrorKind;

/// An error of making a figure or a report.
#[derive(Debug, thiserror::Error)]
pub enum FigureError {
    /// The name cannot be used for a file.
    #[error("figure name {0:?}: expected a file stem of letters, digits, '-', '_' and '.', not starting with '.'")]
    Name(String),
    /// There is no series at all.
    #[error("figure {figure} has no series: add at least one, or leave the figure out")]
    NoSeries {
        /// The name of the figure.
        figure: String,
    },
    /// A series has no points.
    #[error("figure {figure}: series {series:?} has no points; leave it out, or find out why its run recorded nothing")]
    EmptySeries {
        /// The name of the figure.
        figure: String,
        /// The name of the series.
        series: String,
    },
    /// No series has a point with a place on the axes.
    #[error("figure {figure}: no point can be drawn; expected at least one that is finite, and above 0 on a log axis")]
    NothingToDraw {
        /// The name of the figure.
        figure: String,
    },
    /// Stacked shares are on a log axis.
    #[error("figure {figure}: stacked shares need a linear y axis; set the scale of y to Linear")]
    StackedOnLog {
        /// The name of the figure.
        figure: String,
    },
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
