//! The hardware that computes gradients, and their precision.

use std::fmt;
use std::str::FromStr;

use burn::tensor::{Device, FloatDType};
use serde::{Deserialize, Serialize};

/// The archive of a release that contains a program for GPUs.
pub const GPU_ARCHIVE: &str = "the release's archive whose name ends in -gpu (`sh install.sh --gpu`)";

/// The value of `--device`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum DeviceChoice {
    /// A GPU if this build supports one and one is found, else the CPU.
    #[default]
    Auto,
    /// The CPU, with burn's flex backend.
    Cpu,
    /// A GPU through wgpu: the best adapter, or the one with this index.
    Wgpu(Option<usize>),
    /// An NVIDIA GPU through CUDA: the first one, or the one with this index.
    Cuda(Option<usize>),
}

/// The reason why a device cannot be opened.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DeviceError {
    /// The text is not the name of a device.
    #[error("unknown device '{0}': expected auto, cpu, wgpu, wgpu:INDEX, cuda or cuda:INDEX")]
    Unknown(String),
    /// This build does not support the device.
    #[error(
        "this build has no {device} device: {GPU_ARCHIVE} has wgpu; or build with `cargo build --release --features {feature}`"
    )]
    NotBuilt {
        /// The device.
        device: &'static str,
        /// The cargo feature of the `ata` package that adds it.
        feature: &'static str,
    },
    /// The machine has no such device, or fewer than the index requires.
    #[error(
        "no {device} adapter {wanted}; this machine has {found}. See `ata doctor` for a list; --device cpu always works"
    )]
    NotFound {
        /// The device.
        device: &'static str,
        /// The requested index.
        wanted: usize,
        /// The number of devices found.
        found: usize,
    },
    /// The device does not compute in bf16.
    #[error("{0} does not compute in bf16: leave out --precision")]
    NoBf16(String),
    /// The machine has no GPU that this build can reach, but so many other adapters.
    #[error(
        "no GPU was found; software adapters ({0} found) have to be named, as in wgpu:0. See `ata doctor` for a \
         list; --device cpu always works"
    )]
    NoGpu(usize),
}

impl FromStr for DeviceChoice {
    type Err = DeviceError;

    fn from_str(text: &str) -> Result<Self, DeviceError> {
        let unknown = || DeviceError::Unknown(text.into());
        let (name, index) = match text.split_once(':') {
            Some((name, index)) => (name, Some(index.parse().map_err(|_| unknown())?)),
            None => (text, None),
        };
        match (name, index) {
            ("auto", None) => Ok(Self::Auto),
            ("cpu", None) => Ok(Self::Cpu),
            ("wgpu", index) => Ok(Self::Wgpu(index)),
            ("cuda", index) => Ok(Self::Cuda(index)),
            _ => Err(unknown()),
        }
    }
}

impl fmt::Display for DeviceChoice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Auto => f.write_str("auto"),
            Self::Cpu => f.write_str("cpu"),
            Self::Wgpu(None) => f.write_str("wgpu"),
            Self::Wgpu(Some(index)) => write!(f, "wgpu:{index}"),
            Self::Cuda(None) => f.write_str("cuda"),
            Self::Cuda(Some(index)) => write!(f, "cuda:{index}"),
        }
    }
}

/// The number format of gradients. Trained parameters, sums of gradients and evaluations are always f32.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Precision {
    /// Gradients are computed in 32 bits.
    #[default]
    F32,
    /// Gradients are computed in 16 bits with the range of f32: the network's copy of the parameters, activations and their gradients.
    /// Normalisation, means and losses are f32. A CPU computes each operation in f32 and rounds the result.
    Bf16,
}

impl Precision {
    /// Returns the name, in the form of `--precision`.
    pub fn name(self) -> &'static str {
        match self {
            Self::F32 => "f32",
            Self::Bf16 => "bf16",
        }
    }
}

impl fmt::Display for Precision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Precision {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let named = [Self::F32, Self::Bf16].into_iter().find(|precision| precision.name() == text);
        named.ok_or_else(|| format!("'{text}': expected f32 or bf16"))
    }
}

impl From<Precision> for FloatDType {
    fn from(precision: Precision) -> Self {
        match precision {
            Precision::F32 => Self::F32,
            Precision::Bf16 => Self::BF16,
        }
    }
}

/// A device that is ready to compute.
#[derive(Clone, Debug)]
pub struct OpenDevice {
    pub(crate) device: Device,
    pub(crate) precision: Precision,
    /// Whether the device may round the factors of matrix products and convolutions to TF32, which has 10 bits after the point, as CUDA's
    /// fastest kernels do on the tensor cores, and PyTorch's convolutions.
    pub rounds_to_tf32: bool,
    /// The most samples of a task whose gradient is computed at once, if not all of them.
    pub micro_batch: Option<u32>,
    /// The name of the device in logs and the run summary: `cpu`, or the kind and name of an adapter; then the precision, if it is not f32.
    pub name: String,
}

impl OpenDevice {
    /// Returns `true` for the CPU device, whose results are bit-identical on every machine, but not for a software adapter.
    pub fn is_cpu(&self) -> bool {
        is_cpu(&self.device)
    }

    /// Returns the same device, on which a task's gradient is computed in parts of at most so many samples.
    #[must_use]
    pub fn with_micro_batch(self, micro_batch: Option<u32>) -> Self {
        Self { micro_batch, ..self }
    }

    /// Returns the precision of gradients.
    pub fn precision(&self) -> Precision {
        self.precision
    }

    /// Returns the same device, with gradients in this precision.
    pub fn with_precision(self, precision: Precision) -> Result<Self, DeviceError> {
        match precision {
            Precision::F32 => Ok(Self { precision, ..self }),
            Precision::Bf16 if self.device.supports_dtype(FloatDType::BF16) => {
                Ok(Self { name: format!("{}, bf16", self.name), precision, ..self })
            }
            Precision::Bf16 => Err(DeviceError::NoBf16(self.name)),
        }
    }
}

pub(crate) fn is_cpu(device: &Device) -> bool {
    *device == Device::flex()
}

impl DeviceChoice {
    /// Opens the device.
    pub fn open(self) -> Result<OpenDevice, DeviceError> {
        match self {
            Self::Auto => {
                let wgpu = || Self::gpu_adapters()?[0].open();
                Ok(Self::open_cuda(None).or_else(|_| wgpu()).unwrap_or_else(|_| Self::open_cpu()))
            }
            Self::Cpu => Ok(Self::open_cpu()),
            Self::Wgpu(index) => Self::open_wgpu(index),
            Self::Cuda(index) => Self::open_cuda(index),
        }
    }

    /// Returns every GPU of this machine: through CUDA if this build has it and finds any, else through wgpu.
    pub fn gpus() -> Result<Vec<Self>, DeviceError> {
        let exists = |choice: Self| choice.open().is_ok().then_some(choice);
        let cuda: Vec<Self> = (0..).map(|index| Self::Cuda(Some(index))).map_while(exists).collect();
        if cuda.is_empty() { Self::gpu_adapters() } else { Ok(cuda) }
    }

    /// Opens every device that this build can reach on this machine, and returns each with its name.
    pub fn list() -> Vec<(Self, String)> {
        let mut all = vec![(Self::Cpu, Self::open_cpu().name)];
        for indexed in [|i| Self::Wgpu(Some(i)), |i| Self::Cuda(Some(i))] {
            all.extend((0..).map(indexed).map_while(|choice| Some((choice, choice.open().ok()?.name))));
        }
        all
    }

    fn open_cpu() -> OpenDevice {
        let (device, name) = (Device::flex(), "cpu".into());
        OpenDevice { device, precision: Precision::F32, rounds_to_tf32: false, micro_batch: None, name }
    }

    #[cfg(feature = "gpu")]
    fn open_wgpu(index: Option<usize>) -> Result<OpenDevice, DeviceError> {
        let adapters = wgpu_adapters();
        let found = adapters.len();
        let not_found = DeviceError::NotFound { device: "wgpu", wanted: index.unwrap_or(0), found };
        let device = match index {
            Some(index) => adapters.into_iter().nth(index).ok_or(not_found)?,
            // wgpu chooses, unless CUBECL_WGPU_DEFAULT_DEVICE overrides it.
            None if found > 0 => Device::wgpu(burn::tensor::DeviceKind::DefaultDevice),
            None => return Err(not_found),
        };
        Ok(named("wgpu", device))
    }

    /// Returns the wgpu adapters that are GPUs, at least one: a software adapter would be slower than the CPU device.
    #[cfg(feature = "gpu")]
    fn gpu_adapters() -> Result<Vec<Self>, DeviceError> {
        let software = Device::wgpu(burn::tensor::DeviceKind::Cpu);
        let adapters = wgpu_adapters();
        let gpus = adapters.iter().enumerate().filter(|(_, adapter)| **adapter != software);
        let gpus: Vec<Self> = gpus.map(|(index, _)| Self::Wgpu(Some(index))).collect();
        if gpus.is_empty() { Err(DeviceError::NoGpu(adapters.len())) } else { Ok(gpus) }
    }

    #[cfg(feature = "cuda")]
    fn open_cuda(index: Option<usize>) -> Result<OpenDevice, DeviceError> {
        let devices = Device::enumerate(burn::tensor::DeviceType::Cuda).into_vec();
        let wanted = index.unwrap_or(0);
        let found = devices.len();
        let device = devices.into_iter().nth(wanted);
        device.map(|device| named("cuda", device)).ok_or(DeviceError::NotFound { device: "cuda", wanted, found })
    }

    #[cfg(not(feature = "gpu"))]
    fn open_wgpu(_index: Option<usize>) -> Result<OpenDevice, DeviceError> {
        Err(DeviceError::NotBuilt { device: "wgpu", feature: "gpu" })
    }

    #[cfg(not(feature = "gpu"))]
    fn gpu_adapters() -> Result<Vec<Self>, DeviceError> {
        Err(DeviceError::NotBuilt { device: "GPU", feature: "gpu" })
    }

    #[cfg(not(feature = "cuda"))]
    fn open_cuda(_index: Option<usize>) -> Result<OpenDevice, DeviceError> {
        Err(DeviceError::NotBuilt { device: "cuda", feature: "cuda" })
    }
}

#[cfg(feature = "gpu")]
fn wgpu_adapters() -> Vec<Device> {
    Device::enumerate(burn::tensor::DeviceType::Wgpu).into_vec()
}

#[cfg(any(feature = "gpu", feature = "cuda"))]
fn named(kind: &str, device: Device) -> OpenDevice {
    let name = device.identity().map_or_else(|| kind.to_owned(), |identity| format!("{kind}: {}", identity.name));
    OpenDevice { device, precision: Precision::F32, rounds_to_tf32: kind == "cuda", micro_batch: None, name }
}

/// Limits the threads that the CPU device uses. Must be called at most once, before any computation.
pub fn limit_threads(threads: usize) {
    // A second call changes nothing; rayon reports that as an error.
    rayon::ThreadPoolBuilder::new().num_threads(threads).build_global().unwrap_or(());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn choices_are_read_and_written_alike() {
        for text in ["auto", "cpu", "wgpu", "wgpu:1", "cuda", "cuda:0"] {
            assert_eq!(text.parse::<DeviceChoice>().unwrap().to_string(), text);
        }
        for text in ["gpu", "cpu:0", "wgpu:", "wgpu:x", ""] {
            assert_eq!(text.parse::<DeviceChoice>(), Err(DeviceError::Unknown(text.into())));
        }
    }

    #[test]
    fn a_cpu_computes_in_bf16_under_another_name() {
        let cpu = DeviceChoice::Cpu.open().unwrap();
        let named = |precision| cpu.clone().with_precision(precision).unwrap().name;
        assert_eq!([Precision::F32, Precision::Bf16].map(named), ["cpu", "cpu, bf16"]);
    }

    #[cfg(not(feature = "gpu"))]
    #[test]
    fn a_device_left_out_names_its_feature() {
        let error = DeviceChoice::Wgpu(None).open().unwrap_err().to_string();
        assert!(error.contains("--features gpu") && error.contains("archive whose name ends in -gpu"), "{error}");
        assert_eq!(DeviceChoice::Auto.open().unwrap().name, "cpu");
        #[cfg(not(feature = "cuda"))]
        assert!(DeviceChoice::gpus().unwrap_err().to_string().contains("this build has no GPU device"));
    }
}
