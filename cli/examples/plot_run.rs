//! Draws a run from its folder: the loss over time, and who got how many tasks.
//!
//! cargo run --release --example plot_run -- runs/RUN_ID run.svg

use std::error::Error;
use std::fs;
use std::ops::Range;
use std::path::Path;

use plotters::coord::Shift;
use plotters::prelude::*;
use serde_json::Value;

type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;
type Points = Vec<(f64, f64)>;

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [folder, image] = arguments.as_slice() else { return Err("expected RUN_FOLDER IMAGE.svg".into()) };
    let loss = loss(&Path::new(folder).join("metrics.csv"))?;
    let shares = shares(&Path::new(folder).join("events.jsonl"))?;

    let area = SVGBackend::new(image, (960, 360)).into_drawing_area();
    area.fill(&WHITE)?;
    let (left, right) = area.split_horizontally(480);
    draw(&left, "loss (nats)", "time (s)", "training loss", &[("", loss)])?;
    let shares: Vec<(String, Points)> =
        shares.into_iter().enumerate().map(|(slot, points)| (format!("worker {}", slot + 1), points)).collect();
    let shares: Vec<(&str, Points)> = shares.iter().map(|(name, points)| (name.as_str(), points.clone())).collect();
    draw(&right, "tasks", "iteration", "tasks per iteration", &shares)?;
    area.present()?;
    Ok(())
}

/// (time in seconds, loss in nats) of each iteration.
fn loss(metrics: &Path) -> Result<Points, Box<dyn Error>> {
    let text = fs::read_to_string(metrics)?;
    let rows = text.lines().skip(1).map(|row| {
        let cells: Vec<&str> = row.split(',').collect();
        let [_, time_s, loss, ..] = cells.as_slice() else {
            return Err(format!("{row}: expected more columns").into());
        };
        Ok((time_s.parse()?, loss.parse()?))
    });
    rows.collect()
}

/// (iteration, tasks) of each worker.
fn shares(events: &Path) -> Result<Vec<Points>, Box<dyn Error>> {
    let mut shares: Vec<Points> = Vec::new();
    for line in fs::read_to_string(events)?.lines() {
        let event: Value = serde_json::from_str(line)?;
        if event["event"] != "allocation" {
            continue;
        }
        let list = |key: &str| event[key].as_array().cloned().unwrap_or_default();
        for (worker, tasks) in list("workers").iter().zip(list("allocation")) {
            let slot = worker.as_u64().unwrap_or(1) as usize - 1;
            shares.resize(shares.len().max(slot + 1), Vec::new());
            shares[slot].push((event["iteration"].as_f64().unwrap_or(0.0), tasks.as_f64().unwrap_or(0.0)));
        }
    }
    Ok(shares)
}

fn draw(area: &Area<'_>, y: &str, x: &str, title: &str, series: &[(&str, Points)]) -> Result<(), Box<dyn Error>> {
    let points = || series.iter().flat_map(|(_, points)| points);
    let span = |values: &mut dyn Iterator<Item = f64>| -> Range<f64> {
        0.0..values.fold(0.0_f64, f64::max).max(f64::MIN_POSITIVE) * 1.05
    };
    let (width, height) = (span(&mut points().map(|point| point.0)), span(&mut points().map(|point| point.1)));
    let mut chart = ChartBuilder::on(area)
        .caption(title, ("sans-serif", 18))
        .margin(12)
        .x_label_area_size(36)
        .y_label_area_size(48)
        .build_cartesian_2d(width, height)?;
    chart.configure_mesh().x_desc(x).y_desc(y).light_line_style(WHITE).label_style(("sans-serif", 13)).draw()?;
    for (index, (name, points)) in series.iter().enumerate() {
        let color = Palette99::pick(index).stroke_width(2);
        let line = chart.draw_series(LineSeries::new(points.iter().copied(), color))?;
        if !name.is_empty() {
            line.label(*name).legend(move |(x, y)| PathElement::new([(x, y), (x + 16, y)], color));
        }
    }
    if series.len() > 1 {
        chart.configure_series_labels().background_style(WHITE.mix(0.8)).border_style(BLACK.mix(0.3)).draw()?;
    }
    Ok(())
}
