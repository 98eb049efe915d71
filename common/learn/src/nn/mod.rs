//! Layers whose operations on the CPU are this project's own.

mod average;
mod conv3x3;
mod conv_relu_pool;
mod cross_entropy;
mod flex;
mod group_norm;
mod kernels;
mod linear;
#[cfg(test)]
mod tests;

pub use average::global_average;
pub use conv_relu_pool::ConvReluPool;
pub use conv3x3::Conv3x3;
pub use cross_entropy::cross_entropy;
pub use flex::by_burn;
pub use group_norm::GroupNorm;
pub use linear::Linear;
