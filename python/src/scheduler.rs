//! The class `Scheduler`, and the functions `outer_rate` and `policies`.

use std::fmt::Display;
use std::sync::{Mutex, PoisonError};

use ata_policies::POLICIES;
use ata_scheduler::Lockstep;
use ata_scheduler::policy::PolicyEntry;
use ata_types::WorkerId;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyDict;

/// The rate of an outer step along the mean of these numbers of local steps: from 1 for one worker to 2 for many equal ones.
#[pyfunction]
pub(crate) fn outer_rate(steps: Vec<u64>) -> f64 {
    ata_sums::outer_rate(steps.into_iter().enumerate().map(|(slot, steps)| (WorkerId::from_slot(slot), steps)))
}

/// The policies that `Scheduler` accepts, by name, with what each does and its parameters.
#[pyfunction]
pub(crate) fn policies(py: Python<'_>) -> PyResult<Bound<'_, PyDict>> {
    let texts = PyDict::new(py);
    for PolicyEntry { name, about, parameters, .. } in Lockstep::policies(POLICIES) {
        texts.set_item(name, format!("{about}. Parameters: {parameters}"))?;
    }
    Ok(texts)
}

/// The only key of a state dictionary. Its value is a string, so it can be stored in any format.
const STATE: &str = "ata_scheduler";

/// Divides the tasks of each training step among workers of unequal speed.
///
/// A step consists of `budget` tasks of about equal cost, such as samples, and ends when all workers have computed theirs. Before
/// each step, `next` returns the shares; after it, report with `observe` how long each worker took. Workers are numbered from 0.
///
/// A call takes microseconds. The same calls with the same seed return the same shares. Methods raise `ValueError` if a worker is
/// unknown, absent or present already, or a number or a state is not possible. `observe` and `load_state_dict` change nothing then.
///
/// Args:
///     workers: How many workers are present at first.
///     budget: Tasks per step.
///     policy: What decides, as `NAME` or `NAME:key=value,...`; see `ata.policies()`.
///     seed: Seed of the decisions.
///     limit_growth: Whether a share grows by at most a quarter in a step, and then at most doubles in each further one. Use it if
///         times vary much.
///     most: The largest number of tasks, if steps are rounds of local steps. Then `next` chooses the number of each, from `budget` on, such
///         that workers compute for nine tenths of the time; see `observe_exchange`.
///
/// Raises:
///     ValueError: If an argument is not possible, or the policy does not wait for whole shares.
#[pyclass(module = "ata", frozen)]
pub(crate) struct Scheduler(Mutex<Lockstep>);

impl Scheduler {
    /// Runs `act` with the lock held: Python threads may share a scheduler.
    fn with<T>(&self, act: impl FnOnce(&mut Lockstep) -> T) -> T {
        act(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

fn refused(error: impl Display) -> PyErr {
    PyValueError::new_err(error.to_string())
}

#[pymethods]
impl Scheduler {
    #[new]
    #[pyo3(signature = (workers, budget, policy = "ata-auto", *, seed = 0, limit_growth = false, most = None))]
    fn new(
        workers: u32,
        budget: u64,
        policy: &str,
        seed: u64,
        limit_growth: bool,
        most: Option<u64>,
    ) -> PyResult<Self> {
        let lockstep = Lockstep::new(workers, budget, POLICIES, policy, seed).map_err(refused)?;
        let lockstep = if limit_growth { lockstep.with_limited_growth() } else { lockstep };
        let lockstep = if let Some(most) = most { lockstep.with_rounds(most).map_err(refused)? } else { lockstep };
        Ok(Self(lockstep.into()))
    }

    /// Begins the next step, and returns the tasks of each worker: 0 for absent ones.
    ///
    /// They add up to the budget, unless the policy chooses its own number (`cmab-lcb`, `cmab-kl`, `successive`, `cmab-oracle`).
    /// A worker must be present.
    fn next(&self) -> PyResult<Vec<u64>> {
        self.with(Lockstep::next).map_err(refused)
    }

    /// Reports that a worker computed `tasks` tasks as one batch, in `seconds`.
    ///
    /// Reports count from the next decision on. They may come in any order or late, and are not needed for every step.
    fn observe(&self, worker: usize, tasks: u64, seconds: f64) -> PyResult<()> {
        self.with(|lockstep| lockstep.observe(worker, tasks, seconds)).map_err(refused)
    }

    /// Reports that workers did not compute for `waited_s` seconds of a round, and that an exchange took `beside_s` seconds while they did.
    ///
    /// This is for a scheduler with `most`, and counts together with the times that `observe` reports for the round.
    fn observe_exchange(&self, waited_s: f64, beside_s: f64) -> PyResult<()> {
        self.with(|lockstep| lockstep.observe_exchange(waited_s, beside_s)).map_err(refused)
    }

    /// Adds a new worker, or one that has left, from the next step on, and returns its number.
    #[pyo3(signature = (worker = None))]
    fn join(&self, worker: Option<usize>) -> PyResult<usize> {
        let joined = self.with(|lockstep| match worker {
            Some(worker) => lockstep.rejoin(worker).map(|()| worker),
            None => lockstep.join(),
        });
        joined.map_err(refused)
    }

    /// Removes a worker: it gets no tasks from the next step on.
    fn leave(&self, worker: usize) -> PyResult<()> {
        self.with(|lockstep| lockstep.leave(worker)).map_err(refused)
    }

    /// What has been learned so far, as a dictionary with one text, without budget, policy, seed and the present workers.
    fn state_dict<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let text = serde_json::to_string(&self.with(|lockstep| lockstep.save())).map_err(refused)?;
        let state = PyDict::new(py);
        state.set_item(STATE, text)?;
        Ok(state)
    }

    /// Continues from the `state_dict` of this scheduler or another one. If the policy differs, only the workers' speeds are used.
    fn load_state_dict(&self, state: &Bound<'_, PyDict>) -> PyResult<()> {
        let text =
            state.get_item(STATE)?.ok_or_else(|| refused(format!("no '{STATE}' in it: expected a state_dict()")))?;
        let saved = serde_json::from_str(text.extract()?).map_err(refused)?;
        self.with(|lockstep| lockstep.restore(saved)).map_err(refused)
    }

    /// The workers that are present, ascending.
    #[getter]
    fn present(&self) -> Vec<usize> {
        self.with(|lockstep| lockstep.present().collect())
    }

    /// The current step, from 1; 0 before the first.
    #[getter]
    fn iteration(&self) -> u64 {
        self.with(|lockstep| lockstep.iteration())
    }

    /// Tasks of the current step.
    #[getter]
    fn budget(&self) -> u64 {
        self.with(|lockstep| lockstep.budget())
    }

    /// The name of the policy.
    #[getter]
    fn policy(&self) -> &'static str {
        self.with(|lockstep| lockstep.policy())
    }

    /// Factor on the learning rate of the current step: 1.0, unless the policy has a parameter `lr_decay`.
    #[getter]
    fn lr_factor(&self) -> f64 {
        self.with(|lockstep| lockstep.lr_factor())
    }

    fn __repr__(&self) -> String {
        self.with(|lockstep| {
            let (present, budget) = (lockstep.present().count(), lockstep.budget());
            let (policy, iteration) = (lockstep.policy(), lockstep.iteration());
            format!("Scheduler(workers={present}, budget={budget}, policy='{policy}', iteration={iteration})")
        })
    }
}
