//! The text of a drawing: its font, its width, and how it is fitted into a space.

use std::sync::OnceLock;

use plotters::style::text_anchor::{HPos, Pos, VPos};
use plotters::style::{Color, FontStyle, IntoFont, RGBColor, TextStyle, register_font};

use crate::FigureError;
use crate::draw::px;

/// The font family in an SVG, which selects the reader's own font, and the name under which the font for measuring is registered.
const FAMILY: &str = "sans-serif";
/// The ratio of a font's height to its em: the drawing library expects the height, but a size in pixels means the em.
const HEIGHT_PER_EM: f64 = 1.24;

/// Registers the font with the drawing library. It may be called any number of times.
pub(crate) fn register() -> Result<(), FigureError> {
    static REGISTERED: OnceLock<bool> = OnceLock::new();
    let font = epaint_default_fonts::UBUNTU_LIGHT;
    let registered = REGISTERED.get_or_init(|| register_font(FAMILY, FontStyle::Normal, font).is_ok());
    registered.then_some(()).ok_or_else(|| FigureError::Draw("the built-in font cannot be read".into()))
}

pub(crate) fn style(size: f64, colour: RGBColor, (h, v): (HPos, VPos)) -> TextStyle<'static> {
    let font = (FAMILY, px(size * HEIGHT_PER_EM)).into_font();
    font.color(&colour.to_rgba()).pos(Pos::new(h, v))
}

/// Returns the width in CSS pixels of a text of `size` CSS pixels, plus a tenth because the reader's font may be wider.
pub(crate) fn width(text: &str, size: f64) -> f64 {
    let font = (FAMILY, 100.0 * HEIGHT_PER_EM).into_font();
    font.box_size(text).map_or(0.0, |(width, _)| f64::from(width) / 100.0 * size * 1.1)
}

/// Fits text into `room`: shrinks it down to the size `least`, and truncates it if that is not enough.
pub(crate) fn fit(text: &str, size: f64, least: f64, room: f64) -> (String, f64) {
    let text: String = text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
    let size = (size * room / width(&text, size).max(1.0)).clamp(least.min(size), size);
    // The tolerance is for rounding: the size may have been chosen so that the width equals the room.
    if width(&text, size) <= 1.001 * room {
        return (text, size);
    }
    let mut cut = text;
    while !cut.is_empty() && width(&format!("{cut}…"), size) > room {
        cut.pop();
    }
    (format!("{}…", cut.trim_end()), size)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_text_shrinks_and_is_then_cut() {
        register().unwrap();
        assert_eq!(fit("loss", 20.0, 15.0, 200.0), ("loss".into(), 20.0));
        let full = width("averaged regret", 20.0);
        let (text, size) = fit("averaged regret", 20.0, 15.0, 0.9 * full);
        assert!(text == "averaged regret" && (15.0..20.0).contains(&size));
        let (text, size) = fit("averaged regret", 20.0, 15.0, 0.4 * full);
        assert!(text.ends_with('…') && text.len() < 15 && size == 15.0);
        assert_eq!(fit("a\u{1}b", 20.0, 15.0, 200.0).0, "a b");
    }
}
