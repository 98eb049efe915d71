//! Images from outside, packed for training: what is read, what is refused, and how shards are read.

mod packing;
mod shards;
mod tars;
