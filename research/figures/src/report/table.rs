//! Renders tables as HTML.

use std::fmt::Write;

use super::{Table, escape};

impl Table {
    /// Renders the table as a section of the page.
    pub(super) fn html(&self) -> String {
        let columns = self.rows.iter().map(Vec::len).fold(self.header.len(), usize::max);
        let right: Vec<bool> = (0..columns).map(|column| self.is_numeric(column)).collect();
        let row = |cells: &[String], tag: &str| {
            let empty = String::new();
            let cell = |(column, right): (usize, &bool)| {
                let text = escape(cells.get(column).unwrap_or(&empty));
                let class = if *right { " class=\"number\"" } else { "" };
                format!("<{tag}{class}>{text}</{tag}>")
            };
            format!("<tr>{}</tr>\n", right.iter().enumerate().map(cell).collect::<String>())
        };
        let mut html = format!("<section>\n<h2>{}</h2>\n<div class=\"scroll\"><table>\n<thead>\n", escape(&self.title));
        let _ = write!(html, "{}</thead>\n<tbody>\n", row(&self.header, "th"));
        for cells in &self.rows {
            html.push_str(&row(cells, "td"));
        }
        html.push_str("</tbody>\n</table></div>\n</section>\n");
        html
    }

    fn is_numeric(&self, column: usize) -> bool {
        let mut cells = self.rows.iter().filter_map(|row| row.get(column)).filter(|cell| !is_blank(cell)).peekable();
        cells.peek().is_some() && cells.all(|cell| is_number(cell))
    }
}

/// Whether a cell has no value, and so does not determine the alignment of its column.
fn is_blank(cell: &str) -> bool {
    matches!(cell.trim(), "" | "-" | "–" | "—")
}

/// Whether a cell is a number, with an optional sign before it and an optional unit or spread after it.
fn is_number(cell: &str) -> bool {
    let unsigned = cell.trim().trim_start_matches(['+', '-', '−', '±', '~', '≤', '≥', '<', '>', '×', ' ']);
    unsigned.starts_with(|c: char| c.is_ascii_digit()) || matches!(unsigned, "inf" | "NaN" | "∞")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table(rows: &[&[&str]]) -> Table {
        let rows = rows.iter().map(|row| row.iter().map(|&cell| cell.to_owned()).collect()).collect();
        Table { title: "a < b".into(), header: vec!["policy".into(), "time (s)".into()], rows }
    }

    #[test]
    fn numbers_stand_on_the_right() {
        let html = table(&[&["ATA", "−1.5 ± 0.2"], &["GTA", "–"]]).html();
        assert!(html.contains("<th>policy</th><th class=\"number\">time (s)</th>"), "{html}");
        assert!(html.contains("<td>ATA</td><td class=\"number\">−1.5 ± 0.2</td>"), "{html}");
        assert!(html.contains("<h2>a &lt; b</h2>"), "{html}");
    }

    #[test]
    fn short_and_long_rows_are_squared() {
        let html = table(&[&["ATA"], &["GTA", "1", "2"]]).html();
        assert_eq!(html.matches("<td").count(), 6);
        assert_eq!(html.matches("<th").count(), 1 + 3);
    }
}
