//! Training, and the optimizers, against known results.

mod compact;
mod embedding;
mod optimizers;
mod packed;
mod training;
