//! The names and shapes of a model's parameters, as in PyTorch.

use std::borrow::Cow;

/// The tensors that make up a model's flat parameter vector, in its order: the trained ones precede all others. Tallies are last.
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
    /// Other names of the same tensor, as of weights that two layers share. Files of the model hold it under each name.
    pub also: Vec<String>,
    /// How steps change the tensor.
    pub kind: TensorKind,
    /// Whether the flat vector holds the transposed matrix, as burn does for the weights of `Linear`.
    pub is_transposed: bool,
}

/// How the steps of a run change a tensor.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TensorKind {
    /// The optimizer moves it along the mean gradient of the tasks.
    #[default]
    Trained,
    /// Each task begins with its value, and may change it, as batch normalisation changes its running statistics. A step sets it to the
    /// mean of what the tasks of the step leave. In place of a gradient, a task contributes its value before the task minus that after it.
    Averaged,
    /// An averaged tensor of integers of at most 2²⁴, such as a number of batches. Files hold it as 64-bit integers.
    Counter,
    /// A tally with one value, to which each task adds its weight: the gradient of a step is divided by the sum of the weights. A task adds
    /// the gradient of its mean loss times its weight. No file has it.
    Weight,
    /// A tally with a value for each trained tensor, to which a task adds 1 if it has a gradient for the tensor. A step leaves tensors for
    /// which no task has one as they are, with their moments. No file has it.
    Uses,
    /// A tally with a value for each trained tensor, to which a task adds the sum of the squares of its gradient. Tasks that are computed as
    /// one batch add that of their sum, divided by their number. No file has it.
    Squares,
}

impl TensorKind {
    /// Returns the place of the kind in a table.
    pub(crate) fn place(self) -> usize {
        match self {
            Self::Trained => 0,
            Self::Averaged | Self::Counter => 1,
            Self::Weight | Self::Uses | Self::Squares => 2,
        }
    }

    /// Returns whether files of the model hold the tensor.
    pub(crate) fn is_in_files(self) -> bool {
        self.place() < 2
    }
}

/// The suffixes that mark the names of transposed matrices, and of the kinds of tensors that are not trained.
const MARKS: [(&str, TensorKind, bool); 5] = [
    ("^T", TensorKind::Trained, true),
    ("^A", TensorKind::Averaged, false),
    ("^C", TensorKind::Counter, false),
    ("^W", TensorKind::Weight, false),
    ("^U", TensorKind::Uses, false),
];

const ALSO: char = '=';

impl TensorEntry {
    /// Creates a trained tensor, which the flat vector holds in row-major order, as in PyTorch.
    pub fn new(name: impl Into<String>, shape: impl Into<Vec<usize>>) -> Self {
        let (name, shape, kind) = (name.into(), shape.into(), TensorKind::Trained);
        Self { name, shape, also: Vec::new(), kind, is_transposed: false }
    }

    pub(crate) fn names(&self) -> impl Iterator<Item = &str> {
        [&self.name].into_iter().chain(&self.also).map(String::as_str)
    }

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
        Self { tensors: tensors.into_iter().map(|(name, shape)| TensorEntry::new(name, shape)).collect() }
    }

    /// Returns the names in flat order, separated by commas. The name of a transposed matrix ends in `^T`, that of an averaged tensor in
    /// `^A` or `^C`, and that of a tally in `^W` or `^U`; the names of one tensor are separated by `=`. A tally of squares is not
    /// named: it belongs to a run, not to its model.
    pub(crate) fn order(&self) -> String {
        let name = |entry: &TensorEntry| {
            let mark =
                MARKS.iter().find(|(_, kind, transposed)| (*kind, *transposed) == (entry.kind, entry.is_transposed));
            entry.names().collect::<Vec<_>>().join(&ALSO.to_string()) + mark.map_or("", |(mark, ..)| mark)
        };
        let of_model = self.tensors.iter().filter(|entry| entry.kind != TensorKind::Squares);
        of_model.map(name).collect::<Vec<_>>().join(",")
    }

    /// Creates the table for this [`Self::order`]; `shape_of` returns the shape of a tensor.
    pub(crate) fn ordered<E>(order: &str, mut shape_of: impl FnMut(&str) -> Result<Vec<usize>, E>) -> Result<Self, E> {
        let mut trained = 0;
        let entry = |text: &str| {
            let marked = |(mark, kind, transposed)| Some((text.strip_suffix(mark)?, kind, transposed));
            let (names, kind, transposed) =
                MARKS.into_iter().find_map(marked).unwrap_or((text, TensorKind::Trained, false));
            let mut names = names.split(ALSO).map(String::from);
            let name = names.next().unwrap_or_default();
            trained += usize::from(kind == TensorKind::Trained);
            let shape = match kind {
                TensorKind::Weight => Vec::new(),
                TensorKind::Uses => vec![trained],
                _ => shape_of(&name)?,
            };
            let is_transposed = transposed && shape.len() == 2;
            Ok(TensorEntry { name, shape, also: names.collect(), kind, is_transposed })
        };
        Ok(Self { tensors: order.split(',').map(entry).collect::<Result<_, _>>()? })
    }

    /// Creates a table with a single vector, for models without named parameters.
    pub fn vector(name: &str, length: usize) -> Self {
        Self::of_shapes([(name.into(), vec![length])])
    }

    /// Adds a tally of the squares of tasks' gradients.
    #[must_use]
    pub fn with_squares(mut self) -> Self {
        let trained = self.tensors.iter().filter(|entry| entry.kind == TensorKind::Trained).count();
        self.tensors.push(TensorEntry { kind: TensorKind::Squares, ..TensorEntry::new("squares", [trained]) });
        self
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
        let entry = TensorEntry { is_transposed: true, ..TensorEntry::new("a", [2, 3]) };
        // A [3, 2] matrix in burn is [2, 3] in PyTorch.
        let flat = [1.0, 4.0, 2.0, 5.0, 3.0, 6.0];
        assert_eq!(*entry.to_pytorch(&flat), [1.0, 2.0, 3.0, 4.0, 5.0, 6.0]);
        assert_eq!(entry.to_flat(&entry.to_pytorch(&flat)), flat);
    }
}
