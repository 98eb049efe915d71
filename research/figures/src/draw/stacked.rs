//! Draws stacked shares of a whole.

use std::ops::Range;

use super::Scene;
use super::canvas::Canvas;
use super::legend::{Legend, Swatch};
use crate::axis::Margin;
use crate::palette::{MOST_AREAS, Palette};
use crate::{FigureError, Scale, Series};

/// The number of columns: an area shows no detail finer than three pixels, and each column adds a corner to every series.
const COLUMNS: usize = 250;

/// The sums of the series from the bottom up, at each column.
pub(super) struct Stacked {
    names: Vec<String>,
    palette: Palette,
    columns: Vec<f64>,
    sums: Vec<Vec<f64>>,
}

impl Stacked {
    pub(super) fn of(series: &[Series], scale: Scale) -> Self {
        let grid = Grid::of(series, scale);
        let mut sums: Vec<Vec<f64>> = Vec::with_capacity(series.len());
        for one in series {
            let below = sums.last().cloned().unwrap_or_else(|| vec![0.0; grid.columns.len()]);
            sums.push(below.into_iter().zip(grid.means(one, scale)).map(|(sum, mean)| sum + mean).collect());
        }
        let names: Vec<String> = series.iter().map(|one| one.name.clone()).collect();
        let (names, sums) = largest(names, sums);
        Self { palette: Palette::of_areas(names.len()), names, columns: grid.columns, sums }
    }
}

/// Keeps the series of the largest areas, as many as have a colour, in their order, and puts the others on top as one.
fn largest(names: Vec<String>, sums: Vec<Vec<f64>>) -> (Vec<String>, Vec<Vec<f64>>) {
    let Some(others) = names.len().checked_sub(MOST_AREAS - 1).filter(|others| *others > 1) else {
        return (names, sums);
    };
    let none = vec![0.0; sums[0].len()];
    let below = |at: usize| if at == 0 { &none } else { &sums[at - 1] };
    let shares = |at: usize| sums[at].iter().zip(below(at)).map(|(sum, below)| sum - below);
    let mut order: Vec<usize> = (0..names.len()).collect();
    order.sort_by(|a, b| shares(*b).sum::<f64>().total_cmp(&shares(*a).sum()));
    order.truncate(MOST_AREAS - 1);
    order.sort_unstable();
    let mut kept: Vec<Vec<f64>> = Vec::new();
    for &at in &order {
        let below = kept.last().unwrap_or(&none);
        kept.push(shares(at).zip(below).map(|(share, below)| share + below).collect());
    }
    kept.extend(sums.last().cloned());
    let named = order.into_iter().map(|at| names[at].clone()).chain([format!("{others} others")]);
    (named.collect(), kept)
}

impl Scene for Stacked {
    fn ranges(&self, x: Scale, _y: Scale) -> Option<(Range<f64>, Range<f64>)> {
        let totals = self.sums.last()?.iter().copied().filter(|total| total.is_finite());
        let top = Scale::Linear.range(totals.chain([0.0]), Margin::Line)?.end;
        Some((x.range(self.columns.iter().copied(), Margin::Tight)?, 0.0..top))
    }

    fn legend(&self) -> Legend {
        Legend::of(self.names.clone(), self.palette.clone(), true, |_, _| Swatch::Area)
    }

    /// Draws from the whole down to the first series, each over the previous one, because adjacent areas would show a seam.
    fn draw(&self, canvas: &Canvas<'_>) -> Result<(), FigureError> {
        let (first, last) = (self.columns[0], self.columns[self.columns.len() - 1]);
        // A single column becomes a bar in the middle of the frame.
        let half = if first == last { (canvas.x.range.end - canvas.x.range.start) / 4.0 } else { 0.0 };
        let (first, last) = (first - half, last + half);
        for (index, sums) in self.sums.iter().enumerate().rev() {
            let mut corners = vec![canvas.at(first, 0.0), canvas.at(first, sums[0])];
            corners.extend(self.columns.iter().zip(sums).map(|(x, sum)| canvas.at(*x, *sum)));
            corners.extend([canvas.at(last, sums[sums.len() - 1]), canvas.at(last, 0.0)]);
            corners.dedup();
            canvas.fill(corners, self.palette.colour(index), 1.0)?;
        }
        Ok(())
    }
}

/// The x places of all series, grouped into columns.
struct Grid {
    places: Vec<f64>,
    /// The number of places in each column.
    sizes: Vec<usize>,
    /// The middle of each column, except that the first and the last have their outer ends.
    columns: Vec<f64>,
}

impl Grid {
    fn of(series: &[Series], scale: Scale) -> Self {
        let mut places: Vec<f64> = Vec::new();
        for one in series {
            places.extend(one.points.iter().filter_map(|point| scale.place(point.x)));
            places.sort_by(f64::total_cmp);
            places.dedup();
        }
        let (start, span) = match places.as_slice() {
            [first, .., last] => (*first, last - first),
            _ => (0.0, 1.0),
        };
        let column = |place: f64| (((place - start) / span * COLUMNS as f64) as usize).min(COLUMNS - 1);
        let dense = places.len() > COLUMNS;
        let gathered = places.chunk_by(|a, b| dense && column(*a) == column(*b));
        let (sizes, mut columns): (Vec<usize>, Vec<f64>) =
            gathered.map(|g| (g.len(), f64::midpoint(g[0], g[g.len() - 1]))).unzip();
        if let [first, .., last] = columns.as_mut_slice() {
            (*first, *last) = (start, start + span);
        }
        Self { places, sizes, columns }
    }

    /// Returns the mean of a series over the places of each column. The series counts as 0 where it has no point.
    fn means(&self, series: &Series, scale: Scale) -> Vec<f64> {
        let mut values = vec![0.0; self.places.len()];
        for point in &series.points {
            let at = scale.place(point.x).and_then(|x| self.places.binary_search_by(|place| place.total_cmp(&x)).ok());
            if let (Some(index), Some(share)) = (at, Scale::Linear.place(point.y)) {
                values[index] = share.max(0.0);
            }
        }
        let mut rest = values.as_slice();
        let mean = |&size: &usize| {
            let (column, after) = rest.split_at(size);
            rest = after;
            column.iter().sum::<f64>() / size as f64
        };
        self.sizes.iter().map(mean).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Point;

    fn series(name: &str, points: impl Iterator<Item = (f64, f64)>) -> Series {
        Series { name: name.into(), points: points.map(|(x, y)| Point::new(x, y)).collect() }
    }

    #[test]
    fn a_series_counts_zero_where_only_others_have_a_point() {
        let both = [series("a", [(1.0, 2.0), (2.0, 3.0)].into_iter()), series("b", [(2.0, 4.0)].into_iter())];
        let stacked = Stacked::of(&both, Scale::Linear);
        assert_eq!(stacked.columns, [1.0, 2.0]);
        assert_eq!(stacked.sums, [[2.0, 3.0], [2.0, 7.0]]);
    }

    /// Of many series, the seven largest keep their order and colours, and the total stays.
    #[test]
    fn small_series_are_drawn_as_one() {
        let share = |k: u32| if k % 5 == 3 { 10.0 } else { 0.5 };
        let many: Vec<Series> =
            (0..33).map(|k| series(&format!("w{k}"), [(1.0, share(k)), (2.0, share(k))].into_iter())).collect();
        let stacked = Stacked::of(&many, Scale::Linear);
        assert_eq!(
            stacked.names,
            ["w0", "w3", "w8", "w13", "w18", "w23", "w28", "26 others"].map(String::from).to_vec()
        );
        assert_eq!(stacked.sums[7], [73.5, 73.5]);
        let colours: Vec<_> = (0..8).map(|at| stacked.palette.colour(at)).collect();
        assert!((0..8).all(|at| !colours[..at].contains(&colours[at])));
    }

    #[test]
    fn dense_columns_keep_the_total() {
        let shares = |k: u32| f64::from(k % 3);
        let many = [
            series("a", (0..90_000).map(|k| (f64::from(k), shares(k)))),
            series("b", (0..90_000).map(|k| (f64::from(k), 2.0 - shares(k)))),
        ];
        let stacked = Stacked::of(&many, Scale::Linear);
        assert_eq!(stacked.columns.len(), COLUMNS);
        assert!(stacked.sums[1].iter().all(|total| (total - 2.0).abs() < 1e-9));
        assert!(stacked.sums[0].iter().all(|mean| (mean - 1.0).abs() < 0.01));
    }
}
