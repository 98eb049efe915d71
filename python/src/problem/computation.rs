//! Losses and gradients of samples, in arrays that Rust and Python share.

use std::collections::BTreeMap;
use std::ops::Range;

use ata_sums::{GradientSum, Quantizer};
use numpy::{PyArray1, PyArrayMethods, PyReadonlyArray1, PyUntypedArrayMethods};
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;

use super::{Raised, attached};

/// A Python object that computes losses and gradients, with the arrays that it shares with Rust.
pub(super) struct Computation {
    object: Py<PyAny>,
    /// The parameters at which the object computes.
    parameters: Py<PyArray1<f32>>,
    /// The most recent gradient.
    gradient: Py<PyArray1<f32>>,
    /// The number of batches that are announced in advance.
    pub(super) ahead: u64,
    /// What sums gradients on the device, if they should not be copied for each task.
    sums: Option<Py<PyAny>>,
}

/// Samples that are computed as one batch, and the values that the problem's randomness may depend on: seed, iteration, first task.
pub(super) struct PyBatch {
    pub(super) samples: Vec<u64>,
    pub(super) key: (u64, u64, u64),
}

impl PyBatch {
    fn samples<'py>(&self, py: Python<'py>) -> Bound<'py, PyArray1<i64>> {
        PyArray1::from_iter(py, self.samples.iter().map(|sample| sample.cast_signed()))
    }
}

/// The samples' loss, their labels and predicted classes (both empty for a problem without classes), and metrics by name.
pub(super) type Measured = (f64, Vec<i64>, Vec<i64>, BTreeMap<String, f64>);

impl Computation {
    pub(super) fn new(problem: &Py<PyAny>, split: &str, parameters: usize) -> Result<Self, Raised> {
        attached(|py| {
            let object = problem.call_method1(py, "computation", (split, ata_learn::thread_count()))?;
            let array = |name| vector(object.bind(py), name, parameters);
            let (parameters, gradient) = (array("parameters")?, array("gradient")?);
            let ahead = object.getattr(py, "ahead")?.extract(py)?;
            let sums = object.bind(py).getattr_opt("sums")?.filter(|sums| !sums.is_none()).map(Bound::unbind);
            Ok(Self { object, parameters, gradient, ahead, sums })
        })
    }

    /// Computes at most so many samples of a task at once, if the object can.
    pub(super) fn limited(self, micro_batch: Option<u32>) -> Result<Self, Raised> {
        let Some(most) = micro_batch else { return Ok(self) };
        attached(|py| {
            let object = self.object.bind(py);
            let Some(own) = object.getattr_opt("micro_batch")? else {
                return Err(PyValueError::new_err(
                    "--micro-batch: this problem computes all samples of a task at once",
                ));
            };
            let own: Option<u32> = own.extract()?;
            object.setattr("micro_batch", own.map_or(most, |own| own.min(most)))
        })?;
        Ok(self)
    }

    /// Copies the parameters into the shared array.
    pub(super) fn load(&self, parameters: &[f32]) -> Result<(), Raised> {
        attached(|py| {
            self.parameters.bind(py).try_readwrite()?.as_slice_mut()?.copy_from_slice(parameters);
            self.object.call_method0(py, "load").map(drop)
        })
    }

    pub(super) fn announce(&self, batches: &[PyBatch]) -> Result<(), Raised> {
        attached(|py| {
            let batches: Vec<_> = batches.iter().map(|batch| (batch.samples(py), batch.key)).collect();
            self.object.call_method1(py, "announce", (batches,)).map(drop)
        })
    }

    /// Computes the mean loss over the samples and its gradient, and passes both to `take` without a copy.
    pub(super) fn gradient<T>(&self, batch: &PyBatch, take: impl FnOnce(f64, &[f32]) -> T) -> Result<T, Raised> {
        attached(|py| {
            let loss = self.object.call_method1(py, "compute", (batch.samples(py), batch.key))?.extract(py)?;
            Ok(take(loss, self.gradient.bind(py).try_readonly()?.as_slice()?))
        })
    }

    pub(super) fn has_sums(&self) -> bool {
        self.sums.is_some()
    }

    /// Begins a sum on the device, in the units of this quantizer.
    pub(super) fn begin_sum(&self, quantizer: &Quantizer) -> Result<(), Raised> {
        let (factors, counts): (Vec<f32>, Vec<i64>) =
            quantizer.all_factors().map(|(factor, count)| (factor, (count as u64).cast_signed())).unzip();
        attached(|py| {
            let (factors, counts) = (PyArray1::from_vec(py, factors), PyArray1::from_vec(py, counts));
            self.sums(py).call_method1("begin", (factors, counts, quantizer.counted_values())).map(drop)
        })
    }

    /// Computes the mean loss over the samples of some tasks, and adds its gradient times their number to the sum on the device. Returns
    /// `None`, and adds nothing, if the loss or the gradient is not finite.
    pub(super) fn add(&self, batch: &PyBatch, tasks: u64, limit: f32) -> Result<Option<f64>, Raised> {
        attached(|py| self.object.call_method1(py, "add", (batch.samples(py), batch.key, tasks, limit))?.extract(py))
    }

    /// Adds the sum of `tasks` tasks on the device to another one.
    pub(super) fn end_sum(&self, tasks: u64, sum: &mut GradientSum) -> Result<(), Raised> {
        type Parts<'py> = (PyReadonlyArray1<'py, i32>, PyReadonlyArray1<'py, f32>, u64, u64);
        attached(|py| {
            let (values, maxima, saturated, vanished): Parts<'_> = self.sums(py).call_method0("end")?.extract()?;
            sum.merge_parts(values.as_slice()?, maxima.as_slice()?, [saturated, vanished], tasks);
            Ok(())
        })
    }

    fn sums<'py>(&self, py: Python<'py>) -> &Bound<'py, PyAny> {
        self.sums.as_ref().expect("gradients are summed on the device").bind(py)
    }

    pub(super) fn measure(&self, samples: Range<u64>) -> Result<Measured, Raised> {
        attached(|py| {
            let samples = PyArray1::from_iter(py, samples.map(u64::cast_signed));
            self.object.call_method1(py, "measure", (samples,))?.extract(py)
        })
    }
}

/// Returns an attribute of an object that is an array with one number per parameter.
pub(super) fn vector(object: &Bound<'_, PyAny>, name: &str, parameters: usize) -> PyResult<Py<PyArray1<f32>>> {
    let wrong = |_| PyTypeError::new_err(format!("{name}: expected a vector of numpy.float32"));
    let array = object.getattr(name)?.cast_into::<PyArray1<f32>>().map_err(|error| wrong(PyErr::from(error)))?;
    if array.len() != parameters || !array.is_contiguous() {
        return Err(PyValueError::new_err(format!(
            "{name}: expected {parameters} contiguous values, not {}",
            array.len()
        )));
    }
    Ok(array.unbind())
}
