//! Mean cross-entropy of scores.
//!
//! With label smoothing ε, a sample's target is 1 − ε for its label, plus ε/K for each of the K classes (Szegedy et al., "Rethinking the
//! Inception Architecture for Computer Vision", CVPR 2016, section 7). If two samples are mixed, each label has its sample's weight (Zhang
//! et al., "mixup: Beyond Empirical Risk Minimization", ICLR 2018, section 2).

/// The targets of rows of scores.
#[derive(Clone, Debug, PartialEq)]
pub struct Targets {
    /// The label of each row.
    pub labels: Vec<i32>,
    /// The labels of other samples that are mixed into the rows.
    pub mixed: Option<MixedLabels>,
    /// The share of each target that is spread over all classes, from 0 to below 1.
    pub smoothing: f64,
}

/// The labels of samples that are mixed into those of a batch.
#[derive(Clone, Debug, PartialEq)]
pub struct MixedLabels {
    /// For each row, the label of the sample that is mixed in.
    pub labels: Vec<i32>,
    /// For each row, the weight of its own sample, from 0 to 1; the other sample has the rest.
    pub weights: Vec<f32>,
}

impl Targets {
    /// Creates targets with one label for each row, without mixing or smoothing.
    pub fn of_labels(labels: &[i32]) -> Self {
        Self { labels: labels.into(), mixed: None, smoothing: 0.0 }
    }

    /// Returns the classes of a row's target, and their weights.
    fn of_row(&self, row: usize) -> impl Iterator<Item = (usize, f32)> + use<> {
        let other = self.mixed.as_ref().map(|mixed| (mixed.labels[row] as usize, 1.0 - mixed.weights[row]));
        let own_weight = self.mixed.as_ref().map_or(1.0, |mixed| mixed.weights[row]);
        std::iter::once((self.labels[row] as usize, own_weight)).chain(other)
    }
}

/// Returns the mean cross-entropy of rows of scores, in nats, and for each row the probabilities of the classes.
///
/// A row's probabilities, and its scores for label smoothing, are summed in the order of the classes. Losses are summed
/// in the order of the rows, in `f64`.
pub fn forward(scores: &[f32], classes: usize, targets: &Targets) -> (f64, Vec<f32>) {
    let smoothing = targets.smoothing;
    let mut probabilities = scores.to_vec();
    let mut total = 0.0;
    for (number, row) in probabilities.chunks_exact_mut(classes).enumerate() {
        let largest = row.iter().copied().fold(f32::NEG_INFINITY, f32::max);
        let of_class = |(class, weight): (usize, f32)| f64::from(weight) * f64::from(row[class] - largest);
        let mut of_target: f64 = targets.of_row(number).map(of_class).sum();
        if smoothing > 0.0 {
            let of_all: f64 = row.iter().map(|score| f64::from(*score - largest)).sum();
            of_target = (1.0 - smoothing) * of_target + smoothing / classes as f64 * of_all;
        }
        let mut sum = 0.0;
        for score in row.iter_mut() {
            // The result of the C library's `expf` depends on the machine.
            *score = libm::expf(*score - largest);
            sum += f64::from(*score);
        }
        total += libm::log(sum) - of_target;
        let scale = (1.0 / sum) as f32;
        for value in row {
            *value *= scale;
        }
    }
    (total / targets.labels.len() as f64, probabilities)
}

/// Returns the gradient of the scores, from that of the loss and the probabilities.
pub fn gradient(mut probabilities: Vec<f32>, classes: usize, targets: &Targets, gradient: f32) -> Vec<f32> {
    let scale = gradient / targets.labels.len() as f32;
    let smoothing = targets.smoothing;
    let (of_target, of_each) = ((1.0 - smoothing) as f32, (smoothing / classes as f64) as f32);
    for (number, row) in probabilities.chunks_exact_mut(classes).enumerate() {
        for (class, weight) in targets.of_row(number) {
            row[class] -= weight * of_target;
        }
        for value in row {
            *value = (*value - of_each) * scale;
        }
    }
    probabilities
}
