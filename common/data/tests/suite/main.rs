//! Tests packing images from outside for training, and reading their shards.

mod packing;
mod shards;
mod tars;
