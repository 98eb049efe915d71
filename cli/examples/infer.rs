//! Prints the five most likely classes of an image, by a model that ata has trained.
//!
//! cargo run --release --example infer -- runs/RUN_ID/model.safetensors image.png
//!
//! The image is a PNG of 32 × 32 pixels in RGB.

use std::error::Error;
use std::fs::File;
use std::io::BufReader;

use ata_data::{CHANNELS, CLASS_NAMES, IMAGE_BYTES, LabelledImage};
use ata_learn::{Cnn, CnnWidths, ImageBatch, ImageShape, Network, builtin_model, with_parameters};
use ata_sums::decode_model;
use burn::tensor::activation::softmax;
use burn::tensor::{Device, Tensor, TensorData};

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [model, image] = &arguments[..] else { return Err("expected MODEL IMAGE".into()) };

    let device = Device::flex();
    let (parameters, _) = decode_model(&builtin_model("cnn")?.table(), &std::fs::read(model)?)?;
    let network = with_parameters(Cnn::new(CnnWidths::default(), ImageShape::default(), &device), &parameters, &device);

    // The image is normalised as in training: each channel has mean 0 and standard deviation 1 over CIFAR-100.
    let mut batch = ImageBatch::new(32);
    batch.push(&LabelledImage { label: 0, pixels: pixels(image)? }, &CHANNELS);
    let images = Tensor::from_data(TensorData::new(batch.images, [1, 3, 32, 32]), &device);
    let scores = softmax(network.forward(images), 1).into_data();
    let mut classes: Vec<(f32, &str)> = scores.as_slice::<f32>()?.iter().copied().zip(CLASS_NAMES).collect();
    classes.sort_by(|a, b| b.0.total_cmp(&a.0));
    for (probability, name) in &classes[..5] {
        println!("{:5.1} %  {name}", probability * 100.0);
    }
    Ok(())
}

/// Reads the red, green and blue planes of the image.
fn pixels(path: &str) -> Result<Vec<u8>, Box<dyn Error>> {
    let mut reader = png::Decoder::new(BufReader::new(File::open(path)?)).read_info()?;
    let mut pixels = vec![0; reader.output_buffer_size().ok_or("the image is too large")?];
    let info = reader.next_frame(&mut pixels)?;
    if (info.width, info.height, info.color_type) != (32, 32, png::ColorType::Rgb) || pixels.len() != IMAGE_BYTES {
        return Err("expected 32 × 32 pixels in RGB".into());
    }
    Ok((0..3).flat_map(|plane| pixels.chunks_exact(3).map(move |pixel| pixel[plane])).collect())
}
