//! Errors of figures and reports.

use std::error::Error;
use std::io;
use std::path::PathBuf;

use plotters::drawing::DrawingAreaErrorKind;

/// Why a figure or a report was not made.
#[derive(Debug, thiserror::Error)]
pub enum FigureError {
    /// The name cannot be used for a file.
    #[error("figure name {0:?}: expected a file stem of letters, digits, '-', '_' and '.', not starting with '.'")]
    Name(String),
    /// There is no series at all.
    #[error("figure {figure} has no series: add at least one, or leave the figure out")]
    NoSeries {
        /// Name of the figure.
        figure: String,
    },
    /// A series has no points.
    #[error("figure {figure}: series {series:?} has no points; leave it out, or find out why its run recorded nothing")]
    EmptySeries {
        /// Name of the figure.
        figure: String,
        /// Name of the series.
        series: String,
    },
    /// No point of any series has a place on the axes.
    #[error("figure {figure}: no point can be drawn; expected at least one that is finite, and above 0 on a log axis")]
    NothingToDraw {
        /// Name of the figure.
        figure: String,
    },
    /// Stacked shares are on a log axis.
    #[error("figure {figure}: stacked shares need a linear y axis; set the scale of y to Linear")]
    StackedOnLog {
        /// Name of the figure.
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
