//! [`Problem`]: a network, its data and its loss.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use ata_types::{MAX_METRIC_NAME_BYTES, MAX_METRICS};
use burn::module::Module;
use burn::tensor::{Device, Tensor};

use crate::evaluator::ClassCount;
use crate::nn::mean_cross_entropy;
use ata_data::{DataError, DataSource, PackProgress, Split, TaskSample};
use ata_sums::Metadata;

/// A network, the samples it is trained on, and its loss. [`crate::model`] makes one trainable.
///
/// The gradient of a task must depend on its parameters and its samples only, not on earlier tasks: a network with running
/// statistics, as of batch normalisation, or with dropout does not qualify.
pub trait Problem: Send + Sync + 'static {
    /// The burn module whose parameters are trained.
    type Network: Module + 'static;
    /// One split of its data.
    type Samples: Samples;

    /// A network with fresh random parameters.
    fn network(&self, device: &Device) -> Self::Network;

    /// Opens one split of the data. A worker passes what the coordinator sent it: check all that [`Samples::batch`] relies on.
    fn open(&self, source: &DataSource, split: Split) -> Result<Self::Samples, DataError>;

    /// The mean loss over a batch: one number. With `--precision bf16`, the parameters are of that type, and what enters the network
    /// has to be converted to it.
    fn loss(&self, network: &Self::Network, batch: &Batch<Self>, device: &Device) -> Tensor<1>;

    /// Measures a batch in an evaluation: by default the loss alone.
    fn measure(&self, network: &Self::Network, batch: &Batch<Self>, device: &Device) -> Measurement {
        Measurement::of_loss(scalar(self.loss(network, batch, device)))
    }

    /// Adapts the problem to what `--data` names, before a run begins: prepares files, which may take long, and takes from the data what
    /// the network depends on, such as the number of classes. By default there is nothing to adapt.
    fn adapt(&self, _data: &Path, _progress: PackProgress<'_>) -> Result<Option<Adapted<Self>>, DataError>
    where
        Self: Sized,
    {
        Ok(None)
    }

    /// The file that holds a split, in what `--data` names: by default that path itself, for both splits.
    fn locate(&self, data: &Path, _split: Split) -> Result<PathBuf, DataError> {
        Ok(data.into())
    }

    /// The names of the classes, if it has classes: then [`Problem::measure`] counts them.
    fn class_names(&self) -> Vec<String> {
        Vec::new()
    }

    /// Metadata that the files of its models carry in addition to their tensors.
    fn metadata(&self) -> Metadata {
        Metadata::new()
    }
}

/// A problem or model that was adapted to data.
#[derive(Clone, Debug)]
pub struct Adapted<M> {
    /// The problem or model.
    pub model: M,
    /// What its specification must say in addition, as in `classes=10`, so that workers resolve the same model.
    pub parameters: Vec<String>,
    /// What to use in place of what `--data` named.
    pub data: PathBuf,
}

/// The samples of a split, shared by all that read them.
pub trait Samples: Send + Sync + 'static {
    /// Samples as [`Problem::loss`] takes them, in host memory if not made by [`Samples::on_device`].
    type Batch: Send;

    /// Number of samples.
    fn count(&self) -> u64;

    /// The samples at these indices, each below [`Samples::count`].
    fn batch(&self, indices: &[u64]) -> Result<Self::Batch, DataError>;

    /// The samples of tasks, for their gradients: changed at random if the problem augments its data, by their draws alone. By default
    /// they are as in [`Samples::batch`].
    fn training_batch(&self, samples: &[TaskSample]) -> Result<Self::Batch, DataError> {
        let indices: Vec<u64> = samples.iter().map(|sample| sample.index).collect();
        self.batch(&indices)
    }

    /// The number of samples of each shard, if the data set is in shards; the last one may have fewer. Then the order of samples needs few
    /// shards at a time.
    fn samples_of_shard(&self) -> Option<u64> {
        None
    }

    /// Says which shards are needed next, in this order, so that they can be obtained ahead. It is only a hint.
    fn expect_shards(&self, _shards: &[u64]) {}

    /// The most samples that a device other than the CPU computes as one batch, unless a single task has more, and the most of an
    /// evaluation's batches if that is less than 250: enough to keep a large
    /// GPU busy with images of CIFAR-100, few enough for the activations of ResNet-20 to take about 2 GiB.
    fn fused(&self) -> u64 {
        512
    }

    /// The same samples, kept on a device, so that a batch is made there and only its indices are sent; asked for if the
    /// device is not the CPU. By default there are none, and [`Problem::loss`] uploads each batch.
    fn on_device(&self, _device: &Device) -> Result<Option<DeviceSamples<Self::Batch>>, DataError> {
        Ok(None)
    }
}

/// Samples that are kept on a device.
pub type DeviceSamples<B> = Box<dyn Samples<Batch = B>>;

/// A batch of a problem.
pub type Batch<P> = <<P as Problem>::Samples as Samples>::Batch;

/// The loss of a batch, its classes, and metrics of the problem's own.
#[derive(Clone, Debug, PartialEq)]
pub struct Measurement {
    /// Mean loss.
    pub loss: f64,
    /// By class, in the order of [`Problem::class_names`]; trailing classes without samples may be missing.
    pub classes: Vec<ClassCount>,
    /// Means over the samples by name, such as an absolute error, which are shown wherever the loss is. A metric that a batch does not
    /// have is the mean over the others.
    pub metrics: Metrics,
}

/// Metrics of a problem's own, by name.
pub type Metrics = BTreeMap<String, f64>;

impl Measurement {
    /// A loss, and nothing else.
    pub fn of_loss(loss: f64) -> Self {
        Self { loss, classes: Vec::new(), metrics: Metrics::new() }
    }

    /// Refuses metrics that cannot be shown: more than 16, or with names of other than 1 to 64 characters.
    pub fn check_metrics(metrics: &Metrics) -> Result<(), DataError> {
        if metrics.len() > MAX_METRICS {
            return Err(DataError::Problem(format!("{} metrics: expected at most {MAX_METRICS}", metrics.len())));
        }
        let is_name =
            |name: &str| (1..=MAX_METRIC_NAME_BYTES).contains(&name.len()) && !name.chars().any(char::is_control);
        match metrics.keys().find(|name| !is_name(name)) {
            Some(name) => Err(DataError::Problem(format!("metric {name:?}: expected a name of 1 to 64 characters"))),
            None => Ok(()),
        }
    }

    /// Cross-entropy, and how often the largest score is that of the label.
    ///
    /// Both are computed on the CPU, from scores of shape [samples, classes]; of equal scores the first counts as largest.
    pub fn classification(scores: Tensor<2>, labels: &[i32]) -> Self {
        let [_, count] = scores.dims();
        let scores = scores.into_data().convert::<f32>();
        let scores = scores.as_slice::<f32>().expect("just converted");
        let mut classes = Vec::new();
        for (scores, label) in scores.chunks_exact(count).zip(labels) {
            let class = *label as usize;
            let found = (0..count).fold(0, |largest, at| if scores[at] > scores[largest] { at } else { largest });
            if classes.len() <= class {
                classes.resize(class + 1, ClassCount::default());
            }
            classes[class].samples += 1;
            classes[class].correct += u32::from(found == class);
        }
        Self { classes, ..Self::of_loss(mean_cross_entropy(scores, count, labels)) }
    }
}

fn scalar(tensor: Tensor<1>) -> f64 {
    f64::from(tensor.into_scalar::<f32>())
}
