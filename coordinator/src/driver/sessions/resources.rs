//! What workers' processes use: processor, memory and network.

use std::sync::atomic::{AtomicU64, Ordering};

use ata_net::KeepOpen;
use ata_record::WorkerResources;
use ata_types::WorkerId;
use ata_wire::ProcessUsage;

/// The time over which rates are measured, in seconds: long enough for several iterations of most runs, and for the journal.
pub(crate) const INTERVAL_S: f64 = 10.0;

/// The change that is worth an event, as a factor.
const CHANGE: f64 = 1.1;

/// The last usage that a worker reported, shared with the gRPC handlers.
#[derive(Debug, Default)]
pub(super) struct ReportedUsage {
    cpu_ms: AtomicU64,
    memory_bytes: AtomicU64,
}

impl ReportedUsage {
    pub(super) fn set(&self, usage: ProcessUsage) {
        // The conversion limits what a worker may claim.
        self.cpu_ms.store((usage.cpu_s * 1e3) as u64, Ordering::Relaxed);
        self.memory_bytes.store(usage.memory_bytes, Ordering::Relaxed);
    }
}

/// Turns the sums that are known of a session into rates.
#[derive(Debug, Default)]
pub(super) struct ResourceMeter {
    /// The time and the sums of the last reading: processor time in milliseconds, and bytes on the session's connections.
    last: Option<(f64, u64, u64)>,
    /// The figures that were published last.
    published: Option<WorkerResources>,
}

impl ResourceMeter {
    /// Returns the figures since the last call, if they are known and differ from those published last.
    pub(super) fn read(
        &mut self,
        now_s: f64,
        worker: WorkerId,
        reported: &ReportedUsage,
        connections: &[KeepOpen],
    ) -> Option<WorkerResources> {
        let cpu_ms = reported.cpu_ms.load(Ordering::Relaxed);
        let bytes = connections.iter().map(KeepOpen::bytes).sum();
        let (then_s, cpu_before, bytes_before) = self.last.replace((now_s, cpu_ms, bytes))?;
        let elapsed_s = (now_s - then_s).max(1e-3);
        let memory_bytes = reported.memory_bytes.load(Ordering::Relaxed);
        let resources = WorkerResources {
            worker,
            cpu_cores: (memory_bytes > 0)
                .then(|| (cpu_ms.saturating_sub(cpu_before) as f64 / elapsed_s / 10.0).round() / 100.0),
            memory_bytes: (memory_bytes > 0).then_some(memory_bytes),
            // A connection that ended takes its count with it.
            bytes_per_s: (bytes.saturating_sub(bytes_before) as f64 / elapsed_s).round(),
        };
        let is_news = self.published.as_ref().is_none_or(|published| has_changed(published, &resources));
        is_news.then(|| {
            self.published = Some(resources);
            resources
        })
    }
}

fn has_changed(before: &WorkerResources, now: &WorkerResources) -> bool {
    let numbers =
        |of: &WorkerResources| [of.cpu_cores.unwrap_or(0.0), of.memory_bytes.unwrap_or(0) as f64, of.bytes_per_s];
    // Less than a hundredth of a core, and less than a kilobyte, are noise.
    let floors = [0.01, 1e3, 1e3];
    numbers(before)
        .into_iter()
        .zip(numbers(now))
        .zip(floors)
        .any(|((before, now), floor)| before.max(now).max(floor) > CHANGE * before.min(now).max(floor))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The processor time is a rate, claims without limit are cut off, and what hardly changes is not published again.
    #[test]
    fn sums_become_rates_and_only_changes_are_published() {
        let (mut meter, reported) = (ResourceMeter::default(), ReportedUsage::default());
        let mut read = |now_s, cpu_s, memory_bytes| {
            reported.set(ProcessUsage { cpu_s, memory_bytes });
            let found = meter.read(now_s, WorkerId::from_slot(0), &reported, &[]);
            found.map(|found| (found.cpu_cores, found.memory_bytes))
        };
        for (now_s, cpu_s, memory_bytes, expected) in [
            (0.0, 100.0, 1_000_000, None),
            (10.0, 135.0, 1_000_000, Some((Some(3.5), Some(1_000_000)))),
            (20.0, 171.0, 1_050_000, None),
            (30.0, 171.0, 1_050_000, Some((Some(0.0), Some(1_050_000)))),
            (40.0, f64::NAN, 1_050_000, None),
            (50.0, f64::INFINITY, 0, Some((None, None))),
        ] {
            assert_eq!(read(now_s, cpu_s, memory_bytes), expected, "after {now_s} s");
        }
    }
}
