//! Reads image files from outside: with bounded memory, and only if they are whole.

use std::io::Cursor;
use std::path::Path;

use image::error::{DecodingError, LimitError, LimitErrorKind};
use image::metadata::Orientation;
use image::{
    DynamicImage, ImageDecoder, ImageError, ImageFormat, ImageReader, ImageResult, Limits, RgbImage,
    imageops::FilterType,
};
use zune_jpeg::JpegDecoder;
use zune_jpeg::zune_core::bytestream::ZCursor;
use zune_jpeg::zune_core::colorspace::ColorSpace;
use zune_jpeg::zune_core::options::DecoderOptions;

/// The maximum number of pixels in a row or column of a source image: more than those of any camera.
const MOST_PIXELS: u32 = 1 << 15;
/// The maximum memory for decoding an image, in bytes, per thread: an image of 80 megapixels. Small files can claim to be far larger.
pub(crate) const MOST_BYTES: u64 = 256 << 20;
/// The maximum ratio of an image's sides: of a longer one, the ends are cut off before it is resized. Resizing a row of 32,768 pixels to 256
/// rows would take gigabytes, all but a square of which are cut off afterwards. No photograph is longer, so that none changes by this.
const MOST_RATIO: u32 = 16;
/// What follows the pixels of a sequential JPEG in place of its end marker: as many bytes as the decoder reads ahead. More would stand for
/// more blocks of an image that is cut.
const PAST_END: [u8; 8] = [0; 8];

/// Reads an image, and resizes it so that its shorter side fits. The excess of the longer side is cropped on both ends. The result has a
/// red, a green and a blue plane.
pub(crate) fn decode(file: Vec<u8>, path: &Path, size: usize) -> ImageResult<Vec<u8>> {
    let mut reader = ImageReader::new(Cursor::new(&file[..])).with_guessed_format()?;
    if reader.format().is_none() {
        reader.set_format(ImageFormat::from_path(path)?);
    }
    let (image, orientation) = match reader.format() {
        Some(ImageFormat::Jpeg) => decode_jpeg(file)?,
        _ => decode_other(reader)?,
    };
    let (width, height) = (image.width(), image.height());
    let longest = width.min(height).saturating_mul(MOST_RATIO);
    let (kept_width, kept_height) = (width.min(longest), height.min(longest));
    let image = if (kept_width, kept_height) == (width, height) {
        image
    } else {
        image.crop_imm((width - kept_width) / 2, (height - kept_height) / 2, kept_width, kept_height)
    };
    let mut image = DynamicImage::ImageRgb8(image.into_rgb8());
    image.apply_orientation(orientation);
    let size = size as u32;
    if (image.width(), image.height()) != (size, size) {
        image = image.resize_to_fill(size, size, FilterType::Triangle);
    }
    let image = image.into_rgb8();
    Ok([0, 1, 2].iter().flat_map(|channel| image.pixels().map(move |pixel| pixel.0[*channel])).collect())
}

fn decode_other(mut reader: ImageReader<Cursor<&[u8]>>) -> ImageResult<(DynamicImage, Orientation)> {
    let mut limits = Limits::default();
    (limits.max_image_width, limits.max_image_height) = (Some(MOST_PIXELS), Some(MOST_PIXELS));
    limits.max_alloc = Some(MOST_BYTES);
    reader.limits(limits);
    let mut decoder = reader.into_decoder()?;
    let (width, height) = decoder.dimensions();
    // The decoder's own limit covers its working memory, but not the image.
    check_bytes(decoder.total_bytes(), width, height)?;
    // Cameras store the orientation of an image as metadata.
    let orientation = decoder.orientation().unwrap_or(Orientation::NoTransforms);
    Ok((DynamicImage::from_decoder(decoder)?, orientation))
}

/// Checks the size of an image as it is decoded, and that of its three channels.
fn check_bytes(decoded: u64, width: u32, height: u32) -> ImageResult<()> {
    if decoded.max(u64::from(width) * u64::from(height) * 3) > MOST_BYTES {
        return Err(ImageError::Limits(LimitError::from_kind(LimitErrorKind::InsufficientMemory)));
    }
    Ok(())
}

/// Decodes a JPEG, all of whose pixels must be in the file; most decoders replace those that are missing by grey.
fn decode_jpeg(mut file: Vec<u8>) -> ImageResult<(DynamicImage, Orientation)> {
    let wrong = |cause: String| ImageError::Decoding(DecodingError::new(ImageFormat::Jpeg.into(), cause));
    let end = image_end(&file);
    if let Some((marker, true)) = end {
        // At the end marker, the decoder would take zeros for the blocks that are missing before it, without an error.
        file.truncate(marker);
        file.extend(PAST_END);
    }
    let most = MOST_PIXELS as usize;
    let options = DecoderOptions::default().jpeg_set_out_colorspace(ColorSpace::RGB);
    let options = options.set_max_width(most).set_max_height(most).set_strict_mode(false);
    let mut decoder = JpegDecoder::new_with_options(ZCursor::new(&file), options);
    decoder.decode_headers().map_err(|cause| wrong(cause.to_string()))?;
    let orientation = decoder.exif().and_then(|exif| Orientation::from_exif_chunk(exif));
    let (width, height) = decoder.dimensions().unwrap_or_default();
    let (width, height) = (width as u32, height as u32);
    check_bytes(0, width, height)?;
    if end.is_none() {
        return Err(wrong("the file is cut off: it has no end-of-image marker".into()));
    }
    // Whole images may have odd headers, so that only their pixels are read strictly.
    decoder.set_options(options.set_strict_mode(true));
    let pixels = decoder.decode().map_err(|cause| wrong(format!("the file is cut off or damaged: {cause}")))?;
    let image = RgbImage::from_raw(width, height, pixels).ok_or_else(|| wrong("pixels are missing".into()))?;
    Ok((image.into(), orientation.unwrap_or(Orientation::NoTransforms)))
}

/// Returns the position of a JPEG's end-of-image marker, and whether its data is sequential instead of progressive. Markers in segments,
/// such as those of an embedded thumbnail, do not count.
fn image_end(file: &[u8]) -> Option<(usize, bool)> {
    let (mut at, mut is_sequential) = (0, false);
    loop {
        // Pixels and fill bytes have 0 and 0xFF here.
        at += file.get(at..)?.windows(2).position(|pair| pair[0] == 0xFF && !matches!(pair[1], 0 | 0xFF))?;
        match file[at + 1] {
            0xD9 => return Some((at, is_sequential)),
            // The start of the image, restarts, and a reserved marker have no content.
            0x01 | 0xD0..=0xD8 => at += 2,
            marker => {
                is_sequential |= matches!(marker, 0xC0 | 0xC1);
                let length = file.get(at + 2..at + 4)?;
                at += 2 + usize::from(u16::from_be_bytes([length[0], length[1]]));
            }
        }
    }
}
