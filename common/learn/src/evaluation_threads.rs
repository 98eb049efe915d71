//! Threads that measure parameters on batches of a data set, and give way to other work on the machine.
//!
//! There are two threads. The patient one only uses idle cores. On a machine whose cores are always busy it gets almost
//! no time, so an evaluation would never end: after [`PATIENCE`] the other thread takes over, which gets about a tenth
//! of a contended core. It begins with the batch that the patient one has begun.

use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use ata_types::Iteration;

use crate::evaluator::{EvaluationBatches, Evaluator};
use crate::problem::Measurement;
use crate::process::{Urgency, with_urgency};
use ata_data::DataError;

/// The time for which an evaluation uses only idle cores: longer than most evaluations take on a machine that is not busy.
const PATIENCE: Duration = Duration::from_secs(10);

/// A batch to measure.
#[derive(Clone)]
pub struct EvaluationOrder {
    /// The step after which the parameters are measured.
    pub step: Iteration,
    /// The parameters. Reading them may block until they are available.
    pub parameters: Arc<dyn AsRef<[f32]> + Send + Sync>,
    /// The number of the batch.
    pub batch: u64,
}

/// The measurement of a batch.
#[derive(Debug)]
pub struct BatchResult {
    /// The step after which the parameters were measured.
    pub step: Iteration,
    /// The number of the batch.
    pub batch: u64,
    /// The division of the data set into batches, and the measurement.
    pub outcome: Result<(EvaluationBatches, Measurement), MeasuringError>,
}

/// The reason why a batch could not be measured.
#[derive(Debug, thiserror::Error)]
pub enum MeasuringError {
    /// The batch cannot be read.
    #[error(transparent)]
    Data(#[from] DataError),
    /// The evaluation panicked. The panic was printed.
    #[error("the evaluation panicked; see the log above")]
    Panicked,
}

/// A handle to the threads, which end when it is dropped.
pub struct EvaluationThreads(Arc<BatchQueue>);

struct BatchQueue {
    orders: Mutex<EvaluationOrders>,
    changed: Condvar,
}

struct EvaluationOrders {
    waiting: VecDeque<EvaluationOrder>,
    /// The batch that the patient thread measures, unless the other one has taken it over.
    begun: Option<EvaluationOrder>,
    patience: Duration,
    /// The step whose parameters are evaluated, and the time at which that began.
    evaluated: Option<(Iteration, Instant)>,
    are_over: bool,
}

impl EvaluationThreads {
    /// Starts the threads. They create an evaluator with their first batch, and pass their measurements to `report`.
    /// They end after a panic.
    pub fn spawn(
        make: impl Fn() -> Box<dyn Evaluator> + Send + Sync + 'static,
        report: impl Fn(BatchResult) + Send + Sync + 'static,
    ) -> Self {
        let (waiting, patience) = (VecDeque::new(), PATIENCE);
        let orders = EvaluationOrders { waiting, begun: None, patience, evaluated: None, are_over: false };
        let queue = Arc::new(BatchQueue { orders: Mutex::new(orders), changed: Condvar::new() });
        let work = Arc::new((make, report));
        for urgency in [Urgency::Idle, Urgency::Low] {
            let (queue, work) = (queue.clone(), work.clone());
            let run = move || {
                let (make, report) = &*work;
                if let Some(first) = queue.next(urgency) {
                    with_urgency(urgency, || measure_all(first, &queue, urgency, make, report));
                }
            };
            let thread = std::thread::Builder::new().name("evaluation".into());
            thread.spawn(run).expect("a thread can be started");
        }
        Self(queue)
    }

    /// Queues a batch. Returns whether it will be reported, which is not the case after a panic.
    pub fn measure(&self, order: EvaluationOrder) -> bool {
        let mut orders = self.0.lock();
        if orders.evaluated.is_none_or(|(step, _)| step != order.step) {
            orders.evaluated = Some((order.step, Instant::now()));
        }
        orders.waiting.push_back(order);
        self.0.changed.notify_all();
        !orders.are_over
    }
}

impl Drop for EvaluationThreads {
    fn drop(&mut self) {
        self.0.end();
    }
}

impl BatchQueue {
    fn lock(&self) -> MutexGuard<'_, EvaluationOrders> {
        self.orders.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn end(&self) {
        self.lock().are_over = true;
        self.changed.notify_all();
    }

    /// Waits for the next batch of a thread. Returns `None` if there will be none.
    fn next(&self, urgency: Urgency) -> Option<EvaluationOrder> {
        let mut orders = self.lock();
        while !orders.are_over {
            let patience = orders.evaluated.map(|(_, began)| orders.patience.saturating_sub(began.elapsed()));
            let is_over = patience.is_some_and(|patience| patience.is_zero());
            let order = match urgency {
                Urgency::Idle if is_over => None,
                Urgency::Idle => orders.waiting.pop_front().inspect(|order| orders.begun = Some(order.clone())),
                Urgency::Low if is_over => orders.begun.take().or_else(|| orders.waiting.pop_front()),
                Urgency::Low => None,
            };
            if order.is_some() {
                return order;
            }
            let patience = patience.filter(|_| urgency == Urgency::Low && !is_over).unwrap_or(Duration::MAX);
            let waited = self.changed.wait_timeout(orders, patience);
            orders = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        None
    }
}

fn measure_all(
    first: EvaluationOrder,
    queue: &BatchQueue,
    urgency: Urgency,
    make: &impl Fn() -> Box<dyn Evaluator>,
    report: &impl Fn(BatchResult),
) {
    let (mut evaluator, mut loaded) = (None, None);
    let mut next = Some(first);
    while let Some(EvaluationOrder { step, parameters, batch }) = next {
        let mut measure = || {
            let evaluator = evaluator.get_or_insert_with(make);
            if loaded.replace(step) != Some(step) {
                evaluator.load((*parameters).as_ref());
            }
            let measured = evaluator.measure(batch)?;
            Ok((evaluator.batches(), measured))
        };
        // burn panics if a device fails, and a panicked evaluator cannot be used again.
        let caught = catch_unwind(AssertUnwindSafe(&mut measure));
        let has_panicked = caught.is_err();
        // The other thread may have taken over the batch of the patient one.
        if urgency == Urgency::Low || queue.lock().begun.take().is_some() {
            report(BatchResult { step, batch, outcome: caught.unwrap_or(Err(MeasuringError::Panicked)) });
            if has_panicked {
                queue.end();
            }
        }
        if has_panicked {
            return;
        }
        next = queue.next(urgency);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::sync::mpsc::{Receiver, channel};

    use super::*;

    /// An evaluator whose losses encode its number, the batch and the parameters.
    struct Fake {
        number: f64,
        parameters: f32,
        brake: Arc<Brake>,
    }

    /// Blocks the first evaluator while its lock is held.
    #[derive(Default)]
    struct Brake {
        hold: Mutex<()>,
        is_reached: AtomicBool,
    }

    impl Evaluator for Fake {
        fn load(&mut self, parameters: &[f32]) {
            self.parameters = parameters[0];
        }

        fn batches(&self) -> EvaluationBatches {
            EvaluationBatches { samples: 100, batch_samples: 10 }
        }

        fn measure(&mut self, batch: u64) -> Result<Measurement, DataError> {
            if self.number == 1.0 {
                self.brake.is_reached.store(true, Ordering::Relaxed);
                drop(self.brake.hold.lock().unwrap());
            }
            match batch {
                7 => panic!("the device failed"),
                8 => Err(DataError::Problem("no such batch".into())),
                _ => Ok(Measurement::of_loss(1000.0 * self.number + 10.0 * f64::from(self.parameters) + batch as f64)),
            }
        }
    }

    fn start(patience: Duration, brake: &Arc<Brake>) -> (EvaluationThreads, Receiver<BatchResult>) {
        let (report, reported) = channel();
        let (made, brake) = (Mutex::new(0.0), brake.clone());
        let make = move || -> Box<dyn Evaluator> {
            let mut made = made.lock().unwrap();
            *made += 1.0;
            Box::new(Fake { number: *made, parameters: 0.0, brake: brake.clone() })
        };
        let report = move |measured| drop(report.send(measured));
        let threads = EvaluationThreads::spawn(make, report);
        threads.0.lock().patience = patience;
        (threads, reported)
    }

    fn order(step: u64, batch: u64) -> EvaluationOrder {
        EvaluationOrder { step: Iteration(step), parameters: Arc::new(vec![step as f32]), batch }
    }

    fn loss(measured: BatchResult) -> f64 {
        measured.outcome.unwrap().1.loss
    }

    /// The results do not depend on which thread measures.
    #[test]
    fn batches_are_measured_in_order_at_their_parameters() {
        for patience in [Duration::MAX, Duration::ZERO] {
            let (threads, reported) = start(patience, &Arc::default());
            let orders = [(1, 0), (1, 2), (2, 0), (2, 1)];
            assert!(orders.iter().all(|(step, batch)| threads.measure(order(*step, *batch))));
            let found = orders.map(|_| loss(reported.recv().unwrap()));
            assert_eq!(found, [1010.0, 1012.0, 1020.0, 1021.0], "{patience:?}: one thread measured all");
        }
    }

    #[test]
    fn a_batch_that_takes_too_long_is_measured_again_and_reported_once() {
        let brake: Arc<Brake> = Arc::default();
        let (threads, reported) = start(Duration::MAX, &brake);
        let braking = brake.hold.lock().unwrap();
        threads.measure(order(1, 0));
        while !brake.is_reached.load(Ordering::Relaxed) {
            std::thread::yield_now();
        }
        threads.0.lock().patience = Duration::ZERO;
        threads.measure(order(1, 1));
        let [first, second] = [(); 2].map(|()| loss(reported.recv().unwrap()));
        assert_eq!([first, second], [2010.0, 2011.0], "both by the second evaluator, in order");
        drop(braking);
        threads.0.lock().patience = Duration::MAX;
        threads.measure(order(2, 3));
        assert_eq!(loss(reported.recv().unwrap()), 1023.0, "the first one does not report what it was relieved of");
    }

    #[test]
    fn errors_are_reported_and_a_panic_is_the_end() {
        for patience in [Duration::MAX, Duration::ZERO] {
            let (threads, reported) = start(patience, &Arc::default());
            threads.measure(order(1, 8));
            assert!(matches!(reported.recv().unwrap().outcome, Err(MeasuringError::Data(_))));
            threads.measure(order(1, 1));
            assert_eq!(loss(reported.recv().unwrap()), 1011.0);
            threads.measure(order(1, 7));
            assert!(matches!(reported.recv().unwrap().outcome, Err(MeasuringError::Panicked)));
            // Both threads end, and drop the sender of reports.
            assert!(reported.recv().is_err());
            assert!(!threads.measure(order(1, 2)));
        }
    }

    #[test]
    fn dropping_the_handle_ends_the_threads() {
        let (threads, reported) = start(Duration::MAX, &Arc::default());
        drop(threads);
        assert!(reported.recv().is_err());
    }
}
