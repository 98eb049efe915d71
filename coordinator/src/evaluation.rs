//! The thread that measures parameters on the coordinator's own test data, while the next iterations run. It gives way to them.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc as std_mpsc;

use ata_learn::{DataError, EvaluationBatches, Evaluator, Measurement, in_background};
use ata_types::Iteration;

use crate::parameters::TrainedParameters;

/// A batch to measure.
pub(crate) struct BatchOrder {
    pub(crate) parameters: TrainedParameters,
    pub(crate) batch: u64,
}

/// The measurement of a batch.
pub(crate) struct BatchResult {
    /// The last step of the parameters.
    pub(crate) step: Iteration,
    pub(crate) batch: u64,
    pub(crate) outcome: Result<(EvaluationBatches, Measurement), EvaluationError>,
}

/// Why parameters could not be evaluated.
#[derive(Debug, thiserror::Error)]
pub(crate) enum EvaluationError {
    /// The test data cannot be read.
    #[error(transparent)]
    Data(DataError),
    /// The evaluation panicked. The panic was printed.
    #[error("the evaluation panicked; see the log above")]
    Panicked,
    /// No worker measured the test data.
    #[error("{0}")]
    Workers(String),
}

/// A handle to the thread, which ends when this is dropped.
pub(crate) struct EvaluationThread(std_mpsc::Sender<BatchOrder>);

impl EvaluationThread {
    /// Starts the thread. It passes its results to `report`. After a panic it ends.
    pub(crate) fn spawn(
        make: impl FnOnce() -> Box<dyn Evaluator> + Send + 'static,
        report: impl Fn(BatchResult) + Send + 'static,
    ) -> Self {
        let (orders, received) = std_mpsc::channel::<BatchOrder>();
        let run = move || {
            let (mut make, mut evaluator, mut loaded) = (Some(make), None, None);
            for BatchOrder { parameters, batch } in received {
                let step = parameters.last_step();
                let mut measure = || {
                    let evaluator = evaluator.get_or_insert_with(|| make.take().expect("it is made once")());
                    if loaded.replace(step) != Some(step) {
                        evaluator.load(parameters.values());
                    }
                    let measured = evaluator.measure(batch).map_err(EvaluationError::Data)?;
                    Ok((evaluator.batches(), measured))
                };
                // burn panics if a device fails, and a panicked evaluator cannot be used again.
                let caught = catch_unwind(AssertUnwindSafe(&mut measure));
                let has_panicked = caught.is_err();
                report(BatchResult { step, batch, outcome: caught.unwrap_or(Err(EvaluationError::Panicked)) });
                if has_panicked {
                    return;
                }
            }
        };
        let thread = std::thread::Builder::new().name("evaluation".into());
        thread.spawn(move || in_background(run)).expect("a thread can be started");
        Self(orders)
    }

    /// Hands over a batch. If the thread has ended, it has reported why.
    pub(crate) fn measure(&self, order: BatchOrder) {
        drop(self.0.send(order));
    }
}
