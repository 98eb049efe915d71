//! The thread that evaluates parameters on the test data, beside the iterations, and gives way to them.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc as std_mpsc;

use ata_learn::{DataError, Evaluation, Evaluator, in_background};

use crate::parameters::ParameterSet;

/// Parameters that were evaluated.
pub(crate) struct Evaluated {
    pub(crate) parameters: ParameterSet,
    pub(crate) result: Result<Evaluation, EvaluationError>,
}

/// Why parameters could not be evaluated.
#[derive(Debug)]
pub(crate) enum EvaluationError {
    /// The test data cannot be read.
    Data(DataError),
    /// The evaluation panicked; the panic is printed.
    Panicked,
    /// The run is over.
    Cancelled,
}

/// A handle to the thread, which ends when this is dropped.
pub(crate) struct EvaluationThread {
    jobs: std_mpsc::Sender<ParameterSet>,
    is_over: Arc<AtomicBool>,
}

impl EvaluationThread {
    /// Starts the thread. It passes its results to `report`.
    pub(crate) fn spawn(
        make: impl FnOnce() -> Box<dyn Evaluator> + Send + 'static,
        report: impl Fn(Evaluated) + Send + 'static,
    ) -> Self {
        let (jobs, received) = std_mpsc::channel::<ParameterSet>();
        let is_over = Arc::new(AtomicBool::new(false));
        let over = is_over.clone();
        let mut make = Some(make);
        let mut evaluator = None;
        let mut evaluate = move |parameters: &ParameterSet| {
            let evaluator = evaluator.get_or_insert_with(|| make.take().expect("it is made once")());
            let mut go_on = |_| !over.load(Ordering::Relaxed);
            let result = evaluator.evaluate(parameters.values(), &mut go_on);
            result.map_err(EvaluationError::Data)?.ok_or(EvaluationError::Cancelled)
        };
        std::thread::Builder::new()
            .name("evaluation".into())
            .spawn(move || {
                in_background(move || {
                    for parameters in received {
                        // burn panics if a device fails, and a panicked evaluator cannot be used again.
                        let result = catch_unwind(AssertUnwindSafe(|| evaluate(&parameters)));
                        let panicked = result.is_err();
                        report(Evaluated { parameters, result: result.unwrap_or(Err(EvaluationError::Panicked)) });
                        if panicked {
                            return;
                        }
                    }
                });
            })
            .expect("a thread can be started");
        Self { jobs, is_over }
    }

    /// Hands over parameters. If the thread has ended, it has reported why.
    pub(crate) fn evaluate(&self, parameters: ParameterSet) {
        drop(self.jobs.send(parameters));
    }
}

impl Drop for EvaluationThread {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Relaxed);
    }
}
