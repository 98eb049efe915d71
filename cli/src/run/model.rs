//! Model files: their metadata, and reading them.

use std::path::Path;

use ata_learn::{Metadata, Model, ParameterTable, decode_metadata, decode_model};

use crate::failure::Failure;

/// The metadata of all models of a run; the step and the checksum are added when a model is written.
pub(crate) fn metadata(specification: &str, model: &dyn Model) -> Metadata {
    // The format is what PyTorch's loaders look for.
    let own = [("format", "pt"), ("model", specification)].map(|(key, value)| (key.to_owned(), value.to_owned()));
    model.metadata().into_iter().chain(own).collect()
}

/// Reads a model's parameters and metadata.
pub(crate) fn read(path: &Path, table: &ParameterTable) -> Result<(Vec<f32>, Metadata), Failure> {
    let path_name = path.display();
    let file = std::fs::read(path).map_err(|cause| Failure::data(format!("{path_name}: {cause}")))?;
    decode_model(table, &file).map_err(|error| {
        let model = decode_metadata(&file).ok().and_then(|metadata| metadata.get("model").cloned());
        let model = model.map_or(String::new(), |model| format!("; it says that it is of --model {model}"));
        Failure::data(format!("{path_name}: {error}{model}"))
    })
}
