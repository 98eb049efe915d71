//! Benchmarks integer sums of gradients against a plain loop that adds the same number of f32 values.

use std::hint::black_box;

use ata_sums::{GradientSum, Quantizer, TensorSizes, Units, add_sums};
use ata_types::{CHUNK_VALUES, WireFormat};

use crate::bench::{Figure, pair};

/// The numbers of parameters and summands of the built-in model and of a large one.
const SIZES: [(usize, u64); 2] = [(158_684, 16), (25_000_000, 4)];

/// The number of repetitions of each sum.
const TIMES: usize = 7;

pub(crate) fn measure() -> Vec<Figure> {
    SIZES.iter().flat_map(|&(parameters, count)| figures(parameters, count)).collect()
}

/// Measures the sums that a worker makes of its tasks' gradients and of its leases, and those that the coordinator makes of chunks.
fn figures(parameters: usize, count: u64) -> [Figure; 3] {
    let gradients: Vec<Vec<f32>> = (0..count).map(|task| vec![task as f32; parameters]).collect();
    let sizes = TensorSizes::new([parameters]);
    let units = Units::first(&[count as f32], count);
    let quantizer = Quantizer::new(units, sizes.clone(), count, WireFormat::F32Exact);
    let mut total = GradientSum::new(&sizes);
    let add = |total: &mut GradientSum, gradient: &[f32]| total.add(gradient, 1, &quantizer).expect("it is finite");
    let sums: Vec<GradientSum> = gradients
        .iter()
        .map(|gradient| {
            let mut sum = GradientSum::new(&sizes);
            add(&mut sum, gradient);
            sum
        })
        .collect();
    let mut floats = vec![0.0; parameters];
    let mut figure = |what: &str, make: &mut dyn FnMut(&mut GradientSum)| {
        let work = || {
            total.clear();
            make(black_box(&mut total));
        };
        let (sum, reference) = pair(TIMES, work, || add_floats(black_box(&mut floats), black_box(&gradients)));
        let megabytes = parameters as f64 * 4e-6;
        Figure::new(format!("{what}, {count} of {megabytes:.1} MB"), sum, "loop that adds as many f32", reference)
    };
    [
        figure("gradients made integers and added", &mut |total| gradients.iter().for_each(|one| add(total, one))),
        figure("sums of integers merged", &mut |total| sums.iter().for_each(|sum| total.merge(sum))),
        figure("sums of integers added chunk by chunk", &mut |total| add_chunks(total, &sums)),
    ]
}

fn add_chunks(total: &mut GradientSum, sums: &[GradientSum]) {
    for (at, chunk) in total.values.chunks_mut(CHUNK_VALUES).enumerate() {
        let range = at * CHUNK_VALUES..at * CHUNK_VALUES + chunk.len();
        for sum in sums {
            add_sums(chunk, &sum.values[range.clone()]);
        }
    }
}

fn add_floats(total: &mut [f32], gradients: &[Vec<f32>]) {
    total.fill(0.0);
    for gradient in gradients {
        total.iter_mut().zip(gradient).for_each(|(sum, value)| *sum += value);
    }
}
