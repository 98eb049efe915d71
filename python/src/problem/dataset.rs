//! One split of a problem's data.

use std::path::Path;
use std::sync::Arc;

use ata_data::{DataError, Split, TaskSampler, Tasks};
use ata_learn::{Dataset, Evaluator, Learner, OpenDevice};
use ata_sums::TensorSizes;
use pyo3::prelude::*;

use super::attached;
use super::computation::Computation;
use super::evaluator::PythonEvaluator;
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
        let opened = attached(|py| {
            let object = problem.bind(py);
            let count: u64 = object.call_method1("open", (word(split), path))?.extract()?;
            let of_shard = object.getattr_opt("samples_of_shard")?;
            let of_shard =
                of_shard.map(|of_shard| of_shard.call1((word(split),))?.extract::<Option<u64>>()).transpose()?;
            Ok((count, of_shard.flatten().filter(|samples| *samples > 0)))
        });
        let (count, samples_of_shard) = opened.map_err(|raised| DataError::Problem(raised.text))?;
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
        Box::new(PythonEvaluator::new(self.computation(device), self.count))
    }
}
