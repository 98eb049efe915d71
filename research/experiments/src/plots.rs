//! Figures of an experiment.

use ata_figures::{Axis, Curve, Figure, Mark, Plot, Point, Scale, Series};

use crate::run::RunResult;
use crate::spec::{Experiment, LearningSpec};
use crate::summary::{Group, Row, groups};
use crate::trace::Checkpoint;

/// The largest number of allocations over time that are drawn for one group.
const MAX_ALLOCATIONS: usize = 4;
/// The share of runs that the band over seeds excludes at either end.
const BAND: f64 = 0.1;
/// The number of points of a minibatch loss that are averaged.
const SMOOTHED: usize = 20;

/// Returns all figures that the results allow, group by group.
pub fn figures(experiment: &Experiment, results: &[RunResult]) -> Vec<Figure> {
    let groups = groups(results);
    let several = groups.len() > 1;
    let figures = groups.iter().enumerate().flat_map(|(at, group)| {
        let suffix = if several { format!("-{}-n{}", at + 1, group.workers) } else { String::new() };
        let place = format!("{} workers, budget {}, times {}", group.workers, experiment.budget, group.law);
        GroupFigures { experiment, group, suffix, place }.all()
    });
    figures.collect()
}

type Quantity<T> = (&'static str, fn(&Checkpoint) -> T);

struct GroupFigures<'a> {
    experiment: &'a Experiment,
    group: &'a Group<'a>,
    suffix: String,
    place: String,
}

impl GroupFigures<'_> {
    fn all(&self) -> Vec<Figure> {
        let k: Quantity<f64> = ("iteration k", |at| at.iteration as f64);
        let runtime: Quantity<f64> = ("runtime (units of time)", |at| at.runtime);
        let total: Quantity<f64> = ("total worker time (units of time)", |at| at.worker_time);
        let mean_time: Quantity<Option<f64>> =
            ("mean time of iterations up to k (units of time)", |at| Some(at.runtime / at.iteration as f64));
        let mean_total: Quantity<Option<f64>> =
            ("mean worker time of iterations up to k (units of time)", |at| Some(at.worker_time / at.iteration as f64));
        let mean_regret: Quantity<Option<f64>> =
            ("mean regret of iterations up to k (units of time)", |at| Some(at.regret? / at.iteration as f64));
        let loss: Quantity<Option<f64>> = (self.experiment.loss_label(), |at| at.objective);
        let mut figures = vec![
            self.course("iteration-time", "Average iteration time", k, mean_time),
            self.course("worker-time", "Average total worker time", k, mean_total),
            self.course("regret", "Average regret", k, mean_regret),
            self.course("loss-runtime", "Loss against runtime", runtime, loss),
            self.course("loss-worker-time", "Loss against total worker time", total, loss),
        ];
        figures.retain(|figure| matches!(&figure.plot, Plot::Lines(series) if !series.is_empty()));
        for figure in figures.iter_mut().filter(|figure| figure.name.starts_with("loss")) {
            figure.x.scale = Scale::Linear;
            if matches!(self.experiment.learning, Some(LearningSpec::Cnn { .. })) {
                smooth(figure);
            }
        }
        figures.extend(self.windows());
        figures.extend(self.frontier());
        let traced = self.group.rows.iter().filter(|row| !row.runs[0].trace.allocation.is_empty());
        figures.extend(traced.take(MAX_ALLOCATIONS).map(|row| self.allocation(row)));
        figures
    }

    fn figure(&self, name: &str, title: &str, x: Axis, y: Axis, plot: Plot) -> Figure {
        let name = format!("{name}{}", self.suffix);
        let seeds = self.experiment.seeds;
        let band = if seeds > 1 { format!("; mean and 10 % to 90 % band of {seeds} seeds") } else { String::new() };
        Figure { name, title: title.into(), caption: format!("{}{band}.", self.place), x, y, plot }
    }

    /// Returns a figure with a line per row over the course of the run.
    fn course(
        &self,
        name: &str,
        title: &str,
        (x_label, x): Quantity<f64>,
        (y_label, y): Quantity<Option<f64>>,
    ) -> Figure {
        let series = self.group.rows.iter().map(|row| Series { name: row.name.clone(), points: course(row, x, y) });
        let series: Vec<Series> = series.filter(|series| !series.points.is_empty()).collect();
        self.figure(name, title, Axis::log(x_label), Axis::log(y_label), Plot::Lines(series))
    }

    /// Returns a figure of averages over windows, if speeds change: averages over the whole run would hide the changes.
    fn windows(&self) -> Option<Figure> {
        if self.experiment.change.is_empty() {
            return None;
        }
        let window = (self.experiment.iterations / 100).max(1);
        let series = self.group.rows.iter().map(|row| Series { name: row.name.clone(), points: windows(row, window) });
        let y = format!("mean time of {window} iterations (units of time)");
        let plot = Plot::Lines(series.collect());
        Some(self.figure("window-time", "Iteration time, as it is", Axis::linear("iteration k"), Axis::log(&y), plot))
    }

    /// Returns a figure of runtime against total worker time, if there are several rows to compare.
    fn frontier(&self) -> Option<Figure> {
        let overcommits = self.experiment.overcommit.len() >= 2;
        if !overcommits && !self.group.rows.iter().any(|row| dial(&row.runs[0].policy).is_some()) {
            return None;
        }
        let mut curves: Vec<Curve> = Vec::new();
        for row in &self.group.rows {
            let run = row.runs[0];
            let (x, _) = row.moments(|run| run.mean_iteration_time);
            let (y, _) = row.moments(|run| run.mean_total_worker_time);
            let (name, label) = match dial(&run.policy) {
                Some((name, worth)) => (name, format!("W = {worth}")),
                None if !overcommits => (run.policy.as_str(), "default".into()),
                None => (run.policy.as_str(), format!("+{:.0} %", run.overcommit * 100.0)),
            };
            let mark = Mark { label, point: Point::new(x, y) };
            match curves.iter_mut().find(|curve| curve.name == name) {
                Some(curve) => curve.marks.push(mark),
                None => curves.push(Curve { name: name.to_owned(), marks: vec![mark] }),
            }
        }
        for curve in &mut curves {
            if let [only] = curve.marks.as_mut_slice() {
                only.label.clone_from(&curve.name);
            }
        }
        let (x, y) = ("mean iteration time (units of time)", "mean total worker time (units of time)");
        let title = "Runtime against total worker time";
        Some(self.figure("frontier", title, Axis::linear(x), Axis::log(y), Plot::Frontier(curves)))
    }

    /// Returns a figure of each worker's tasks over time, for the first seed.
    fn allocation(&self, row: &Row<'_>) -> Figure {
        let windows = &row.runs[0].trace.allocation;
        let series = (0..self.group.workers as usize).map(|slot| Series {
            name: format!("worker {}", slot + 1),
            points: windows.iter().map(|(iteration, tasks)| Point::new(*iteration as f64, tasks[slot])).collect(),
        });
        let name: String = row.name.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '-' }).collect();
        let mut figure = self.figure(
            &format!("allocation-{name}"),
            &format!("Allocation over time: {}", row.name),
            Axis::linear("iteration k"),
            Axis::linear("tasks per iteration"),
            Plot::Stacked(series.collect()),
        );
        figure.caption = format!("{}; seed {}.", self.place, row.runs[0].seed);
        figure
    }
}

/// Replaces each point by the mean of the last [`SMOOTHED`] points, because minibatch losses are noisy.
fn smooth(figure: &mut Figure) {
    let Plot::Lines(series) = &mut figure.plot else { return };
    for Series { points, .. } in series {
        let mean = |to: usize, of: fn(&Point) -> f64| {
            let last = &points[(to + 1).saturating_sub(SMOOTHED)..=to];
            last.iter().map(of).sum::<f64>() / last.len() as f64
        };
        let smoothed = |at: usize| Point {
            x: points[at].x,
            y: mean(at, |point| point.y),
            low: mean(at, |point| point.low),
            high: mean(at, |point| point.high),
        };
        *points = (0..points.len()).map(smoothed).collect();
    }
    figure.caption = format!("{} Means of the last {SMOOTHED} points.", figure.caption);
}

/// Returns the mean and the band over seeds, at each checkpoint that all runs reached.
fn course(row: &Row<'_>, x: fn(&Checkpoint) -> f64, y: fn(&Checkpoint) -> Option<f64>) -> Vec<Point> {
    let shortest = row.runs.iter().map(|run| run.trace.checkpoints.len()).min().unwrap_or(0);
    let point = |at: usize| {
        let checkpoints = row.runs.iter().map(|run| &run.trace.checkpoints[at]);
        let values: Option<Vec<f64>> = checkpoints.clone().map(y).collect();
        let x = checkpoints.map(x).sum::<f64>() / row.runs.len() as f64;
        values.map(|values| banded(x, values))
    };
    (0..shortest).filter_map(point).collect()
}

fn windows(row: &Row<'_>, window: u64) -> Vec<Point> {
    let mut points = Vec::new();
    let ends = row.runs[0].trace.checkpoints.iter().map(|at| at.iteration).filter(|k| k.is_multiple_of(window));
    for (from, to) in ends.clone().zip(ends.skip(1)) {
        let runtime_at = |run: &RunResult, iteration| {
            run.trace.checkpoints.iter().find(|at| at.iteration == iteration).map(|at| at.runtime)
        };
        let mean = |run: &&RunResult| Some((runtime_at(run, to)? - runtime_at(run, from)?) / (to - from) as f64);
        if let Some(values) = row.runs.iter().map(mean).collect() {
            points.push(banded(to as f64, values));
        }
    }
    points
}

fn banded(x: f64, mut values: Vec<f64>) -> Point {
    values.sort_by(f64::total_cmp);
    let last = values.len() - 1;
    let quantile = |share: f64| values[(share * last as f64).round() as usize];
    let y = values.iter().sum::<f64>() / values.len() as f64;
    Point { x, y, low: quantile(BAND).min(y), high: quantile(1.0 - BAND).max(y) }
}

/// Splits a policy into its specification without the price of a second and that price.
fn dial(policy: &str) -> Option<(&str, &str)> {
    policy.split_once(":time_price=")
}
