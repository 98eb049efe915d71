//! Mean cross-entropy of scores.
//!
//! With label smoothing ε, a sample's target is 1 − ε for its label and ε/K more for each of the K classes (Szegedy et al.,
//! "Rethinking the Inception Architecture for Computer Vision", CVPR 2016, section 7).

/// Returns the mean cross-entropy in nats of rows of scores, and by row the probabilities of the classes.
///
/// A row's probabilities are summed in the order of the classes, as are its scores for label smoothing, and losses in that of the
/// rows, in `f64`.
pub fn forward(scores: &[f32], classes: usize, labels: &[i32], smoothing: f64) -> (f64, Vec<f32>) {
    let mut probabilities = scores.to_vec();
    let mut total = 0.0;
    for (row, label) in probabilities.chunks_exact_mut(classes).zip(labels) {
        let largest = row.iter().copied().fold(f32::NEG_INFINITY, f32::max);
        let mut of_target = f64::from(row[*label as usize] - largest);
        if smoothing > 0.0 {
            let of_all: f64 = row.iter().map(|score| f64::from(*score - largest)).sum();
            of_target = (1.0 - smoothing) * of_target + smoothing / classes as f64 * of_all;
        }
        let mut sum = 0.0;
        for score in row.iter_mut() {
            // The C library's depends on the machine.
            *score = libm::expf(*score - largest);
            sum += f64::from(*score);
        }
        total += libm::log(sum) - of_target;
        let scale = (1.0 / sum) as f32;
        for value in row {
            *value *= scale;
        }
    }
    (total / labels.len() as f64, probabilities)
}

/// The gradient of the scores, from that of the loss and the probabilities.
pub fn gradient(
    mut probabilities: Vec<f32>,
    classes: usize,
    labels: &[i32],
    smoothing: f64,
    gradient: f32,
) -> Vec<f32> {
    let scale = gradient / labels.len() as f32;
    let (of_label, of_each) = ((1.0 - smoothing) as f32, (smoothing / classes as f64) as f32);
    for (row, label) in probabilities.chunks_exact_mut(classes).zip(labels) {
        row[*label as usize] -= of_label;
        for value in row {
            *value = (*value - of_each) * scale;
        }
    }
    probabilities
}
