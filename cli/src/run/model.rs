//! Model files: what they carry besides their tensors, and reading them.

use std::path::Path;

use ata_learn::{Metadata, Model, ParameterTable, decode_metadata, decode_model};

use crate::failure::Failure;

/// What all models of a run carry; its last step and checksum are added when one is written.
pub(crate) fn metadata(specification: &str, model: &dyn Model) -> Metadata {
    // The format is what PyTorch's loaders look for.
    let own = [("format", "pt"), ("model", specification)].map(|(key, value)| (key.to_owned(), value.to_owned()));
    model.metadata().into_iter().chain(own).collect()
}

/// Reads a model's parameters and what else its file carries.
pub(crate) fn read(path: &Path, table: &ParameterTable) -> Result<(Vec<f32>, Metadata), Failure> {
    let shown = path.display();
    let file = std::fs::read(path).map_err(|cause| Failure::data(format!("{shown}: {cause}")))?;
    decode_model(table, &file).map_err(|error| {
        let model = decode_metadata(&file).ok().and_then(|metadata| metadata.get("model").cloned());
        let model = model.map_or(String::new(), |model| format!("; it says that it is of --model {model}"));
        Failure::data(format!("{shown}: {error}{model}"))
    })
}
