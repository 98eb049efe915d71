//! A custom problem: a character-level language model, a small decoder-only transformer, on any text file.
//!
//! cargo run --release --example char_lm -- up --data docs/reference/policies.md --iterations 300 --budget 16
//!
//! It has all of ata's commands: `coordinator` and `worker` (which fetches the text), `up --resume`, `eval`. After `up`, it prints a sample
//! of the model's text. Without `--data` it reads the documentation of ata's policies.

use std::error::Error;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;

use ata::Extensions;
use ata_learn::{
    DataError, DataSource, Measurement, Model, ModelError, Problem, Samples, Split, builtin_model, cross_entropy,
    model, with_parameters,
};
use ata_sums::decode_model;
use burn::module::Module;
use burn::nn::attention::generate_autoregressive_mask;
use burn::nn::transformer::{TransformerEncoder, TransformerEncoderConfig, TransformerEncoderInput};
use burn::nn::{Embedding, EmbeddingConfig, LayerNorm, LayerNormConfig, Linear, LinearConfig};
use burn::tensor::activation::softmax;
use burn::tensor::{Device, Int, Tensor, TensorData};
use rand::rngs::ChaCha8Rng;
use rand::{RngExt, SeedableRng};

/// The number of preceding characters that a prediction may use.
const CONTEXT: usize = 64;
const WIDTH: usize = 64;
/// The number of classes: the newline, the 95 printable ASCII characters, and one class for all others.
const CHARACTERS: usize = 97;

/// The default settings of this program.
const DEFAULTS: &str =
    concat!("model = 'char-lm'\ndata = '", env!("CARGO_MANIFEST_DIR"), "/../docs/reference/policies.md'\n");

fn number(character: char) -> i32 {
    match character {
        '\n' => 0,
        ' '..='~' => character as i32 - ' ' as i32 + 1,
        _ => 96,
    }
}

fn character(number: usize) -> char {
    match number {
        0 => '\n',
        1..=95 => (b' ' + number as u8 - 1) as char,
        _ => '\u{fffd}',
    }
}

#[derive(Module, Debug)]
struct Transformer {
    characters: Embedding,
    positions: Embedding,
    blocks: TransformerEncoder,
    norm: LayerNorm,
    output: Linear,
}

impl Transformer {
    /// Returns the scores of the next character after each one: [samples, length] → [samples, length, characters].
    fn forward(&self, text: Tensor<2, Int>, device: &Device) -> Tensor<3> {
        let [samples, length] = text.dims();
        let positions: Vec<i32> = (0..).take(length).collect();
        let positions = Tensor::from_data(TensorData::new(positions, [1, length]), device);
        let x = self.characters.forward(text) + self.positions.forward(positions);
        let mask = generate_autoregressive_mask(samples, length, device);
        let x = self.blocks.forward(TransformerEncoderInput::new(x).mask_attn(mask));
        self.output.forward(self.norm.forward(x))
    }
}

struct CharLm;

/// A text that is cut into windows of a context and the character after it.
struct Windows {
    text: Vec<i32>,
    /// The number of characters between the beginnings of consecutive windows.
    stride: usize,
}

impl Samples for Windows {
    /// The windows of a batch, one after the other.
    type Batch = Vec<i32>;

    fn count(&self) -> u64 {
        ((self.text.len() - CONTEXT - 1) / self.stride + 1) as u64
    }

    fn batch(&self, indices: &[u64]) -> Result<Vec<i32>, DataError> {
        let window = |index: &u64| &self.text[*index as usize * self.stride..][..=CONTEXT];
        Ok(indices.iter().flat_map(window).copied().collect())
    }
}

impl Problem for CharLm {
    type Network = Transformer;
    type Samples = Windows;

    fn network(&self, device: &Device) -> Transformer {
        // There is no dropout, so that a gradient depends only on the parameters and the samples.
        let blocks = TransformerEncoderConfig::new(WIDTH, 4 * WIDTH, 4, 2).with_dropout(0.0).with_norm_first(true);
        Transformer {
            characters: EmbeddingConfig::new(CHARACTERS, WIDTH).init(device),
            positions: EmbeddingConfig::new(CONTEXT, WIDTH).init(device),
            blocks: blocks.init(device),
            norm: LayerNormConfig::new(WIDTH).init(device),
            output: LinearConfig::new(WIDTH, CHARACTERS).init(device),
        }
    }

    /// Opens a split: the first nine tenths of the file are for training, the rest for tests.
    fn open(&self, source: &DataSource, split: Split) -> Result<Windows, DataError> {
        let path = source.file("a text file")?;
        let text: Vec<i32> = std::fs::read_to_string(path).map_err(DataError::io(path))?.chars().map(number).collect();
        let (training, test) = text.split_at(text.len() / 10 * 9);
        // Training windows begin at every character; test windows do not overlap.
        let (part, stride) = if split == Split::Train { (training, 1) } else { (test, CONTEXT) };
        if part.len() <= CONTEXT {
            let needed = 10 * (CONTEXT + 1);
            return Err(DataError::corrupt(path, format!("{} characters: expected at least {needed}", text.len())));
        }
        Ok(Windows { text: part.to_vec(), stride })
    }

    fn loss(&self, network: &Transformer, windows: &Vec<i32>, device: &Device) -> Tensor<1> {
        let (scores, next) = scores(network, windows, device);
        cross_entropy(scores, &next, device)
    }

    fn measure(&self, network: &Transformer, windows: &Vec<i32>, device: &Device) -> Measurement {
        let (scores, next) = scores(network, windows, device);
        Measurement::classification(scores, &next)
    }

    fn class_names(&self) -> Vec<String> {
        (0..CHARACTERS).map(|number| format!("{:?}", character(number))).collect()
    }
}

/// Returns the scores at every position of every window, and the characters that follow.
fn scores(network: &Transformer, windows: &[i32], device: &Device) -> (Tensor<2>, Vec<i32>) {
    let windows = || windows.chunks_exact(CONTEXT + 1);
    let context: Vec<i32> = windows().flat_map(|window| &window[..CONTEXT]).copied().collect();
    let next = windows().flat_map(|window| &window[1..]).copied().collect();
    let context = Tensor::from_data(TensorData::new(context, [windows().len(), CONTEXT]), device);
    (network.forward(context, device).flatten(0, 1), next)
}

/// Generates text with a trained model, starting from an empty line.
fn sample(path: &Path, length: usize) -> Result<String, Box<dyn Error>> {
    let device = Device::flex();
    let (parameters, _) = decode_model(&model(CharLm).table(), &std::fs::read(path)?)?;
    let network = with_parameters(CharLm.network(&device), &parameters, &device);
    let mut rng = ChaCha8Rng::seed_from_u64(1);
    let mut text = vec![number('\n')];
    while text.len() <= length {
        let context = text[text.len().saturating_sub(CONTEXT)..].to_vec();
        let last = context.len() - 1;
        let context = Tensor::from_data(TensorData::new(context, [1, last + 1]), &device);
        let scores: Tensor<1> = network.forward(context, &device).narrow(1, last, 1).flatten(0, 2);
        let chances = softmax(scores, 0).into_data();
        let mut left: f32 = rng.random();
        let is_drawn = |(_, chance): &(i32, &f32)| {
            left -= **chance;
            left < 0.0
        };
        text.push((0..).zip(chances.as_slice::<f32>()?).find(is_drawn).map_or(0, |(number, _)| number));
    }
    Ok(text[1..].iter().map(|number| character(*number as usize)).collect())
}

/// Returns the model in the folder that `--out` names, or else the newest one in `runs/`.
fn trained(arguments: &[String]) -> Option<PathBuf> {
    let out = arguments.iter().position(|argument| argument == "--out").and_then(|at| arguments.get(at + 1));
    if let Some(out) = out {
        return Some(Path::new(out).join("model.safetensors"));
    }
    let runs = std::fs::read_dir("runs").ok()?.flatten().map(|run| run.path().join("model.safetensors"));
    runs.filter_map(|file| Some((file.metadata().ok()?.modified().ok()?, file))).max().map(|(_, file)| file)
}

fn models(specification: &str) -> Result<Arc<dyn Model>, ModelError> {
    match specification {
        "char-lm" => Ok(model(CharLm)),
        other => builtin_model(other),
    }
}

fn main() -> ExitCode {
    let code = ata::main(Extensions { models, defaults: DEFAULTS, ..Extensions::default() });
    let arguments: Vec<String> = std::env::args().collect();
    let is_up = arguments.get(1).is_some_and(|command| command == "up");
    if is_up && code == ExitCode::SUCCESS && !arguments.iter().any(|argument| argument == "--json") {
        let written = trained(&arguments).ok_or_else(|| "no model in runs/".into()).and_then(|file| sample(&file, 200));
        println!("\nA sample:\n\n{}", written.unwrap_or_else(|error| error.to_string()));
    }
    code
}
