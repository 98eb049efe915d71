//! Trains with exact sums, without a cluster, for the test `embedding` and the example `compact`.

use ata_sums::{
    GradientSum, Optimizer, Quantizer, TensorSizes, TrainingConfig, TrainingState, Units, encode_sums, maxima,
};
use ata_types::{CHUNK_VALUES, WireFormat};
use rand::rngs::ChaCha8Rng;
use rand::{RngExt, SeedableRng};

/// The statistics of a training.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Traffic {
    /// The size of the workers' vectors, in bytes.
    pub(crate) bytes: u64,
    /// The number of values in tasks' gradients that were clamped.
    pub(crate) clamped: u64,
    /// The number of nonzero values in tasks' gradients that became 0.
    pub(crate) vanished: u64,
    /// The number of nonzero values in tasks' gradients.
    pub(crate) values: u64,
    /// The number of values in sums that are 0, although a task's value is not.
    pub(crate) lost_sums: u64,
    /// The number of values in sums for which a task's value is not 0.
    pub(crate) sums: u64,
}

/// The settings of a training.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Plan {
    pub(crate) steps: u64,
    pub(crate) rate: f64,
    /// The number of workers that share the tasks of a step.
    pub(crate) workers: u64,
    /// Whether blocks keep their own units.
    pub(crate) has_shifts: bool,
}

/// Takes steps along the gradients that `gradient` computes from parameters, a step and a task.
pub(crate) fn train(
    config: TrainingConfig,
    parameters: Vec<f32>,
    plan: Plan,
    mut gradient: impl FnMut(&[f32], u64, u64) -> Vec<f32>,
) -> (TrainingState, Traffic) {
    let TrainingConfig { sizes, format, budget, .. } = config.clone();
    let mut state = TrainingState::new(config, parameters);
    let mut traffic = Traffic::default();
    for step in 1..=plan.steps {
        let working = state.working_parameters().to_vec();
        if state.units().is_none() {
            let first = maxima(&gradient(&working, step, 0), &sizes).unwrap();
            state.set_units(Units::first(&first, budget));
        } else if !plan.has_shifts {
            let whole = Units::from_exponents(state.units().unwrap().exponents(), &sizes).unwrap();
            state.set_units(whole);
        }
        let quantizer = Quantizer::new(state.units().unwrap().clone(), sizes.clone(), budget, format);
        let mut total = GradientSum::new(&sizes);
        let mut has_value = vec![false; sizes.values()];
        for worker in 0..plan.workers {
            let mut sum = GradientSum::new(&sizes);
            for task in (worker..budget).step_by(plan.workers as usize) {
                let gradient = gradient(&working, step, task);
                for (value, has_value) in gradient.iter().zip(&mut has_value) {
                    traffic.values += u64::from(*value != 0.0);
                    *has_value |= *value != 0.0;
                }
                sum.add(&gradient, 1, &quantizer).unwrap();
            }
            let bytes = sum.values.chunks(CHUNK_VALUES).map(|chunk| encode_sums(format, chunk).len() as u64);
            traffic.bytes += bytes.sum::<u64>();
            total.merge(&sum);
        }
        let nonzero = total.values.iter().zip(&has_value).filter(|(_, has_value)| **has_value);
        traffic.sums += nonzero.clone().count() as u64;
        traffic.lost_sums += nonzero.filter(|(sum, _)| **sum == 0).count() as u64;
        traffic.clamped += total.saturated;
        traffic.vanished += total.vanished;
        state.begin_step(budget, plan.rate);
        for (at, chunk) in total.values.chunks(CHUNK_VALUES).enumerate() {
            state.step_chunk(at * CHUNK_VALUES, chunk);
        }
        state.commit_step(&total.maxima);
    }
    (state, traffic)
}

/// Zipf-distributed words, each of one of ten classes, and a model that learns them: an embedding, and a linear layer to the classes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Words {
    pub(crate) rows: usize,
    pub(crate) columns: usize,
    /// The number of words per task.
    pub(crate) batch: usize,
}

const CLASSES: usize = 10;

impl Words {
    fn sizes(&self) -> TensorSizes {
        TensorSizes::new([self.rows * self.columns, CLASSES * self.columns, CLASSES])
    }

    fn initial(&self) -> Vec<f32> {
        let mut rng = ChaCha8Rng::seed_from_u64(1);
        let weights = (self.rows + CLASSES) * self.columns;
        (0..weights).map(|_| rng.random_range(-0.1..0.1)).chain([0.0; CLASSES]).collect()
    }

    /// Returns the mean loss of some words, and adds its gradient to `gradient`, if there is one.
    fn loss(&self, parameters: &[f32], seed: u64, mut gradient: Option<&mut [f32]>) -> f64 {
        let Self { rows, columns, batch } = *self;
        let (embedding, layer) = parameters.split_at(rows * columns);
        let (weights, biases) = layer.split_at(CLASSES * columns);
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        let mut loss = 0.0;
        for _ in 0..batch {
            // The density of ranks is proportional to 1/rank.
            let word = (rows as f64).powf(rng.random_range(0.0..1.0)) as usize - 1;
            let class = (word as u32).wrapping_mul(2_654_435_761) as usize % CLASSES;
            let row = &embedding[word * columns..][..columns];
            let weight = |of: usize| &weights[of * columns..][..columns];
            let score = |of| weight(of).iter().zip(row).map(|(a, b)| a * b).sum::<f32>() + biases[of];
            let scores: Vec<f32> = (0..CLASSES).map(score).collect();
            let most = scores.iter().copied().fold(f32::NEG_INFINITY, f32::max);
            let total: f32 = scores.iter().map(|score| (score - most).exp()).sum();
            loss += f64::from(total.ln() + most - scores[class]) / batch as f64;
            let Some(gradient) = gradient.as_deref_mut() else { continue };
            let (of_embedding, of_layer) = gradient.split_at_mut(rows * columns);
            let of_row = &mut of_embedding[word * columns..][..columns];
            for (of, score) in scores.iter().enumerate() {
                let wanted = if of == class { 1.0 } else { 0.0 };
                let error = ((score - most).exp() / total - wanted) / batch as f32;
                of_row.iter_mut().zip(weight(of)).for_each(|(sum, value)| *sum += error * value);
                of_layer[of * columns..][..columns].iter_mut().zip(row).for_each(|(sum, value)| *sum += error * value);
                of_layer[CLASSES * columns + of] += error;
            }
        }
        loss
    }

    /// Trains, and returns the loss of other words and the statistics.
    pub(crate) fn outcome(&self, format: WireFormat, budget: u64, plan: Plan) -> (f64, Traffic) {
        let config = TrainingConfig { optimizer: Optimizer::default(), sizes: self.sizes(), format, budget };
        let gradient = |parameters: &[f32], step: u64, task| {
            let mut gradient = vec![0.0; parameters.len()];
            self.loss(parameters, step << 32 | task, Some(&mut gradient));
            gradient
        };
        let (state, traffic) = train(config, self.initial(), plan, gradient);
        let losses = (0..16).map(|batch| self.loss(state.working_parameters(), u64::MAX - batch, None));
        (losses.sum::<f64>() / 16.0, traffic)
    }
}
