//! Compares steps chunk by chunk with steps of the whole gradient, and with a restored state.

mod own;
mod squares;

use ata_types::WireFormat::{Compact, F32Exact};
use ata_types::{CHUNK_VALUES, WireFormat};
use rand::rngs::ChaCha8Rng;
use rand::{RngExt, SeedableRng};

use super::*;
use crate::codec::apply_differences;
use crate::exact::{GradientSum, Quantizer, power_of_two};
use crate::optimizer::Rule;
use crate::table::{ParameterTable, TensorEntry, TensorKind};

/// The lengths of the tensors, some of which end within chunks. The last chunk is short, and a whole step takes several threads.
const LENGTHS: [usize; 4] = [20_000, 1, 265_000, 3000];

const RULES: [Rule; 4] = [
    Rule::Adam,
    Rule::AdamW,
    Rule::Sgd { momentum: 0.9, nesterov: true },
    Rule::Sgd { momentum: 0.0, nesterov: false },
];

fn config(rule: Rule, format: WireFormat) -> TrainingConfig {
    let optimizer = Optimizer { rule, weight_decay: 0.01, ema: Some(0.9), ..Optimizer::default() };
    TrainingConfig { optimizer, sizes: TensorSizes::new(LENGTHS), format, budget: 4 }
}

fn state(rule: Rule, format: WireFormat) -> TrainingState {
    let config = config(rule, format);
    let mut rng = ChaCha8Rng::seed_from_u64(1);
    let parameters = (0..config.sizes.values()).map(|_| rng.random_range(-1.0..1.0)).collect();
    let mut state = TrainingState::new(config, parameters);
    state.set_units(Units::first(&[1.0, 1e-3, 1e-6, 0.0], 4));
    state
}

fn sums(state: &TrainingState, seed: u64) -> Vec<i32> {
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    let mut value = |at: usize| {
        let value = rng.random_range(-20_000..20_000);
        // One block in ten is small.
        if at / 256 % 10 == 3 { value / 4096 } else { value }
    };
    (0..state.parameters().len()).map(&mut value).collect()
}

/// Takes a step in chunks of `length`, the last one first, without committing it.
fn take(state: &mut TrainingState, sums: &[i32], length: usize) -> Vec<SteppedChunk> {
    state.begin_step(4, 0.1);
    let chunks: Vec<_> = sums.chunks(length).enumerate().collect();
    let stepped = chunks.into_iter().rev().map(|(at, chunk)| state.step_chunk(at * length, chunk));
    let mut stepped: Vec<_> = stepped.collect();
    stepped.reverse();
    stepped
}

fn restored(state: &TrainingState) -> TrainingState {
    let saved = state.vectors().map(|(name, values)| (name.to_owned(), values.to_vec())).collect();
    let (config, units) = (state.config().clone(), state.units().unwrap());
    let units = Units::new(units.exponents(), units.shifts(), &config.sizes).unwrap();
    TrainingState::restore(config, state.parameters().to_vec(), saved, state.steps(), Some(units)).unwrap()
}

const MAXIMA: [f32; 4] = [2.0, 0.0, 1e-5, 3.0];

/// Chunks of any length, in any order, give the same step as the whole gradient at once. A step that was begun and dropped leaves no trace,
/// whatever part of it was taken.
#[test]
fn a_step_by_chunks_is_that_of_the_whole_gradient_and_a_dropped_one_changes_nothing() {
    for (rule, format) in RULES.into_iter().flat_map(|rule| [(rule, F32Exact), (rule, Compact)]) {
        let (mut whole, mut chunked, mut small) = (state(rule, format), state(rule, format), state(rule, format));
        for step in 0..3 {
            let (before, other) = (chunked.clone(), sums(&chunked, 100 + step));
            take(&mut chunked, &other, CHUNK_VALUES);
            assert_eq!(chunked, before);
            chunked.abandon_step();
            chunked.begin_step(4, 0.3);
            chunked.step_chunk(0, &other[..CHUNK_VALUES]);
            assert_eq!(chunked, before);
            let sums = sums(&whole, step);
            let gradient = whole.units().unwrap().values(&whole.config().sizes, &sums);
            let (_, expected) = whole.step_whole(gradient, 4, 0.1, false).unwrap();
            assert_eq!(take(&mut chunked, &sums, CHUNK_VALUES), expected);
            take(&mut small, &sums, 1 << 12);
            for state in [&mut whole, &mut chunked, &mut small] {
                state.commit_step(&MAXIMA);
            }
            let sent: Vec<f32> = expected.into_iter().flat_map(|chunk| chunk.whole).collect();
            assert_eq!(sent, whole.working_parameters());
            assert!(chunked == whole && small == whole && whole != before, "{rule:?}, {format}, step {step}");
        }
    }
}

/// Averaged tensors become the mean of what tasks leave, with any optimizer, and count in no norm and no product.
#[test]
fn averaged_tensors_take_the_mean_of_the_tasks() {
    const TASKS: u64 = 41;
    let mut table =
        ParameterTable::of_shapes([("weight".into(), vec![300]), ("mean".into(), vec![30]), ("count".into(), vec![])]);
    (table.tensors[1].kind, table.tensors[2].kind) = (TensorKind::Averaged, TensorKind::Counter);
    let sizes = TensorSizes::from(&table);
    for (at, is_whole) in (0..2 * RULES.len()).flat_map(|at| [(at, false), (at, true)]) {
        let (rule, format) = (RULES[at / 2], [F32Exact, Compact][at % 2]);
        let optimizer =
            Optimizer { rule, weight_decay: 0.1, clip_norm: is_whole.then_some(1e-3), ..Optimizer::default() };
        let config = TrainingConfig { optimizer, sizes: sizes.clone(), format, budget: TASKS };
        let mut state = TrainingState::new(config, vec![1.0; 331]);
        state.set_units(Units::first(&[1.0, 1.0, 1.0], TASKS));
        for step in 1..=200 {
            let before = state.parameters().to_vec();
            // Averaged tensors move to about 5, by a tenth in a step.
            let change = |task: u64, at: usize| match at {
                0..256 => 1e-4,
                // These share a block with averaged values.
                256..300 => 1e-9,
                300 => 1e-12,
                301..330 => 0.1 * (before[at] - 5.0) + ((task + step) as f32 * at as f32).sin() * 0.1,
                _ => -1.0,
            };
            let quantizer = Quantizer::new(state.units().unwrap().clone(), sizes.clone(), TASKS, format);
            let mut sum = GradientSum::new(&sizes);
            for task in 0..TASKS {
                let gradient: Vec<f32> = (0..331).map(|at| change(task, at)).collect();
                sum.add(&gradient, 1, &quantizer).unwrap();
            }
            if is_whole {
                let gradient = state.units().unwrap().values(&sizes, &sum.values);
                let (outcome, _) = state.step_whole(gradient, TASKS, 0.1, true).unwrap();
                assert!((outcome.gradient_norm.unwrap() - 1.6e-3).abs() < 1e-4, "{outcome:?}");
                assert!(outcome.gradient_product.is_none_or(|product| product < 4e-6), "{outcome:?}");
            } else {
                state.begin_step(TASKS, 0.1);
                state.step_chunk(0, &sum.values);
            }
            assert!(sum.vanished <= 44 * TASKS, "only those of trained tensors count: {}", sum.vanished);
            state.commit_step(&state.believed(&sum.maxima));
            let after = &state.working_parameters()[300..];
            for (at, found) in after[..30].iter().enumerate() {
                let changes: f64 = (0..TASKS).map(|task| f64::from(change(task, 300 + at))).sum();
                let mean = f64::from(before[300 + at]) - changes / TASKS as f64;
                assert!((f64::from(*found) - mean).abs() < 1e-6, "step {step}: {found}, not {mean}");
            }
            assert_eq!((after[30], after), (1.0 + step as f32, &state.parameters()[300..]));
        }
        assert!(
            state.vectors().all(|(name, values)| name == "replica" || values[330] == 0.0 || name == "last_gradient")
        );
        assert!(state.units().unwrap().shifts().is_empty());
    }
}

/// The gradient is divided by the sum of the weights, and a tensor that no task uses stays as it is: its numbers are those of a run that has
/// only the steps in which it is used.
#[test]
fn tallies_weigh_tasks_and_leave_unused_tensors() {
    let mut table = ParameterTable::of_shapes([("often".into(), vec![300]), ("rarely".into(), vec![5])]);
    table.tensors.extend(
        [("mean", 3, TensorKind::Averaged), ("weight", 1, TensorKind::Weight), ("uses", 2, TensorKind::Uses)]
            .map(|(name, length, kind)| TensorEntry { kind, ..TensorEntry::new(name, [length]) }),
    );
    for (rule, format, with_product, clips) in RULES
        .into_iter()
        .flat_map(|rule| [(rule, F32Exact, false, false), (rule, Compact, true, false), (rule, F32Exact, false, true)])
    {
        let clip_norm = clips.then_some(0.01);
        let optimizer = Optimizer { rule, weight_decay: 0.1, clip_norm, ..Optimizer::default() };
        let config = |sizes| TrainingConfig { optimizer: optimizer.clone(), sizes, format, budget: 4 };
        let mut state = TrainingState::new(config(TensorSizes::from(&table)), [vec![1.0; 308], vec![0.0; 3]].concat());
        assert!(state.needs_whole(false));
        state.set_units(Units::first(&[1.0; 5], 4));
        let alone = |length| TrainingState::new(config(TensorSizes::new([length])), vec![1.0; length]);
        let (mut often, mut rarely) = (alone(300), alone(5));
        for step in 0..6 {
            let is_used = [1, 3, 4].contains(&step);
            let gradient = |length| -> Vec<f32> { (0..length).map(|at| ((at + step) as f32).sin()).collect() };
            let of_rarely = if is_used { gradient(5) } else { vec![0.0; 5] };
            let tallies = [[0.3; 3].as_slice(), &[2.0], &[3.0, if is_used { 1.0 } else { 0.0 }]].concat();
            state.step_whole([gradient(300), of_rarely.clone(), tallies].concat(), 3, 0.1, with_product).unwrap();
            state.commit_step(&[1.0; 5]);
            if !clips {
                often.step_whole(gradient(300), 2, 0.1, with_product).unwrap();
                often.commit_step(&[1.0]);
                if is_used {
                    rarely.step_whole(of_rarely, 2, 0.1, with_product).unwrap();
                    rarely.commit_step(&[1.0]);
                }
                assert_eq!(state.parameters()[..300], *often.parameters(), "{rule:?}, step {step}");
                assert_eq!(state.parameters()[300..305], *rarely.parameters(), "{rule:?}, step {step}");
            }
            assert!((state.parameters()[305] - (1.0 - 0.1 * (step + 1) as f32)).abs() < 1e-6);
            assert_eq!(state.parameters()[308..], [0.0; 3]);
        }
        let mut restored = restored(&state);
        assert!(restored == state);
        let no_weight = [vec![f32::MAX; 305], vec![0.0; 3], vec![0.0, 1.0, 1.0]].concat();
        restored.step_whole(no_weight, 3, 0.1, false).unwrap();
        restored.commit_step(&[1.0; 5]);
        assert!(restored.parameters().iter().all(|value| value.is_finite()));
    }
}

/// A group's tensors are stepped as by an optimizer with its rate and weight decay.
#[test]
fn groups_have_rates_and_decays_of_their_own() {
    let table = ParameterTable::of_shapes([("a.weight".into(), vec![300]), ("a.bias".into(), vec![700])]);
    let groups: crate::ParameterGroups = "*.bias: weight_decay=0, lr_factor=0.5".parse().unwrap();
    for rule in RULES {
        let optimizer = Optimizer { rule, weight_decay: 0.1, ..Optimizer::default() };
        let new = |optimizer, sizes: TensorSizes| {
            let parameters = vec![1.0; sizes.values()];
            TrainingState::new(TrainingConfig { optimizer, sizes, format: F32Exact, budget: 4 }, parameters)
        };
        let groups = groups.of_tensors(&table).unwrap();
        let mut both = new(Optimizer { groups, ..optimizer.clone() }, TensorSizes::from(&table));
        let mut weight = new(optimizer.clone(), TensorSizes::new([300]));
        let mut bias = new(Optimizer { weight_decay: 0.0, ..optimizer }, TensorSizes::new([700]));
        for step in 0..5 {
            let gradient: Vec<f32> = (0..1000).map(|at| ((at * 7 + step) as f32).sin()).collect();
            weight.step_whole(gradient[..300].to_vec(), 3, 0.1, false).unwrap();
            bias.step_whole(gradient[300..].to_vec(), 3, 0.05, false).unwrap();
            both.step_whole(gradient, 3, 0.1, false).unwrap();
            for (state, tensors) in [(&mut weight, 1), (&mut bias, 1), (&mut both, 2)] {
                state.commit_step(&vec![1.0; tensors]);
            }
        }
        assert_eq!(*both.parameters(), [weight.parameters(), bias.parameters()].concat(), "{rule:?}");
    }
}

#[test]
#[should_panic(expected = "every chunk was stepped once")]
fn a_step_is_committed_whole() {
    let mut state = state(Rule::Adam, F32Exact);
    state.begin_step(4, 0.1);
    state.step_chunk(0, &[1; 500]);
    state.commit_step(&MAXIMA);
}

/// After applying every step's differences, a worker holds what the state says that it holds, close to the parameters.
#[test]
fn workers_follow_by_differences() {
    let mut state = state(Rule::Adam, Compact);
    let mut held = state.working_parameters().to_vec();
    for step in 0..20 {
        let sums = sums(&state, step);
        let chunks = take(&mut state, &sums, CHUNK_VALUES);
        state.commit_step(&MAXIMA);
        for (held, chunk) in held.chunks_mut(CHUNK_VALUES).zip(&chunks) {
            let differences = chunk.differences.as_ref().unwrap();
            assert!(differences.len() < held.len() * 9 / 8, "{} bytes", differences.len());
            apply_differences(held, differences).unwrap();
        }
        assert_eq!(held, state.working_parameters());
        let apart = held.iter().zip(state.parameters()).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
        assert!(apart > 0.0 && apart < 0.1 / 50.0, "step {step}: {apart}");
    }
}

/// Exact units follow the largest values of tasks; compact ones follow those of the sum of a whole budget.
#[test]
fn units_move_with_the_step() {
    let mut exact = state(Rule::Adam, F32Exact);
    let before = exact.units().unwrap().clone();
    let values = sums(&exact, 1);
    take(&mut exact, &values, CHUNK_VALUES);
    exact.commit_step(&MAXIMA);
    assert_eq!(*exact.units().unwrap(), before.next(&MAXIMA, 4, F32Exact));

    let compact = state(Rule::Adam, Compact);
    let (before, mut sums) = (compact.units().unwrap().clone(), sums(&compact, 1));
    sums[30_000] = -1_000_000;
    for tasks in [4, 1] {
        let mut compact = compact.clone();
        compact.begin_step(tasks, 0.1);
        compact.step_chunk(0, &sums);
        compact.commit_step(&[f32::MAX; 4]);
        let share = 4.0 / tasks as f32;
        let largest = |(tensor, piece): (usize, std::ops::Range<usize>)| {
            let unit = power_of_two(before.exponents()[tensor]);
            sums[piece].iter().map(|sum| (*sum as f32 * unit).abs()).fold(0.0, f32::max) * share
        };
        let maxima: Vec<f32> = compact.config().sizes.pieces(0..sums.len()).map(largest).collect();
        let next = compact.units().unwrap();
        assert_eq!(next.exponents(), before.next(&maxima, 4, Compact).exponents(), "{tasks} tasks");
        assert!(!next.shifts().is_empty());
    }
}

/// A claimed maximum counts for at most four times the maximum of the step's sum, for steps by chunks, whole steps, and
/// steps with a product.
#[test]
fn claims_are_bounded_by_the_sum() {
    for format in [F32Exact, Compact] {
        let mut state = state(Rule::Adam, format);
        let sums = sums(&state, 1);
        let (sizes, units) = (state.config().sizes.clone(), state.units().unwrap().clone());
        let (mut own, values) = (vec![0.0_f32; sizes.tensors()], units.values(&sizes, &sums));
        for (tensor, piece) in sizes.pieces(0..sums.len()) {
            own[tensor] = values[piece].iter().map(|value| value.abs()).fold(0.0, f32::max);
        }
        let claimed = [own[0] * 3.0, own[1] * 4.5, 3e38, 0.0];
        let expected = vec![claimed[0], own[1] * 4.0, own[2] * 4.0, 0.0];
        take(&mut state, &sums, CHUNK_VALUES);
        assert_eq!(state.believed(&claimed), expected);
        for with_product in [false, true] {
            // With three tasks, the mean is rounded.
            state.step_whole(units.values(&sizes, &sums), 3, 0.1, with_product).unwrap();
            assert_eq!(state.believed(&claimed), expected, "{format}, {with_product}");
        }
    }
}

/// A state that was saved and restored continues with the same bits, for every rule and format.
#[test]
fn a_restored_state_goes_on() {
    for rule in RULES {
        for format in [F32Exact, Compact] {
            let mut state = state(rule, format);
            let gradient =
                |state: &TrainingState, seed| state.units().unwrap().values(&state.config().sizes, &sums(state, seed));
            state.step_whole(gradient(&state, 1), 4, 0.1, true).unwrap();
            state.commit_step(&MAXIMA);
            assert_eq!(state.units().unwrap().shifts().is_empty(), format == F32Exact);
            let mut restored = restored(&state);
            assert_eq!(restored, state);
            let products = [&mut state, &mut restored].map(|state| {
                let (outcome, chunks) = state.step_whole(gradient(state, 2), 4, 0.1, true).unwrap();
                state.commit_step(&MAXIMA);
                (outcome.gradient_product, chunks)
            });
            assert_eq!(restored, state);
            assert!(products[0].0.is_some() && products[0] == products[1]);
        }
    }
}

#[test]
fn what_was_saved_of_another_run_is_refused() {
    let length = LENGTHS.iter().sum();
    let saved = |names: &[&str]| names.iter().map(|name| ((*name).to_owned(), vec![0.0; length])).collect::<Vec<_>>();
    let units = Units::first(&[1.0], 4);
    let adam = ["exp_avg", "exp_avg_sq", "ema"];
    for (format, parameters, vectors, units, reason) in [
        (F32Exact, length, saved(&adam[2..]), None, "'exp_avg' is missing: was it saved by another optimizer?"),
        (F32Exact, length, saved(&adam[..2]), None, "'ema' is missing: was it saved by a run without --ema?"),
        (Compact, length, saved(&adam), None, "'replica' is missing: was it saved with another wire format?"),
        (F32Exact, length, saved(&adam), Some(units), "the units are not one per tensor"),
        (F32Exact, length + 1, saved(&adam), None, "'parameters' does not have one number per parameter"),
        (F32Exact, length, vec![("exp_avg".into(), vec![0.0])], None, "'exp_avg' does not have one"),
    ] {
        let restored = TrainingState::restore(config(Rule::Adam, format), vec![0.0; parameters], vectors, 1, units);
        let error = restored.unwrap_err();
        assert!(error.contains(reason), "{error}");
    }
}
