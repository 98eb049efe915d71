//! Models and optimizer state in the safetensors format.
//!
//! A model's tensors have PyTorch's names and layouts, so that PyTorch's `load_state_dict` takes them as they are.

use std::borrow::Cow;
use std::collections::BTreeMap;

use safetensors::tensor::TensorView;
use safetensors::{Dtype, SafeTensorError, SafeTensors};
use sha2::{Digest, Sha256};

use crate::table::ParameterTable;

/// Named texts that a file carries in addition to its tensors.
pub type Metadata = BTreeMap<String, String>;

/// The reason why a file of tensors is refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct ModelFileError(String);

impl From<SafeTensorError> for ModelFileError {
    fn from(error: SafeTensorError) -> Self {
        Self(format!("not a whole safetensors file: {error}"))
    }
}

/// The metadata key of the names of a model's tensors in flat order, since the format has an order of its own.
const ORDER: &str = "flat_order";

/// Encodes a model. The metadata also holds the order of the tensors, so that a reader needs only the file.
///
/// # Panics
/// Panics if there is not one number per parameter.
pub fn encode_model(table: &ParameterTable, parameters: &[f32], metadata: &Metadata) -> Vec<u8> {
    assert_eq!(parameters.len(), table.parameters());
    let mut rest = parameters;
    let tensors = table.tensors.iter().map(|entry| {
        let (own, others) = rest.split_at(entry.elements());
        rest = others;
        (entry.name.as_str(), entry.shape.clone(), entry.to_pytorch(own))
    });
    let order = [(ORDER.to_owned(), table.order())];
    encode(&tensors.collect::<Vec<_>>(), &metadata.clone().into_iter().chain(order).collect())
}

/// Returns the names and shapes of the parameters in a file written by [`encode_model`].
pub fn decode_table(file: &[u8]) -> Result<ParameterTable, ModelFileError> {
    let (metadata, tensors) = (decode_metadata(file)?, SafeTensors::deserialize(file)?);
    let order = metadata.get(ORDER).ok_or_else(|| {
        ModelFileError(format!(
            "its metadata have no '{ORDER}': was it written by ata, as `model.safetensors` of a run or by `ata init`?"
        ))
    })?;
    ParameterTable::ordered(order, |name| Ok(tensor_of(&tensors, name)?.shape().to_vec()))
}

/// Decodes a model: its parameters in flat order, and the metadata.
pub fn decode_model(table: &ParameterTable, file: &[u8]) -> Result<(Vec<f32>, Metadata), ModelFileError> {
    let tensors = SafeTensors::deserialize(file)?;
    let mut parameters = Vec::with_capacity(table.parameters());
    for entry in &table.tensors {
        let values = values_of(&tensors, &entry.name, &entry.shape)?;
        if !values.iter().all(|value| value.is_finite()) {
            return Err(ModelFileError(format!("tensor '{}' holds a number that is infinite or NaN", entry.name)));
        }
        parameters.extend(entry.to_flat(&values));
    }
    let is_known = |name: &str| table.tensors.iter().any(|entry| entry.name == name);
    if let Some(name) = tensors.names().into_iter().find(|name| !is_known(name)) {
        return Err(ModelFileError(format!("holds a tensor '{name}', which the model does not have")));
    }
    Ok((parameters, decode_metadata(file)?))
}

/// Decodes the metadata of a file.
pub fn decode_metadata(file: &[u8]) -> Result<Metadata, ModelFileError> {
    let (_, header) = SafeTensors::read_metadata(file)?;
    Ok(header.metadata().iter().flatten().map(|(key, value)| (key.clone(), value.clone())).collect())
}

/// Returns the SHA-256 of parameters as little-endian f32, in flat order.
pub fn sha256_of_parameters(parameters: &[f32]) -> [u8; 32] {
    Sha256::digest(bytemuck::cast_slice::<f32, u8>(parameters)).into()
}

/// Encodes vectors by name.
pub fn encode_vectors<'a>(vectors: impl Iterator<Item = (&'static str, &'a [f32])>, metadata: &Metadata) -> Vec<u8> {
    let tensors = vectors.map(|(name, values)| (name, vec![values.len()], values.into()));
    encode(&tensors.collect::<Vec<_>>(), metadata)
}

/// Decodes vectors of `length` numbers by name.
pub fn decode_vectors(file: &[u8], length: usize) -> Result<Vec<(String, Vec<f32>)>, ModelFileError> {
    let tensors = SafeTensors::deserialize(file)?;
    let names = tensors.names().into_iter();
    names.map(|name| Ok((name.to_owned(), values_of(&tensors, name, &[length])?))).collect()
}

type Named<'a> = (&'a str, Vec<usize>, Cow<'a, [f32]>);

fn encode(tensors: &[Named<'_>], metadata: &Metadata) -> Vec<u8> {
    let views = tensors.iter().map(|(name, shape, values)| {
        // The format is little-endian, and so is every machine that ata runs on: the wire protocol requires it.
        let bytes = bytemuck::cast_slice(values);
        (*name, TensorView::new(Dtype::F32, shape.clone(), bytes).expect("four bytes per element"))
    });
    let metadata = metadata.iter().map(|(key, value)| (key.clone(), value.clone())).collect();
    safetensors::serialize(views, Some(metadata)).expect("names are short and distinct")
}

fn tensor_of<'a>(tensors: &SafeTensors<'a>, name: &str) -> Result<TensorView<'a>, ModelFileError> {
    let missing = |_| ModelFileError(format!("holds no tensor '{name}': is it of another model?"));
    tensors.tensor(name).map_err(missing)
}

fn values_of(tensors: &SafeTensors<'_>, name: &str, shape: &[usize]) -> Result<Vec<f32>, ModelFileError> {
    let tensor = tensor_of(tensors, name)?;
    if tensor.dtype() != Dtype::F32 || tensor.shape() != shape {
        let (found, of) = (tensor.dtype(), tensor.shape());
        let expected = Dtype::F32;
        return Err(ModelFileError(format!(
            "tensor '{name}' is {found:?} {of:?}; the model's is {expected:?} {shape:?}"
        )));
    }
    let number = |bytes: &[u8]| f32::from_le_bytes(bytes.try_into().expect("chunks of four"));
    Ok(tensor.data().chunks_exact(4).map(number).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::TensorEntry;

    /// Returns a table with a convolution, a transposed matrix and a bias.
    fn table(outputs: usize) -> ParameterTable {
        let mut table = ParameterTable::of_shapes([
            ("conv.weight".into(), vec![2, 3, 3, 3]),
            ("output.bias".into(), vec![outputs]),
        ]);
        let matrix = TensorEntry { name: "output.weight".into(), shape: vec![outputs, 4], is_transposed: true };
        table.tensors.insert(1, matrix);
        table
    }

    fn metadata() -> Metadata {
        [("format", "pt"), ("step", "7")].map(|(key, value)| (key.to_owned(), value.to_owned())).into()
    }

    #[test]
    fn a_model_is_read_as_it_was_written() {
        let table = table(5);
        let parameters: Vec<f32> = (0..table.parameters()).map(|at| at as f32 * 0.1).collect();
        let file = encode_model(&table, &parameters, &metadata());
        let (read, mut about) = decode_model(&table, &file).unwrap();
        assert!(about.remove(ORDER).is_some());
        assert_eq!((read, about), (parameters, metadata()));
    }

    #[test]
    fn other_models_and_other_files_are_refused_by_name() {
        let expected = table(5);
        let file = |table: &ParameterTable| encode_model(table, &vec![0.0; table.parameters()], &metadata());
        let error = |file: &[u8]| decode_model(&expected, file).unwrap_err().to_string();
        assert_eq!(error(&file(&table(6))), "tensor 'output.weight' is F32 [6, 4]; the model's is F32 [5, 4]");
        assert!(error(&file(&ParameterTable::vector("theta", 3))).contains("holds no tensor 'conv.weight'"));
        let mut more = expected.clone();
        more.tensors.extend(ParameterTable::vector("extra", 1).tensors);
        assert!(error(&file(&more)).contains("holds a tensor 'extra'"));
        let broken = encode_model(&expected, &vec![f32::NAN; expected.parameters()], &metadata());
        assert!(error(&broken).contains("'conv.weight' holds a number that is infinite or NaN"));
        assert!(error(b"hello").contains("not a whole safetensors file"));
    }

    #[test]
    fn vectors_by_name() {
        let vectors: [(&'static str, &[f32]); 2] = [("exp_avg", &[1.0, 2.0]), ("exp_avg_sq", &[3.0, 4.0])];
        let file = encode_vectors(vectors.into_iter(), &Metadata::new());
        let mut read = decode_vectors(&file, 2).unwrap();
        read.sort_by(|a, b| a.0.cmp(&b.0));
        assert_eq!(read, [("exp_avg".into(), vec![1.0, 2.0]), ("exp_avg_sq".into(), vec![3.0, 4.0])]);
        assert!(decode_vectors(&file, 3).is_err());
    }
}
