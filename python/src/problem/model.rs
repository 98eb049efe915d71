//! The problem as a model of the coordinator and the workers.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use ata_data::{DataError, DataSource, Split};
use ata_learn::{Dataset, Model};
use ata_sums::{Metadata, OwnOptimizer, ParameterTable, TensorEntry, TensorKind, TensorSizes};
use numpy::PyReadonlyArray1;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

use super::attached;
use super::dataset::PythonDataset;
use super::optimizer::PythonOptimizer;

/// A model whose gradients a Python problem computes.
pub(super) struct PythonModel {
    pub(super) name: String,
    problem: Arc<Py<PyAny>>,
    table: ParameterTable,
    classes: Vec<String>,
}

impl PythonModel {
    /// Reads the constant properties of a problem.
    pub(super) fn new(problem: &Bound<'_, PyAny>) -> PyResult<Self> {
        let tensors: Vec<(String, Vec<usize>, String, Vec<String>)> = problem.call_method0("tensors")?.extract()?;
        let table = ParameterTable { tensors: tensors.into_iter().map(entry).collect::<PyResult<_>>()? };
        if TensorSizes::from(&table).trained_values() == 0 {
            return Err(PyValueError::new_err("the model has no parameters to train"));
        }
        Ok(Self {
            name: problem.getattr("name")?.extract()?,
            classes: problem.getattr("classes")?.extract()?,
            problem: Arc::new(problem.clone().unbind()),
            table,
        })
    }
}

/// Reads an `ata.problem.Tensor`.
fn entry((name, shape, kind, also): (String, Vec<usize>, String, Vec<String>)) -> PyResult<TensorEntry> {
    let kind = match kind.as_str() {
        "trained" => TensorKind::Trained,
        "averaged" => TensorKind::Averaged,
        "counter" => TensorKind::Counter,
        "weight" => TensorKind::Weight,
        "uses" => TensorKind::Uses,
        _ => {
            return Err(PyValueError::new_err(format!(
                "{name}: kind '{kind}': expected trained, averaged, counter, weight or uses"
            )));
        }
    };
    Ok(TensorEntry { also, kind, ..TensorEntry::new(name, shape) })
}

impl Model for PythonModel {
    fn table(&self) -> ParameterTable {
        self.table.clone()
    }

    fn initial_parameters(&self, seed: u64) -> Result<Vec<f32>, DataError> {
        let values = attached(|py| {
            let values = self.problem.call_method1(py, "initial", (seed,))?;
            let values: PyReadonlyArray1<'_, f32> = values.extract(py)?;
            Ok(values.as_slice()?.to_vec())
        })?;
        let (found, expected) = (values.len(), self.parameter_count());
        if found != expected {
            let reason = format!("initial({seed}) has {found} values, and the parameters are {expected}");
            return Err(DataError::Problem(reason));
        }
        Ok(values)
    }

    fn locate(&self, data: &Path, _split: Split) -> Result<PathBuf, DataError> {
        Ok(data.into())
    }

    fn open(&self, source: &DataSource, split: Split) -> Result<Arc<dyn Dataset>, DataError> {
        let path = match source {
            DataSource::Generated { .. } => None,
            DataSource::File(path) | DataSource::Shards { index: path, .. } => Some(path.as_path()),
        };
        Ok(Arc::new(PythonDataset::open(self.problem.clone(), (&self.table).into(), split, path)?))
    }

    fn class_names(&self) -> Vec<String> {
        self.classes.clone()
    }

    fn metadata(&self) -> Metadata {
        let classes = (!self.classes.is_empty()).then(|| ("classes".to_owned(), self.classes.join(",")));
        [("model".to_owned(), self.name.clone())].into_iter().chain(classes).collect()
    }

    fn optimizer(&self) -> Result<Option<Box<dyn OwnOptimizer>>, DataError> {
        let own = PythonOptimizer::of(&self.problem, self.parameter_count())?;
        Ok(own.map(|own| Box::new(own) as _))
    }
}
