//! Benchmarks the coordinator's work on each chunk after it has arrived from every worker (sum, step, and the chunk of the next
//! parameters), over a whole vector. There is no link, so no chunk is waited for.

use std::hint::black_box;

use ata_sums::{Optimizer, SteppedChunk, TensorSizes, TrainingConfig, TrainingState, Units, add_sums};
use ata_types::{CHUNK_VALUES, WireFormat};

use crate::bench::{Figure, pair};

/// The numbers of parameters of the built-in model and of larger ones.
const SIZES: [usize; 3] = [158_684, 2_500_000, 25_000_000];

/// Tasks per iteration: one for each summed vector.
const BUDGET: u64 = 2;

/// Setting the sum to zero writes a vector, adding two to it reads three and writes one, Adam reads three more and writes three, and the
/// next parameters are a copy: twelve passes. Copying three vectors to three others, twice, makes the same number.
const COPIED: usize = 3;

const TIMES: usize = 7;

pub(crate) fn measure() -> Vec<Figure> {
    SIZES.into_iter().map(figure).collect()
}

fn figure(parameters: usize) -> Figure {
    let mut state = state(parameters);
    let vectors: [Vec<i32>; BUDGET as usize] = [vec![1000; parameters], vec![-3; parameters]];
    let mut sums = vec![0; parameters];
    let (from, mut to) = (vec![1.0_f32; COPIED * parameters], vec![0.0_f32; COPIED * parameters]);
    let (step, copy) = pair(
        TIMES,
        || drop(black_box(step(&mut state, black_box(&vectors), &mut sums))),
        || (0..2).for_each(|_| black_box(&mut to).copy_from_slice(black_box(&from))),
    );
    let megabytes = parameters as f64 * 4e-6;
    let name = format!("sum, Adam step, next parameters by chunks, {megabytes:.1} MB");
    Figure::new(name, step, "memory copy of as many bytes", copy)
}

fn state(parameters: usize) -> TrainingState {
    let format = WireFormat::F32Exact;
    let sizes = TensorSizes::new([parameters]);
    let config = TrainingConfig { optimizer: Optimizer::default(), sizes, format, budget: BUDGET };
    let mut state = TrainingState::new(config, vec![0.1; parameters]);
    state.set_units(Units::first(&[1.0], BUDGET));
    state
}

/// Takes a step along the sum of the vectors.
fn step(state: &mut TrainingState, vectors: &[Vec<i32>], sums: &mut [i32]) -> Vec<SteppedChunk> {
    sums.fill(0);
    state.begin_step(BUDGET, 1e-3);
    let chunks = sums.chunks_mut(CHUNK_VALUES).enumerate().map(|(at, sums)| {
        let range = at * CHUNK_VALUES..at * CHUNK_VALUES + sums.len();
        for vector in vectors {
            add_sums(sums, &vector[range.clone()]);
        }
        state.step_chunk(range.start, sums)
    });
    let chunks = chunks.collect();
    state.commit_step(&[1.0]);
    chunks
}
