//! Evaluations: measures parameters on batches of the test data, concurrently with the leases.
//!
//! ```text
//! Evaluate ─▶ Evaluations ─ fetches parameters, and at first the test data ─▶ threads ─▶ Measured
//! ```
//!
//! The threads are started for the first evaluation, so that a worker that never evaluates needs neither the test data nor the memory.

use std::future::Future;
use std::sync::Arc;

use ata_data::Split;
use ata_learn::{
    BatchResult, Dataset, EvaluationBatches, EvaluationOrder, EvaluationThreads, Measurement, MeasuringError,
    OpenDevice,
};
use ata_types::Iteration;
use ata_wire::{BatchFigures, Connection, MeasuredBatch, SessionToken, Welcome};
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tonic::Code;

use crate::config::WorkerConfig;
use crate::data::{SessionData, SplitSource};
use crate::download::DataLink;
use crate::error::SessionError;
use crate::parameters::Parameters;

/// The number of measurements that may wait to be reported. A worker is never asked for more at a time.
const QUEUED_MEASUREMENTS: usize = 16;

/// The evaluations in which a session's worker takes part.
pub(crate) struct WorkerEvaluations<'a> {
    config: &'a WorkerConfig,
    welcome: &'a Welcome,
    bulk: Connection,
    link: DataLink,
    /// The test data, once it was needed.
    opened: &'a mut Option<SessionData>,
    /// The last step included in the parameters that are evaluated.
    step: Option<Iteration>,
    waiting: Vec<u64>,
    fetching: JoinSet<Result<Fetched, String>>,
    threads: Option<EvaluationThreads>,
    parameters: Option<Arc<Vec<f32>>>,
    measured: mpsc::Receiver<MeasuredBatch>,
    report: mpsc::Sender<MeasuredBatch>,
}

/// The data of an evaluation, and the parameters, unless it is over.
type Fetched = (SessionData, Option<Arc<Vec<f32>>>);

impl<'a> WorkerEvaluations<'a> {
    pub(crate) fn new(
        config: &'a WorkerConfig,
        welcome: &'a Welcome,
        bulk: Connection,
        link: DataLink,
        opened: &'a mut Option<SessionData>,
    ) -> Self {
        let (report, measured) = mpsc::channel(QUEUED_MEASUREMENTS);
        Self {
            config,
            welcome,
            bulk,
            link,
            opened,
            step: None,
            waiting: Vec::new(),
            fetching: JoinSet::new(),
            threads: None,
            parameters: None,
            measured,
            report,
        }
    }

    /// Measures batches at the parameters after a step.
    pub(crate) fn measure(&mut self, step: Iteration, batches: Vec<u64>) {
        if self.step != Some(step) {
            (self.step, self.parameters) = (Some(step), None);
            self.waiting.clear();
            self.fetching = JoinSet::new();
            self.fetching.spawn(self.fetch(step));
        }
        self.waiting.extend(batches);
        if self.fetching.is_empty() {
            self.queue();
        }
    }

    /// Returns the next measurement. This future may be dropped, and the method called again.
    pub(crate) async fn next(&mut self) -> MeasuredBatch {
        loop {
            tokio::select! {
                Some(fetched) = self.fetching.join_next() => match fetched {
                    Ok(Ok(fetched)) => self.begin(fetched),
                    Ok(Err(reason)) => self.fail(&reason),
                    Err(error) => self.fail(&error.to_string()),
                },
                Some(measured) = self.measured.recv() => return measured,
            }
        }
    }

    fn fetch(&self, step: Iteration) -> impl Future<Output = Result<Fetched, String>> + Send + use<> {
        let run = &self.welcome.run;
        let source = SplitSource::new(self.config, run, Split::Test, &self.link);
        let (opened, bulk, session) = (self.opened.clone(), self.bulk.clone(), self.welcome.session);
        let count = run.parameters;
        async move {
            let fetched = async {
                let data = source.open(opened).await?;
                Ok((data, parameters(&bulk, session, step, count).await?))
            };
            fetched.await.map_err(|error: SessionError| error.to_string())
        }
    }

    fn begin(&mut self, (data, values): Fetched) {
        self.threads.get_or_insert_with(|| spawn(data.data.clone(), self.config.device.clone(), self.report.clone()));
        *self.opened = Some(data);
        if values.is_none() {
            // Others have measured everything in the meantime.
            self.waiting.clear();
        }
        self.parameters = values;
        self.queue();
    }

    fn queue(&mut self) {
        let Some(step) = self.step else { return };
        // Threads that panicked are not restarted in this session.
        let takes = |batch: u64| match (&self.threads, &self.parameters) {
            (Some(threads), Some(values)) => {
                threads.measure(EvaluationOrder { step, parameters: values.clone(), batch })
            }
            _ => false,
        };
        self.waiting.extract_if(.., |batch| takes(*batch)).for_each(drop);
        if !self.waiting.is_empty() {
            self.fail("this worker's evaluation has failed before");
        }
    }

    fn fail(&mut self, reason: &str) {
        tracing::warn!(reason, "cannot take part in an evaluation");
        let Some(step) = self.step else { return };
        for batch in self.waiting.drain(..) {
            // If the queue is full, it already holds failures of this evaluation.
            drop(self.report.try_send(MeasuredBatch { step, batch, outcome: Err(reason.to_owned()) }));
        }
    }
}

async fn parameters(
    bulk: &Connection,
    session: SessionToken,
    step: Iteration,
    count: u64,
) -> Result<Option<Arc<Vec<f32>>>, SessionError> {
    let mut stream = match bulk.parameters(session, Some(step)).await {
        Err(status) if status.code() == Code::NotFound => return Ok(None),
        opened => opened.map_err(|status| SessionError::call(&status))?,
    };
    let mut parameters = Parameters::new(count);
    loop {
        let part = stream.next().await.map_err(SessionError::receive)?;
        if let Some((_, values)) = parameters.add(part)? {
            return Ok(Some(values));
        }
    }
}

fn spawn(data: Arc<dyn Dataset>, device: OpenDevice, report: mpsc::Sender<MeasuredBatch>) -> EvaluationThreads {
    let make = move || data.clone().evaluator(&device);
    EvaluationThreads::spawn(make, move |BatchResult { step, batch, outcome }| {
        let outcome = outcome.map(figures).map_err(|error: MeasuringError| error.to_string());
        // If the session is over, the measurement is not needed.
        drop(report.blocking_send(MeasuredBatch { step, batch, outcome }));
    })
}

fn figures((batches, measured): (EvaluationBatches, Measurement)) -> BatchFigures {
    let Measurement { loss, classes, metrics } = measured;
    let classes = classes.iter().map(|class| (class.samples, class.correct)).collect();
    BatchFigures { samples: batches.samples, batch_samples: batches.batch_samples, loss, classes, metrics }
}
