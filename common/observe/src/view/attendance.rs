//! How a worker spent its time.

use ata_record::RunEvent;
use ata_types::TaskOutcome;

/// What a run's state does not say of a worker.
#[derive(Clone, Debug, Default)]
pub(crate) struct Attendance {
    /// Since when it is present.
    since_s: Option<f64>,
    /// Seconds for which it was present before.
    before_s: f64,
    /// Seconds it spent on tasks, whatever became of them.
    pub(crate) busy_s: f64,
    /// Seconds of its assignments that were not computation.
    pub(crate) overhead_s: f64,
    /// Tasks that it completed.
    pub(crate) completed: u64,
    /// Tasks that failed, or whose results were refused.
    pub(crate) failures: u64,
    /// How often it was lost.
    pub(crate) losses: u64,
    /// How often it had to rest.
    pub(crate) rests: u64,
    /// Probes that it was given.
    pub(crate) probes: u64,
    /// The policy's last bound on its seconds per task, or estimate.
    pub(crate) bound_s: Option<f64>,
}

impl Attendance {
    /// Seconds for which it was present until `now_s`.
    pub(crate) fn present_s(&self, now_s: f64) -> f64 {
        self.before_s + self.since_s.map_or(0.0, |since_s| (now_s - since_s).max(0.0))
    }

    pub(super) fn joined(&mut self, now_s: f64) {
        self.left(now_s);
        self.since_s = Some(now_s);
    }

    pub(super) fn left(&mut self, now_s: f64) {
        self.before_s = self.present_s(now_s);
        self.since_s = None;
    }

    /// Counts an event of its own.
    pub(super) fn apply(&mut self, event: &RunEvent) {
        match event {
            RunEvent::Task { busy_s, censored_s, overhead_s, outcome, .. } => {
                self.busy_s += busy_s.or(*censored_s).unwrap_or(0.0);
                self.overhead_s += overhead_s.unwrap_or(0.0);
                self.completed += u64::from(busy_s.is_some());
                self.failures += u64::from(is_failure(*outcome));
            }
            RunEvent::Loss { time_s, .. } => {
                self.left(*time_s);
                self.losses += 1;
            }
            RunEvent::Expulsion { time_s, .. } => self.left(*time_s),
            RunEvent::Rest { .. } => self.rests += 1,
            _ => {}
        }
    }
}

/// Whether it is the worker's fault that a task does not count.
fn is_failure(outcome: TaskOutcome) -> bool {
    matches!(outcome, TaskOutcome::Failed | TaskOutcome::Mismatched | TaskOutcome::Disputed)
}
