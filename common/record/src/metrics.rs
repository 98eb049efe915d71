//! Formats `metrics.csv`: one line per iteration and one per evaluation, in which the columns of the other kind are empty.

use crate::event::RunEvent;

pub(crate) const HEADER: &str = "iteration,time_s,loss,runtime_s,total_worker_time_s,tasks_applied,tasks_wasted,employments,results,test_loss,test_accuracy,learning_rate,gradient_norm\n";

/// Returns the line of a step or an evaluation; `None` for any other event.
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
            learning_rate,
            gradient_norm,
            ..
        } => {
            let costs = format!("{runtime_s},{total_worker_time_s},{tasks},{wasted},{employments},{results}");
            let norm = cell(*gradient_norm);
            Some(format!("{iteration},{time_s},{loss},{costs},,,{learning_rate},{norm}\n"))
        }
        RunEvent::Evaluation { iteration, time_s, loss, accuracy, .. } => {
            Some(format!("{iteration},{time_s},,,,,,,,{loss},{},,\n", cell(*accuracy)))
        }
        _ => None,
    }
}

fn cell(value: Option<f64>) -> String {
    value.map_or_else(String::new, |value| value.to_string())
}
