//! Colours that colour-blind readers can distinguish, and shapes for series of the same colour.

use plotters::style::RGBColor;

/// The hues of Okabe and Ito, strongest first, with a grey in place of their yellow, which is faint on white. Their lightness is changed
/// because their green, pink and grey look the same to readers who cannot see green.
const COLOURS: [(u8, u8, u8); 8] = [
    (0, 80, 150),
    (200, 80, 0),
    (20, 150, 90),
    (120, 45, 95),
    (230, 160, 0),
    (60, 190, 240),
    (0, 0, 0),
    (165, 165, 165),
];

/// The Viridis palette at five points. Its lightness changes evenly, even in greyscale print.
const RAMP: [(u8, u8, u8); 5] = [(68, 1, 84), (59, 82, 139), (33, 145, 140), (94, 201, 98), (253, 231, 37)];
/// The largest number of series with a legend row each; more are distinguished by their place on a ramp.
const MOST_ROWS: usize = 20;

/// A mark that distinguishes series of the same colour.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Shape {
    Circle,
    Square,
    Triangle,
    Diamond,
}

/// The largest number of areas, each with a colour of its own.
pub(crate) const MOST_AREAS: usize = COLOURS.len();

/// The colours and shapes for a number of series.
#[derive(Clone, Debug)]
pub(crate) struct Palette {
    /// The place of each series in the order of colours.
    places: Vec<usize>,
    /// Whether the colours run along a ramp.
    pub(crate) ramp: bool,
}

impl Palette {
    /// Returns the palette for lines, which have markers where colours repeat.
    pub(crate) fn of_lines(series: usize) -> Self {
        Self { places: (0..series).collect(), ramp: series > MOST_ROWS }
    }

    /// Returns the palette for lines of which those with a place in `order` look the same in all figures with that order.
    pub(crate) fn in_order<'a>(names: impl ExactSizeIterator<Item = &'a str>, order: &[&str]) -> Self {
        let alone = Self::of_lines(names.len());
        let places: Option<Vec<usize>> = names.map(|name| order.iter().position(|other| *other == name)).collect();
        match places.filter(|_| order.len() <= MOST_ROWS) {
            Some(places) => Self { places, ramp: false },
            None => alone,
        }
    }

    /// Returns the palette for at most [`MOST_AREAS`] areas, which differ only by colour.
    pub(crate) fn of_areas(series: usize) -> Self {
        Self { places: (0..series).collect(), ramp: false }
    }

    pub(crate) fn colour(&self, index: usize) -> RGBColor {
        let (red, green, blue) = if self.ramp {
            ramp(index as f64 / (self.places.len().max(2) - 1) as f64)
        } else {
            COLOURS[self.places[index] % COLOURS.len()]
        };
        RGBColor(red, green, blue)
    }

    /// Returns the shape of a line's markers; `None` for the first line of each colour, and on a ramp.
    pub(crate) fn marker(&self, index: usize) -> Option<Shape> {
        const SHAPES: [Option<Shape>; 3] = [None, Some(Shape::Circle), Some(Shape::Square)];
        if self.ramp { None } else { SHAPES[(self.places[index] / COLOURS.len()).min(2)] }
    }

    /// Returns the shape of a curve's marks. The first four curves have distinct shapes, and so have curves of the same colour.
    pub(crate) fn shape(&self, index: usize) -> Shape {
        let index = self.places[index];
        let round = index / COLOURS.len();
        [Shape::Circle, Shape::Square, Shape::Triangle, Shape::Diamond][(index + round) % 4]
    }
}

fn ramp(part: f64) -> (u8, u8, u8) {
    let along = part.clamp(0.0, 1.0) * (RAMP.len() - 1) as f64;
    let from = (along as usize).min(RAMP.len() - 2);
    let mix = |a: u8, b: u8| (f64::from(a) + (f64::from(b) - f64::from(a)) * (along - from as f64)).round() as u8;
    let (a, b) = (RAMP[from], RAMP[from + 1]);
    (mix(a.0, b.0), mix(a.1, b.1), mix(a.2, b.2))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_two_series_and_no_two_marks_look_the_same() {
        for count in [1, 8, 9, 20, 51] {
            let palette = Palette::of_lines(count);
            let lines: Vec<_> = (0..count).map(|k| (palette.colour(k), palette.marker(k))).collect();
            let marks = (0..count).map(|k| (palette.colour(k), Some(palette.shape(k)))).collect();
            for (looks, k) in [lines, marks].iter().flat_map(|looks| (0..count).map(move |k| (looks, k))) {
                assert!(!looks[..k].contains(&looks[k]), "{count}: {k}");
            }
        }
    }

    /// Returns a colour in CIE L*a*b* (D65), as readers see it whose sight is this matrix on linear RGB.
    fn seen([red, green, blue]: [[f64; 3]; 3], (r, g, b): (u8, u8, u8)) -> [f64; 3] {
        let dot = |row: [f64; 3], of: [f64; 3]| row.iter().zip(of).map(|(a, b)| a * b).sum::<f64>();
        let rgb = [r, g, b].map(|level| (f64::from(level) / 255.0).powf(2.2));
        let rgb = [red, green, blue].map(|row| dot(row, rgb).clamp(0.0, 1.0));
        let [x, y, z] = [[0.4339, 0.3762, 0.1899], [0.2126, 0.7152, 0.0722], [0.0177, 0.1095, 0.8728]]
            .map(|row| dot(row, rgb))
            .map(|share| if share > 0.008_856 { share.cbrt() } else { 7.787 * share + 16.0 / 116.0 });
        [116.0 * y - 16.0, 500.0 * (x - y), 200.0 * (y - z)]
    }

    /// Okabe and Ito's green and a middle grey differ by 9 for readers who cannot see green. The matrices are those of Machado, Oliveira
    /// and Fernandes, "A physiologically-based model for simulation of color vision deficiency", IEEE TVCG 2009, of severity 1.
    #[test]
    fn colour_blind_readers_see_different_colours() {
        const ALL: [[f64; 3]; 3] = [[1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 1.0]];
        const NO_RED: [[f64; 3]; 3] = [[0.152, 1.053, -0.205], [0.115, 0.786, 0.099], [-0.004, -0.048, 1.052]];
        const NO_GREEN: [[f64; 3]; 3] = [[0.367, 0.861, -0.228], [0.280, 0.673, 0.047], [-0.012, 0.043, 0.969]];
        const NO_BLUE: [[f64; 3]; 3] = [[1.256, -0.077, -0.179], [-0.078, 0.931, 0.148], [0.005, 0.691, 0.304]];
        for sight in [ALL, NO_RED, NO_GREEN, NO_BLUE] {
            for (at, a) in COLOURS.into_iter().enumerate() {
                for b in &COLOURS[..at] {
                    let squares = seen(sight, a).into_iter().zip(seen(sight, *b)).map(|(a, b)| (a - b).powi(2));
                    let difference = squares.sum::<f64>().sqrt();
                    assert!(difference > 20.0, "{a:?} and {b:?} under {sight:?}: {difference:.1}");
                }
            }
        }
    }

    #[test]
    fn a_name_looks_the_same_in_all_figures_of_a_report() {
        let order = ["a", "b", "c"];
        let (all, some) =
            (Palette::in_order(order.into_iter(), &order), Palette::in_order(["c", "b"].into_iter(), &order));
        assert_eq!((some.colour(0), some.colour(1)), (all.colour(2), all.colour(1)));
        assert_eq!((some.shape(0), some.marker(0)), (all.shape(2), all.marker(2)));
        let alone = Palette::in_order(["c", "new"].into_iter(), &order);
        assert_eq!(alone.colour(0), all.colour(0), "a figure of other series has its own order");
    }
}
