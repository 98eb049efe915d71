//! The flags of `ata data`.

use std::path::PathBuf;

use ata_data::{DEFAULT_SIZE, FolderOptions, MAX_SIZE, RECORD_BYTES, is_size};
use ata_wire::limits::MAX_DATA_BYTES;
use clap::{Args, Subcommand, value_parser};
use serde::Serialize;

/// The URL at which the authors of CIFAR-100 publish its binary version.
const OFFICIAL_URL: &str = "https://www.cs.toronto.edu/~kriz/cifar-100-binary.tar.gz";
/// The SHA-256 that TensorFlow Datasets and others record; the authors publish the MD5, 03b5dce01913d631647c71ecec9e9cb8.
const OFFICIAL_SHA256: &str = "58a81ae192c23a4be8b1804d68e518ed807d710a4eb253b1f2a199162a40d8ec";
/// The largest number of records in a file that a coordinator can send to its workers.
const MAX_RECORDS: u64 = MAX_DATA_BYTES / RECORD_BYTES as u64;

#[derive(Debug, Subcommand)]
pub(crate) enum DataCommand {
    /// Download the official CIFAR-100 archive, and verify it.
    Fetch(FetchArgs),
    /// Pack images for training: one file for each split, with every image in the size that the model takes.
    Pack(PackArgs),
    /// Check a folder or archive: sizes, labels, checksums.
    #[command(after_help = "\
Examples:
  ata data verify cifar-100-binary.tar.gz
  ata data verify some-folder")]
    Verify {
        /// A folder of packed images, a folder with train.bin and test.bin, or cifar-100-binary.tar.gz.
        #[arg(value_name = "DATA")]
        path: PathBuf,
    },
    /// Write a synthetic, learnable data set in the official binary layout.
    #[command(after_help = "\
Examples:
  ata data synth some-folder
  ata data synth some-folder --train 5000 --test 1000 --seed 2")]
    Synth {
        /// A folder without a train.bin or test.bin; created if it is missing.
        #[arg(value_name = "DIR")]
        folder: PathBuf,
        /// Seed of the data.
        #[arg(long, default_value_t = 1)]
        seed: u64,
        /// The number of records in train.bin.
        #[arg(long, default_value_t = 50_000, allow_negative_numbers = true,
              value_parser = value_parser!(u64).range(1..=MAX_RECORDS))]
        train: u64,
        /// The number of records in test.bin.
        #[arg(long, default_value_t = 10_000, allow_negative_numbers = true,
              value_parser = value_parser!(u64).range(1..=MAX_RECORDS))]
        test: u64,
    },
}

/// The largest size of a shard: a worker fetches a whole shard before its first task.
const MAX_SHARD_MB: u64 = 10_000;

const PACK_HELP: &str = "\
DIR has a folder 'train' and a folder 'test' (or 'val', 'validation'), each with a folder of PNG, JPEG or WebP images for each
class, whose name is that of the folder; or only such folders, of which --validation takes a part for tests. Or DIR has tar archives as
WebDataset lays them out, plain or compressed with gzip or zstd, with 'train' and 'test' (or 'val') in their names, in which each image
has a file .cls, .json or .txt with the number or name of its class; the names of numbered classes are in classnames.txt, if that is
there. Or DIR has the files of CIFAR-10 in its official binary layout.

Each image is resized so that its shorter side fits; what the longer side has in excess is cut off on both sides.

Examples:
  ata data pack photos photos-packed --size 64
  ata data pack unsplit photos-packed --validation 5%
  ata data pack imagenet imagenet-packed --size 224 --shard-mb 64
  ata up --data photos-packed";

#[derive(Debug, Args)]
#[command(after_help = PACK_HELP)]
pub(crate) struct PackArgs {
    /// The folder with the images.
    #[arg(value_name = "DIR")]
    pub(crate) folder: PathBuf,
    /// The folder for train.packed and test.packed; created if it is missing.
    #[arg(value_name = "OUT")]
    pub(crate) out: PathBuf,
    /// Width and height of the packed images, in pixels: a multiple of 8, at most 256.
    #[arg(long, value_name = "S", default_value_t = DEFAULT_SIZE, value_parser = size)]
    pub(crate) size: usize,
    /// Also write an index of shards of this size each, in megabytes: then a worker on another machine fetches only the shards that its
    /// next tasks need, and keeps as many as its --cache-gb.
    #[arg(long, value_name = "MB", allow_negative_numbers = true,
          value_parser = value_parser!(u64).range(1..=MAX_SHARD_MB))]
    pub(crate) shard_mb: Option<u64>,
    #[command(flatten)]
    pub(crate) options: FolderArgs,
}

/// The choice of images in a folder in which they are not packed.
#[derive(Clone, Debug, Default, Args, Serialize)]
pub(crate) struct FolderArgs {
    /// Leave out files in a folder of images that are not images or cannot be read, and print which; without this flag, they are an error.
    #[arg(long, env = "ATA_SKIP_BAD")]
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub(crate) skip_bad: bool,
    /// Take this share of a folder of images (CLASS/*.png or train/CLASS/*.png) that has no test images for these, as in 5% or 0.05. A
    /// hash of an image's content decides, so that the same images are taken each time, whatever is added.
    #[arg(long, env = "ATA_VALIDATION", value_name = "SHARE", value_parser = validation, allow_negative_numbers = true)]
    pub(crate) validation: Option<f64>,
}

impl FolderArgs {
    pub(crate) fn options(&self) -> FolderOptions {
        FolderOptions { skip_bad: self.skip_bad, validation: self.validation }
    }
}

fn validation(text: &str) -> Result<f64, &'static str> {
    let (number, unit) = text.strip_suffix('%').map_or((text, 1.0), |percent| (percent, 100.0));
    let share = number.trim().parse::<f64>().ok().map(|number| number / unit);
    share.filter(|share| *share > 0.0 && *share < 1.0).ok_or("expected a share above 0 and below 1, such as 5% or 0.05")
}

fn size(text: &str) -> Result<usize, String> {
    let expected = || format!("expected a multiple of 8, at most {MAX_SIZE}");
    text.parse().ok().filter(|size| is_size(*size)).ok_or_else(expected)
}

const FETCH_EXAMPLES: &str = "\
Examples:
  ata data fetch                                                   into the current folder
  ata data fetch datasets --url http://mirror/cifar-100-binary.tar.gz

The environment's proxy is used: HTTPS_PROXY, HTTP_PROXY or ALL_PROXY, but for the hosts in NO_PROXY.";

#[derive(Debug, Args)]
#[command(after_help = FETCH_EXAMPLES)]
pub(crate) struct FetchArgs {
    /// The folder for cifar-100-binary.tar.gz; created if it is missing [default: the current one].
    #[arg(value_name = "DIR")]
    pub(crate) folder: Option<PathBuf>,
    /// The URL of the archive, with http or https.
    #[arg(long, default_value = OFFICIAL_URL)]
    pub(crate) url: String,
    /// The archive's SHA-256; set it if the URL is that of another archive.
    #[arg(long, value_name = "HEX", default_value = OFFICIAL_SHA256, value_parser = sha256)]
    pub(crate) sha256: String,
    /// Print path, bytes and sha256 as JSON on standard output.
    #[arg(long)]
    pub(crate) json: bool,
}

fn sha256(text: &str) -> Result<String, &'static str> {
    if text.len() == 64 && text.bytes().all(|digit| digit.is_ascii_hexdigit()) {
        Ok(text.to_ascii_lowercase())
    } else {
        Err("expected 64 hexadecimal digits")
    }
}
