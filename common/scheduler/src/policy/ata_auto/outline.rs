//! The outline of ATA-Auto's plan for an iteration, from which the cost of a probe follows.

use super::plan::PlannedWorker;
use crate::topology::LinkTimes;

/// The numbers of workers and the times of a plan.
#[derive(Clone, Copy, Debug)]
pub(super) struct Outline {
    /// The number of workers with a share, A.
    pub(super) used: usize,
    /// The number of all workers, n.
    pub(super) workers: usize,
    /// The sum of the seconds of all workers with a share, W.
    pub(super) all_s: f64,
    /// The longest time planned for a worker, l.
    pub(super) longest_s: f64,
    /// The time that the fastest of them takes for a task, in seconds.
    pub(super) fastest_s: f64,
    /// The cost of downloading parameters for a probe, in iterations: the download takes capacity of the coordinator's link from those
    /// that the step waits for.
    pub(super) download: f64,
}

impl Outline {
    pub(super) fn new<'a>(members: impl Iterator<Item = &'a PlannedWorker>, workers: usize, links: &LinkTimes) -> Self {
        let mut outline =
            Self { used: 0, workers, all_s: 0.0, longest_s: 0.0, fastest_s: f64::INFINITY, download: 0.0 };
        let mut step_s = 0.0_f64;
        for PlannedWorker { pace, share, .. } in members.filter(|member| member.share > 0) {
            let time_s = pace.time_s(*share);
            outline.used += 1;
            outline.all_s += time_s;
            outline.longest_s = outline.longest_s.max(time_s);
            outline.fastest_s = outline.fastest_s.min(pace.time_s(1));
            step_s = step_s.max(time_s + pace.window_s);
        }
        // Whole parameters, which a worker needs that did not take part in the last step, take about as long as its vector and the
        // differences together.
        let download_s = links.up_s + links.down_s;
        outline.download = if download_s > 0.0 { download_s / step_s } else { 0.0 };
        outline
    }

    /// Returns the cost of a probe of up to `limit_s` seconds, in iterations.
    pub(super) fn probe_cost(&self, limit_s: f64) -> f64 {
        limit_s / self.all_s + self.download
    }
}
