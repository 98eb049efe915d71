//! Finds the samples of a task that have no finite gradient.

use crate::learner::{LearnerError, TaskGradient};

/// A task whose bad samples were found: those without a finite loss or gradient of their own.
#[derive(Clone, Debug, PartialEq)]
pub struct Sifted {
    /// The indices of the bad samples in the data set.
    pub bad: Vec<u64>,
    /// The mean over the other samples, computed as one batch; `None` if there are no others.
    pub rest: Option<TaskGradient>,
}

/// Halves a task's samples until the bad ones are alone. The bad samples, and so the mean over the rest, depend on the task and the
/// parameters only. `gradient` computes samples as one batch; `index` returns the index of a sample in the data set.
pub fn sift<S: Clone>(
    samples: &[S],
    index: impl Fn(&S) -> u64,
    mut gradient: impl FnMut(&[S]) -> Result<TaskGradient, LearnerError>,
) -> Result<Sifted, LearnerError> {
    let (mut bad, mut good) = (Vec::new(), Vec::new());
    let mut left = vec![samples];
    while let Some(samples) = left.pop() {
        if gradient(samples)?.is_finite() {
            good.extend_from_slice(samples);
        } else if samples.len() > 1 {
            let (first, second) = samples.split_at(samples.len() / 2);
            // The part that is pushed last is taken next, which keeps the order.
            left.extend([second, first]);
        } else {
            bad.extend(samples.iter().map(&index));
        }
    }
    let rest = if good.is_empty() { None } else { Some(gradient(&good)?) };
    Ok(Sifted { bad, rest })
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use ata_types::{Iteration, TaskRange, WireFormat};
    use burn::module::{Module, Param};
    use burn::tensor::{Device, Tensor};

    use super::*;
    use crate::problem::{Problem, Samples};
    use ata_data::{DataError, DataSource, Split, Tasks};
    use ata_sums::{GradientSum, Quantizer, TensorSizes, Units};

    /// A problem that fits one number to samples, of which one is NaN.
    struct Center;

    #[derive(Module, Debug)]
    struct Number {
        number: Param<Tensor<1>>,
    }

    struct Numbers;

    impl Problem for Center {
        type Network = Number;
        type Samples = Numbers;

        fn network(&self, device: &Device) -> Number {
            Number { number: Param::from_tensor(Tensor::zeros([1], device)) }
        }

        fn open(&self, _source: &DataSource, _split: Split) -> Result<Numbers, DataError> {
            Ok(Numbers)
        }

        fn loss(&self, network: &Number, batch: &Vec<f32>, device: &Device) -> Tensor<1> {
            (network.number.val() - Tensor::<1>::from_floats(&batch[..], device)).powi_scalar(2).mean()
        }
    }

    impl Samples for Numbers {
        type Batch = Vec<f32>;

        fn count(&self) -> u64 {
            9
        }

        fn batch(&self, indices: &[u64]) -> Result<Vec<f32>, DataError> {
            Ok(indices.iter().map(|at| if *at == 4 { f32::NAN } else { *at as f32 }).collect())
        }
    }

    #[test]
    fn a_learner_names_the_bad_sample_and_computes_the_others() {
        let data = crate::model(Center).open(&DataSource::Generated { seed: 1 }, Split::Train).unwrap();
        let tasks = Tasks { seed: 1, budget: 1, task_batch: 9 };
        let mut learner = Arc::clone(&data).learner(&crate::DeviceChoice::Cpu.open().unwrap(), tasks);
        learner.load(&[1.0]);
        let sizes = TensorSizes::new([1]);
        let units = Units::from_exponents(&[-9], &sizes).unwrap();
        let quantizer = Quantizer::new(units, sizes.clone(), 1, WireFormat::F32Exact);
        let mut sum = GradientSum::new(&sizes);
        let added = learner.add(Iteration::FIRST, TaskRange::single(0), &mut sum, &quantizer);
        assert!(matches!(added, Err(LearnerError::Loss(_))) && sum == GradientSum::new(&sizes));
        let sifted = learner.sift(Iteration::FIRST, 0).unwrap().unwrap();
        // These are the means over 0, 1, 2, 3, 5, 6, 7, 8 of (1 − x)² and of its derivative 2 (1 − x).
        let rest = TaskGradient { gradient: vec![-6.0], loss: 16.5 };
        assert_eq!(sifted, Sifted { bad: vec![4], rest: Some(rest) });
    }

    #[test]
    fn the_bad_samples_are_found_and_the_others_stay_in_order() {
        for bad in [vec![], vec![0], vec![6], vec![2, 3, 5], (0..7).collect()] {
            let samples: Vec<u64> = (0..7).collect();
            let gradient = |samples: &[u64]| {
                let is_bad = samples.iter().any(|sample| bad.contains(sample));
                let gradient = samples.iter().map(|sample| *sample as f32).collect();
                Ok(TaskGradient { gradient, loss: if is_bad { f64::NAN } else { 1.0 } })
            };
            let sifted = sift(&samples, |sample| *sample, gradient).unwrap();
            let rest: Vec<f32> = samples.iter().filter(|at| !bad.contains(at)).map(|at| *at as f32).collect();
            assert_eq!(sifted.bad, bad);
            assert_eq!(sifted.rest.map(|rest| rest.gradient).unwrap_or_default(), rest);
        }
    }
}
