//! Models and optimizer state in the safetensors format.
//!
//! A model's tensors have PyTorch's names and layouts, so that PyTorch's `load_state_dict` takes them as they are.

use std::borrow::Cow;
use std::collections::BTreeMap;

use safetensors::tensor::TensorView;
use safetensors::{Dtype, SafeTensors};
use sha2::{Digest, Sha256};

use crate::table::ParameterTable;

/// Named texts that a file carries in addition to its tensors.
pub type Metadata = BTreeMap<String, String>;

/// The reason why a file of tensors is refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ModelFileError {
    /// The file is not in the safetensors format, or is damaged.
    #[error("not a whole safetensors file: {0}")]
    Format(String),
    /// The file was not written by ata.
    #[error("its metadata have no '{0}': was it written by ata, as `model.safetensors` of a run or by `ata init`?")]
    Foreign(&'static str),
    /// A tensor is missing.
    #[error("holds no tensor '{0}': is it of another model?")]
    Missing(String),
    /// A tensor is not part of the model.
    #[error("holds a tensor '{0}', which the model does not have")]
    Unexpected(String),
    /// A tensor holds an infinite number or NaN.
    #[error("tensor '{0}' holds a number that is infinite or NaN")]
    NotFinite(String),
    /// A tensor has a different shape or type.
    #[error("tensor '{name}' is {found}; the model's is {expected}")]
    Different {
        /// The tensor.
        name: String,
        /// The type and shape in the file.
        found: String,
        /// The type and shape in the model.
        expected: String,
    },
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
        let (own, others) = rest.split_at(entry.len());
        rest = others;
        (entry.name.as_str(), entry.shape.clone(), entry.to_pytorch(own))
    });
    let order = [(ORDER.to_owned(), table.order())];
    encode(&tensors.collect::<Vec<_>>(), &metadata.clone().into_iter().chain(order).collect())
}

/// Returns the names and shapes of the parameters in a file written by [`encode_model`].
pub fn decode_table(file: &[u8]) -> Result<ParameterTable, ModelFileError> {
    let (metadata, tensors) = (decode_metadata(file)?, parse(file)?);
    let order = metadata.get(ORDER).ok_or(ModelFileError::Foreign(ORDER))?;
    ParameterTable::ordered(order, |name| match tensors.tensor(name) {
        Ok(tensor) => Ok(tensor.shape().to_vec()),
        Err(_) => Err(ModelFileError::Missing(name.into())),
    })
}

/// Decodes a model: its parameters in flat order, and the metadata.
pub fn decode_model(table: &ParameterTable, file: &[u8]) -> Result<(Vec<f32>, Metadata), ModelFileError> {
    let tensors = parse(file)?;
    let mut parameters = Vec::with_capacity(table.parameters());
    for entry in &table.tensors {
        let values = values_of(&tensors, &entry.name, &entry.shape)?;
        if !values.iter().all(|value| value.is_finite()) {
            return Err(ModelFileError::NotFinite(entry.name.clone()));
        }
        parameters.extend(entry.to_flat(&values));
    }
    let is_known = |name: &str| table.tensors.iter().any(|entry| entry.name == name);
    if let Some(name) = tensors.names().into_iter().find(|name| !is_known(name)) {
        return Err(ModelFileError::Unexpected(name.into()));
    }
    Ok((parameters, decode_metadata(file)?))
}

/// Decodes the metadata of a file.
pub fn decode_metadata(file: &[u8]) -> Result<Metadata, ModelFileError> {
    let (_, header) = SafeTensors::read_metadata(file).map_err(|error| ModelFileError::Format(error.to_string()))?;
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
    let tensors = parse(file)?;
    let names = tensors.names().into_iter();
    names.map(|name| Ok((name.to_owned(), values_of(&tensors, name, &[length])?))).collect()
}

/// The name, shape and values of a tensor.
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

fn parse(file: &[u8]) -> Result<SafeTensors<'_>, ModelFileError> {
    SafeTensors::deserialize(file).map_err(|error| ModelFileError::Format(error.to_string()))
}

fn values_of(tensors: &SafeTensors<'_>, name: &str, shape: &[usize]) -> Result<Vec<f32>, ModelFileError> {
    let tensor = tensors.tensor(name).map_err(|_| ModelFileError::Missing(name.into()))?;
    if tensor.dtype() != Dtype::F32 || tensor.shape() != shape {
        return Err(ModelFileError::Different {
            name: name.into(),
            found: format!("{:?} {:?}", tensor.dtype(), tensor.shape()),
            expected: format!("{:?} {shape:?}", Dtype::F32),
        });
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
    fn no_cut_or_flipped_byte_makes_it_panic() {
        let table = ParameterTable::vector("theta", 5);
        let file = encode_model(&table, &[1.0; 5], &metadata());
        for length in 0..file.len() {
            assert!(decode_model(&table, &file[..length]).is_err(), "cut to {length} bytes");
        }
        for at in 0..file.len() {
            for bit in 0..8 {
                let mut damaged = file.clone();
                damaged[at] ^= 1 << bit;
                // The damaged file may still be valid, with other values.
                drop(decode_model(&table, &damaged));
            }
        }
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
