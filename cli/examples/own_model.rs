//! A custom burn module in place of the built-in CNN.
//!
//! cargo run --release --example own_model -- up --model perceptron --iterations 50

use std::process::ExitCode;
use std::sync::Arc;

use ata::Extensions;
use ata_learn::{ImageClassifier, ImageShape, Model, ModelError, Network, builtin_model, model};
use burn::module::Module;
use burn::nn::{Linear, LinearConfig};
use burn::tensor::activation::relu;
use burn::tensor::{Device, Tensor};

/// A network of two fully connected layers.
#[derive(Module, Debug)]
struct Perceptron {
    hidden: Linear,
    output: Linear,
}

impl Perceptron {
    fn new(shape: ImageShape, device: &Device) -> Self {
        let hidden = LinearConfig::new(3 * shape.size * shape.size, 64).init(device);
        let output = LinearConfig::new(64, shape.classes).init(device);
        Self { hidden, output }
    }
}

impl Network for Perceptron {
    fn forward(&self, images: Tensor<4>) -> Tensor<2> {
        self.output.forward(relu(self.hidden.forward(images.flatten(1, 3))))
    }
}

fn models(specification: &str) -> Result<Arc<dyn Model>, ModelError> {
    // Parameters that depend on the data follow a colon, as in `perceptron:classes=10`.
    let (name, parameters) = specification.split_once(':').unwrap_or((specification, ""));
    match name {
        "perceptron" => Ok(model(ImageClassifier::new(parameters.parse()?, Perceptron::new))),
        _ => builtin_model(specification),
    }
}

fn main() -> ExitCode {
    ata::main(Extensions { models, ..Extensions::default() })
}
