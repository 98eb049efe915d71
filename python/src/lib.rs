//! The extension module `ata._core` of the Python package `ata`: the scheduler, for training loops in Python, and the program `ata`
//! with gradients that Python computes.
//!
//! Everything else of the package is Python, in `python/py_src/ata/`. A call of the scheduler takes microseconds, so it keeps the
//! interpreter's lock; the program releases the lock, and acquires it to call Python.
//!
//! # Layout
//! - `scheduler`: the class `Scheduler`, and the functions `outer_rate` and `policies`
//! - `problem`: the function `main`

mod problem;
mod scheduler;

use pyo3::prelude::*;

/// The compiled part of the package `ata`.
#[pymodule]
fn _core(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add("__version__", env!("CARGO_PKG_VERSION"))?;
    module.add_class::<scheduler::Scheduler>()?;
    module.add_function(wrap_pyfunction!(scheduler::outer_rate, module)?)?;
    module.add_function(wrap_pyfunction!(scheduler::policies, module)?)?;
    module.add_function(wrap_pyfunction!(problem::main, module)?)
}
