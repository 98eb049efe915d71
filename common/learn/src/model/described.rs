//! A model that is known only from a file of its parameters.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::{Dataset, Model};
use ata_data::{DataError, DataSource, Split};
use ata_sums::{Metadata, ModelFileError, ParameterTable, decode_model, decode_table};

/// A model whose code the coordinator does not have: the names, shapes and values of its parameters. The coordinator
/// takes steps; workers that have the model compute gradients, and evaluate parameters.
#[derive(Debug)]
pub struct DescribedModel {
    table: ParameterTable,
    parameters: Vec<f32>,
    metadata: Metadata,
}

/// The keys of a file's metadata that [`Model::metadata`] keeps. The rest belongs to the run that wrote the file.
const KEPT: [&str; 2] = [CLASSES, "normalisation"];

/// The metadata key of the names of the classes, separated by commas.
const CLASSES: &str = "classes";

impl DescribedModel {
    /// Reads a model file that ata has written.
    pub fn read(file: &[u8]) -> Result<Self, ModelFileError> {
        let table = decode_table(file)?;
        let (parameters, metadata) = decode_model(&table, file)?;
        Ok(Self { table, parameters, metadata })
    }

    /// Returns the model's specification, in the form of `--model`, if the file contains it.
    pub fn specification(&self) -> Option<&str> {
        self.metadata.get("model").map(String::as_str)
    }
}

/// Returns the error for a call that needs the model itself.
fn not_here() -> DataError {
    DataError::Problem("only a file of the model's parameters is here, not the model and its data".into())
}

impl Model for DescribedModel {
    fn table(&self) -> ParameterTable {
        self.table.clone()
    }

    fn initial_parameters(&self, _seed: u64) -> Result<Vec<f32>, DataError> {
        Ok(self.parameters.clone())
    }

    fn locate(&self, _data: &Path, _split: Split) -> Result<PathBuf, DataError> {
        Err(not_here())
    }

    fn open(&self, _source: &DataSource, _split: Split) -> Result<Arc<dyn Dataset>, DataError> {
        Err(not_here())
    }

    fn class_names(&self) -> Vec<String> {
        self.metadata.get(CLASSES).map(|names| names.split(',').map(String::from).collect()).unwrap_or_default()
    }

    fn metadata(&self) -> Metadata {
        let kept = |key: &str| Some((key.to_owned(), self.metadata.get(key)?.clone()));
        KEPT.into_iter().filter_map(kept).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::builtin_model;
    use ata_sums::encode_model;

    /// Safetensors files have their own order; transposed matrices come from burn.
    #[test]
    fn a_file_describes_the_model_that_it_was_written_for() {
        let model = builtin_model("cnn:widths=2/3/4/5").unwrap();
        let parameters: Vec<f32> = (0..model.parameter_count()).map(|at| at as f32).collect();
        let mut metadata = model.metadata();
        metadata.insert("model".into(), "cnn:widths=2/3/4/5".into());
        metadata.insert("step".into(), "9".into());
        let described = DescribedModel::read(&encode_model(&model.table(), &parameters, &metadata)).unwrap();
        assert_eq!(described.specification(), Some("cnn:widths=2/3/4/5"));
        assert_eq!((described.table(), described.parameter_count()), (model.table(), parameters.len()));
        assert_eq!(described.initial_parameters(7).unwrap(), parameters);
        assert_eq!((described.class_names(), described.metadata()), (model.class_names(), model.metadata()));
        assert!(described.open(&DataSource::Generated { seed: 1 }, Split::Test).is_err());
    }
}
