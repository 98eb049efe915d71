//! `metrics.csv`: one line per iteration.

use crate::event::RunEvent;

/// The first line.
pub(crate) const HEADER: &str =
    "iteration,time_s,loss,runtime_s,total_worker_time_s,tasks_applied,tasks_wasted,employments\n";

/// The line of a step; `None` for any other event.
pub(crate) fn line(event: &RunEvent) -> Option<String> {
    let RunEvent::Step { iteration, time_s, loss, runtime_s, total_worker_time_s, tasks, wasted, employments } = event
    else {
        return None;
    };
    Some(format!("{iteration},{time_s},{loss},{runtime_s},{total_worker_time_s},{tasks},{wasted},{employments}\n"))
}
