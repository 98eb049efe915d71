//! Renders figures as SVG documents.

use plotters::backend::SVGBackend;

use crate::draw::{self, UNITS_PER_PX};
use crate::{Figure, FigureError, SIZE_PX, report};

/// Renders a figure as one `<svg>` element.
pub(crate) fn document(figure: &Figure) -> Result<String, FigureError> {
    let (width, height) = SIZE_PX;
    let mut drawing = String::new();
    draw::figure(figure, SVGBackend::with_string(&mut drawing, (width * UNITS_PER_PX, height * UNITS_PER_PX)))?;
    // The library's opening tag is replaced because it lacks a size in CSS pixels and a label for screen readers.
    let content = drawing.split_once('>').map_or("", |(_, content)| content);
    let (inner_width, inner_height) = (width * UNITS_PER_PX, height * UNITS_PER_PX);
    let title = report::escape(&figure.title);
    Ok(format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width}\" height=\"{height}\" \
         viewBox=\"0 0 {inner_width} {inner_height}\" role=\"img\" aria-label=\"{title}\" \
         stroke-linejoin=\"round\">{content}"
    ))
}
