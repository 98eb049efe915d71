//! The thread that evaluates parameters on the test data while the next iterations run. It gives way to them.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc as std_mpsc;

use ata_learn::{DataError, Evaluation, Evaluator, in_background};

use crate::parameters::TrainedParameters;

/// The result of an evaluation.
pub(crate) struct EvaluationResult {
    pub(crate) parameters: TrainedParameters,
    pub(crate) outcome: Result<Evaluation, EvaluationError>,
}

/// Why parameters could not be evaluated.
#[derive(Debug)]
pub(crate) enum EvaluationError {
    /// The test data cannot be read.
    Data(DataError),
    /// The evaluation panicked. The panic was printed.
    Panicked,
    /// The run is over.
    Cancelled,
}

/// A handle to the thread, which ends when this is dropped.
pub(crate) struct EvaluationThread {
    jobs: std_mpsc::Sender<TrainedParameters>,
    is_over: Arc<AtomicBool>,
}

impl EvaluationThread {
    /// Starts the thread. It passes its results to `report`.
    pub(crate) fn spawn(
        make: impl FnOnce() -> Box<dyn Evaluator> + Send + 'static,
        report: impl Fn(EvaluationResult) + Send + 'static,
    ) -> Self {
        let (jobs, received) = std_mpsc::channel::<TrainedParameters>();
        let is_over = Arc::new(AtomicBool::new(false));
        let over = is_over.clone();
        let mut make = Some(make);
        let mut evaluator = None;
        let mut evaluate = move |parameters: &TrainedParameters| {
            let evaluator = evaluator.get_or_insert_with(|| make.take().expect("it is made once")());
            let mut go_on = |_| !over.load(Ordering::Relaxed);
            let result = evaluator.evaluate(parameters.values(), &mut go_on);
            result.map_err(EvaluationError::Data)?.ok_or(EvaluationError::Cancelled)
        };
        let run = move || {
            for parameters in received {
                // burn panics if a device fails, and a panicked evaluator cannot be used again.
                let caught = catch_unwind(AssertUnwindSafe(|| evaluate(&parameters)));
                let has_panicked = caught.is_err();
                let outcome = caught.unwrap_or(Err(EvaluationError::Panicked));
                report(EvaluationResult { parameters, outcome });
                if has_panicked {
                    return;
                }
            }
        };
        let thread = std::thread::Builder::new().name("evaluation".into());
        thread.spawn(move || in_background(run)).expect("a thread can be started");
        Self { jobs, is_over }
    }

    /// Hands over parameters. If the thread has ended, it has reported why.
    pub(crate) fn evaluate(&self, parameters: TrainedParameters) {
        drop(self.jobs.send(parameters));
    }
}

impl Drop for EvaluationThread {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Relaxed);
    }
}
