//! What the coordinator does between the last gradient of an iteration and the next parameters: sum, step, copy.

use std::hint::black_box;

use ata_learn::{Optimizer, Partial, Reduction, TrainingState};

use super::{Figure, pair};

/// Parameters: the built-in model, and larger ones.
const SIZES: [usize; 3] = [158_684, 2_500_000, 25_000_000];

/// Vectors of one `f32` per parameter that are read and written: the sum of two gradients reads two and writes one, Adam
/// reads sum, parameters and two moments and writes three of them, and the next parameters are a copy. A memory copy of
/// six vectors reads and writes as much.
const COPIED: usize = 6;

pub(super) fn measure() -> Vec<Figure> {
    SIZES.into_iter().map(figure).collect()
}

fn figure(parameters: usize) -> Figure {
    const TIMES: usize = 7;
    let mut state = TrainingState::new(Optimizer::default(), vec![0.1; parameters]);
    let partial = |first| Partial { first, count: 1, gradient: vec![0.01; parameters], loss: 1.0 };
    // Summing consumes its input, so each run's input is made beforehand, outside the measured time.
    let mut inputs: Vec<[Partial; 2]> = (0..TIMES).map(|_| [partial(0), partial(1)]).collect();
    let mut next = vec![0.0_f32; parameters];
    let (from, mut to) = (vec![1.0_f32; parameters], vec![0.0_f32; parameters]);
    let (step, copy) = pair(
        TIMES,
        || {
            let mut reduction = Reduction::default();
            inputs.pop().into_iter().flatten().for_each(|partial| reduction.add(partial));
            if let Some(sum) = reduction.finish() {
                state.step(sum.gradient, 2, 1e-3, false);
            }
            black_box(&mut next).copy_from_slice(black_box(state.parameters()));
        },
        || (0..COPIED).for_each(|_| black_box(&mut to).copy_from_slice(black_box(&from))),
    );
    let megabytes = parameters as f64 * 4e-6;
    let name = format!("sum, Adam step, next parameters, {megabytes:.1} MB");
    Figure::new(name, step, "memory copy of as many bytes", copy)
}
