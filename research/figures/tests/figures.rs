//! Tests of figures and reports through the public interface.

use std::fs;

use ata_figures::{Axis, Curve, Figure, Mark, Plot, Point, Report, Scale, Series, Table};

fn figure(name: &str, x: Axis, y: Axis, plot: Plot) -> Figure {
    let (title, caption) = ("Loss & <time>".to_owned(), "Five \"seeds\".".to_owned());
    Figure { name: name.into(), title, caption, x, y, plot }
}

/// Returns decaying series with bands.
fn series(count: usize, points: u32) -> Vec<Series> {
    let point = |rate: f64, x: f64| {
        let y = (-rate * x).exp();
        Point { x, y, low: 0.8 * y, high: 1.2 * y }
    };
    let one = |index: usize| {
        let rate = 0.01 * (index + 1) as f64;
        let points = (1..=points).map(|x| point(rate, f64::from(x))).collect();
        Series { name: format!("policy {index}"), points }
    };
    (0..count).map(one).collect()
}

fn lines(count: usize) -> Figure {
    figure("lines", Axis::linear("virtual time (s)"), Axis::log("loss (nats)"), Plot::Lines(series(count, 100)))
}

fn stacked(count: usize) -> Figure {
    figure("stacked", Axis::linear("iteration"), Axis::linear("tasks"), Plot::Stacked(series(count, 100)))
}

fn frontier() -> Figure {
    let mark = |label: &str, x, y| Mark { label: label.into(), point: Point::new(x, y) };
    let curves = vec![
        Curve { name: "ATA".into(), marks: vec![mark("n = 17", 1.0, 9.0), mark("n = 51", 4.0, 3.0)] },
        Curve { name: "GTA".into(), marks: vec![mark("n = 102", 2.0, 8.0)] },
    ];
    figure("frontier", Axis::linear("worker time (s)"), Axis::linear("runtime (s)"), Plot::Frontier(curves))
}

#[test]
fn every_worker_of_a_stack_is_there() {
    let svg = stacked(3).svg().unwrap();
    for colour in ["#005096", "#C85000", "#14965A"] {
        assert!(svg.contains(&format!("fill=\"{colour}\"")), "{colour}");
    }
}

#[test]
fn an_svg_has_its_labels_its_lines_and_its_bands() {
    let svg = lines(5).svg().unwrap();
    for text in ["virtual time (s)", "loss (nats)", "Loss &amp; &lt;time&gt;", "policy 0", "policy 4", "sans-serif"] {
        assert!(svg.contains(text), "{text}");
    }
    assert_eq!(svg.matches("<polygon").count(), 5);
    let drawn = svg.lines().filter(|line| line.starts_with("<polyline") && line.matches(',').count() >= 100).count();
    assert_eq!(drawn, 5);
    assert!(svg.starts_with("<svg ") && svg.trim_end().ends_with("</svg>"));
}

#[test]
fn a_frontier_names_points_and_curves() {
    let svg = frontier().svg().unwrap();
    for text in ["n = 17", "n = 51", "n = 102", "ATA", "GTA"] {
        assert!(svg.contains(text), "{text}");
    }
}

#[test]
fn a_long_series_is_drawn_short() {
    let figure = figure("long", Axis::log("k"), Axis::linear("y"), Plot::Lines(series(1, 1_000_000)));
    assert!(figure.svg().unwrap().len() < 100_000);
}

#[test]
fn degenerate_data_are_drawn() {
    let values = [0.0, 1.0, -1.0, 1e300, 1e-300, f64::NAN, f64::INFINITY];
    for value in values {
        for points in [vec![Point::new(value, value)], vec![Point::new(1.0, 1.0), Point::new(value, value)]] {
            for scale in [Scale::Linear, Scale::Log] {
                check_drawn(&points, scale);
            }
        }
    }
}

/// Draws the points in every way; the only permitted error is that there is nothing to draw.
fn check_drawn(points: &[Point], scale: Scale) {
    let series = vec![Series { name: "a".into(), points: points.to_vec() }];
    let marks = points.iter().map(|&point| Mark { label: "here".into(), point }).collect();
    let axis = |scale| Axis { label: "y".into(), scale };
    let figures = [
        figure("lines", axis(scale), axis(scale), Plot::Lines(series.clone())),
        figure("stacked", axis(scale), axis(Scale::Linear), Plot::Stacked(series)),
        figure("frontier", axis(scale), axis(scale), Plot::Frontier(vec![Curve { name: "a".into(), marks }])),
    ];
    for figure in figures {
        match figure.svg() {
            Ok(svg) => assert!(!svg.contains("NaN") && svg.contains("</svg>"), "{points:?} {scale:?}"),
            Err(error) => assert!(error.to_string().contains("no point can be drawn"), "{points:?} {scale:?}: {error}"),
        }
    }
}

#[test]
fn what_cannot_be_drawn_is_said() {
    let with = |plot| figure("f", Axis::linear("x"), Axis::log("y"), plot).svg().unwrap_err().to_string();
    let series = |points| vec![Series { name: "ATA".into(), points }];
    assert!(with(Plot::Lines(Vec::new())).contains("no series"));
    assert!(with(Plot::Lines(series(Vec::new()))).contains("\"ATA\" has no points"));
    assert!(with(Plot::Lines(series(vec![Point::new(1.0, 0.0)]))).contains("above 0"));
    assert!(with(Plot::Stacked(series(vec![Point::new(1.0, 1.0)]))).contains("linear y axis"));
    let unnamed = Figure { name: "../f".into(), ..lines(1) };
    assert!(unnamed.svg().unwrap_err().to_string().contains("expected a file stem"));
}

#[test]
fn a_line_without_a_place_is_named_all_the_same() {
    let mut all = series(1, 10);
    all.push(Series { name: "optimal".into(), points: vec![Point::new(1.0, 0.0)] });
    let svg = figure("f", Axis::linear("x"), Axis::log("regret (s)"), Plot::Lines(all)).svg().unwrap();
    assert!(svg.contains("optimal (off scale)"));
}

#[test]
fn a_report_is_complete_in_itself() {
    let table = Table {
        title: "Results".into(),
        header: vec!["policy".into(), "time (s)".into()],
        rows: vec![vec!["<b>ATA</b>".into(), "1.5".into()]],
    };
    let report = Report {
        title: "Policies & <workers>".into(),
        intro: vec!["a < b".into()],
        tables: vec![table],
        figures: vec![lines(5), stacked(51), frontier()],
    };
    let folder = tempfile::tempdir().unwrap();
    report.write(&folder.path().join("new")).unwrap();
    let read = |name: &str| fs::read_to_string(folder.path().join("new").join(name)).unwrap();
    let html = read("report.html");

    let without_names_of_formats = html.replace("xmlns=\"http://www.w3.org/2000/svg\"", "");
    for reference in ["http", "href", "src=", "url(", "@import", "<script", "<link"] {
        assert!(!without_names_of_formats.contains(reference), "{reference}");
    }
    assert_eq!(html.matches("<svg").count(), 3);
    assert_eq!(html.matches("<details").count(), 3);
    assert!(html.contains("Policies &amp; &lt;workers&gt;") && html.contains("&lt;b&gt;ATA&lt;/b&gt;"));
    assert!(html.contains("<p>a &lt; b</p>") && html.contains("Five &quot;seeds&quot;."));
    assert!(html.len() < 1_000_000, "{} bytes", html.len());
    assert_eq!(read("lines.svg"), lines(5).svg().unwrap());
    let csv = read("frontier.csv");
    assert_eq!((csv.lines().count(), csv.lines().nth(1)), (4, Some("ATA,n = 17,1,9,9,9")));
}
