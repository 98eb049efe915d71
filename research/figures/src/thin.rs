//! Shortens long series without losing their extremes.

use crate::Point;

/// Keeps the points of each of `columns` equal intervals of x with the extremes of y, low and high, so that spikes and bands keep their
/// height. The points must be finite and in the order of x. `place` maps x to its place, so that a log axis is divided evenly.
pub(crate) fn thin(points: &[Point], columns: usize, place: impl Fn(f64) -> f64) -> Vec<Point> {
    let (Some(first), Some(last)) = (points.first(), points.last()) else { return Vec::new() };
    let (start, span) = (place(first.x), place(last.x) - place(first.x));
    let column = |point: &Point| match span {
        0.0 => 0,
        _ => (((place(point.x) - start) / span * columns as f64) as usize).min(columns - 1),
    };
    let mut kept: Vec<Point> = points.chunk_by(|a, b| column(a) == column(b)).flat_map(extremes).collect();
    if kept.first() != Some(first) {
        kept.insert(0, *first);
    }
    if kept.last() != Some(last) {
        kept.push(*last);
    }
    kept
}

fn extremes(points: &[Point]) -> Vec<Point> {
    let mut kept = [0; 4];
    for (index, point) in points.iter().enumerate() {
        let values: [fn(&Point) -> f64; 4] = [|p| p.y, |p| -p.y, |p| p.low, |p| -p.high];
        for (best, value) in kept.iter_mut().zip(values) {
            if value(point) < value(&points[*best]) {
                *best = index;
            }
        }
    }
    kept.sort_unstable();
    kept.chunk_by(|a, b| a == b).map(|same| points[same[0]]).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn extremes_and_ends_survive() {
        let mut points: Vec<Point> = (0..1_000_000).map(|k| Point::new(f64::from(k), f64::from(k % 10))).collect();
        points[123_456].y = 1e6;
        points[654_321].low = -1e6;
        let kept = thin(&points, 400, |x| x);
        assert!((800..1_200).contains(&kept.len()), "{}", kept.len());
        assert!(kept.contains(&points[123_456]) && kept.contains(&points[654_321]));
        assert_eq!((kept.first(), kept.last()), (points.first(), points.last()));
        assert!(kept.is_sorted_by(|a, b| a.x <= b.x));
    }

    #[test]
    fn a_log_axis_keeps_its_early_points() {
        let points: Vec<Point> = (1..100_000).map(|k| Point::new(f64::from(k), 1.0 / f64::from(k))).collect();
        let kept = thin(&points, 100, f64::log10);
        assert!(kept.iter().filter(|point| point.x < 100.0).count() > 20);
    }
}
