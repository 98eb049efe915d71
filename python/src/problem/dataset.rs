//! One split of a problem's data, and evaluations on it.

use std::path::Path;
use std::sync::Arc;

use ata_data::{DataError, Split, TaskSampler, Tasks};
use ata_learn::{ClassCount, Dataset, EvaluationBatches, Evaluator, Learner, Measurement, OpenDevice};
use ata_sums::TensorSizes;
use pyo3::prelude::*;

use super::attached;
use super::computation::Computation;
use super::learner::PythonLearner;

pub(super) struct PythonDataset {
    problem: Arc<Py<PyAny>>,
    sizes: TensorSizes,
    split: Split,
    count: u64,
    samples_of_shard: Option<u64>,
}

impl PythonDataset {
    /// Lets the problem open a split of a file that the coordinator has sent, or of its own data.
    pub(super) fn open(
        problem: Arc<Py<PyAny>>,
        sizes: TensorSizes,
        split: Split,
        path: Option<&Path>,
    ) -> Result<Self, DataError> {
        let (count, samples_of_shard) = attached(|py| {
            let object = problem.bind(py);
            let count: u64 = object.call_method1("open", (word(split), path))?.extract()?;
            let of_shard = object.getattr_opt("samples_of_shard")?;
            let of_shard =
                of_shard.map(|of_shard| of_shard.call1((word(split),))?.extract::<Option<u64>>()).transpose()?;
            Ok((count, of_shard.flatten().filter(|samples| *samples > 0)))
        })?;
        // Python receives indices as numpy.int64.
        match i64::try_from(count) {
            Ok(0) => Err(DataError::Empty(split)),
            Ok(_) => Ok(Self { problem, sizes, split, count, samples_of_shard }),
            Err(_) => Err(DataError::Problem(format!("{count} {split} samples: expected less than 2^63"))),
        }
    }

    fn computation(&self, device: &OpenDevice) -> Result<Computation, String> {
        let computation = Computation::new(&self.problem, word(self.split), self.sizes.values());
        let limited = computation.and_then(|own| own.limited(device.micro_batch));
        limited.map_err(|raised| raised.text)
    }
}

fn word(split: Split) -> &'static str {
    match split {
        Split::Train => "train",
        Split::Test => "test",
    }
}

impl Dataset for PythonDataset {
    fn count(&self) -> u64 {
        self.count
    }

    /// A batch of several tasks leaves one value in averaged tensors, which is not the mean of what each of them leaves.
    fn fuses(&self) -> bool {
        self.sizes.trained_values() == self.sizes.values()
    }

    fn learner(self: Arc<Self>, device: &OpenDevice, tasks: Tasks) -> Box<dyn Learner> {
        let sampler = TaskSampler::new(tasks, self.count, self.samples_of_shard);
        Box::new(PythonLearner::new(self.computation(device), sampler, tasks.seed))
    }

    fn evaluator(self: Arc<Self>, device: &OpenDevice) -> Box<dyn Evaluator> {
        Box::new(PythonEvaluator { computation: self.computation(device), count: self.count, load_failure: None })
    }
}

/// Samples per call: enough to amortise the call, few enough that the activations of an image model fit in memory.
const BATCH: u32 = 64;

struct PythonEvaluator {
    /// The computation, or the reason why every evaluation fails.
    computation: Result<Computation, String>,
    count: u64,
    /// The reason why the parameters could not be loaded.
    load_failure: Option<String>,
}

impl Evaluator for PythonEvaluator {
    fn load(&mut self, parameters: &[f32]) {
        let loaded = self.computation.as_ref().map_or(Ok(()), |computation| computation.load(parameters));
        self.load_failure = loaded.err().map(|raised| raised.text);
    }

    fn batches(&self) -> EvaluationBatches {
        EvaluationBatches { samples: self.count, batch_samples: BATCH }
    }

    fn measure(&mut self, batch: u64) -> Result<Measurement, DataError> {
        let computation = self.computation.as_ref().map_err(|reason| DataError::Problem(reason.clone()))?;
        if let Some(reason) = &self.load_failure {
            return Err(DataError::Problem(reason.clone()));
        }
        let (loss, labels, predictions, metrics) = computation.measure(self.batches().samples_of(batch))?;
        Measurement::check_metrics(&metrics)?;
        let mut classes = Vec::new();
        for (label, prediction) in labels.into_iter().zip(predictions) {
            count(&mut classes, label, prediction)?;
        }
        Ok(Measurement { loss, classes, metrics })
    }
}

fn count(classes: &mut Vec<ClassCount>, label: i64, prediction: i64) -> Result<(), DataError> {
    /// The largest plausible number of classes: a larger label is a mistake.
    const MOST: usize = 1 << 17;
    let class = usize::try_from(label).ok().filter(|class| *class < MOST);
    let class = class.ok_or_else(|| DataError::Problem(format!("label {label}: expected the number of a class")))?;
    if class >= classes.len() {
        classes.resize(class + 1, ClassCount::default());
    }
    classes[class].samples += 1;
    classes[class].correct += u32::from(label == prediction);
    Ok(())
}
