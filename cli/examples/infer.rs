//! The five likeliest classes of one image, by a model that ata trained.
//!
//! cargo run --release --example infer -- runs/RUN_ID/model.safetensors image.png
//!
//! The image is a PNG of 32 × 32 pixels in RGB.

use std::error::Error;
use std::fs::File;
use std::io::BufReader;

use ata_learn::{
    CLASS_NAMES, Cnn, CnnWidths, IMAGE_BYTES, ImageBatch, Network, RECORD_BYTES, builtin_model, decode_model,
    with_parameters,
};
use burn::tensor::activation::softmax;
use burn::tensor::{Device, Tensor, TensorData};

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [model, image] = &arguments[..] else { return Err("expected MODEL IMAGE".into()) };

    let device = Device::flex();
    let (parameters, _) = decode_model(&builtin_model("cnn")?.table(), &std::fs::read(model)?)?;
    let network = with_parameters(Cnn::new(CnnWidths::default(), &device), &parameters, &device);

    // As in training: each channel has mean 0 and standard deviation 1 over CIFAR-100.
    let mut batch = ImageBatch::default();
    batch.push(&record(image)?);
    let images = Tensor::from_data(TensorData::new(batch.images, [1, 3, 32, 32]), &device);
    let scores = softmax(network.forward(images), 1).into_data();
    let mut classes: Vec<(f32, &str)> = scores.as_slice::<f32>()?.iter().copied().zip(CLASS_NAMES).collect();
    classes.sort_by(|a, b| b.0.total_cmp(&a.0));
    for (probability, name) in &classes[..5] {
        println!("{:5.1} %  {name}", probability * 100.0);
    }
    Ok(())
}

/// The image as CIFAR-100 stores it: two labels, which are not used, then the red, green and blue planes.
fn record(path: &str) -> Result<[u8; RECORD_BYTES], Box<dyn Error>> {
    let mut reader = png::Decoder::new(BufReader::new(File::open(path)?)).read_info()?;
    let mut pixels = vec![0; reader.output_buffer_size().ok_or("the image is too large")?];
    let info = reader.next_frame(&mut pixels)?;
    if (info.width, info.height, info.color_type) != (32, 32, png::ColorType::Rgb) || pixels.len() != IMAGE_BYTES {
        return Err("expected 32 × 32 pixels in RGB".into());
    }
    let mut record = [0; RECORD_BYTES];
    for (at, pixel) in pixels.chunks_exact(3).enumerate() {
        for (plane, value) in pixel.iter().enumerate() {
            record[2 + plane * 1024 + at] = *value;
        }
    }
    Ok(record)
}
