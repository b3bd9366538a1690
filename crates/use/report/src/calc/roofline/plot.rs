//! The roofline in the terminal: lines in braille dots, marks and names over them.

use super::{RooflineView, rate_label};
use crate::table::Style;
use crate::units;
use std::fmt::Write;

const ROWS: usize = 22;
/// Columns left of the canvas.
const LEFT: usize = 13;

/// Dots of a braille cell by column and row, as the character set numbers them.
const DOTS: [[u32; 4]; 2] = [[0x01, 0x02, 0x04, 0x40], [0x08, 0x10, 0x20, 0x80]];

struct Canvas {
    cols: usize,
    rows: usize,
    dots: Vec<u32>,
    text: Vec<Option<char>>,
}

impl Canvas {
    fn new(cols: usize, rows: usize) -> Canvas {
        Canvas {
            cols,
            rows,
            dots: vec![0; cols * rows],
            text: vec![None; cols * rows],
        }
    }

    /// A dot at a share of the width and height, from the lower left.
    fn dot(&mut self, x: f64, y: f64) {
        let (w, h) = (2 * self.cols, 4 * self.rows);
        let (px, py) = (
            (x * (w - 1) as f64).round(),
            ((1.0 - y) * (h - 1) as f64).round(),
        );
        if px < 0.0 || py < 0.0 || px >= w as f64 || py >= h as f64 {
            return;
        }
        let (px, py) = (px as usize, py as usize);
        self.dots[py / 4 * self.cols + px / 2] |= DOTS[px % 2][py % 4];
    }

    /// The cell of a share of the width and height.
    fn cell(&self, x: f64, y: f64) -> Option<(usize, usize)> {
        if !(0.0..=1.0).contains(&x) || !(0.0..=1.0).contains(&y) {
            return None;
        }
        let c = (x * (self.cols - 1) as f64).round() as usize;
        let r = ((1.0 - y) * (self.rows - 1) as f64).round() as usize;
        Some((r, c))
    }

    /// Writes text from a cell on, unless something is there.
    fn write(&mut self, r: usize, c: usize, text: &str) -> bool {
        let n = text.chars().count();
        if r >= self.rows || c + n > self.cols {
            return false;
        }
        let at = r * self.cols + c;
        if self.text[at..at + n].iter().any(Option::is_some) {
            return false;
        }
        for (slot, ch) in self.text[at..at + n].iter_mut().zip(text.chars()) {
            *slot = Some(ch);
        }
        true
    }

    fn put(&mut self, r: usize, c: usize, ch: char) {
        let slot = &mut self.text[r * self.cols + c];
        if slot.is_none_or(|old| !old.is_alphanumeric() && old != '*') {
            *slot = Some(ch);
        }
    }

    fn line(&self, r: usize) -> String {
        let cells = (0..self.cols).map(|c| {
            let i = r * self.cols + c;
            match (self.text[i], self.dots[i]) {
                (Some(ch), _) => ch,
                (None, 0) => ' ',
                (None, d) => char::from_u32(0x2800 + d).unwrap_or(' '),
            }
        });
        let line: String = cells.collect();
        line.trim_end().to_string()
    }
}

impl RooflineView {
    /// The plot as lines of text.
    pub fn plot(&self, style: Style) -> String {
        let cols = style.width.saturating_sub(LEFT + 1).clamp(30, 160);
        let mut canvas = Canvas::new(cols, ROWS);
        let w = self.window();
        let sx = |x: f64| (x - w.x.0) / (w.x.1 - w.x.0);
        let sy = |y: f64| (y - w.y.0) / (w.y.1 - w.y.0);
        let (top, fastest) = (self.top(), self.fastest());
        let steps = 4 * cols;
        for i in 0..=steps {
            let share = i as f64 / steps as f64;
            let x = 10f64.powf(w.x.0 + share * (w.x.1 - w.x.0));
            for r in &self.roofs {
                // Beyond the main memory: a dotted line.
                if x * r.peak <= top && (r.counts || i % 8 < 2) {
                    canvas.dot(share, sy((x * r.peak).log10()));
                }
            }
            for c in self.ceilings.iter().filter(|c| x * fastest >= c.rate) {
                canvas.dot(share, sy(c.rate.log10()));
            }
        }
        for p in self.places() {
            if let Some((r, c)) = canvas.cell(sx(p.x).clamp(0.0, 1.0), sy(p.y).clamp(0.0, 1.0)) {
                let other = p.point.levels[p.level].level.chars().next().unwrap_or('o');
                canvas.put(r, c, if p.main { p.point.mark } else { other });
            }
        }
        for c in &self.ceilings {
            let name = format!("{} {}", c.name(), units::flop_rate(c.rate));
            if let Some((r, _)) = canvas.cell(1.0, sy(c.rate.log10())) {
                let at = cols.saturating_sub(name.chars().count());
                // Below the line where above is taken.
                let _ = (r > 0 && canvas.write(r - 1, at, &name)) || canvas.write(r + 1, at, &name);
            }
        }
        for l in self.lines() {
            let name = l.name();
            // Along the line, where there is room beside it.
            for i in 1..40 {
                let y = w.y.0 + (w.y.1 - w.y.0) * (0.04 + 0.02 * f64::from(i));
                let x = y - l.peak.log10();
                if x < w.x.0 {
                    continue;
                }
                if let Some((r, c)) = canvas.cell(sx(x), sy(y))
                    && 10f64.powf(y) < top
                    && canvas.write(r, c + 2, &name)
                {
                    break;
                }
            }
        }
        let mut out = String::new();
        let mut next = w.y.1.floor();
        for r in 0..ROWS {
            let share = 1.0 - r as f64 / (ROWS - 1) as f64;
            let y = w.y.0 + share * (w.y.1 - w.y.0);
            let label = if y <= next + 1e-9 {
                let text = rate_label(10f64.powf(next));
                next -= 1.0;
                text
            } else {
                String::new()
            };
            let _ = writeln!(out, "{label:>w$} |{}", canvas.line(r), w = LEFT - 2);
        }
        let mut axis = vec!['-'; cols];
        let mut numbers = vec![' '; cols];
        let mut d = w.x.0.ceil();
        while d <= w.x.1 {
            let c = (sx(d) * (cols - 1) as f64).round() as usize;
            let text = match d as i64 {
                0..=3 => format!("{}", 10i64.pow(d as u32)),
                _ => format!("10^{d:.0}"),
            };
            if let Some(slot) = axis.get_mut(c) {
                *slot = '+';
            }
            let from = c.saturating_sub(text.chars().count() / 2);
            if from + text.chars().count() <= cols {
                for (slot, ch) in numbers[from..].iter_mut().zip(text.chars()) {
                    *slot = ch;
                }
            }
            d += 1.0;
        }
        let line = |v: &[char]| v.iter().collect::<String>().trim_end().to_string();
        let _ = writeln!(out, "{:>w$} +{}", "", line(&axis), w = LEFT - 2);
        let _ = writeln!(out, "{:>w$}  {}", "", line(&numbers), w = LEFT - 2);
        let _ = writeln!(
            out,
            "{:>w$}  operations for each byte that crosses a level; upwards operations per second",
            "",
            w = LEFT - 2
        );
        out
    }
}
