//! Hands over the vectors that the coordinator requests.

use std::sync::Arc;

use ata_sums::{GradientSum, Quantizer, Units};
use ata_types::{Iteration, TaskRanges};
use ata_wire::VectorRequest;

use super::{ComputeEvent, Stop, Worker};
use crate::kept::KeptSum;
use crate::transfer::CollectedSum;

impl Worker<'_> {
    /// Hands over the requested vector, if all of its tasks were computed. An error means that the thread cannot continue.
    pub(super) fn collect(&mut self, request: &VectorRequest, units: Option<Units>) -> Result<(), String> {
        if self.cancelled.is_set() {
            return Ok(());
        }
        let vector = request.id;
        match self.vector(request, units) {
            Ok(Some(sum)) => {
                self.report(ComputeEvent::Collected(sum));
                Ok(())
            }
            Ok(None) => Ok(()),
            Err(stop) => {
                self.stopped(stop, |reason, uncomputable| ComputeEvent::VectorFailed { vector, reason, uncomputable })
            }
        }
    }

    fn vector(
        &mut self,
        VectorRequest { id, iteration, tasks, .. }: &VectorRequest,
        units: Option<Units>,
    ) -> Result<Option<CollectedSum>, Stop> {
        if self.local.is_some() {
            self.keep_for(*iteration, tasks, units.clone())?;
        }
        if !self.kept.has_computed(*iteration, tasks) {
            return Ok(None);
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
            sums.push(self.compute_again(*iteration, missing, &quantizer)?);
        }
        Ok(Some(CollectedSum { vector: *id, sums, units: quantizer.units().clone() }))
    }

    /// Computes tasks whose gradients are not kept separately, and keeps their sum.
    fn compute_again(
        &mut self,
        iteration: Iteration,
        tasks: TaskRanges,
        quantizer: &Quantizer,
    ) -> Result<Arc<GradientSum>, Stop> {
        let mut sum = self.kept.empty_sum(&self.sizes);
        for range in tasks.iter() {
            if let Err(stop) = self.add(iteration, range, quantizer, &mut sum, |_, _| {}) {
                self.kept.give_back(sum);
                return Err(stop);
            }
        }
        let sum = Arc::new(sum);
        let kept = KeptSum { tasks, lease: None, round: None, sum: sum.clone() };
        self.kept.add(iteration, quantizer.units(), kept);
        Ok(sum)
    }
}
