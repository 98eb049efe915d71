//! `metrics.csv`: one line per iteration, and one per evaluation, in which the columns of the other kind are empty.

use crate::event::RunEvent;

/// The first line.
pub(crate) const HEADER: &str = "iteration,time_s,loss,runtime_s,total_worker_time_s,tasks_applied,tasks_wasted,employments,results,test_loss,test_accuracy\n";

/// The line of a step or an evaluation; `None` for any other event.
pub(crate) fn line(event: &RunEvent) -> Option<String> {
    match event {
        RunEvent::Step {
            iteration,
            time_s,
            loss,
            runtime_s,
            total_worker_time_s,
            tasks,
            wasted,
            employments,
            results,
        } => {
            let costs = format!("{runtime_s},{total_worker_time_s},{tasks},{wasted},{employments},{results}");
            Some(format!("{iteration},{time_s},{loss},{costs},,\n"))
        }
        RunEvent::Evaluation { iteration, time_s, loss, accuracy } => {
            let accuracy = accuracy.map_or_else(String::new, |accuracy| accuracy.to_string());
            Some(format!("{iteration},{time_s},,,,,,,,{loss},{accuracy}\n"))
        }
        _ => None,
    }
}
