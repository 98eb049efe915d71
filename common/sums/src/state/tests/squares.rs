//! Tests the squares of gradients.

use super::*;

/// The squares are those of each tensor times 1/√v̄ under Adam, where v̄ is the mean of its second moments, and plain ones under SGD.
#[test]
fn squares_are_measured_in_the_norm_of_the_optimizer() {
    let table = ParameterTable::of_shapes([("large".into(), vec![300]), ("small".into(), vec![5])]).with_squares();
    let gradient = [vec![3.0; 300], vec![0.01; 5], vec![1000.0, 2.0]].concat();
    for rule in RULES {
        let optimizer = Optimizer { rule, ..Optimizer::default() };
        let config = TrainingConfig { optimizer, sizes: TensorSizes::from(&table), format: F32Exact, budget: 4 };
        let mut state = TrainingState::new(config, vec![0.0; 307]);
        state.set_units(Units::first(&[1.0; 3], 4));
        let is_adam = matches!(rule, Rule::Adam | Rule::AdamW);
        let first = state.step_whole(gradient.clone(), 1, 0.1, false).unwrap().0;
        assert_eq!(first.squares.is_none(), is_adam, "there are no moments yet");
        state.commit_step(&[1.0; 3]);
        let weights = [3.0, 0.01].map(|value: f64| if is_adam { 1.0 / value } else { 1.0 });
        let found = state.step_whole(gradient.clone(), 1, 0.1, false).unwrap().0.squares.expect("they are tallied");
        let of_tasks = weights[0] * 1000.0 + weights[1] * 2.0;
        let of_sum = weights[0] * 300.0 * 9.0 + weights[1] * 5.0 * 0.0001;
        assert!((found.of_tasks / of_tasks - 1.0).abs() < 1e-4, "{rule:?}: {found:?}, {of_tasks}");
        assert!((found.of_sum / of_sum - 1.0).abs() < 1e-4, "{rule:?}: {found:?}, {of_sum}");
    }
}
