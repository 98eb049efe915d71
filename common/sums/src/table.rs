//! The names and shapes of a model's parameters, as in PyTorch.

use std::borrow::Cow;

/// The tensors that make up a model's flat parameter vector, in its order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ParameterTable {
    /// The tensors, in flat order.
    pub tensors: Vec<TensorEntry>,
}

/// One tensor of a model.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TensorEntry {
    /// The tensor's name in a PyTorch `state_dict`: the fields that lead to it, joined by dots.
    pub name: String,
    /// The tensor's shape in PyTorch.
    pub shape: Vec<usize>,
    /// Whether the flat vector holds the transposed matrix, as burn does for the weights of `Linear`.
    pub is_transposed: bool,
}

/// The suffix that marks the name of a transposed matrix.
const TRANSPOSED: &str = "^T";

impl TensorEntry {
    /// Returns the number of values.
    pub fn elements(&self) -> usize {
        self.shape.iter().product()
    }

    /// Converts the tensor's part of the flat vector to PyTorch's layout.
    pub(crate) fn to_pytorch<'a>(&self, flat: &'a [f32]) -> Cow<'a, [f32]> {
        if self.is_transposed { transpose(flat, self.shape[0]).into() } else { flat.into() }
    }

    /// Converts the tensor from PyTorch's layout to its part of the flat vector.
    pub(crate) fn to_flat(&self, values: &[f32]) -> Vec<f32> {
        if self.is_transposed { transpose(values, self.shape[1]) } else { values.to_vec() }
    }
}

impl ParameterTable {
    /// Creates a table of tensors with these names and shapes, each in row-major order, as in PyTorch.
    pub fn of_shapes(tensors: impl IntoIterator<Item = (String, Vec<usize>)>) -> Self {
        let entry = |(name, shape)| TensorEntry { name, shape, is_transposed: false };
        Self { tensors: tensors.into_iter().map(entry).collect() }
    }

    /// Returns the names in flat order, separated by commas; the name of a transposed matrix ends in `^T`.
    pub(crate) fn order(&self) -> String {
        let name = |entry: &TensorEntry| format!("{}{}", entry.name, if entry.is_transposed { TRANSPOSED } else { "" });
        self.tensors.iter().map(name).collect::<Vec<_>>().join(",")
    }

    /// Creates the table for this [`Self::order`]; `shape_of` returns the shape of a tensor.
    pub(crate) fn ordered<E>(order: &str, mut shape_of: impl FnMut(&str) -> Result<Vec<usize>, E>) -> Result<Self, E> {
        let entry = |text: &str| {
            let name = text.strip_suffix(TRANSPOSED).unwrap_or(text);
            let shape = shape_of(name)?;
            let is_transposed = name.len() < text.len() && shape.len() == 2;
            Ok(TensorEntry { name: name.into(), shape, is_transposed })
        };
        Ok(Self { tensors: order.split(',').map(entry).collect::<Result<_, _>>()? })
    }

    /// Creates a table with a single vector, for models without named parameters.
    pub fn vector(name: &str, length: usize) -> Self {
        Self::of_shapes([(name.into(), vec![length])])
    }

    /// Returns the number of parameters.
    pub fn parameters(&self) -> usize {
        self.tensors.iter().map(TensorEntry::elements).sum()
    }
}

/// Transposes a row-major matrix with this many columns.
fn transpose(matrix: &[f32], columns: usize) -> Vec<f32> {
    let rows = matrix.len() / columns.max(1);
    (0..columns).flat_map(|column| (0..rows).map(move |row| matrix[row * columns + column])).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_matrix_is_transposed_and_back() {
        let entry = TensorEntry { name: "a".into(), shape: vec![2, 3], is_transposed: true };
        // A [3, 2] matrix in burn is [2, 3] in PyTorch.
        let flat = [1.0, 4.0, 2.0, 5.0, 3.0, 6.0];
        assert_eq!(*entry.to_pytorch(&flat), [1.0, 2.0, 3.0, 4.0, 5.0, 6.0]);
        assert_eq!(entry.to_flat(&entry.to_pytorch(&flat)), flat);
    }
}
