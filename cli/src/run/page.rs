//! `report.html` of a run: its costs and losses as tables and figures.

use std::path::Path;

use ata_figures::{Axis, Figure, Plot, Point, Report, Series};
use ata_record::{Course, CourseEvaluation, CourseStep};

use super::recorded;
use super::summary::Summary;
use super::tables;
use crate::failure::Failure;
use crate::output::seconds;

/// The page of the run in `folder`, including the figures.
pub(crate) fn html(summary: &Summary, folder: &Path) -> Result<String, Failure> {
    let Course { steps, evaluations, .. } = recorded::read(folder)?.course;
    let report = Report {
        title: format!("Run {}", summary.run_id),
        intro: vec![format!(
            "{} iterations with policy {} in {}; {:.1} tasks wasted per iteration.",
            summary.iterations,
            summary.policy,
            seconds(summary.runtime_s),
            summary.tasks_wasted as f64 / summary.iterations.max(1) as f64
        )],
        tables: tables::all(summary),
        figures: figures(&steps).into_iter().chain(test(&evaluations)).collect(),
    };
    Ok(report.html()?)
}

fn figures(steps: &[CourseStep]) -> Vec<Figure> {
    let began_s = steps.first().map_or(0.0, |first| first.time_s - first.runtime_s);
    let mut worker_time_s = 0.0;
    let spent_s: Vec<f64> = steps
        .iter()
        .map(|at| {
            worker_time_s += at.total_worker_time_s;
            worker_time_s
        })
        .collect();
    let points = |x: &dyn Fn(usize, &CourseStep) -> f64, y: fn(&CourseStep) -> f64| -> Vec<Point> {
        steps.iter().enumerate().map(|(i, at)| Point::new(x(i, at), y(at))).collect()
    };
    let loss = || Axis::linear("mean loss of the step's tasks");
    vec![
        line(
            ("loss-runtime", "Loss against runtime"),
            Axis::linear("runtime (s)"),
            loss(),
            points(&|_, at| at.time_s - began_s, |at| at.loss),
        ),
        line(
            ("loss-worker-time", "Loss against total worker time"),
            Axis::linear("total worker time (s)"),
            loss(),
            points(&|i, _| spent_s[i], |at| at.loss),
        ),
        line(
            ("iteration-time", "Time of each iteration"),
            Axis::linear("iteration"),
            Axis::log("from assignment to last result (s)"),
            points(&|_, at| at.iteration as f64, |at| at.runtime_s),
        ),
        allocation(steps),
    ]
}

/// The accuracy on the test data, or the loss of a problem without classes, if it was measured more than once.
fn test(evaluations: &[CourseEvaluation]) -> Option<Figure> {
    let has_accuracy = evaluations.iter().all(|at| at.accuracy.is_some());
    let (title, axis) = if has_accuracy {
        (("test-accuracy", "Accuracy on the test data"), "accuracy (%)")
    } else {
        (("test-loss", "Loss on the test data"), "mean loss")
    };
    let value = |at: &CourseEvaluation| at.accuracy.map_or(at.loss, |accuracy| accuracy * 100.0);
    let points: Vec<Point> = evaluations.iter().map(|at| Point::new(at.iteration as f64, value(at))).collect();
    (points.len() > 1).then(|| line(title, Axis::linear("iteration"), Axis::linear(axis), points))
}

fn line((name, title): (&str, &str), x: Axis, y: Axis, points: Vec<Point>) -> Figure {
    let plot = Plot::Lines(vec![Series { name: "this run".into(), points }]);
    Figure { name: name.into(), title: title.into(), caption: String::new(), x, y, plot }
}

fn allocation(steps: &[CourseStep]) -> Figure {
    let workers = steps.iter().map(|at| at.tasks.len()).max().unwrap_or(0);
    let series = (0..workers).map(|slot| {
        let tasks = |at: &CourseStep| at.tasks.get(slot).map_or(0.0, |tasks| *tasks as f64);
        let points = steps.iter().map(|at| Point::new(at.iteration as f64, tasks(at)));
        Series { name: format!("worker {}", slot + 1), points: points.collect() }
    });
    Figure {
        name: "allocation".into(),
        title: "Allocation over time".into(),
        caption: String::new(),
        x: Axis::linear("iteration"),
        y: Axis::linear("applied tasks"),
        plot: Plot::Stacked(series.collect()),
    }
}
