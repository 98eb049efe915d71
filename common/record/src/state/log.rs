//! Describes notable events in words.

use std::collections::VecDeque;

use ata_types::WorkerId;
use serde::{Deserialize, Serialize};

use super::RunState;
use crate::event::{EndState, RefusalKind, RunEvent};

/// The number of lines that are kept: in a bad run, they cover the last minutes.
const LINES_KEPT: usize = 200;

/// The last notable events of a run.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Log {
    lines: VecDeque<LogLine>,
    dropped: usize,
}

/// A notable event. In JSON it is an array of its fields in this order.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(into = "(f64, LogKind, String)", from = "(f64, LogKind, String)")]
pub struct LogLine {
    /// The time of the event, by the run's clock.
    pub time_s: f64,
    /// The kind of the event.
    pub kind: LogKind,
    /// What happened, as a sentence without a full stop.
    pub text: String,
}

/// The kind of a notable event.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LogKind {
    /// The run began, continued or waits.
    Info,
    /// A worker joined.
    Join,
    /// A worker or a checkpoint was lost.
    Loss,
    /// A worker rests.
    Rest,
    /// Results were refused.
    Refusal,
    /// An evaluation ended.
    Evaluation,
    /// A checkpoint was made durable.
    Checkpoint,
    /// The run ended.
    End,
}

impl From<(f64, LogKind, String)> for LogLine {
    fn from((time_s, kind, text): (f64, LogKind, String)) -> Self {
        Self { time_s, kind, text }
    }
}

impl From<LogLine> for (f64, LogKind, String) {
    fn from(LogLine { time_s, kind, text }: LogLine) -> Self {
        (time_s, kind, text)
    }
}

impl Log {
    pub(super) fn add(&mut self, line: LogLine) {
        if self.lines.len() == LINES_KEPT {
            self.lines.pop_front();
            self.dropped += 1;
        }
        self.lines.push_back(line);
    }

    /// Returns the lines that are new to a reader of the first `read` lines, and the number of the first of them. Advances `read`.
    pub fn since(&self, read: &mut usize) -> (usize, Vec<LogLine>) {
        let from = (*read).max(self.dropped);
        *read = self.dropped + self.lines.len();
        (from, self.lines.iter().skip(from - self.dropped).cloned().collect())
    }
}

/// Returns an event's kind and sentence; `None` for frequent events.
pub(super) fn describe(event: &RunEvent, state: &RunState) -> Option<(LogKind, String)> {
    let name = |number: &WorkerId| match state.workers.get(number).map(|worker| worker.name.as_str()) {
        None | Some("") => format!("worker {number}"),
        Some(name) => format!("worker {number} ({name})"),
    };
    Some(match event {
        RunEvent::Run(run) => (LogKind::Info, format!("run {} began, policy {}", run.run_id, run.policy)),
        RunEvent::Resume { iteration, policy, .. } => {
            (LogKind::Info, format!("the run goes on after iteration {iteration}, policy {policy}"))
        }
        RunEvent::Folded { iteration, .. } => {
            (LogKind::Info, format!("the journal has no details up to iteration {iteration}, only what they add up to"))
        }
        // Each worker that joins is a line of its own.
        RunEvent::Wait { .. } if state.log.lines.back().is_some_and(|line| line.kind == LogKind::Join) => return None,
        RunEvent::Wait { present, needed, .. } => {
            (LogKind::Info, format!("{present} of {needed} workers present: waiting"))
        }
        RunEvent::Join { worker, device, .. } => (LogKind::Join, format!("{} joined, on {device}", name(worker))),
        RunEvent::Loss { worker, why, .. } => (LogKind::Loss, format!("{} is gone: {why}", name(worker))),
        RunEvent::Rest { worker, rest_s, strikes, .. } => {
            let times = if *strikes == 1 { "once".into() } else { format!("{strikes} times in a row") };
            (LogKind::Rest, format!("{} failed {times} and gets no task for {rest_s:.1} s", name(worker)))
        }
        RunEvent::Expulsion { worker, why, .. } => (LogKind::Loss, format!("{} was expelled: {why}", name(worker))),
        RunEvent::Forgive { name, .. } => (LogKind::Info, format!("the operator forgave the workers named {name}")),
        RunEvent::Refusal { worker, kind, reason, count, .. } if *kind != RefusalKind::Stale => {
            (LogKind::Refusal, format!("{count} × {}, from {}: {reason}", kind.name(), name(worker)))
        }
        RunEvent::Evaluation { iteration, loss, accuracy, metrics, .. } => {
            let accuracy = accuracy.map_or_else(String::new, |share| format!(", accuracy {:.1} %", share * 100.0));
            let metrics: Vec<String> = metrics.iter().map(|(name, value)| format!(", {name} {value:.3}")).collect();
            let metrics = metrics.concat();
            (
                LogKind::Evaluation,
                format!("test loss {loss:.3}{accuracy}{metrics}, with the parameters of iteration {iteration}"),
            )
        }
        RunEvent::Checkpoint { iteration, seconds, .. } => {
            (LogKind::Checkpoint, format!("iteration {iteration} is saved; it took {seconds:.2} s"))
        }
        RunEvent::CheckpointFailed { iteration, reason, .. } => {
            (LogKind::Loss, format!("iteration {iteration} could not be saved: {reason}"))
        }
        RunEvent::End { state, reason, .. } => {
            let state = match state {
                EndState::Finished => "the run is finished",
                EndState::Stopped => "the run was stopped",
                EndState::Failed => "the run failed",
            };
            // `iterations` is the rule that ends a run as planned.
            let reason = if reason == "iterations" { String::new() } else { format!(": {reason}") };
            (LogKind::End, format!("{state}{reason}"))
        }
        RunEvent::Allocation { .. }
        | RunEvent::Task { .. }
        | RunEvent::Step { .. }
        | RunEvent::Links { .. }
        | RunEvent::Resources { .. }
        // A stale result is not notable: honest workers are late as well, whenever another worker is faster.
        | RunEvent::Refusal { .. }
        | RunEvent::Evaluating { .. } => return None,
    })
}
