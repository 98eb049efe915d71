//! Mean cross-entropy of scores.

/// Returns the mean cross-entropy in nats of rows of scores, and by row the probabilities of the classes.
///
/// A row's probabilities are summed in the order of the classes, and losses in that of the rows, in `f64`.
pub fn forward(scores: &[f32], classes: usize, labels: &[i32]) -> (f64, Vec<f32>) {
    let mut probabilities = scores.to_vec();
    let mut total = 0.0;
    for (row, label) in probabilities.chunks_exact_mut(classes).zip(labels) {
        let largest = row.iter().copied().fold(f32::NEG_INFINITY, f32::max);
        let of_label = f64::from(row[*label as usize] - largest);
        let mut sum = 0.0;
        for score in row.iter_mut() {
            // The C library's depends on the machine.
            *score = libm::expf(*score - largest);
            sum += f64::from(*score);
        }
        total += libm::log(sum) - of_label;
        let scale = (1.0 / sum) as f32;
        for value in row {
            *value *= scale;
        }
    }
    (total / labels.len() as f64, probabilities)
}

/// The gradient of the scores, from that of the loss and the probabilities.
pub fn gradient(mut probabilities: Vec<f32>, classes: usize, labels: &[i32], gradient: f32) -> Vec<f32> {
    let scale = gradient / labels.len() as f32;
    for (row, label) in probabilities.chunks_exact_mut(classes).zip(labels) {
        row[*label as usize] -= 1.0;
        for value in row {
            *value *= scale;
        }
    }
    probabilities
}
