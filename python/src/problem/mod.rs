//! Problems whose gradients Python computes, with all commands of ata.
//!
//! # Layout
//! - this file: the function `main`, and what Rust asks of a problem
//! - `model`: the problem, as coordinator and workers use it
//! - `dataset`: one split of its data
//! - `computation`: losses and gradients of samples, in arrays that both languages see
//! - `learner`, `evaluator`: the worker's and the coordinator's use of a computation
//!
//! # What Rust asks of a problem
//! `ata._problem.Problem` documents it: `name`, `classes`, `shapes()`, `initial(seed)`, `open(split, path)` and
//! `computation(split, threads)`. Its subclasses turn it into what a user writes.

mod computation;
mod dataset;
mod evaluator;
mod learner;
mod model;

use std::ffi::OsString;
use std::sync::{Arc, OnceLock};

use ata::Extensions;
use ata_learn::{Model, ModelError};
use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;

use model::PythonModel;

/// The problem of this process. A resolver of models is a function without a state, since the program has one set of models.
static PROBLEM: OnceLock<Arc<PythonModel>> = OnceLock::new();

/// Runs a command line of `ata`, and returns the exit code.
///
/// Args:
///     command_line: The program's name, and its arguments.
///     program: The words that start this program, before its arguments.
///     problem: What `--model` trains; the built-in models without one.
///     defaults: Settings in the form of `config.toml` whose defaults are others than ata's.
#[pyfunction]
#[pyo3(signature = (command_line, program, problem = None, defaults = String::new()))]
pub(crate) fn main(
    py: Python<'_>,
    command_line: Vec<OsString>,
    program: Vec<OsString>,
    problem: Option<Bound<'_, PyAny>>,
    defaults: String,
) -> PyResult<u8> {
    // They are needed until the process ends.
    let mut extensions = Extensions { defaults: defaults.leak(), program: program.leak(), ..Extensions::default() };
    if let Some(problem) = problem {
        let model = Arc::new(PythonModel::new(&problem)?);
        PROBLEM.set(model).map_err(|_| PyRuntimeError::new_err("a process trains one problem, and has one already"))?;
        (extensions.models, extensions.own_data) = (resolve, "its own data");
    }
    Ok(py.detach(|| ata::run(command_line, extensions)).code())
}

fn resolve(specification: &str) -> Result<Arc<dyn Model>, ModelError> {
    let model = PROBLEM.get().expect("it is set before the command line runs");
    if specification == model.name {
        return Ok(model.clone());
    }
    let reason = format!("this program trains '{}' and nothing else", model.name);
    Err(ModelError::Invalid { model: specification.into(), reason })
}

/// Calls Python. An exception becomes one line; its traceback goes to the standard error, where who wrote the problem looks for it.
fn attached<T>(act: impl FnOnce(Python<'_>) -> PyResult<T>) -> Result<T, String> {
    Python::attach(|py| {
        act(py).map_err(|error| {
            error.print(py);
            error.to_string()
        })
    })
}
