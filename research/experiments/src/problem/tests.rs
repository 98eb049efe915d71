//! Tests that every problem must pass.

use super::*;

fn problems() -> [(&'static str, Box<dyn Problem>); 5] {
    let small = RegressionSizes { samples: 60, dimension: 7, batch: 5 };
    let usual = RegressionSizes { samples: 2000, dimension: 100, batch: 40 };
    [
        ("one coordinate", Box::new(Quadratic::new(1, 0.1, 4).unwrap())),
        ("small quadratic", Box::new(Quadratic::new(6, 0.5, 4).unwrap())),
        ("quadratic", Box::new(Quadratic::new(100, 0.01, 4).unwrap())),
        ("small regression", Box::new(LinearRegression::new(small, 4).unwrap())),
        ("regression", Box::new(LinearRegression::new(usual, 4).unwrap())),
    ]
}

/// Returns a point that is neither the start nor the minimizer.
fn somewhere(problem: &dyn Problem) -> Vec<f64> {
    problem.initial().iter().enumerate().map(|(i, x)| 0.5 * x + (i % 5) as f64 - 2.0).collect()
}

fn gradient(problem: &dyn Problem, parameters: &[f64], iteration: u64, index: u64) -> (f64, Vec<f64>) {
    let mut gradient = vec![0.0; parameters.len()];
    let loss = problem.add_gradient(parameters, iteration, index, &mut gradient);
    (loss, gradient)
}

/// Computes the gradient of a quadratic function by central differences, which are exact for it.
fn central_differences(parameters: &[f64], of: impl Fn(&[f64]) -> f64) -> Vec<f64> {
    let at = |i: usize, offset: f64| {
        let mut moved = parameters.to_vec();
        moved[i] += offset;
        of(&moved)
    };
    (0..parameters.len()).map(|i| at(i, 0.5) - at(i, -0.5)).collect()
}

fn norm(vector: &[f64]) -> f64 {
    vector.iter().map(|x| x * x).sum::<f64>().sqrt()
}

#[test]
fn gradients_are_those_of_the_task_losses() {
    for (name, problem) in problems() {
        let at = somewhere(&*problem);
        for (iteration, index) in [(0, 0), (7, 3)] {
            let (_, exact) = gradient(&*problem, &at, iteration, index);
            let differences = central_differences(&at, |x| gradient(&*problem, x, iteration, index).0);
            let error: Vec<f64> = exact.iter().zip(&differences).map(|(a, b)| a - b).collect();
            assert!(norm(&error) < 1e-9 * norm(&exact), "{name}: {exact:?}, {differences:?}");
        }
    }
}

/// The mean is within 5 standard errors in every coordinate, over iterations and indices.
#[test]
fn the_mean_gradient_is_that_of_the_objective() {
    for (name, problem) in problems() {
        let at = somewhere(&*problem);
        let exact = central_differences(&at, |x| problem.objective(x));
        let (mut sums, mut squares) = (vec![0.0; at.len()], vec![0.0; at.len()]);
        let tasks = 2000;
        for task in 0..tasks {
            let (_, gradient) = gradient(&*problem, &at, task / 40, task % 40);
            for (i, (g, expected)) in gradient.iter().zip(&exact).enumerate() {
                sums[i] += g - expected;
                squares[i] += (g - expected) * (g - expected);
            }
        }
        for (sum, square) in sums.iter().zip(&squares) {
            assert!(sum.abs() < 5.0 * f64::sqrt(*square), "{name}: off by {} standard errors", sum / square.sqrt());
        }
    }
}

/// The bits are pinned because a change of them changes every figure.
#[test]
fn seeded_tasks_are_pinned() {
    let losses = problems().map(|(_, problem)| gradient(&*problem, &somewhere(&*problem), 3, 5).0);
    assert_eq!(
        format!("{losses:?}"),
        "[0.12902216748609485, 2.88531482720461, 52.26453773135052, 767255.8905622546, 333350859.69210833]"
    );
}
