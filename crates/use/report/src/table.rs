//! Text tables: columns, alignment, width.
use crate::units;

/// How reports are printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Style {
    /// Columns to print in.
    pub width: usize,
    /// Whether the terminal shows colours.
    pub color: bool,
}

impl Default for Style {
    fn default() -> Style {
        Style {
            width: 100,
            color: false,
        }
    }
}

impl Style {
    /// `text` as a heading.
    pub fn heading(self, text: &str) -> String {
        if self.color {
            format!("\x1b[1m{text}\x1b[0m")
        } else {
            text.to_string()
        }
    }

    /// `text` as a heading that may be longer than a line.
    pub fn headline(self, text: &str) -> String {
        let lines = units::wrapped(text, self.width);
        let lines: Vec<String> = lines.iter().map(|l| self.heading(l)).collect();
        lines.join("\n")
    }

    /// `text` made to stand back.
    pub fn faint(self, text: &str) -> String {
        if self.color {
            format!("\x1b[2m{text}\x1b[0m")
        } else {
            text.to_string()
        }
    }
}

/// How a column's cells stand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Align {
    /// Text.
    Left,
    /// Numbers.
    Right,
    /// Text that goes on in a second line, from 8 characters and the heading's on, where the table is too wide.
    Wrap,
}

/// Cells in aligned columns, two blanks apart.
#[derive(Clone, Debug)]
pub struct Table {
    columns: Vec<(String, Align)>,
    rows: Vec<Vec<String>>,
}

impl Table {
    /// A table with these columns.
    pub fn new(columns: &[(&str, Align)]) -> Table {
        Table {
            columns: columns.iter().map(|(n, a)| (n.to_string(), *a)).collect(),
            rows: Vec::new(),
        }
    }

    /// Adds a row; missing cells are empty.
    pub fn row(&mut self, cells: Vec<String>) {
        self.rows.push(cells);
    }

    /// Number of rows.
    pub fn len(&self) -> usize {
        self.rows.len()
    }

    /// True when there are no rows.
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// The table as lines, each ended by a line feed.
    pub fn render(&self, style: Style) -> String {
        let cell = |r: &'_ Vec<String>, c: usize| r.get(c).map_or(0, |s| s.chars().count());
        let mut widths: Vec<usize> = (0..self.columns.len())
            .map(|c| {
                self.rows
                    .iter()
                    .map(|r| cell(r, c))
                    .max()
                    .unwrap_or(0)
                    .max(self.columns[c].0.chars().count())
            })
            .collect();
        let gaps = 2 * self.columns.len().saturating_sub(1);
        while widths.iter().sum::<usize>() + gaps > style.width {
            let widest = (0..widths.len())
                .filter(|&c| {
                    let (head, align) = &self.columns[c];
                    *align == Align::Wrap && widths[c] > head.chars().count().max(8)
                })
                .max_by_key(|&c| widths[c]);
            match widest {
                Some(c) => widths[c] -= 1,
                None => break,
            }
        }
        let mut out = String::new();
        let heads: Vec<&str> = self.columns.iter().map(|c| c.0.as_str()).collect();
        for line in self.lines(&heads, &widths) {
            out.push_str(&style.heading(&line));
            out.push('\n');
        }
        for r in &self.rows {
            let cells: Vec<&str> = r.iter().map(String::as_str).collect();
            for line in self.lines(&cells, &widths) {
                out.push_str(&line);
                out.push('\n');
            }
        }
        out
    }

    /// A row as lines: as many as its longest cell has.
    fn lines(&self, cells: &[&str], widths: &[usize]) -> Vec<String> {
        let broken: Vec<Vec<String>> = widths
            .iter()
            .enumerate()
            .map(|(c, width)| units::broken(cells.get(c).unwrap_or(&""), *width))
            .collect();
        let height = broken.iter().map(Vec::len).max().unwrap_or(1).max(1);
        let line = |n: usize| {
            let mut text = String::new();
            for (c, (_, align)) in self.columns.iter().enumerate() {
                if c > 0 {
                    text.push_str("  ");
                }
                let s = broken[c].get(n).map_or("", String::as_str);
                let pad = widths[c].saturating_sub(s.chars().count());
                match align {
                    Align::Right => text.extend([" ".repeat(pad).as_str(), s]),
                    _ => text.extend([s, " ".repeat(pad).as_str()]),
                }
            }
            text.truncate(text.trim_end().len());
            text
        };
        (0..height).map(line).collect()
    }
}
