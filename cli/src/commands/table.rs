//! Tables as kubectl draws them: no borders, three spaces between columns.

use comfy_table::Table;
use comfy_table::presets::NOTHING;

/// Draws rows under a header. Pure.
pub fn draw(header: &[&str], rows: &[Vec<String>]) -> String {
    let mut table = Table::new();
    table.load_style(NOTHING).force_no_tty();
    table.set_header(header);
    for row in rows {
        // A cell is one line: what others wrote must not look like a row of ours.
        table.add_row(row.iter().map(|cell| cell.replace(['\n', '\r', '\t'], " ")));
    }
    for column in table.column_iter_mut() {
        column.set_padding((0, 3));
    }
    let lines: Vec<String> = table.lines().map(|line| line.trim_end().to_owned()).collect();
    format!("{}\n", lines.join("\n"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_as_wide_as_their_longest_cell() {
        let rows = [vec!["a".to_owned(), "1".to_owned()], vec!["long-name".to_owned(), "x\ny".to_owned()]];
        assert_eq!(draw(&["NAME", "N"], &rows), "NAME        N\na           1\nlong-name   x y\n");
    }
}
