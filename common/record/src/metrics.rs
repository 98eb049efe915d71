//! Formats `metrics.csv`: one line per iteration and one per evaluation, in which the columns of the other kind are empty.

use ata_types::Iteration;

use crate::event::{RunEvent, StepEvent};
use crate::limits::MAX_TIME_S;

pub(crate) const HEADER: &str = "iteration,time_s,loss,runtime_s,total_worker_time_s,tasks_applied,tasks_wasted,employments,results,test_loss,test_accuracy,learning_rate,gradient_norm\n";

/// The number of columns after the iteration and the time.
const FIGURES: usize = 11;

/// The column of the learning rate among these, which is not averaged.
const LEARNING_RATE: usize = 9;

/// Returns the line of a step or an evaluation; `None` for any other event.
pub(crate) fn line(event: &RunEvent) -> Option<String> {
    match event {
        RunEvent::Step(step) => {
            let StepEvent { iteration, time_s, loss, runtime_s, total_worker_time_s, tasks, wasted, .. } = step;
            let StepEvent { employments, results, learning_rate, gradient_norm, .. } = step;
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

#[derive(Clone, Debug)]
pub(crate) struct MetricsRow {
    pub(crate) iteration: Iteration,
    time_s: f64,
    figures: [Option<f64>; FIGURES],
}

impl MetricsRow {
    /// Parses a line; `None` if it is damaged or the header.
    pub(crate) fn parse(line: &str) -> Option<Self> {
        let mut cells = line.trim_end().split(',');
        let (iteration, time_s) = (cells.next()?.parse().ok()?, cells.next()?.parse().ok()?);
        let mut figures = [None; FIGURES];
        for figure in &mut figures {
            let cell = cells.next()?;
            *figure = if cell.is_empty() { None } else { Some(cell.parse().ok()?) };
        }
        cells.next().is_none().then_some(Self { iteration: Iteration(iteration), time_s, figures })
    }

    /// Returns whether it is the line of a step, not of an evaluation.
    pub(crate) fn is_step(&self) -> bool {
        self.figures[0].is_some()
    }

    /// Merges the line of a later step that stands for `added` of `count` iterations.
    fn merge(&mut self, next: &Self, added: f64, count: f64) {
        (self.iteration, self.time_s) = (next.iteration, next.time_s);
        for (at, (figure, next)) in self.figures.iter_mut().zip(next.figures).enumerate() {
            let mean = |old: f64, new: f64| old + (new - old) * added / count;
            *figure =
                if at == LEARNING_RATE { next } else { figure.zip(next).map(|(old, new)| mean(old, new)).or(next) };
        }
    }

    fn line(&self) -> String {
        format!("{},{},{}\n", self.iteration, self.time_s, self.figures.map(cell).join(","))
    }
}

/// Returns the table with a line per minute for the older half of its iterations: the mean over the iterations since the line before it,
/// and the last evaluation. If these lines are not shorter by half, each stands for twice as many minutes.
pub(crate) fn thin(table: &str) -> String {
    let rows: Vec<&str> = table.split_inclusive('\n').skip(1).collect();
    let (old, recent) = rows.split_at(rows.len() / 2);
    let most_bytes = old.concat().len() / 2;
    let old: Vec<MetricsRow> = old.iter().filter_map(|row| MetricsRow::parse(row)).collect();
    let mut width_s = 60.0;
    let mut thinned = merged(&old, width_s);
    // A longer period than all times is of no use.
    while thinned.len() > most_bytes && width_s < MAX_TIME_S {
        width_s *= 2.0;
        thinned = merged(&old, width_s);
    }
    HEADER.to_owned() + &thinned + &recent.concat()
}

/// Returns lines for periods of `width_s` seconds.
fn merged(rows: &[MetricsRow], width_s: f64) -> String {
    let (mut table, mut before) = (String::new(), Iteration::default());
    for period in rows.chunk_by(|a, b| (a.time_s / width_s).floor() == (b.time_s / width_s).floor()) {
        let (mut mean, mut count): (Option<MetricsRow>, f64) = (None, 0.0);
        for step in period.iter().filter(|row| row.is_step()) {
            let added = step.iteration.number().saturating_sub(before.number()).max(1) as f64;
            (before, count) = (step.iteration, count + added);
            match &mut mean {
                Some(mean) => mean.merge(step, added, count),
                None => mean = Some(step.clone()),
            }
        }
        let evaluation = period.iter().rfind(|row| !row.is_step());
        table.extend(mean.iter().chain(evaluation).map(MetricsRow::line));
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Ten steps a second for an hour, with an evaluation each minute: each past minute has a line of means and the evaluation. Then the
    /// lines of minutes are merged again, until there are few.
    #[test]
    fn old_iterations_become_lines_per_minute() {
        let mut table = HEADER.to_owned();
        for k in 1..=36_000_u32 {
            let (time_s, loss) = (f64::from(k) / 10.0, k % 2);
            table.extend([format!("{k},{time_s},{loss},0.1,0.2,4,1,2,3,,,0.5,\n")]);
            if k % 600 == 0 {
                table.extend([format!("{k},{time_s},,,,,,,,7,0.5,,\n")]);
            }
        }
        let thinned = thin(&table);
        let rows: Vec<MetricsRow> = thinned.lines().skip(1).map(|row| MetricsRow::parse(row).unwrap()).collect();
        assert_eq!(rows.len(), 31 + 29 + 18_000 + 31, "{}", rows.len());
        // The evaluation follows.
        let minute = &rows[1];
        assert_eq!((minute.iteration, minute.figures[6]), (Iteration(1199), Some(3.0)), "{minute:?}");
        assert!((minute.figures[0].unwrap() - 0.5).abs() < 0.01, "{minute:?}");
        assert_eq!(thinned.lines().last(), table.lines().last());
        let mut again = thinned;
        for _ in 0..40 {
            let before = again.len();
            again = thin(&again);
            assert!(again.len() <= before * 3 / 4 + HEADER.len() + 200, "{before}, {}", again.len());
        }
    }
}
