//! What the coordinator does between the last gradient of an iteration and the next parameters: sum, step, copy.

use std::hint::black_box;

use ata_learn::{Optimizer, Partial, Reduction, TrainingState};

use crate::{Figure, pair};

/// Parameters: the built-in model, and larger ones.
const SIZES: [usize; 3] = [158_684, 2_500_000, 25_000_000];

/// Six vectors of one `f32` per parameter are touched: two gradients, parameters, two moments, the next parameters. The sum
/// reads two and writes one, Adam reads four and writes three, and the next parameters are a copy: twelve passes. So many
/// are made by copying three vectors to three others, twice.
const COPIED: usize = 3;

pub(crate) fn measure() -> Vec<Figure> {
    SIZES.into_iter().map(figure).collect()
}

fn figure(parameters: usize) -> Figure {
    const TIMES: usize = 7;
    let mut state = TrainingState::new(Optimizer::default(), vec![0.1; parameters]);
    let partial = |first| Partial { first, count: 1, gradient: vec![0.01; parameters], loss: 1.0 };
    // Summing consumes its input, so each run's input is made beforehand, outside the measured time.
    let mut inputs: Vec<[Partial; 2]> = (0..TIMES).map(|_| [partial(0), partial(1)]).collect();
    let mut next = vec![0.0_f32; parameters];
    let (from, mut to) = (vec![1.0_f32; COPIED * parameters], vec![0.0_f32; COPIED * parameters]);
    let (step, copy) = pair(
        TIMES,
        || {
            let mut reduction = Reduction::default();
            inputs.pop().into_iter().flatten().for_each(|partial| reduction.add(partial));
            if let Some(mut sum) = reduction.finish() {
                state.step(&mut sum.gradient, 2, 1e-3, false, black_box(&mut next));
            }
        },
        || (0..2).for_each(|_| black_box(&mut to).copy_from_slice(black_box(&from))),
    );
    let megabytes = parameters as f64 * 4e-6;
    let name = format!("sum, Adam step, next parameters, {megabytes:.1} MB");
    Figure::new(name, step, "memory copy of as many bytes", copy)
}
