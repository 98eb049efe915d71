//! A custom burn module in place of the built-in CNN.
//!
//! cargo run --release --example own_model -- up --model perceptron --iterations 50

use std::process::ExitCode;
use std::sync::Arc;

use ata::Extensions;
use ata_learn::{ImageClassifier, Model, ModelError, Network, builtin_model, model};
use burn::module::Module;
use burn::nn::{Linear, LinearConfig};
use burn::tensor::activation::relu;
use burn::tensor::{Device, Tensor};

/// Two fully connected layers.
#[derive(Module, Debug)]
struct Perceptron {
    hidden: Linear,
    output: Linear,
}

impl Perceptron {
    fn new(device: &Device) -> Self {
        let hidden = LinearConfig::new(3 * 32 * 32, 64).init(device);
        let output = LinearConfig::new(64, 100).init(device);
        Self { hidden, output }
    }
}

impl Network for Perceptron {
    fn forward(&self, images: Tensor<4>) -> Tensor<2> {
        self.output.forward(relu(self.hidden.forward(images.flatten(1, 3))))
    }
}

fn models(specification: &str) -> Result<Arc<dyn Model>, ModelError> {
    match specification {
        "perceptron" => Ok(model(ImageClassifier::new(Perceptron::new))),
        other => builtin_model(other),
    }
}

fn main() -> ExitCode {
    ata::main(Extensions { models, ..Extensions::default() })
}
