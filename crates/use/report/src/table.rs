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

/// Columns to which text that goes on in a second line is narrowed at most.
const NARROW: usize = 8;
/// Blanks before what of a row goes on in further lines.
const FOLDED: usize = 6;

/// Columns that stand in one line, with their widths.
struct Part {
    from: usize,
    indent: usize,
    widths: Vec<usize>,
}

impl Part {
    fn columns(&self) -> std::ops::Range<usize> {
        self.from..self.from + self.widths.len()
    }

    fn width(&self) -> usize {
        self.widths.iter().sum::<usize>() + 2 * self.widths.len().saturating_sub(1)
    }
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

    /// The table as lines, each ended by a line feed. What does not fit the style's width goes on in further lines
    /// under every row, below headings of its own.
    pub fn render(&self, style: Style) -> String {
        let parts = self.parts(style.width);
        let mut out = String::new();
        let heads: Vec<&str> = self.columns.iter().map(|c| c.0.as_str()).collect();
        for line in parts.iter().flat_map(|p| self.lines(&heads, p)) {
            out.push_str(&style.heading(&line));
            out.push('\n');
        }
        for r in &self.rows {
            let cells: Vec<&str> = r.iter().map(String::as_str).collect();
            for part in &parts {
                // A row that ends early, such as one of control flow, has no further lines.
                let empty = part
                    .columns()
                    .all(|c| cells.get(c).is_none_or(|s| s.is_empty()));
                if part.from > 0 && empty {
                    continue;
                }
                for line in self.lines(&cells, part) {
                    out.push_str(&line);
                    out.push('\n');
                }
            }
        }
        out
    }

    /// The columns with their widths, in as few lines as hold them in `width` columns.
    fn parts(&self, width: usize) -> Vec<Part> {
        let whole = self.shrunk(0, self.columns.len(), width);
        if whole.width() <= width || self.columns.len() < 2 {
            return vec![whole];
        }
        let (mut parts, mut from) = (Vec::new(), 0);
        while from < self.columns.len() {
            let indent = if from == 0 { 0 } else { FOLDED };
            let room = width.saturating_sub(indent);
            let mut to = from + 1;
            while to < self.columns.len() && self.shrunk(from, to + 1, room).width() <= room {
                to += 1;
            }
            parts.push(Part {
                indent,
                ..self.shrunk(from, to, room)
            });
            from = to;
        }
        parts
    }

    /// Columns `from..to`, those that may go on in a second line made narrower until all fit `room`.
    fn shrunk(&self, from: usize, to: usize, room: usize) -> Part {
        let head = |c: usize| self.columns[c].0.chars().count();
        let cell = |r: &Vec<String>, c: usize| r.get(c).map_or(0, |s| s.chars().count());
        let widest = |c: usize| self.rows.iter().map(|r| cell(r, c)).max().unwrap_or(0);
        let mut part = Part {
            from,
            indent: 0,
            widths: (from..to).map(|c| widest(c).max(head(c))).collect(),
        };
        while part.width() > room {
            let may = |c: &usize| {
                let least = head(*c).max(NARROW);
                self.columns[*c].1 == Align::Wrap && part.widths[*c - from] > least
            };
            match (from..to).filter(may).max_by_key(|c| part.widths[c - from]) {
                Some(c) => part.widths[c - from] -= 1,
                None => break,
            }
        }
        part
    }

    /// A row as lines: as many as its longest cell has.
    fn lines(&self, cells: &[&str], part: &Part) -> Vec<String> {
        let of = |c: usize, width| units::broken(cells.get(c).unwrap_or(&""), width);
        let broken: Vec<Vec<String>> = part
            .columns()
            .zip(&part.widths)
            .map(|(c, width)| of(c, *width))
            .collect();
        let height = broken.iter().map(Vec::len).max().unwrap_or(1).max(1);
        let line = |n: usize| {
            let mut text = " ".repeat(part.indent);
            for (i, c) in part.columns().enumerate() {
                if i > 0 {
                    text.push_str("  ");
                }
                let s = broken[i].get(n).map_or("", String::as_str);
                let pad = part.widths[i].saturating_sub(s.chars().count());
                match self.columns[c].1 {
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
