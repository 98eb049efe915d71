//! Problems whose gradients Python computes, with all commands of ata.
//!
//! # Layout
//! - this file: the function `main`, and the interface of a problem
//! - `model`: the problem as a model of the coordinator and the workers
//! - `dataset`: one split of its data, and evaluations on it
//! - `computation`: losses and gradients of samples, in arrays that Rust and Python share
//! - `learner`: gradients of tasks; `optimizer`: an optimizer that steps in Python
//!
//! # The interface of a problem
//! `ata.problem.Trainable` documents it. Its subclasses provide the interfaces that users implement.

mod computation;
mod dataset;
mod learner;
mod model;
mod optimizer;

use std::ffi::OsString;
use std::sync::{Arc, OnceLock};

use ata::Extensions;
use ata_learn::{DataError, Model, ModelError};
use pyo3::exceptions::{PyBaseException, PyOSError, PyRuntimeError};
use pyo3::prelude::*;

use model::PythonModel;

/// The problem of this process. It is global because a model resolver is a plain function.
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
    // Leaking is fine: both are needed until the process ends.
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

/// A Python exception whose traceback has been written to standard error.
struct Raised {
    /// The exception in one line.
    text: String,
    /// Whether the error may be temporary, as when a file server restarts.
    may_pass: bool,
}

impl From<Raised> for DataError {
    fn from(raised: Raised) -> Self {
        Self::Problem(raised.text)
    }
}

/// Calls Python with the interpreter's lock held.
fn attached<T>(act: impl FnOnce(Python<'_>) -> PyResult<T>) -> Result<T, Raised> {
    let process = std::process::id();
    Python::attach(|py| {
        let result = act(py);
        if std::process::id() != process {
            end_fork(py);
        }
        result.map_err(|error| {
            print_traceback(py, &error);
            Raised { text: error.to_string(), may_pass: is_of_the_system(error.value(py)) }
        })
    })
}

/// Writes a traceback to standard error in one piece, since other processes of the run write there as well.
fn print_traceback(py: Python<'_>, error: &PyErr) {
    let text = py.import("traceback").and_then(|traceback| {
        let lines: Vec<String> = traceback.call_method1("format_exception", (error.value(py),))?.extract()?;
        Ok(lines.concat())
    });
    match text {
        Ok(text) => eprint!("{text}"),
        // `PyErr::print` would end the process on `sys.exit()`.
        Err(_) => error.display(py),
    }
}

/// Whether an exception is an `OSError`, or was raised because of one.
fn is_of_the_system(error: &Bound<'_, PyBaseException>) -> bool {
    /// The longest chain that is followed: a longer one is a cycle.
    const MOST: usize = 64;
    let chain = std::iter::successors(Some(error.clone().into_any()), earlier);
    chain.take(MOST).any(|error| error.is_instance_of::<PyOSError>())
}

/// The exception that led to another one.
fn earlier<'py>(error: &Bound<'py, PyAny>) -> Option<Bound<'py, PyAny>> {
    let links = ["__cause__", "__context__"].into_iter();
    links.filter_map(|link| error.getattr(link).ok()).find(|earlier| !earlier.is_none())
}

/// Ends a copy of this process that the problem made with `os.fork`: it shares the worker's connections but has none of its threads.
fn end_fork(py: Python<'_>) -> ! {
    eprintln!(
        "ata: a process that the problem forked came back from the problem's code, and ends here. Expected: it ends itself with \
         os._exit(0), or multiprocessing starts it"
    );
    // `_exit` skips cleanup, which would affect the worker.
    drop(py.import("os").and_then(|os| os.call_method1("_exit", (70,))));
    std::process::abort()
}
