//! Models and optimizer state in the safetensors format.
//!
//! A model's tensors have PyTorch's names and layouts, each under all of its names, so that PyTorch's `load_state_dict` takes them as
//! they are, with `strict=True`.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};

use half::{bf16, f16};
use safetensors::tensor::TensorView;
use safetensors::{Dtype, SafeTensorError, SafeTensors};
use sha2::{Digest, Sha256};

use crate::names::NamePatterns;
use crate::table::{ParameterTable, TensorEntry, TensorKind};

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
    let tensors = table.tensors.iter().flat_map(|entry| {
        let (own, others) = rest.split_at(entry.elements());
        rest = others;
        if !entry.kind.is_in_files() {
            return Vec::new();
        }
        let values = match entry.kind {
            TensorKind::Counter => {
                (Dtype::I64, own.iter().flat_map(|value| (value.round() as i64).to_le_bytes()).collect())
            }
            _ => (Dtype::F32, bytes_of(entry.to_pytorch(own))),
        };
        entry.names().map(move |name| (name, entry.shape.clone(), values.clone())).collect::<Vec<_>>()
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
    let table =
        ParameterTable::ordered(order, |name| Ok::<_, ModelFileError>(tensor_of(&tensors, name)?.shape().to_vec()))?;
    let mut names = BTreeSet::new();
    if let Some(twice) = table.tensors.iter().flat_map(TensorEntry::names).find(|name| !names.insert(*name)) {
        return Err(ModelFileError(format!("its '{ORDER}' has '{twice}' twice")));
    }
    if !table.tensors.is_sorted_by_key(|entry| entry.kind.place()) {
        return Err(ModelFileError(format!(
            "its '{ORDER}' has a trained tensor after one that is averaged, or a tally before others"
        )));
    }
    Ok(table)
}

/// Decodes a model: its parameters in flat order, and the metadata. Tensors may have the prefixes that PyTorch's wrappers give to names,
/// and may hold 16-bit floats.
pub fn decode_model(table: &ParameterTable, file: &[u8]) -> Result<(Vec<f32>, Metadata), ModelFileError> {
    decode_model_except(table, file, &NamePatterns::default(), &[])
}

/// Decodes a model as by [`decode_model`], but for the tensors with these names: they keep their values in `fresh`, and the file may hold
/// other tensors of these names, or none.
///
/// # Panics
/// Panics if there are patterns, and `fresh` does not have one number per parameter.
pub fn decode_model_except(
    table: &ParameterTable,
    file: &[u8],
    except: &NamePatterns,
    fresh: &[f32],
) -> Result<(Vec<f32>, Metadata), ModelFileError> {
    except.check(table).map_err(ModelFileError)?;
    let tensors = SafeTensors::deserialize(file)?;
    let mut unread: BTreeSet<&str> = tensors.names().into_iter().collect();
    let own: BTreeSet<&str> = table.tensors.iter().flat_map(TensorEntry::names).collect();
    let wrapped: BTreeMap<String, &str> = unread.difference(&own).map(|name| (unwrapped(name), *name)).collect();
    let mut parameters = Vec::with_capacity(table.parameters());
    for entry in &table.tensors {
        if !entry.kind.is_in_files() {
            parameters.extend(std::iter::repeat_n(0.0, entry.elements()));
            continue;
        }
        if except.has(entry) {
            let from = parameters.len();
            parameters.extend_from_slice(&fresh[from..from + entry.elements()]);
            continue;
        }
        let find = |name| unread.get(name).or_else(|| wrapped.get(&unwrapped(name))).copied();
        let found: Vec<&str> = entry.names().filter_map(find).collect();
        let values = values_of(&tensors, found.first().copied().unwrap_or(&entry.name), &entry.shape)?;
        for name in found {
            unread.remove(name);
        }
        if !values.iter().all(|value| value.is_finite()) {
            return Err(ModelFileError(format!("tensor '{}' holds a number that is infinite or NaN", entry.name)));
        }
        parameters.extend(entry.to_flat(&values));
    }
    unread.retain(|name| !except.has_name(&unwrapped(name)));
    if let Some(name) = unread.first() {
        return Err(ModelFileError(format!("holds a tensor '{name}', which the model does not have")));
    }
    Ok((parameters, decode_metadata(file)?))
}

/// Returns the name of a tensor without what `torch.compile` and `DataParallel` add to it.
fn unwrapped(name: &str) -> String {
    name.replace("_orig_mod.", "").trim_start_matches("module.").to_owned()
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

/// The name, in a file of vectors, of what a program's own optimizer keeps.
const OWN_STATE: &str = "own";

/// Encodes vectors by name, and what a program's own optimizer keeps.
pub fn encode_vectors<'a>(
    vectors: impl Iterator<Item = (&'static str, &'a [f32])>,
    own_state: Option<&'a [u8]>,
    metadata: &Metadata,
) -> Vec<u8> {
    let tensors = vectors.map(|(name, values)| (name, vec![values.len()], (Dtype::F32, bytes_of(values.into()))));
    let own_state = own_state.map(|state| (OWN_STATE, vec![state.len()], (Dtype::U8, state.into())));
    encode(&tensors.chain(own_state).collect::<Vec<_>>(), metadata)
}

/// Decodes vectors of `length` numbers by name.
pub fn decode_vectors(file: &[u8], length: usize) -> Result<Vec<(String, Vec<f32>)>, ModelFileError> {
    let tensors = SafeTensors::deserialize(file)?;
    let names = tensors.names().into_iter().filter(|name| *name != OWN_STATE);
    names.map(|name| Ok((name.to_owned(), values_of(&tensors, name, &[length])?))).collect()
}

/// Decodes the state of a program's own optimizer, if the file holds one.
pub fn decode_own_state(file: &[u8]) -> Result<Option<Vec<u8>>, ModelFileError> {
    Ok(SafeTensors::deserialize(file)?.tensor(OWN_STATE).ok().map(|tensor| tensor.data().to_vec()))
}

/// The name, the shape, and the content of a tensor.
type Named<'a> = (&'a str, Vec<usize>, (Dtype, Cow<'a, [u8]>));

/// Returns numbers as bytes. The format is little-endian, and so is every machine that ata runs on: the wire protocol requires it.
fn bytes_of(values: Cow<'_, [f32]>) -> Cow<'_, [u8]> {
    match values {
        Cow::Borrowed(values) => Cow::Borrowed(bytemuck::cast_slice(values)),
        Cow::Owned(values) => Cow::Owned(bytemuck::cast_slice(&values).to_vec()),
    }
}

fn encode(tensors: &[Named<'_>], metadata: &Metadata) -> Vec<u8> {
    let views = tensors.iter().map(|(name, shape, (dtype, bytes))| {
        (*name, TensorView::new(*dtype, shape.clone(), bytes).expect("as many bytes as the shape has elements"))
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
    let data = tensor.data();
    let values = match tensor.dtype() {
        Dtype::F32 => numbers(data, f32::from_le_bytes),
        Dtype::F16 => numbers(data, |bytes| f16::from_le_bytes(bytes).to_f32()),
        Dtype::BF16 => numbers(data, |bytes| bf16::from_le_bytes(bytes).to_f32()),
        Dtype::I64 => numbers(data, |bytes| i64::from_le_bytes(bytes) as f32),
        _ => Vec::new(),
    };
    if tensor.shape() != shape || values.len() != shape.iter().product::<usize>() {
        let (found, of) = (tensor.dtype(), tensor.shape());
        let expected = Dtype::F32;
        return Err(ModelFileError(format!(
            "tensor '{name}' is {found:?} {of:?}; the model's is {expected:?} {shape:?}"
        )));
    }
    Ok(values)
}

fn numbers<const N: usize>(data: &[u8], number: impl Fn([u8; N]) -> f32) -> Vec<f32> {
    data.as_chunks().0.iter().map(|bytes| number(*bytes)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns a table with a convolution, a transposed matrix and a bias.
    fn table(outputs: usize) -> ParameterTable {
        let mut table = ParameterTable::of_shapes([
            ("conv.weight".into(), vec![2, 3, 3, 3]),
            ("output.bias".into(), vec![outputs]),
        ]);
        let matrix = TensorEntry { is_transposed: true, ..TensorEntry::new("output.weight", [outputs, 4]) };
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

    /// A file holds each tensor under all of its names, and counters as integers.
    #[test]
    fn tied_and_averaged_tensors_are_written_as_pytorch_names_them() {
        let mut table =
            ParameterTable::of_shapes([("embed.weight".into(), vec![2]), ("norm.running_var".into(), vec![1])]);
        table.tensors.push(TensorEntry::new("norm.num_batches_tracked", []));
        table.tensors[0].also.push("head.weight".into());
        (table.tensors[1].kind, table.tensors[2].kind) = (TensorKind::Averaged, TensorKind::Counter);
        let parameters = [1.5, -2.0, 0.25, 7.0];
        let file = encode_model(&table, &parameters, &metadata());
        let tensors = SafeTensors::deserialize(&file).unwrap();
        assert_eq!(tensors.tensor("head.weight").unwrap().data(), tensors.tensor("embed.weight").unwrap().data());
        let count = tensors.tensor("norm.num_batches_tracked").unwrap();
        assert_eq!((count.dtype(), count.shape(), count.data()), (Dtype::I64, &[][..], &7_i64.to_le_bytes()[..]));
        assert_eq!(decode_table(&file).unwrap(), table);
        assert_eq!(decode_model(&table, &file).unwrap().0, parameters);
        let of_order = |order: &str| {
            let tensors = [("a", vec![1]), ("b", vec![1])]
                .map(|(name, shape)| (name, shape, (Dtype::F32, Cow::from(&[0; 4][..]))));
            decode_table(&encode(&tensors, &[(ORDER.to_owned(), order.to_owned())].into()))
                .map_err(|error| error.to_string())
        };
        assert!(of_order("a=c,b^A").is_ok());
        for order in ["b^A,a", "w^W,a", "u^U,b^A"] {
            assert!(of_order(order).unwrap_err().contains("has a trained tensor after one"), "{order}");
        }
        for order in ["a,b,a", "a=b,b"] {
            assert!(of_order(order).unwrap_err().ends_with("twice"), "{order}");
        }
    }

    /// A head for other classes, of another shape, keeps its fresh values.
    #[test]
    fn tensors_may_keep_their_values() {
        let file = encode_model(&table(5), &vec![1.0; table(5).parameters()], &metadata());
        let (table, fresh) = (table(7), vec![9.0; table(7).parameters()]);
        let start = |except: &str| decode_model_except(&table, &file, &except.into(), &fresh);
        assert!(start("").is_err());
        let (read, _) = start("output.*").unwrap();
        let mut expected = Vec::new();
        for entry in &table.tensors {
            let value = if entry.name.starts_with("output.") { 9.0 } else { 1.0 };
            expected.extend(std::iter::repeat_n(value, entry.elements()));
        }
        assert_eq!(read, expected);
        assert!(start("outptu.*").unwrap_err().to_string().starts_with("'outptu.*' matches no parameter"));
    }

    /// Tallies belong to a run, not to its model.
    #[test]
    fn tallies_are_in_the_order_but_not_in_the_file() {
        let mut table = table(5);
        let trained = table.tensors.len();
        table.tensors.push(TensorEntry { kind: TensorKind::Weight, ..TensorEntry::new("weight", []) });
        table.tensors.push(TensorEntry { kind: TensorKind::Uses, ..TensorEntry::new("uses", [trained]) });
        let mut parameters: Vec<f32> = (0..table.parameters()).map(|at| at as f32).collect();
        let of_model = parameters.len() - 1 - trained;
        parameters[of_model..].fill(0.0);
        let with_squares = [parameters.clone(), vec![0.0; trained]].concat();
        let file = encode_model(&table.clone().with_squares(), &with_squares, &metadata());
        assert_eq!(SafeTensors::deserialize(&file).unwrap().len(), trained);
        assert_eq!(decode_model(&table.clone().with_squares(), &file).unwrap().0, with_squares);
        assert_eq!((decode_table(&file).unwrap(), decode_model(&table, &file).unwrap().0), (table, parameters));
    }

    /// Wrappers of PyTorch prefix the names, and 16-bit floats are read.
    #[test]
    fn files_of_wrapped_and_16_bit_models_are_read() {
        let table = ParameterTable::of_shapes([("a.weight".into(), vec![2]), ("module.b".into(), vec![1])]);
        let halves: Vec<u8> = [1.5, -2.0].into_iter().flat_map(|value| f16::from_f32(value).to_le_bytes()).collect();
        let floats: Vec<u8> = bf16::from_f32(3.0).to_le_bytes().into();
        for names in
            [["a.weight", "module.b"], ["module._orig_mod.a.weight", "module.module.b"], ["_orig_mod.a.weight", "b"]]
        {
            let tensors = vec![
                (names[0], vec![2], (Dtype::F16, halves.clone().into())),
                (names[1], vec![1], (Dtype::BF16, floats.clone().into())),
            ];
            assert_eq!(
                decode_model(&table, &encode(&tensors, &Metadata::new())).unwrap().0,
                [1.5, -2.0, 3.0],
                "{names:?}"
            );
        }
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
        let file = encode_vectors(vectors.into_iter(), Some(b"own"), &Metadata::new());
        assert_eq!(decode_own_state(&file).unwrap().unwrap(), b"own");
        let mut read = decode_vectors(&file, 2).unwrap();
        read.sort_by(|a, b| a.0.cmp(&b.0));
        assert_eq!(read, [("exp_avg".into(), vec![1.0, 2.0]), ("exp_avg_sq".into(), vec![3.0, 4.0])]);
        assert!(decode_vectors(&file, 3).is_err());
    }
}
