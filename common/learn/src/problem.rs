//! [`Problem`]: a network, its data and its loss.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use ata_types::{MAX_METRIC_NAME_BYTES, MAX_METRICS};
use burn::module::Module;
use burn::tensor::{Device, Tensor};

use crate::evaluator::ClassCount;
use crate::nn::Targets;
use ata_data::{BadImage, DataError, DataSource, FolderOptions, PackProgress, Split, TaskSample};
use ata_sums::Metadata;

/// A network, its training samples and its loss. [`crate::model`] makes one trainable.
///
/// The gradient of a task must depend on its parameters and its samples only, not on earlier tasks. Of layers with random numbers or running
/// statistics, those of [`crate::nn`] qualify.
pub trait Problem: Send + Sync + 'static {
    /// The burn module whose parameters are trained.
    type Network: Module + 'static;
    /// One split of the data.
    type Samples: Samples;

    /// Creates a network with fresh random parameters.
    fn network(&self, device: &Device) -> Self::Network;

    /// Opens one split of the data. On a worker the data comes from the coordinator: check everything that [`Samples::batch`] relies on.
    fn open(&self, source: &DataSource, split: Split) -> Result<Self::Samples, DataError>;

    /// Returns the mean loss over a batch as a single number. With `--precision bf16` the parameters have that type,
    /// and the network's input must be converted to it.
    fn loss(&self, network: &Self::Network, batch: &Batch<Self>, device: &Device) -> Tensor<1>;

    /// Measures a batch in an evaluation. The default implementation measures only the loss.
    fn measure(&self, network: &Self::Network, batch: &Batch<Self>, device: &Device) -> Measurement {
        Measurement::of_loss(self.loss(network, batch, device).into_scalar::<f32>().into())
    }

    /// Adapts the problem to the data that `--data` names, before a run begins: prepares files, which may take long, and derives properties
    /// of the network from the data, such as the number of classes. By default there is nothing to adapt.
    fn adapt(&self, _data: &Path, _options: FolderOptions, _progress: PackProgress<'_>) -> Adaptation<Self>
    where
        Self: Sized,
    {
        Ok(None)
    }

    /// Returns the file that holds a split of the data that `--data` names. By default this is that path itself, for both splits.
    fn locate(&self, data: &Path, _split: Split) -> Result<PathBuf, DataError> {
        Ok(data.into())
    }

    /// Returns the names of the classes, if there are classes. In this case [`Problem::measure`] counts them.
    fn class_names(&self) -> Vec<String> {
        Vec::new()
    }

    /// Returns metadata that model files hold in addition to the tensors.
    fn metadata(&self) -> Metadata {
        Metadata::new()
    }
}

/// A problem or model that was adapted to data.
#[derive(Clone, Debug)]
pub struct Adapted<M> {
    /// The problem or model.
    pub model: M,
    /// Additional parameters of the specification, as in `classes=10`, with which workers resolve the same model.
    pub parameters: Vec<String>,
    /// The data to use instead of that named by `--data`.
    pub data: PathBuf,
    /// The samples that are not used, and the reasons.
    pub left_out: Vec<BadImage>,
}

/// The result of an attempt to adapt a problem or model; `None` if there is nothing to adapt.
pub type Adaptation<M> = Result<Option<Adapted<M>>, DataError>;

/// The samples of a split, shared by all of its readers.
pub trait Samples: Send + Sync + 'static {
    /// A batch of samples for [`Problem::loss`], in host memory unless it comes from [`Samples::on_device`].
    type Batch: Send;

    /// Returns the number of samples.
    fn count(&self) -> u64;

    /// Returns the samples at these indices, each below [`Samples::count`].
    fn batch(&self, indices: &[u64]) -> Result<Self::Batch, DataError>;

    /// Returns the samples of tasks, for their gradients. If the problem augments its data, they are changed at random,
    /// depending on their draws only. By default this is [`Samples::batch`].
    fn training_batch(&self, samples: &[TaskSample]) -> Result<Self::Batch, DataError> {
        let indices: Vec<u64> = samples.iter().map(|sample| sample.index).collect();
        self.batch(&indices)
    }

    /// Returns whether samples of [`Samples::training_batch`] are mixed with others of their task, so that all of it is needed at once.
    fn mixes(&self) -> bool {
        false
    }

    /// Returns the number of samples per shard, if the data set is in shards; the last one may have fewer. The order of
    /// samples then needs few shards at a time.
    fn samples_of_shard(&self) -> Option<u64> {
        None
    }

    /// Announces the shards that are needed next, in this order, so that they can be obtained ahead. This is only a hint.
    fn expect_shards(&self, _shards: &[u64]) {}

    /// Returns the maximum number of samples per batch on a device other than the CPU, unless a single task has more.
    /// It also limits an evaluation's batches if it is less than 250. The default is enough to keep a large GPU busy
    /// with images of CIFAR-100, and few enough for the activations of ResNet-20 to take about 2 GiB.
    fn fused(&self) -> u64 {
        512
    }

    /// Returns the same samples, kept on a device, so that only the indices of a batch are sent there. This is only
    /// called for devices other than the CPU. By default it returns `None`, and [`Problem::loss`] uploads each batch.
    fn on_device(&self, _device: &Device) -> Result<Option<DeviceSamples<Self::Batch>>, DataError> {
        Ok(None)
    }
}

/// Samples that are kept on a device.
pub type DeviceSamples<B> = Box<dyn Samples<Batch = B>>;

/// A batch of a problem.
pub type Batch<P> = <<P as Problem>::Samples as Samples>::Batch;

/// The loss of a batch, the counts of its classes, and the problem's own metrics.
#[derive(Clone, Debug, PartialEq)]
pub struct Measurement {
    /// The mean loss.
    pub loss: f64,
    /// The counts of each class, in the order of [`Problem::class_names`]; trailing classes without samples may be missing.
    pub classes: Vec<ClassCount>,
    /// Means over the samples by name, such as an absolute error, which are displayed with the loss. If a metric is
    /// missing in a batch, its mean is that of the other batches.
    pub metrics: Metrics,
}

/// The problem's own metrics, by name.
pub type Metrics = BTreeMap<String, f64>;

impl Measurement {
    /// Creates a measurement with a loss only.
    pub fn of_loss(loss: f64) -> Self {
        Self { loss, classes: Vec::new(), metrics: Metrics::new() }
    }

    /// Returns an error for metrics that cannot be displayed: more than 16, or with names that do not have 1 to 64 characters.
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

    /// Computes the cross-entropy, and counts how often the largest score is that of the label.
    ///
    /// Both are computed on the CPU, from scores of shape [samples, classes]; if several scores are largest, the first one counts.
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
        let (loss, _) = ata_nn::cross_entropy::forward(scores, count, &Targets::of_labels(labels));
        Self { classes, ..Self::of_loss(loss) }
    }
}
