//! Self-contained pages of text, tables and figures, without scripts or links.

use std::fmt::Write;
use std::path::Path;

use crate::{Figure, FigureError, Plot, axis, csv, draw, figure};

const STYLE: &str = include_str!("style.css");
/// The largest number of data rows under one figure, for all series together: more would make the page slow on a phone.
const MOST_ROWS: usize = 2_000;

/// A page of results.
#[derive(Clone, Debug, PartialEq)]
pub struct Report {
    /// The heading.
    pub title: String,
    /// The first paragraphs.
    pub intro: Vec<String>,
    /// The tables, which precede the figures.
    pub tables: Vec<Table>,
    /// The figures, each with its caption and its data.
    pub figures: Vec<Figure>,
}

/// A table of a report. A column whose cells are all numbers is right-aligned.
#[derive(Clone, Debug, PartialEq)]
pub struct Table {
    /// The title above the table.
    pub title: String,
    /// The names of the columns, with their units.
    pub header: Vec<String>,
    /// The cells, row by row.
    pub rows: Vec<Vec<String>>,
}

impl Report {
    /// Renders the page as HTML.
    pub fn html(&self) -> Result<String, FigureError> {
        let title = escape(&self.title);
        let mut page = format!(
            "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
             <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
             <title>{title}</title>\n<style>\n{STYLE}</style>\n</head>\n<body>\n<main>\n<h1>{title}</h1>\n"
        );
        for paragraph in &self.intro {
            let _ = writeln!(page, "<p>{}</p>", escape(paragraph));
        }
        for table in &self.tables {
            page.push_str(&table.html());
        }
        let order = self.order();
        for figure in &self.figures {
            page.push_str(&figure_html(figure, &order)?);
        }
        page.push_str("</main>\n</body>\n</html>\n");
        Ok(page)
    }

    /// Writes `report.html`, with the files of every figure next to it.
    pub fn write(&self, folder: &Path) -> Result<(), FigureError> {
        let order = self.order();
        for figure in &self.figures {
            figure.write(folder, &order)?;
        }
        figure::write_file(folder, "report.html", self.html()?.as_bytes())
    }

    /// Returns the names of lines and curves, each once: a policy has the same colour in all figures.
    fn order(&self) -> Vec<&str> {
        let mut order = Vec::new();
        for figure in self.figures.iter().filter(|figure| !matches!(figure.plot, Plot::Stacked(_))) {
            for (name, _) in figure.sizes() {
                if !order.contains(&name) {
                    order.push(name);
                }
            }
        }
        order
    }
}

impl Table {
    fn html(&self) -> String {
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

fn figure_html(figure: &Figure, order: &[&str]) -> Result<String, FigureError> {
    let sizes = figure.sizes();
    let data = csv::text(figure, MOST_ROWS / sizes.len().max(1));
    let (rows, points) = (data.lines().count() - 1, sizes.iter().map(|(_, size)| size).sum::<usize>());
    let count = |count: usize| axis::with_commas(&count.to_string());
    let left_out = if points > rows { format!(" of {}", count(points)) } else { String::new() };
    let summary = format!("{}{left_out} points", count(rows));
    Ok(format!(
        "<figure>\n<div class=\"plot\">{}</div>\n<figcaption>{}</figcaption>\n\
         <details><summary>Data: {summary}</summary><pre>{}</pre></details>\n</figure>\n",
        draw::svg(figure, order)?,
        escape(&figure.caption),
        escape(&data)
    ))
}

/// Escapes text for a page or an attribute. Characters that are not allowed in documents become spaces.
pub(crate) fn escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            '\'' => escaped.push_str("&#39;"),
            '\n' => escaped.push(c),
            _ => escaped.push(if c.is_control() { ' ' } else { c }),
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn markup_becomes_text() {
        assert_eq!(escape("<a href='x'>\"&\"\u{0}</a>"), "&lt;a href=&#39;x&#39;&gt;&quot;&amp;&quot; &lt;/a&gt;");
    }

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
