//! The policies that a scheduler accepts.

use ata_policies::POLICIES;
use ata_scheduler::Lockstep;
use ata_scheduler::policy::PolicyEntry;
use pyo3::prelude::*;
use pyo3::types::PyDict;

/// The policies that `Scheduler` accepts, by name, with what each does and its parameters.
#[pyfunction]
pub(crate) fn policies(py: Python<'_>) -> PyResult<Bound<'_, PyDict>> {
    let texts = PyDict::new(py);
    for PolicyEntry { name, about, parameters, .. } in Lockstep::policies(POLICIES) {
        texts.set_item(name, format!("{about}. Parameters: {parameters}"))?;
    }
    Ok(texts)
}
