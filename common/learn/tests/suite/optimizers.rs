//! Compares the flat optimizers with burn's.

use ata_sums::{Optimizer, Rule, TensorSizes, TrainingConfig, TrainingState};
use ata_types::WireFormat;
use burn::module::{Module, Param};
use burn::tensor::{Device, Tensor};
use burn_optim::decay::WeightDecayConfig;
use burn_optim::momentum::MomentumConfig;
use burn_optim::{AdamConfig, AdamWConfig, GradientsParams, ModuleOptimizer, SgdConfig};
use rand::rngs::ChaCha8Rng;
use rand::{RngExt, SeedableRng};

/// The number of parameters: more than one range of the parallel step, and not a round number.
const PARAMETERS: usize = 70_001;

#[derive(Module, Debug)]
struct Vector {
    theta: Param<Tensor<1>>,
}

fn numbers(rng: &mut ChaCha8Rng) -> Vec<f32> {
    (0..PARAMETERS).map(|_| rng.random_range(-1.0..1.0)).collect()
}

fn initial(optimizer: Optimizer, parameters: Vec<f32>) -> TrainingState {
    let sizes = TensorSizes::new([parameters.len()]);
    TrainingState::new(TrainingConfig { optimizer, sizes, format: WireFormat::F32Exact, budget: 4 }, parameters)
}

/// Returns the parameters after 100 steps, by the flat optimizer and by burn's.
fn both(optimizer: Optimizer, mut reference: ModuleOptimizer) -> (Vec<f32>, Vec<f32>) {
    // The number of tasks is a power of two, so that the mean is exact.
    const TASKS: u64 = 4;
    let device = Device::flex().autodiff();
    let mut rng = ChaCha8Rng::seed_from_u64(1);
    let initial = numbers(&mut rng);
    let tensor = |values: &[f32], device: &Device| Tensor::<1>::from_floats(values, device);
    let mut module = Vector { theta: Param::from_tensor(tensor(&initial, &device)) };
    let mut state = self::initial(optimizer, initial);
    for step in 0..100 {
        let rate = 0.01 / f64::from(1 + step);
        let sum = numbers(&mut rng);
        let mean: Vec<f32> = sum.iter().map(|value| value / TASKS as f32).collect();
        let mut gradients = GradientsParams::new();
        gradients.register(module.theta.id, tensor(&mean, &device.clone().without_autodiff()));
        module = reference.step(rate, module, gradients);
        let (_, chunks) = state.step_whole(sum, TASKS, rate, false).unwrap();
        state.commit_step(&[1.0]);
        assert_eq!(chunks.into_iter().flat_map(|chunk| chunk.whole).collect::<Vec<_>>(), state.parameters());
    }
    let expected = module.theta.val().into_data().as_slice::<f32>().unwrap().to_vec();
    (state.parameters().to_vec(), expected)
}

fn difference(found: &[f32], expected: &[f32]) -> f64 {
    let norm = |values: &mut dyn Iterator<Item = f64>| values.map(|value| value * value).sum::<f64>().sqrt();
    let apart = norm(&mut found.iter().zip(expected).map(|(a, b)| f64::from(*a) - f64::from(*b)));
    apart / norm(&mut expected.iter().map(|b| f64::from(*b)))
}

fn with(rule: Rule, weight_decay: f64) -> Optimizer {
    Optimizer { rule, weight_decay, ..Optimizer::default() }
}

/// The results equal those of earlier releases, which used burn's Adam, bit by bit.
#[test]
fn adam_is_burns_to_the_last_bit() {
    let (found, expected) = both(Optimizer::default(), AdamConfig::new().with_epsilon(1e-8).init());
    assert_eq!(found, expected);
}

#[test]
fn all_rules_agree_with_burns() {
    let adam = || AdamConfig::new().with_epsilon(1e-8);
    let others = |rule| Optimizer { betas: [0.8, 0.95], epsilon: 1e-5, ..with(rule, 0.1) };
    let other_adam = AdamConfig::new().with_beta_1(0.8).with_beta_2(0.95).with_epsilon(1e-5);
    let other_adamw = AdamWConfig::new().with_beta_1(0.8).with_beta_2(0.95).with_epsilon(1e-5).with_weight_decay(0.1);
    let adamw = AdamWConfig::new().with_epsilon(1e-8).with_weight_decay(0.1);
    let momentum = |nesterov| MomentumConfig::new().with_momentum(0.9).with_dampening(0.0).with_nesterov(nesterov);
    let sgd = |momentum, nesterov| Rule::Sgd { momentum, nesterov };
    let decay = || Some(WeightDecayConfig::new(0.1));
    let cases = [
        (with(Rule::Adam, 0.1), adam().with_weight_decay(decay()).init()),
        (with(Rule::AdamW, 0.1), adamw.init()),
        (others(Rule::Adam), other_adam.with_weight_decay(decay()).init()),
        (others(Rule::AdamW), other_adamw.init()),
        (with(sgd(0.0, false), 0.0), SgdConfig::new().init()),
        (with(sgd(0.0, false), 0.1), SgdConfig::new().with_weight_decay(decay()).init()),
        (with(sgd(0.9, false), 0.0), SgdConfig::new().with_momentum(Some(momentum(false))).init()),
        (
            with(sgd(0.9, true), 0.1),
            SgdConfig::new().with_momentum(Some(momentum(true))).with_weight_decay(decay()).init(),
        ),
    ];
    for (optimizer, reference) in cases {
        let (found, expected) = both(optimizer.clone(), reference);
        let apart = difference(&found, &expected);
        assert!(apart <= 1e-6, "{optimizer:?}: {apart}");
    }
}

/// A gradient of norm 5 is scaled down to norm 1, and one of norm 0.5 is unchanged.
#[test]
fn clipping_is_by_the_norm_of_the_mean() {
    let optimizer = Optimizer { clip_norm: Some(1.0), ..with(Rule::Sgd { momentum: 0.0, nesterov: false }, 0.0) };
    let mut state = initial(optimizer, vec![0.0; 2]);
    assert!(state.needs_whole(false));
    let (outcome, _) = state.step_whole(vec![6.0, 8.0], 2, 1.0, false).unwrap();
    assert_eq!(outcome.gradient_norm, Some(5.0));
    state.commit_step(&[1.0]);
    assert!(difference(state.parameters(), &[-0.6, -0.8]) < 1e-6, "{:?}", state.parameters());
    state.step_whole(vec![0.6, 0.8], 2, 1.0, false).unwrap();
    state.commit_step(&[1.0]);
    assert!(difference(state.parameters(), &[-0.9, -1.2]) < 1e-6, "{:?}", state.parameters());
}
