//! Pixels of a drawing, with paths and areas filled exactly.
//!
//! The drawing library's own bitmap backend outlines a thick path with one polygon, which breaks into spikes and holes
//! where a noisy line turns sharply, and it paints the edges of translucent areas twice.

use std::convert::Infallible;

use plotters::backend::DrawingBackend;
use plotters_backend::{BackendColor, BackendCoord, BackendStyle, BackendTextStyle, DrawingErrorKind, FontTransform};

use super::CHANNELS;

/// How far the library places text above the middle of its digits, as a fraction of the font's height.
const TEXT_RISE: f64 = 0.19;

type Drawn = Result<(), DrawingErrorKind<Infallible>>;

/// Draws into a buffer of pixels, clipping at its edges.
pub(super) struct Raster<'a> {
    pixels: &'a mut [u8],
    width: i32,
    height: i32,
}

impl<'a> Raster<'a> {
    /// Draws into `pixels`, which holds [`CHANNELS`] bytes per pixel.
    pub(super) fn new(pixels: &'a mut [u8], width: u32, height: u32) -> Self {
        assert_eq!(pixels.len(), (width * height) as usize * CHANNELS);
        Self { pixels, width: width.cast_signed(), height: height.cast_signed() }
    }

    /// Blends a colour over the pixels `from..to` of a row.
    fn row(&mut self, y: i32, from: i32, to: i32, colour: BackendColor) {
        let (from, to) = (from.clamp(0, self.width), to.clamp(0, self.width));
        if !(0..self.height).contains(&y) || from >= to {
            return;
        }
        let start = (y * self.width) as usize;
        let pixels = &mut self.pixels[(start + from as usize) * CHANNELS..(start + to as usize) * CHANNELS];
        let (red, green, blue) = colour.rgb;
        let over = [red, green, blue].map(|channel| f64::from(channel) * colour.alpha);
        for pixel in pixels.as_chunks_mut::<CHANNELS>().0 {
            if colour.alpha >= 1.0 {
                *pixel = [red, green, blue];
                continue;
            }
            for (channel, over) in pixel.iter_mut().zip(over) {
                *channel = (f64::from(*channel) * (1.0 - colour.alpha) + over).round() as u8;
            }
        }
    }

    /// Fills a polygon between the odd and the even crossings of each row.
    fn fill(&mut self, corners: &[BackendCoord], colour: BackendColor) {
        let (top, bottom) =
            corners.iter().fold((i32::MAX, i32::MIN), |(top, bottom), c| (top.min(c.1), bottom.max(c.1)));
        let mut crossings: Vec<Vec<i32>> = (top..bottom).map(|_| Vec::new()).collect();
        for (index, &from) in corners.iter().enumerate() {
            let to = corners[(index + 1) % corners.len()];
            let (upper, lower) = if from.1 < to.1 { (from, to) } else { (to, from) };
            for y in upper.1..lower.1 {
                let part = (f64::from(y - upper.1) + 0.5) / f64::from(lower.1 - upper.1);
                let x = f64::from(upper.0) + part * f64::from(lower.0 - upper.0);
                crossings[(y - top) as usize].push(x.round() as i32);
            }
        }
        for (y, crossed) in (top..bottom).zip(&mut crossings) {
            crossed.sort_unstable();
            for pair in crossed.as_chunks::<2>().0 {
                self.row(y, pair[0], pair[1], colour);
            }
        }
    }

    fn disc(&mut self, (x, y): BackendCoord, radius: f64, colour: BackendColor) {
        let reach = radius.ceil() as i32;
        for dy in -reach..reach {
            let half = (radius * radius - (f64::from(dy) + 0.5).powi(2)).max(0.0).sqrt().round() as i32;
            self.row(y + dy, x - half, x + half, colour);
        }
    }

    /// Draws one segment of a path as a rectangle.
    fn stretch(&mut self, from: BackendCoord, to: BackendCoord, half_width: f64, colour: BackendColor) {
        let (dx, dy) = (f64::from(to.0 - from.0), f64::from(to.1 - from.1));
        let length = dx.hypot(dy);
        if length == 0.0 {
            return;
        }
        let (across_x, across_y) = (-dy / length * half_width, dx / length * half_width);
        let corner = |(x, y): BackendCoord, side: f64| {
            ((f64::from(x) + side * across_x).round() as i32, (f64::from(y) + side * across_y).round() as i32)
        };
        self.fill(&[corner(from, 1.0), corner(to, 1.0), corner(to, -1.0), corner(from, -1.0)], colour);
    }
}

impl DrawingBackend for Raster<'_> {
    type ErrorType = Infallible;

    fn get_size(&self) -> (u32, u32) {
        (self.width as u32, self.height as u32)
    }

    fn ensure_prepared(&mut self) -> Drawn {
        Ok(())
    }

    fn present(&mut self) -> Drawn {
        Ok(())
    }

    fn draw_pixel(&mut self, (x, y): BackendCoord, colour: BackendColor) -> Drawn {
        self.row(y, x, x + 1, colour);
        Ok(())
    }

    fn draw_line<S: BackendStyle>(&mut self, from: BackendCoord, to: BackendCoord, style: &S) -> Drawn {
        self.draw_path([from, to], style)
    }

    fn draw_text<S: BackendTextStyle>(&mut self, text: &str, style: &S, (x, y): BackendCoord) -> Drawn {
        let rise = (style.size() * TEXT_RISE).round() as i32;
        let at = match style.transform() {
            FontTransform::Rotate270 => (x + rise, y),
            _ => (x, y + rise),
        };
        Glyphs(self).draw_text(text, style, at)
    }

    fn draw_rect<S: BackendStyle>(&mut self, from: BackendCoord, to: BackendCoord, style: &S, fill: bool) -> Drawn {
        let corners = [from, (to.0, from.1), to, (from.0, to.1)];
        if !fill {
            return self.draw_path(corners.into_iter().chain([from]), style);
        }
        self.fill(&corners, style.color());
        Ok(())
    }

    fn draw_path<S: BackendStyle, I: IntoIterator<Item = BackendCoord>>(&mut self, path: I, style: &S) -> Drawn {
        let path: Vec<BackendCoord> = path.into_iter().collect();
        let half_width = f64::from(style.stroke_width()) / 2.0;
        for (index, pair) in path.windows(2).enumerate() {
            self.stretch(pair[0], pair[1], half_width, style.color());
            if index > 0 {
                self.disc(pair[0], half_width, style.color());
            }
        }
        Ok(())
    }

    fn draw_circle<S: BackendStyle>(&mut self, centre: BackendCoord, radius: u32, style: &S, _fill: bool) -> Drawn {
        self.disc(centre, f64::from(radius), style.color());
        Ok(())
    }

    fn fill_polygon<S: BackendStyle, I: IntoIterator<Item = BackendCoord>>(&mut self, corners: I, style: &S) -> Drawn {
        let corners: Vec<BackendCoord> = corners.into_iter().collect();
        self.fill(&corners, style.color());
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

    fn ensure_prepared(&mut self) -> Drawn {
        Ok(())
    }

    fn present(&mut self) -> Drawn {
        Ok(())
    }

    fn draw_pixel(&mut self, at: BackendCoord, colour: BackendColor) -> Drawn {
        self.0.draw_pixel(at, colour)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BLACK: BackendColor = BackendColor { alpha: 1.0, rgb: (0, 0, 0) };

    fn dark(draw: impl Fn(&mut Raster<'_>)) -> usize {
        let mut pixels = vec![255; 20 * 10 * CHANNELS];
        draw(&mut Raster::new(&mut pixels, 20, 10));
        pixels.as_chunks::<CHANNELS>().0.iter().filter(|pixel| pixel[0] < 128).count()
    }

    #[test]
    fn areas_are_exact() {
        assert_eq!(dark(|r| r.fill(&[(2, 2), (12, 2), (12, 7), (2, 7)], BLACK)), 50);
        assert_eq!(dark(|r| r.fill(&[(0, 0), (20, 0), (0, 10)], BLACK)), 100);
        assert_eq!(dark(|r| r.stretch((0, 5), (20, 5), 2.0, BLACK)), 80);
        assert_eq!(dark(|r| r.disc((10, 5), 2.0, BLACK)), 12);
    }

    #[test]
    fn what_is_beyond_the_edges_is_left_out() {
        assert_eq!(dark(|r| r.fill(&[(-50, -50), (50, -50), (50, 50), (-50, 50)], BLACK)), 200);
        assert_eq!(dark(|r| r.disc((-9, 5), 3.0, BLACK)), 0);
        assert_eq!(dark(|r| r.fill(&[], BLACK)), 0);
    }

    #[test]
    fn a_translucent_area_is_even() {
        let mut pixels = vec![255; 4 * 4 * CHANNELS];
        let corners = [(0, 0), (4, 0), (4, 4), (0, 4)];
        Raster::new(&mut pixels, 4, 4).fill(&corners, BackendColor { alpha: 0.2, rgb: (0, 0, 0) });
        assert!(pixels.iter().all(|&channel| channel == 204));
    }
}
