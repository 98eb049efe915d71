//! The model of a run: its size, its metadata, and reading it from a file.

use std::path::Path;

use ata_learn::Model;
use ata_sums::{Metadata, ParameterTable, TensorSizes, decode_metadata, decode_model_except};
use ata_wire::limits::{MAX_PARAMETERS, MAX_TENSORS};

use crate::failure::{Failure, require};
use crate::settings::Settings;

/// Returns the metadata of all model files of a run. The step and the checksum are added when a model is written.
pub(crate) fn metadata(specification: &str, model: &dyn Model) -> Metadata {
    // PyTorch's loaders require the key `format`.
    let own = [("format", "pt"), ("model", specification)].map(|(key, value)| (key.to_owned(), value.to_owned()));
    model.metadata().into_iter().chain(own).collect()
}

/// Refuses a model that is too large for a run or has no parameters to train.
pub(crate) fn check_size(name: &str, table: &ParameterTable) -> Result<(), Failure> {
    let sizes = TensorSizes::from(table);
    let count = |what, found: u64, most: u64| {
        require((1..=most).contains(&found), || format!("model '{name}' has {found} {what}: expected 1 to {most}"))
    };
    count("parameters", sizes.values() as u64, MAX_PARAMETERS)?;
    count("tensors", sizes.tensors() as u64, MAX_TENSORS as u64)
}

pub(crate) fn read(path: &Path, table: &ParameterTable) -> Result<(Vec<f32>, Metadata), Failure> {
    read_except(path, table, "", &[])
}

fn read_except(
    path: &Path,
    table: &ParameterTable,
    except: &str,
    fresh: &[f32],
) -> Result<(Vec<f32>, Metadata), Failure> {
    let path_name = path.display();
    let file = std::fs::read(path).map_err(|cause| Failure::data(format!("{path_name}: {cause}")))?;
    decode_model_except(table, &file, &except.into(), fresh).map_err(|error| {
        let model = decode_metadata(&file).ok().and_then(|metadata| metadata.get("model").cloned());
        let model = model.map_or(String::new(), |model| format!("; it says that it is of --model {model}"));
        Failure::data(format!("{path_name}: {error}{model}"))
    })
}

/// Reads the parameters with which a run begins. Those that the file does not give are fresh.
pub(crate) fn read_start(path: &Path, model: &dyn Model, settings: &Settings) -> Result<Vec<f32>, Failure> {
    let except = settings.init_except.as_deref().unwrap_or_default();
    let fresh = if except.is_empty() { Vec::new() } else { model.initial_parameters(settings.seed)? };
    Ok(read_except(path, &model.table(), except, &fresh)?.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_model_has_a_size_that_messages_can_carry() {
        let check = |tensors: usize, values: usize| {
            let shapes = (0..tensors).map(|at| (at.to_string(), vec![values]));
            check_size("mine", &ParameterTable::of_shapes(shapes)).map_err(|failure| failure.to_string())
        };
        assert_eq!((check(1, 1), check(1, 1 << 30), check(1 << 16, 1 << 14)), (Ok(()), Ok(()), Ok(())));
        for (refused, message) in [
            (check(1, 0), "model 'mine' has 0 parameters: expected 1 to 1073741824"),
            (check(2, 1 << 30), "has 2147483648 parameters"),
            (check((1 << 16) + 1, 1), "has 65537 tensors: expected 1 to 65536"),
        ] {
            let refused = refused.unwrap_err();
            assert!(refused.contains(message), "{refused}");
        }
    }
}
