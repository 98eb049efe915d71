//! Errors of figures and reports.

use std::error::Error;
use std::io;
use std::path::PathBuf;

use plotters::drawing::DrawingAreaErrorKind;

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
