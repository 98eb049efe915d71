//! The options for packing images.

/// The default width and height of packed images: those of CIFAR.
pub const DEFAULT_SIZE: usize = 32;

/// The options for packing images.
#[derive(Clone, Copy, Debug)]
pub struct Packing {
    /// The width and height of the packed images: a multiple of 8, at most 256.
    pub size: usize,
    /// Whether unusable files are left out; otherwise they are an error.
    pub skip_bad: bool,
    /// The size of a shard, in bytes, if machines are to read the images in shards.
    pub shard_bytes: Option<u64>,
}
