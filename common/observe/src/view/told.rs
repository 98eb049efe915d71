//! Events in words, for the log of a page.

use ata_record::{EndState, RefusalKind, RunEvent, RunState};
use ata_types::WorkerId;

/// An event's kind and sentence; `None` for those that a run is full of.
pub(super) fn line(event: &RunEvent, state: &RunState) -> Option<(&'static str, String)> {
    let name = |number: &WorkerId| match state.workers.get(number).map(|worker| worker.name.as_str()) {
        None | Some("") => format!("worker {number}"),
        Some(name) => format!("worker {number} ({name})"),
    };
    Some(match event {
        RunEvent::Run { run_id, policy, .. } => ("info", format!("run {run_id} began, policy {policy}")),
        RunEvent::Resume { iteration, policy, .. } => {
            ("info", format!("the run goes on after iteration {iteration}, policy {policy}"))
        }
        RunEvent::Wait { present, needed, .. } => ("info", format!("{present} of {needed} workers present: waiting")),
        RunEvent::Join { worker, device, .. } => ("join", format!("{} joined, on {device}", name(worker))),
        RunEvent::Loss { worker, why, .. } => ("loss", format!("{} is gone: {why}", name(worker))),
        RunEvent::Rest { worker, rest_s, strikes, .. } => {
            let times = if *strikes == 1 { "once".into() } else { format!("{strikes} times in a row") };
            ("rest", format!("{} failed {times} and gets no task for {rest_s:.1} s", name(worker)))
        }
        RunEvent::Expulsion { worker, why, .. } => ("loss", format!("{} was expelled: {why}", name(worker))),
        // Honest workers are late, too, whenever someone else was faster.
        RunEvent::Refusal { kind: RefusalKind::Stale, .. } => return None,
        RunEvent::Refusal { worker, kind, reason, count, .. } => {
            ("refusal", format!("{count} × {}, from {}: {reason}", kind.name(), name(worker)))
        }
        RunEvent::Evaluation { iteration, loss, accuracy, .. } => {
            let accuracy = accuracy.map_or_else(String::new, |share| format!(", accuracy {:.1} %", share * 100.0));
            ("evaluation", format!("test loss {loss:.3}{accuracy}, with the parameters of iteration {iteration}"))
        }
        RunEvent::Checkpoint { iteration, seconds, .. } => {
            ("checkpoint", format!("iteration {iteration} is saved; it took {seconds:.2} s"))
        }
        RunEvent::CheckpointFailed { iteration, reason, .. } => {
            ("loss", format!("iteration {iteration} could not be saved: {reason}"))
        }
        RunEvent::End { state, reason, .. } => {
            let state = match state {
                EndState::Finished => "the run is finished",
                EndState::Stopped => "the run was stopped",
                EndState::Failed => "the run failed",
            };
            // The name of the rule that ends a run as planned.
            let reason = if reason == "iterations" { String::new() } else { format!(": {reason}") };
            ("end", format!("{state}{reason}"))
        }
        RunEvent::Allocation { .. } | RunEvent::Task { .. } | RunEvent::Step { .. } | RunEvent::Evaluating { .. } => {
            return None;
        }
    })
}
