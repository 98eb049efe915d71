//! A custom problem: regression on a table.
//!
//! cargo run --release --example tabular -- up --iterations 300 --lr 3e-3
//! cargo run --release --example tabular -- up --data table.csv --model mlp:inputs=4
//!
//! The table is a CSV file of numbers with a header. The last column is predicted from the others. Without `--data`, a table is generated.
//! It has all of ata's commands: `coordinator` and `worker` (which fetches the file), `eval` and so on.

use std::process::ExitCode;
use std::sync::Arc;

use ata::Extensions;
use ata_learn::{DataError, DataSource, Measurement, Model, ModelError, Problem, Samples, Split, builtin_model, model};
use burn::module::Module;
use burn::nn::loss::{MseLoss, Reduction};
use burn::nn::{Linear, LinearConfig};
use burn::tensor::activation::relu;
use burn::tensor::{Device, Tensor, TensorData};
use rand::rngs::ChaCha8Rng;
use rand::{RngExt, SeedableRng};

/// The number of input columns of the generated table.
const GENERATED_INPUTS: usize = 10;

/// A network with two hidden layers.
#[derive(Module, Debug)]
struct Perceptron {
    first: Linear,
    second: Linear,
    output: Linear,
}

/// The problem. Its loss is the mean squared error in units of the target's variance: predicting its mean gives 1.
struct Regression {
    inputs: usize,
}

/// The rows of a split: standardised numbers, the target last.
struct Rows {
    columns: usize,
    values: Vec<f32>,
}

impl Samples for Rows {
    /// The rows of a batch, one after the other.
    type Batch = Vec<f32>;

    fn count(&self) -> u64 {
        (self.values.len() / self.columns) as u64
    }

    fn batch(&self, indices: &[u64]) -> Result<Vec<f32>, DataError> {
        let row = |index: &u64| &self.values[*index as usize * self.columns..][..self.columns];
        Ok(indices.iter().flat_map(row).copied().collect())
    }
}

impl Problem for Regression {
    type Network = Perceptron;
    type Samples = Rows;

    fn network(&self, device: &Device) -> Perceptron {
        Perceptron {
            first: LinearConfig::new(self.inputs, 32).init(device),
            second: LinearConfig::new(32, 32).init(device),
            output: LinearConfig::new(32, 1).init(device),
        }
    }

    /// Opens a split: the first nine tenths of the rows are for training, the rest for tests.
    fn open(&self, source: &DataSource, split: Split) -> Result<Rows, DataError> {
        let columns = self.inputs + 1;
        let mut values = match source {
            DataSource::Generated { seed } => self.generate(*seed)?,
            DataSource::File(path) | DataSource::Shards { index: path, .. } => {
                let text = std::fs::read_to_string(path).map_err(DataError::io(path))?;
                self.parse(&text).map_err(|reason| DataError::corrupt(path, reason))?
            }
        };
        let training = values.len() / columns * 9 / 10 * columns;
        standardise(&mut values, columns, training);
        let test = values.split_off(training);
        Ok(Rows { columns, values: if split == Split::Train { values } else { test } })
    }

    fn loss(&self, network: &Perceptron, rows: &Vec<f32>, device: &Device) -> Tensor<1> {
        let (predictions, targets) = self.predict(network, rows, device);
        MseLoss::new().forward(predictions, targets, Reduction::Mean)
    }

    /// Measures the mean absolute error in addition to the loss.
    fn measure(&self, network: &Perceptron, rows: &Vec<f32>, device: &Device) -> Measurement {
        let (predictions, targets) = self.predict(network, rows, device);
        let error = (predictions - targets).abs().mean().into_scalar::<f32>();
        let loss = self.loss(network, rows, device).into_scalar::<f32>();
        Measurement { metrics: [("absolute error".into(), error.into())].into(), ..Measurement::of_loss(loss.into()) }
    }
}

impl Regression {
    /// Returns the predictions and the targets, as a column each.
    fn predict(&self, network: &Perceptron, rows: &[f32], device: &Device) -> (Tensor<2>, Tensor<2>) {
        let columns = self.inputs + 1;
        let rows = Tensor::<2>::from_data(TensorData::new(rows.to_vec(), [rows.len() / columns, columns]), device);
        let (inputs, targets) = (rows.clone().narrow(1, 0, self.inputs), rows.narrow(1, self.inputs, 1));
        let hidden = relu(network.second.forward(relu(network.first.forward(inputs))));
        (network.output.forward(hidden), targets)
    }

    /// Parses the numbers of a CSV file, row by row.
    fn parse(&self, text: &str) -> Result<Vec<f32>, String> {
        let mut values = Vec::new();
        for (at, line) in text.lines().enumerate().skip(1).filter(|(_, line)| !line.trim().is_empty()) {
            let row: Result<Vec<f32>, _> = line.split(',').map(|cell| cell.trim().parse()).collect();
            let row = row.ok().filter(|row| row.iter().all(|value| value.is_finite()));
            let row = row.ok_or_else(|| format!("line {}: expected numbers, separated by commas", at + 1))?;
            if row.len() != self.inputs + 1 {
                let (found, inputs) = (row.len(), row.len().saturating_sub(1));
                return Err(format!("line {}: {found} columns; use --model mlp:inputs={inputs} for it", at + 1));
            }
            values.extend(row);
        }
        Ok(values)
    }

    /// Generates 2,000 rows of Friedman's function, with noise of variance 1: J. Friedman, "Multivariate Adaptive
    /// Regression Splines", 1991, section 4.3. Half of its ten inputs do not affect the target.
    fn generate(&self, seed: u64) -> Result<Vec<f32>, DataError> {
        if self.inputs != GENERATED_INPUTS {
            return Err(DataError::NotGenerated { expected: "a CSV file with as many columns and one more" });
        }
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        let mut row = || {
            let mut row: Vec<f32> = (0..GENERATED_INPUTS).map(|_| rng.random()).collect();
            // A sum of twelve uniform numbers is almost normally distributed.
            let noise = (0..12).map(|_| rng.random::<f32>()).sum::<f32>() - 6.0;
            let wave = 10.0 * (std::f32::consts::PI * row[0] * row[1]).sin();
            row.push(wave + 20.0 * (row[2] - 0.5).powi(2) + 10.0 * row[3] + 5.0 * row[4] + noise);
            row
        };
        Ok((0..2_000).flat_map(|_| row()).collect())
    }
}

/// Gives each column mean 0 and standard deviation 1 over its first numbers, which are the training data.
fn standardise(values: &mut [f32], columns: usize, training: usize) {
    let rows = (training / columns) as f32;
    for column in 0..columns {
        let over = |of: &dyn Fn(f32) -> f32| {
            values[..training].iter().skip(column).step_by(columns).map(|value| of(*value)).sum::<f32>() / rows
        };
        let mean = over(&|value| value);
        let deviation = over(&|value| (value - mean).powi(2)).sqrt().max(f32::MIN_POSITIVE);
        values.iter_mut().skip(column).step_by(columns).for_each(|value| *value = (*value - mean) / deviation);
    }
}

fn models(specification: &str) -> Result<Arc<dyn Model>, ModelError> {
    let inputs = match (specification, specification.strip_prefix("mlp:inputs=")) {
        ("mlp", _) => Some(GENERATED_INPUTS),
        (_, Some(inputs)) => inputs.parse().ok().filter(|inputs| (1..=10_000).contains(inputs)),
        _ => return builtin_model(specification),
    };
    let reason = || "expected mlp:inputs=N, with the number of columns but the last".to_owned();
    let inputs = inputs.ok_or_else(|| ModelError::Invalid { model: specification.into(), reason: reason() })?;
    Ok(model(Regression { inputs }))
}

fn main() -> ExitCode {
    ata::main(Extensions { models, defaults: "model = 'mlp'", ..Extensions::default() })
}
