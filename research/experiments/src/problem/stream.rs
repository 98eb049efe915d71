//! Random numbers that are the same on every platform.

use rand::rngs::ChaCha8Rng;
use rand::{Rng, SeedableRng};

/// Returns the random stream of a task: its key has all three numbers, so no two tasks share a stream.
pub(super) fn of_task(seed: u64, iteration: u64, index: u64) -> ChaCha8Rng {
    keyed([seed, iteration, index], *b"ata task")
}

pub(super) fn of_data(seed: u64) -> ChaCha8Rng {
    keyed([seed, 0, 0], *b"ata data")
}

fn keyed(numbers: [u64; 3], purpose: [u8; 8]) -> ChaCha8Rng {
    let mut key = [0; 32];
    for (bytes, number) in key.chunks_exact_mut(8).zip(numbers) {
        bytes.copy_from_slice(&number.to_le_bytes());
    }
    key[24..].copy_from_slice(&purpose);
    ChaCha8Rng::from_seed(key)
}

/// Standard normal numbers by Marsaglia's polar method: the ziggurat of `rand_distr` depends on the platform's exponential function.
pub(super) struct Normals {
    rng: ChaCha8Rng,
    spare: Option<f64>,
}

impl Normals {
    pub(super) fn new(rng: ChaCha8Rng) -> Self {
        Self { rng, spare: None }
    }

    pub(super) fn draw(&mut self) -> f64 {
        if let Some(spare) = self.spare.take() {
            return spare;
        }
        loop {
            let bits = self.rng.next_u64();
            let (x, y) = (symmetric(bits as u32), symmetric((bits >> 32) as u32));
            let square = x * x + y * y;
            if square < 1.0 {
                let factor = (-2.0 * libm::log(square) / square).sqrt();
                self.spare = Some(y * factor);
                return x * factor;
            }
        }
    }
}

/// Maps bits to a uniform number between −1 and 1, in 2³² steps that are symmetric about 0 and exclude it.
fn symmetric(bits: u32) -> f64 {
    (f64::from(bits.cast_signed()) + 0.5) / f64::from(1_u32 << 31)
}
