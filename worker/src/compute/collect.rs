//! Hands over the vectors that the coordinator requests.

use std::sync::Arc;

use ata_sums::Units;
use ata_wire::VectorRequest;

use super::{ComputeEvent, Stop, Worker};
use crate::kept::KeptSum;
use crate::transfer::CollectedSum;

impl Worker<'_> {
    /// Hands over the requested vector, if all of its tasks were computed. An error means that the thread cannot continue.
    pub(super) fn collect(&mut self, request: &VectorRequest, units: Option<Units>) -> Result<(), String> {
        let collected = self.vector(request, units).map(ComputeEvent::Collected);
        let vector = request.id;
        let failed = |reason, uncomputable| ComputeEvent::VectorFailed { vector, reason, uncomputable };
        self.report_result(collected, failed)
    }

    fn vector(
        &mut self,
        VectorRequest { id, iteration, tasks, .. }: &VectorRequest,
        units: Option<Units>,
    ) -> Result<CollectedSum, Stop> {
        if self.cancelled.is_set() {
            return Err(Stop::Cancelled);
        }
        if self.local.is_some() {
            self.keep_for(*iteration, tasks, units.clone())?;
        }
        if !self.kept.has_computed(*iteration, tasks) {
            // A lease of the vector was cancelled or failed, so another vector is about to be requested.
            return Err(Stop::Cancelled);
        }
        let quantizer = self.quantizer(*iteration, units)?;
        let (mut sums, missing) = self.kept.select(tasks, quantizer.units());
        if !missing.is_empty() && self.local.is_some() {
            let reason = format!("the steps of {} tasks are no longer there", missing.count());
            return Err(Stop::Failed { reason, uncomputable: false });
        }
        if !missing.is_empty() {
            tracing::debug!(
                tasks = missing.count(),
                "computing tasks again, whose gradients are in no sum of their own"
            );
            let sum = Arc::new(self.sum(*iteration, missing.iter(), &quantizer, |_, _| {})?);
            let kept = KeptSum { tasks: missing, lease: None, round: None, sum: sum.clone() };
            self.kept.add(*iteration, quantizer.units(), kept);
            sums.push(sum);
        }
        Ok(CollectedSum { vector: *id, sums, units: quantizer.units().clone() })
    }
}
