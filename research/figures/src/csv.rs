//! The data behind a figure as CSV.

use std::borrow::Cow;
use std::fmt::Write;

use crate::{Figure, Plot, Point, Scale, Series, thin};

/// The most points of a series in a CSV file, for spreadsheets and pages. A longer series is thinned to the extremes of finite points.
pub(crate) const CSV_POINTS: usize = 20_000;

/// Renders the data of a figure, with at most `limit` points per series.
pub(crate) fn text(figure: &Figure, limit: usize) -> String {
    let (x, y) = (cell(&figure.x.label), cell(&figure.y.label));
    let mut text = String::new();
    match &figure.plot {
        Plot::Lines(series) | Plot::Stacked(series) => {
            let _ = writeln!(text, "series,{x},{y},low,high");
            for one in series {
                for point in at_most(one, limit, figure.x.scale).iter() {
                    let _ = writeln!(text, "{},{}", cell(&one.name), row(point));
                }
            }
        }
        Plot::Frontier(curves) => {
            let _ = writeln!(text, "series,label,{x},{y},low,high");
            for curve in curves {
                for mark in &curve.marks {
                    let _ = writeln!(text, "{},{},{}", cell(&curve.name), cell(&mark.label), row(&mark.point));
                }
            }
        }
    }
    text
}

fn at_most(series: &Series, limit: usize, scale: Scale) -> Cow<'_, [Point]> {
    if series.points.len() <= limit {
        return Cow::Borrowed(&series.points);
    }
    let finite = |p: &&Point| [p.y, p.low, p.high].iter().all(|v| v.is_finite()) && scale.place(p.x).is_some();
    let mut points: Vec<Point> = series.points.iter().filter(finite).copied().collect();
    points.sort_by(|a, b| a.x.total_cmp(&b.x));
    let columns = (limit.saturating_sub(2) / 4).max(1);
    Cow::Owned(thin::thin(&points, columns, |x| scale.place(x).unwrap_or(x)))
}

fn row(point: &Point) -> String {
    [point.x, point.y, point.low, point.high].map(number).join(",")
}

/// Formats a number as the shortest text that parses to the same number.
fn number(value: f64) -> String {
    let short = value == 0.0 || !value.is_finite() || (1e-5..1e16).contains(&value.abs());
    if short { value.to_string() } else { format!("{value:e}") }
}

fn cell(text: &str) -> String {
    if text.contains([',', '"', '\n', '\r']) { format!("\"{}\"", text.replace('"', "\"\"")) } else { text.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Axis;

    fn figure(plot: Plot) -> Figure {
        let (x, y) = (Axis::linear("time (s)"), Axis::linear("loss, nats"));
        Figure { name: "f".into(), title: String::new(), caption: String::new(), x, y, plot }
    }

    #[test]
    fn rows_read_back_exactly() {
        let points = vec![Point { x: 0.1, y: 1e-30, low: f64::NAN, high: 1e300 }];
        let figure = figure(Plot::Lines(vec![Series { name: "a \"b\"".into(), points }]));
        assert_eq!(
            text(&figure, CSV_POINTS),
            "series,time (s),\"loss, nats\",low,high\n\"a \"\"b\"\"\",0.1,1e-30,NaN,1e300\n"
        );
    }

    #[test]
    fn long_series_stay_within_the_limit() {
        let points = (0..100_000).map(|k| Point::new(f64::from(k), f64::from(k * 7919 % 1000))).collect();
        let figure = figure(Plot::Lines(vec![Series { name: "a".into(), points }]));
        let rows = text(&figure, 1_000).lines().count() - 1;
        assert!((400..=1_000).contains(&rows), "{rows}");
    }
}
