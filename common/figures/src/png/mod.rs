//! A figure as a PNG file.

mod raster;

use crate::draw::{self, UNITS_PER_PX};
use crate::{Figure, FigureError, SIZE_PX};
use raster::Raster;

/// Pixels of a PNG per CSS pixel: sharp on screens of twice the usual density, and in print.
pub const PNG_SCALE: u32 = 2;

/// Pixels drawn per pixel kept, in each direction: their mean smooths the edges.
const SAMPLES: u32 = UNITS_PER_PX / PNG_SCALE;

const CHANNELS: usize = 3;

/// The bytes of the file.
pub(crate) fn file(figure: &Figure) -> Result<Vec<u8>, FigureError> {
    let (width, height) = (SIZE_PX.0 * UNITS_PER_PX, SIZE_PX.1 * UNITS_PER_PX);
    let mut pixels = vec![255; (width * height) as usize * CHANNELS];
    draw::figure(figure, Raster::new(&mut pixels, width, height))?;
    encode(&smooth(&pixels, width as usize), width / SAMPLES, height / SAMPLES)
}

/// Reduces each square of pixels to its mean.
fn smooth(pixels: &[u8], width: usize) -> Vec<u8> {
    let (samples, row) = (SAMPLES as usize, width * CHANNELS);
    let mut smoothed = Vec::with_capacity(pixels.len() / (samples * samples));
    let mut sums = vec![0_u32; row / samples];
    for rows in pixels.chunks_exact(row * samples) {
        sums.fill(0);
        for (index, &channel) in rows.iter().enumerate() {
            let (pixel, channel_index) = (index % row / CHANNELS, index % CHANNELS);
            sums[pixel / samples * CHANNELS + channel_index] += u32::from(channel);
        }
        smoothed.extend(sums.iter().map(|sum| (sum / (SAMPLES * SAMPLES)) as u8));
    }
    smoothed
}

fn encode(pixels: &[u8], width: u32, height: u32) -> Result<Vec<u8>, FigureError> {
    let mut bytes = Vec::new();
    let mut encoder = ::png::Encoder::new(&mut bytes, width, height);
    encoder.set_color(::png::ColorType::Rgb);
    let mut writer = encoder.write_header()?;
    writer.write_image_data(pixels)?;
    writer.finish()?;
    Ok(bytes)
}
