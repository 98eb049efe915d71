//! The data of a run.

use std::path::{Path, PathBuf};

use ata_coordinator::TrainingData;
use ata_learn::{DataError, Dataset, RecordFile, Split, Synthetic, default_cache_dir, extract_archive, find_split};

use crate::failure::Failure;

/// The two splits of a data set, and their folder if they are files.
pub(crate) struct Data {
    pub(crate) training: TrainingData,
    pub(crate) test: Dataset,
    pub(crate) folder: Option<PathBuf>,
}

impl Data {
    /// The training split, for reading it in this process.
    pub(crate) fn training_set(self) -> Dataset {
        match self.training {
            TrainingData::Synthetic { seed } => Dataset::Synthetic(Synthetic::new(Split::Train, seed)),
            TrainingData::Cifar100(file) => Dataset::File(file),
        }
    }
}

/// Opens what `--data` names: `synthetic`, a folder, or an archive.
pub(crate) fn open_data(data: &str, seed: u64) -> Result<Data, Failure> {
    if data == "synthetic" {
        let test = Dataset::Synthetic(Synthetic::new(Split::Test, seed));
        return Ok(Data { training: TrainingData::Synthetic { seed }, test, folder: None });
    }
    let folder = data_folder(Path::new(data))?;
    let open = |split| RecordFile::open(&find_split(&folder, split)?);
    let (train, test) = (open(Split::Train)?, open(Split::Test)?);
    for (file, official) in [(&train, 50_000), (&test, 10_000)] {
        if file.len() != official {
            let path = file.path().display();
            tracing::warn!("{path} holds {} records; CIFAR-100's official file holds {official}", file.len());
        }
    }
    Ok(Data { training: TrainingData::Cifar100(train), test: Dataset::File(test), folder: Some(folder) })
}

/// The folder itself, or the one that the archive is unpacked into.
pub(crate) fn data_folder(path: &Path) -> Result<PathBuf, Failure> {
    match path.metadata() {
        Ok(metadata) if metadata.is_dir() => Ok(path.to_owned()),
        Ok(_) => Ok(extract_archive(path, &default_cache_dir())?),
        Err(cause) => {
            let error = DataError::Io { path: path.to_owned(), cause };
            Err(Failure::data(format!(
                "{error}. Expected 'synthetic', a folder with train.bin and test.bin, or cifar-100-binary.tar.gz"
            )))
        }
    }
}
