//! The extension module `ata._core` of the Python package `ata`: the scheduler, for training loops in Python.
//!
//! Everything else of the package is Python, in `python/py_src/ata/`. The extension holds no thread and does no I/O, and a call takes
//! microseconds, so that it keeps the interpreter's lock.
//!
//! # Layout
//! - `scheduler`: the class `Scheduler`
//! - `policies`: the function `policies`

mod policies;
mod scheduler;

use pyo3::prelude::*;

/// The compiled part of the package `ata`.
#[pymodule]
fn _core(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add("__version__", env!("CARGO_PKG_VERSION"))?;
    module.add_class::<scheduler::Scheduler>()?;
    module.add_function(wrap_pyfunction!(policies::policies, module)?)
}
