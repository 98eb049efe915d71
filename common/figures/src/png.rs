//! A figure as a PNG file, drawn by tiny-skia.
//!
//! The drawing library's own bitmap backend outlines a thick path with one polygon, which breaks into spikes and holes
//! where a noisy line turns sharply, and it paints the edges of translucent areas twice.

use std::convert::Infallible;

use plotters::backend::DrawingBackend;
use plotters_backend::{BackendColor, BackendCoord, BackendStyle, BackendTextStyle, DrawingErrorKind, FontTransform};
use tiny_skia::{
    Color, FillRule, FilterQuality, LineJoin, Paint, Path, PathBuilder, Pixmap, PixmapPaint, Rect, Stroke, Transform,
};

use crate::draw::{self, UNITS_PER_PX};
use crate::{Figure, FigureError, SIZE_PX, text};

/// Pixels of a PNG per CSS pixel: sharp on screens of twice the usual density, and in print.
pub const PNG_SCALE: u32 = 2;

/// How far the library places text above the middle of its digits, as a fraction of the font's height.
const TEXT_RISE: f64 = 0.19;

/// The bytes of the file.
pub(crate) fn file(figure: &Figure) -> Result<Vec<u8>, FigureError> {
    let mut drawing = pixmap(UNITS_PER_PX)?;
    drawing.fill(Color::WHITE);
    draw::figure(figure, Raster(&mut drawing))?;
    let mut image = pixmap(PNG_SCALE)?;
    // Halfway between four pixels of the drawing, which are two rows of two, bilinear interpolation gives their mean.
    let paint = PixmapPaint { quality: FilterQuality::Bilinear, ..PixmapPaint::default() };
    let scale = PNG_SCALE as f32 / UNITS_PER_PX as f32;
    image.draw_pixmap(0, 0, drawing.as_ref(), &paint, Transform::from_scale(scale, scale), None);
    image.encode_png().map_err(|error| FigureError::Draw(error.to_string()))
}

/// A picture with this many pixels per CSS pixel.
fn pixmap(scale: u32) -> Result<Pixmap, FigureError> {
    let (width, height) = SIZE_PX;
    Pixmap::new(width * scale, height * scale).ok_or_else(|| FigureError::Draw("no memory for a picture".into()))
}

type Drawing = Result<(), DrawingErrorKind<Infallible>>;

/// Draws into a picture of [`UNITS_PER_PX`].
struct Raster<'a>(&'a mut Pixmap);

fn paint(colour: BackendColor) -> Paint<'static> {
    let (red, green, blue) = colour.rgb;
    let mut paint = Paint::default();
    paint.set_color_rgba8(red, green, blue, (colour.alpha * 255.0).round() as u8);
    paint
}

fn path_of(path: impl IntoIterator<Item = BackendCoord>, is_closed: bool) -> Option<Path> {
    let mut builder = PathBuilder::new();
    for (x, y) in path {
        let (x, y) = (x as f32, y as f32);
        if builder.is_empty() { builder.move_to(x, y) } else { builder.line_to(x, y) }
    }
    if is_closed {
        builder.close();
    }
    builder.finish()
}

impl Raster<'_> {
    fn fill(&mut self, path: Option<Path>, colour: BackendColor) {
        if let Some(path) = path {
            self.0.fill_path(&path, &paint(colour), FillRule::EvenOdd, Transform::identity(), None);
        }
    }

    fn stroke(&mut self, path: Option<Path>, style: &impl BackendStyle) {
        let stroke = Stroke { width: style.stroke_width() as f32, line_join: LineJoin::Round, ..Stroke::default() };
        if let Some(path) = path {
            self.0.stroke_path(&path, &paint(style.color()), &stroke, Transform::identity(), None);
        }
    }
}

impl DrawingBackend for Raster<'_> {
    type ErrorType = Infallible;

    fn get_size(&self) -> (u32, u32) {
        (self.0.width(), self.0.height())
    }

    fn ensure_prepared(&mut self) -> Drawing {
        Ok(())
    }

    fn present(&mut self) -> Drawing {
        Ok(())
    }

    fn draw_pixel(&mut self, (x, y): BackendCoord, colour: BackendColor) -> Drawing {
        if let Some(pixel) = Rect::from_xywh(x as f32, y as f32, 1.0, 1.0) {
            self.0.fill_rect(pixel, &paint(colour), Transform::identity(), None);
        }
        Ok(())
    }

    fn draw_line<S: BackendStyle>(&mut self, from: BackendCoord, to: BackendCoord, style: &S) -> Drawing {
        self.draw_path([from, to], style)
    }

    fn draw_text<S: BackendTextStyle>(&mut self, text: &str, style: &S, (x, y): BackendCoord) -> Drawing {
        let rise = (style.size() * TEXT_RISE).round() as i32;
        let at = match style.transform() {
            FontTransform::Rotate270 => (x + rise, y),
            _ => (x, y + rise),
        };
        Glyphs(self).draw_text(&text::drawable(text), style, at)
    }

    fn draw_rect<S: BackendStyle>(&mut self, from: BackendCoord, to: BackendCoord, style: &S, fill: bool) -> Drawing {
        let corners = path_of([from, (to.0, from.1), to, (from.0, to.1)], true);
        if fill {
            self.fill(corners, style.color());
        } else {
            self.stroke(corners, style);
        }
        Ok(())
    }

    fn draw_path<S: BackendStyle, I: IntoIterator<Item = BackendCoord>>(&mut self, path: I, style: &S) -> Drawing {
        self.stroke(path_of(path, false), style);
        Ok(())
    }

    fn draw_circle<S: BackendStyle>(&mut self, (x, y): BackendCoord, radius: u32, style: &S, _fill: bool) -> Drawing {
        self.fill(PathBuilder::from_circle(x as f32, y as f32, radius as f32), style.color());
        Ok(())
    }

    fn fill_polygon<S: BackendStyle, I: IntoIterator<Item = BackendCoord>>(
        &mut self,
        corners: I,
        style: &S,
    ) -> Drawing {
        self.fill(path_of(corners, true), style.color());
        Ok(())
    }
}

/// Draws text with the library's default method, which needs only pixels.
struct Glyphs<'a, 'b>(&'a mut Raster<'b>);

impl DrawingBackend for Glyphs<'_, '_> {
    type ErrorType = Infallible;

    fn get_size(&self) -> (u32, u32) {
        self.0.get_size()
    }

    fn ensure_prepared(&mut self) -> Drawing {
        Ok(())
    }

    fn present(&mut self) -> Drawing {
        Ok(())
    }

    fn draw_pixel(&mut self, at: BackendCoord, colour: BackendColor) -> Drawing {
        self.0.draw_pixel(at, colour)
    }
}
