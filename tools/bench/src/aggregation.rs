//! The reduction of an iteration's gradients, against a memory copy of the same bytes.

use std::hint::black_box;

use ata_learn::{Partial, Reduction};

use crate::{Figure, pair};

/// Parameters and tasks per iteration: those of the built-in model, and of a large one.
const SIZES: [(usize, u64); 2] = [(158_684, 16), (25_000_000, 4)];

pub(crate) fn measure() -> Vec<Figure> {
    SIZES.iter().map(|&(parameters, tasks)| figure(parameters, tasks)).collect()
}

fn figure(parameters: usize, tasks: u64) -> Figure {
    let gradients: Vec<Vec<f32>> = (0..tasks).map(|task| vec![task as f32; parameters]).collect();
    let mut copies = gradients.clone();
    let (reduction, copy) = {
        // Reducing consumes its input, so each run's input is made beforehand, outside the measured time.
        let mut inputs: Vec<Vec<Partial>> = (0..7)
            .map(|_| {
                let partial = |(first, gradient): (u64, &Vec<f32>)| Partial {
                    first,
                    count: 1,
                    gradient: gradient.clone(),
                    loss: 1.0,
                };
                (0..).zip(&gradients).map(partial).collect()
            })
            .collect();
        pair(
            inputs.len(),
            || {
                let mut reduction = Reduction::default();
                inputs.pop().into_iter().flatten().for_each(|partial| reduction.add(partial));
                drop(black_box(reduction.finish()));
            },
            || copies.iter_mut().zip(&gradients).for_each(|(to, from)| black_box(to).copy_from_slice(black_box(from))),
        )
    };
    let megabytes = parameters as f64 * 4e-6;
    let name = format!("aggregation of {tasks} gradients of {megabytes:.1} MB");
    Figure::new(name, reduction, "memory copy of the same bytes", copy)
}
