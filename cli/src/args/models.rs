//! The flags of `ata eval`, `ata init` and `ata new`.

use std::path::PathBuf;

use clap::Args;

use super::FolderArgs;

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  ata eval runs/RUN_ID
  ata eval runs/RUN_ID/model-best.safetensors --data cifar-100-binary.tar.gz --classes")]
pub(crate) struct EvalArgs {
    /// A run's folder, id or name, a checkpoint's folder, or a model.safetensors.
    #[arg(value_name = "RUN|FILE")]
    pub(crate) model: PathBuf,
    /// The test data: synthetic, a folder with CIFAR-100's test.bin, or cifar-100-binary.tar.gz [default: the run's data; a file outside of
    /// a run's folder needs this].
    #[arg(long, env = "ATA_DATA", value_name = "DATA")]
    pub(crate) data: Option<String>,
    #[command(flatten)]
    pub(crate) folder: FolderArgs,
    /// Seed of synthetic data [default: the run's].
    #[arg(long, env = "ATA_SEED", value_name = "N")]
    pub(crate) seed: Option<u64>,
    /// The device: auto, cpu, wgpu, wgpu:INDEX, cuda or cuda:INDEX.
    #[arg(long, env = "ATA_DEVICE", value_name = "DEVICE", default_value = "auto")]
    pub(crate) device: String,
    /// Print a table of the classes as well.
    #[arg(long)]
    pub(crate) classes: bool,
    /// Print JSON on standard output, with the classes.
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  ata init model.safetensors --model resnet20
  python train.py init model.safetensors
  ata coordinator --model net --init model.safetensors       a head node without PyTorch, for `python train.py worker`")]
pub(crate) struct InitArgs {
    /// The file to write, in the safetensors format.
    #[arg(value_name = "FILE")]
    pub(crate) file: PathBuf,
    /// The model, as `ata up --model` takes it [default: that of `ata up`].
    #[arg(long, env = "ATA_MODEL", value_name = "MODEL")]
    pub(crate) model: Option<String>,
    /// Seed of the parameters.
    #[arg(long, env = "ATA_SEED", value_name = "N", default_value_t = 1)]
    pub(crate) seed: u64,
}

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  ata new my-problem && cd my-problem
  cargo run --release -- up
  cargo test --release")]
pub(crate) struct NewArgs {
    /// The crate's folder, which must not exist yet; its name is that of the crate.
    #[arg(value_name = "FOLDER")]
    pub(crate) folder: PathBuf,
    /// The folder of ata's sources to build it with [default: the release that this program is of, or the sources that it was built
    /// from].
    #[arg(long, value_name = "DIR")]
    pub(crate) ata: Option<PathBuf>,
}
