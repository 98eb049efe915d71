//! The squares of a step's gradients, from which follows how noisy they are.

/// The squares of the gradients of a step, in the norm of its optimizer: Σᵢ wᵢ·gᵢ², where wᵢ is 1/√vᵢ for Adam, and 1 for SGD.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct GradientSquares {
    /// The sum of the squares of the tasks' gradients. Tasks that are computed as one batch add that of their sum, divided by their number.
    pub of_tasks: f64,
    /// The square of the sum of all of these gradients.
    pub of_sum: f64,
}
