//! Tables for the terminal.

use ata_figures::Table;

use crate::escape::escaped;

/// Renders the first `limit` rows, and the number of omitted rows. Names are left-aligned, numbers right-aligned. All text is escaped.
pub fn render_table(table: &Table, limit: usize) -> String {
    let rows = &table.rows[..limit.min(table.rows.len())];
    let line = |line: &Vec<String>| line.iter().map(|cell| escaped(cell).into_owned()).collect();
    let lines: Vec<Vec<String>> = std::iter::once(&table.header).chain(rows).map(line).collect();
    let width = |column: usize| lines.iter().map(|line| line[column].chars().count()).max().unwrap_or(0);
    let widths: Vec<usize> = (0..table.header.len()).map(width).collect();
    let mut text = format!("\n{}\n\n", escaped(&table.title));
    for line in lines {
        let cells = line.iter().zip(&widths).enumerate().map(|(column, (cell, &width))| {
            if column == 0 { format!("{cell:<width$}") } else { format!("{cell:>width$}") }
        });
        text.push_str(cells.collect::<Vec<_>>().join("   ").trim_end());
        text.push('\n');
    }
    let more = match table.rows.len() - rows.len() {
        0 => String::new(),
        more => format!("… and {more} more\n"),
    };
    text + &more
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_aligned_and_long_tables_cut() {
        let cells = |cells: [&str; 2]| cells.map(String::from).to_vec();
        let table = Table {
            title: "Costs".into(),
            header: cells(["policy", "time"]),
            rows: vec![cells(["uniform", "1 s"]), cells(["gta", "10.5 s"]), cells(["fta", "1 s"])],
        };
        let expected = "\nCosts\n\npolicy      time\nuniform      1 s\ngta       10.5 s\n… and 1 more\n";
        assert_eq!(render_table(&table, 2), expected);
        assert!(render_table(&table, 3).ends_with("fta          1 s\n"));
    }
}
