//! The optimizer of a problem, which steps in Python.

use ata_sums::{OwnOptimizer, OwnStep};
use numpy::{PyArray1, PyArrayMethods};
use pyo3::prelude::*;

use super::computation::vector;
use super::{Raised, attached};

/// A Python object that takes optimizer steps, with the arrays that it shares with Rust.
#[derive(Debug)]
pub(super) struct PythonOptimizer {
    object: Py<PyAny>,
    /// The values before a step, which the object replaces by those after it.
    parameters: Py<PyArray1<f32>>,
    /// The mean gradient of a step.
    gradient: Py<PyArray1<f32>>,
}

impl PythonOptimizer {
    /// Asks a problem for its optimizer.
    pub(super) fn of(problem: &Py<PyAny>, parameters: usize) -> Result<Option<Self>, Raised> {
        attached(|py| {
            let Some(make) = problem.bind(py).getattr_opt("optimizer")?.filter(|make| !make.is_none()) else {
                return Ok(None);
            };
            let object = make.call0()?;
            let array = |name| vector(&object, name, parameters);
            let (parameters, gradient) = (array("parameters")?, array("gradient")?);
            Ok(Some(Self { parameters, gradient, object: object.unbind() }))
        })
    }
}

impl OwnOptimizer for PythonOptimizer {
    fn step(&mut self, step: OwnStep<'_>) -> Result<f64, String> {
        let OwnStep { time, rate_factor, values, gradient, used } = step;
        let stepped = attached(|py| {
            self.parameters.bind(py).try_readwrite()?.as_slice_mut()?.copy_from_slice(values);
            self.gradient.bind(py).try_readwrite()?.as_slice_mut()?[..gradient.len()].copy_from_slice(gradient);
            let rate = self.object.call_method1(py, "step", (time, rate_factor, used.map(<[bool]>::to_vec)))?;
            values.copy_from_slice(self.parameters.bind(py).try_readonly()?.as_slice()?);
            rate.extract(py)
        });
        stepped.map_err(|raised| raised.text)
    }

    fn state(&self) -> Result<Vec<u8>, String> {
        attached(|py| self.object.call_method0(py, "state")?.extract(py)).map_err(|raised| raised.text)
    }

    fn restore(&mut self, state: &[u8]) -> Result<(), String> {
        attached(|py| self.object.call_method1(py, "restore", (state,)).map(drop)).map_err(|raised| raised.text)
    }
}
