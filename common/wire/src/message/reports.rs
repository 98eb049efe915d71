//! What a worker reports: the leases that it computed, batches of an evaluation, and exchanges with other workers.

use std::collections::BTreeMap;

use ata_types::{Iteration, LeaseId, MAX_LEASE_TASKS, MAX_METRIC_NAME_BYTES, MAX_METRICS, VectorId};

use super::{WireError, as_many, at_most, in_range, invalid, truncated};
use crate::limits::{MAX_CLASSES, MAX_SHARDS, MAX_TASK_BATCH, MAX_TIME};
use crate::proto;

pub use crate::proto::member_report::Fault as PairFault;

/// A lease that a worker has computed.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ComputedLease {
    /// The lease.
    pub lease: LeaseId,
    /// The times of its tasks.
    pub times: LeaseTimes,
    /// The mean loss of each task, in nats, or the sum of these if the lease was computed as one batch; as many as there are times. If one
    /// is not finite, the lease fails.
    pub losses: Vec<f64>,
}

/// The times of the tasks in a lease.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct LeaseTimes {
    /// Seconds that each task took, or that the whole lease took as one batch. The engine fails the lease if they are impossible.
    pub busy_s: Vec<f64>,
    /// The number of tasks whose computation took longer than their emulated time.
    pub outlasted: u64,
    /// Seconds that the worker waited for the parameters of the iteration, with the first lease that it could then begin; otherwise 0.
    pub waited_s: f64,
    /// Whether the worker did not have these parameters yet, and its local steps went on from where it was.
    pub ahead: bool,
}

impl ComputedLease {
    pub(super) fn into_wire(self) -> proto::ComputedLease {
        let Self { lease, times: LeaseTimes { busy_s, outlasted, waited_s, ahead }, losses } = self;
        proto::ComputedLease { lease: lease.0, busy_s, losses, outlasted, waited_s, ahead }
    }

    pub(super) fn from_wire(computed: proto::ComputedLease) -> Result<Self, WireError> {
        let proto::ComputedLease { lease, busy_s, losses, outlasted, waited_s, ahead } = computed;
        at_most("number of times", busy_s.len() as u64, MAX_LEASE_TASKS)?;
        as_many("number of losses", losses.len(), busy_s.len(), "one for each time")?;
        Ok(Self { lease: LeaseId(lease), times: LeaseTimes { busy_s, outlasted, waited_s, ahead }, losses })
    }
}

/// The measurement of a batch of the test data, or the reason why there is none.
#[derive(Clone, Debug, PartialEq)]
pub struct MeasuredBatch {
    /// The step after which the parameters are measured.
    pub step: Iteration,
    /// The index of the batch.
    pub batch: u64,
    /// The measurement; an error holds a human-readable reason.
    pub outcome: Result<BatchFigures, String>,
}

/// The figures measured on a batch.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct BatchFigures {
    /// The number of samples in the whole test data.
    pub samples: u64,
    /// The number of samples in every batch except the last.
    pub batch_samples: u32,
    /// The mean loss over the samples of the batch.
    pub loss: f64,
    /// For each class, the number of samples, and the number of samples whose largest score is that of the label.
    pub classes: Vec<(u32, u32)>,
    /// Means of other metrics over the samples of the batch.
    pub metrics: BTreeMap<String, f64>,
}

impl MeasuredBatch {
    pub(super) fn into_wire(self) -> proto::Measured {
        let message = proto::Measured { step: self.step.number(), batch: self.batch, ..Default::default() };
        match self.outcome {
            Ok(BatchFigures { samples, batch_samples, loss, classes, metrics }) => {
                let (class_samples, class_correct) = classes.into_iter().unzip();
                let (metric_names, metric_values) = metrics.into_iter().unzip();
                let message = proto::Measured { metric_names, metric_values, ..message };
                proto::Measured { samples, batch_samples, loss, class_samples, class_correct, ..message }
            }
            Err(failure) => proto::Measured { failure: truncated(failure), ..message },
        }
    }

    pub(super) fn from_wire(message: proto::Measured) -> Result<Self, WireError> {
        let (step, batch) = (Iteration(in_range("step", message.step, u64::MAX - 1)?), message.batch);
        let outcome = if message.failure.is_empty() {
            Ok(BatchFigures::from_wire(message)?)
        } else {
            Err(truncated(message.failure))
        };
        Ok(Self { step, batch, outcome })
    }
}

impl BatchFigures {
    fn from_wire(message: proto::Measured) -> Result<Self, WireError> {
        let proto::Measured { samples, batch_samples, loss, class_samples, class_correct, .. } = message;
        in_range("samples", samples, u64::MAX)?;
        in_range("batch_samples", batch_samples, MAX_TASK_BATCH)?;
        at_most("number of classes", class_samples.len(), MAX_CLASSES)?;
        let (found, expected) = (class_correct.len(), class_samples.len());
        if found != expected {
            return Err(invalid("class_correct", format!("{found} counts"), format!("{expected} counts")));
        }
        let classes: Vec<(u32, u32)> = class_samples.into_iter().zip(class_correct).collect();
        if let Some((samples, correct)) = classes.iter().find(|(samples, correct)| correct > samples) {
            return Err(invalid("class_correct", correct, format!("at most {samples}, the class's samples")));
        }
        let metrics = metrics(message.metric_names, message.metric_values)?;
        Ok(Self { samples, batch_samples, loss, classes, metrics })
    }
}

fn metrics(names: Vec<String>, values: Vec<f64>) -> Result<BTreeMap<String, f64>, WireError> {
    at_most("number of metrics", names.len(), MAX_METRICS)?;
    let (found, expected) = (values.len(), names.len());
    if found != expected {
        return Err(invalid("metric_values", format!("{found} values"), format!("{expected} values")));
    }
    for name in &names {
        in_range("length of a metric's name", name.len(), MAX_METRIC_NAME_BYTES)?;
    }
    let metrics: BTreeMap<String, f64> = names.into_iter().zip(values).collect();
    if metrics.len() < expected {
        return Err(invalid("metric_names", format!("{} names", metrics.len()), format!("{expected} different names")));
    }
    Ok(metrics)
}

/// One member's report on an exchange in shards.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ExchangeReport {
    /// The vector that was exchanged.
    pub vector: VectorId,
    /// Whether the exchange failed, or was abandoned, before this member had its parameters.
    pub has_failed: bool,
    /// Reports on the other members; at most [`MAX_SHARDS`].
    pub members: Vec<MemberReport>,
}

/// A report on another member of an exchange.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct MemberReport {
    /// The other member's place.
    pub place: usize,
    /// Bytes of the chunks that arrived from it.
    pub bytes: u64,
    /// Seconds spent waiting for these chunks.
    pub seconds: f64,
    /// Seconds spent so far waiting for the next chunk.
    pub waiting_s: f64,
    /// The fault of the other member, if any, and a human-readable reason.
    pub fault: Option<(PairFault, String)>,
}

impl ExchangeReport {
    pub(super) fn into_wire(self) -> proto::ExchangeReport {
        let member = |MemberReport { place, bytes, seconds, waiting_s, fault }| {
            let (fault, reason) = fault.unwrap_or_default();
            let (place, reason) = (u32::try_from(place).unwrap_or(u32::MAX), truncated(reason));
            proto::MemberReport { place, bytes, seconds, waiting_s, fault: fault.into(), reason }
        };
        let members = self.members.into_iter().map(member).collect();
        proto::ExchangeReport { vector: self.vector.0, failed: self.has_failed, members }
    }

    pub(super) fn from_wire(report: proto::ExchangeReport) -> Result<Self, WireError> {
        at_most("number of members", report.members.len(), MAX_SHARDS)?;
        let members = report.members.into_iter().map(MemberReport::from_wire).collect::<Result<_, _>>()?;
        Ok(Self { vector: VectorId(report.vector), has_failed: report.failed, members })
    }
}

impl MemberReport {
    fn from_wire(report: proto::MemberReport) -> Result<Self, WireError> {
        let fault = Some(report.fault()).filter(|fault| *fault != PairFault::Unspecified);
        let proto::MemberReport { place, bytes, seconds, waiting_s, reason, .. } = report;
        for (field, seconds) in [("seconds", seconds), ("waiting_s", waiting_s)] {
            if !(0.0..=MAX_TIME.as_secs_f64()).contains(&seconds) {
                return Err(invalid(field, seconds, "0 to 1e9"));
            }
        }
        in_range("place", u64::from(place) + 1, MAX_SHARDS as u64)?;
        let fault = fault.map(|fault| (fault, truncated(reason)));
        Ok(Self { place: place as usize, bytes, seconds, waiting_s, fault })
    }
}
