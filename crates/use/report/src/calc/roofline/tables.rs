//! The roofline as tables.

use super::super::because;
use super::{PointView, RooflineView};
use crate::table::{Align, Style, Table};
use crate::units;
use layout::Arrange;
use std::fmt::Write;

/// Steps shown of a model unless all are asked for.
const SHOWN: usize = 20;

pub(super) fn intensity(v: Option<f64>) -> String {
    v.map_or("-".into(), |v| {
        if v > 0.0 && v < 0.01 {
            format!("{v:.1e}")
        } else if v > 0.0 && v < 0.0995 {
            format!("{v:.3}")
        } else {
            units::number(v)
        }
    })
}

impl RooflineView {
    /// Tables, plot and reasons; all steps of a model, or the slowest.
    pub fn render(&self, style: Style, all: bool) -> String {
        let mut out = String::new();
        let title = match self.dims.is_empty() {
            true => format!("{} under the roofs of {}", self.subject, self.machine),
            false => format!(
                "{} ({}) under the roofs of {}",
                self.subject, self.dims, self.machine
            ),
        };
        let _ = writeln!(out, "{}", style.headline(&title));
        let s = &self.summary;
        let head = format!(
            "{} over {} of memory: {} FLOP/byte, the ridge point is {}; bound by {}, {} at the roof",
            units::flop(s.ops),
            units::bytes(s.bytes),
            intensity(s.intensity),
            units::number(s.ridge),
            s.bound,
            units::seconds(s.time_s)
        );
        let head = match s.bytes > 0.0 || s.ops <= 0.0 {
            true if s.bytes <= 0.0 => "nothing to do: no operation and no byte".into(),
            true => head,
            false => format!(
                "{}: all that a request touches fits nearer levels; bound by {}, {} at the roof",
                units::flop(s.ops),
                s.bound,
                units::seconds(s.time_s)
            ),
        };
        for line in units::wrapped(&head, style.width.saturating_sub(4)) {
            let _ = writeln!(out, "  {line}");
        }
        if !self.target.is_empty() {
            let kernels = format!(
                "kernels: {} ({}), read off their tile programs; predicted, not measured",
                crate::study::label(&self.kernels, self.unvalidated),
                self.target
            );
            for line in units::wrapped(&kernels, style.width.saturating_sub(2)) {
                let _ = writeln!(out, "  {line}");
            }
            let how = self.how.headline();
            if let Some(how) = how.strip_prefix(", ") {
                let _ = writeln!(out, "  {how}");
            }
        }
        out.push('\n');
        self.roofs_table(&mut out, style);
        match self.is_model {
            true => self.steps_table(&mut out, style, all),
            false => self
                .points
                .iter()
                .for_each(|p| level_table(&mut out, p, style)),
        }
        let _ = writeln!(
            out,
            "\n{}",
            style.heading("the roofs and what lies under them")
        );
        out.push_str(&self.plot(style));
        self.legend(&mut out, style);
        let _ = writeln!(out, "\n{}", style.heading("why"));
        out.push_str(&because(&self.explanation, style));
        out
    }

    fn roofs_table(&self, out: &mut String, style: Style) {
        let _ = writeln!(
            out,
            "{}",
            style.heading("roofs and their ridge points, in operations for each byte")
        );
        let names: Vec<String> = self.ceilings.iter().map(|c| c.name()).collect();
        let mut columns = vec![("  level", Align::Left), ("peak", Align::Right)];
        columns.extend(names.iter().map(|n| (n.as_str(), Align::Right)));
        let mut t = Table::new(&columns);
        let mut first = vec![String::new(), String::new()];
        first.extend(self.ceilings.iter().map(|c| units::flop_rate(c.rate)));
        t.row(first);
        for r in &self.roofs {
            let mut row = vec![format!("  {}", r.level), units::byte_rate(r.peak)];
            row.extend(r.ridge_points.iter().map(|v| units::number(*v)));
            t.row(row);
        }
        out.push_str(&t.render(style));
    }

    fn steps_table(&self, out: &mut String, style: Style, all: bool) {
        let s = |p: &PointView| p.predicted_s.unwrap_or(0.0);
        let rows: Vec<Vec<usize>> = match all {
            true => (0..self.points.len()).map(|i| vec![i]).collect(),
            false => self.groups(),
        };
        let shown = if all { rows.len() } else { SHOWN };
        let _ = writeln!(
            out,
            "\n{}",
            style.heading("steps, those alike in one row: what arithmetic and each level's bytes take alone, at peak")
        );
        let levels: Vec<String> = self
            .roofs
            .iter()
            .filter(|r| r.counts)
            .filter(|r| {
                let own =
                    |p: &PointView| p.levels.iter().any(|l| l.level == r.level && l.bytes > 0.0);
                self.points.iter().any(own)
            })
            .map(|r| r.level.clone())
            .collect();
        let mut columns = vec![
            ("  ", Align::Left),
            ("step", Align::Wrap),
            ("steps", Align::Right),
            ("FLOP/B", Align::Right),
            ("arithm.", Align::Right),
        ];
        columns.extend(levels.iter().map(|l| (l.as_str(), Align::Right)));
        columns.extend([
            ("roof", Align::Left),
            ("predicted", Align::Right),
            ("at roof", Align::Right),
        ]);
        let mut t = Table::new(&columns);
        let shared = units::common_path(self.points.iter().map(|p| p.name.as_str()));
        let time = |v: f64| {
            if v > 0.0 {
                units::seconds(v)
            } else {
                "-".into()
            }
        };
        for row in rows.iter().take(shown) {
            let p = &self.points[row[0]];
            let n = row.len() as f64;
            let name = p.name.strip_prefix(shared).unwrap_or(&p.name);
            let mut cells = vec![
                format!("  {}", p.mark),
                name.to_string(),
                row.len().to_string(),
                intensity(p.memory().and_then(|l| l.intensity)),
                time(n * p.compute_s),
            ];
            for l in &levels {
                let own = p.levels.iter().find(|x| x.level == *l);
                cells.push(time(own.map_or(0.0, |x| n * x.bytes_s)));
            }
            cells.extend([
                // The level or unit alone: a CPU's three caches leave no room for more.
                p.bound.rsplit(':').next().unwrap_or_default().to_string(),
                units::seconds(n * s(p)),
                p.share().map_or("-".into(), units::percent),
            ]);
            t.row(cells);
        }
        out.push_str(&t.render(style));
        let rest: Vec<usize> = rows.iter().skip(shown).flatten().copied().collect();
        let left: f64 = rest.iter().map(|&i| s(&self.points[i])).sum();
        if !rest.is_empty() {
            let _ = writeln!(
                out,
                "  and {} more, {} together (--all)",
                units::plural(rest.len() as u64, "step"),
                units::seconds(left)
            );
        }
        if self.elsewhere > 0 {
            let _ = writeln!(
                out,
                "  {} between host and device, or on the host: {} predicted, under no roof here",
                units::plural(self.elsewhere as u64, "step"),
                units::seconds(self.elsewhere_s)
            );
        }
        if let Some(total) = self.predicted_s {
            let own = total - self.elsewhere_s;
            let _ = writeln!(
                out,
                "  all steps: {} at the roofs, {} predicted",
                units::seconds(self.summary.time_s),
                units::seconds(own)
            );
        }
    }

    fn legend(&self, out: &mut String, style: Style) {
        let text = if self.is_model {
            "letters are those of the table, from the steps that take longest together; a step stands at the intensity of the farthest level that it reaches and at the speed predicted for it".to_string()
        } else {
            let ours = match self.points.len() {
                0 | 1 => String::new(),
                _ => "; our kernel stands at its speed predicted, by a letter at the intensity of its farthest level and by a level's first letter at the others'".into(),
            };
            format!("* every operand once, at the roof{ours}")
        };
        for line in units::wrapped(&text, style.width.saturating_sub(4)) {
            let _ = writeln!(out, "  {line}");
        }
    }
}

impl RooflineView {
    /// The plot of a profile with its key: steps at the speed that was measured. Empty where no step has a
    /// place in it.
    pub fn measured_plot(&self, style: Style) -> String {
        let mut marks: Vec<(char, &str, usize)> = Vec::new();
        for p in self.points.iter().filter(|p| !matches!(p.mark, ' ' | '.')) {
            match marks.iter_mut().find(|m| m.0 == p.mark) {
                Some(m) => m.2 += 1,
                None => marks.push((p.mark, &p.name, 1)),
            }
        }
        if marks.is_empty() {
            return String::new();
        }
        // Letters are in the order of what takes longest; the others are dots.
        marks.arrange_by_key(|m| (m.0.is_uppercase(), m.0));
        marks.truncate(NAMED);
        let mut plotted = self.clone();
        for p in &mut plotted.points {
            if p.mark != ' ' && !marks.iter().any(|m| m.0 == p.mark) {
                p.mark = '.';
            }
        }
        let names = marks.iter().map(|m| m.1);
        let shared = match marks.len() {
            1 => "",
            _ => units::common_path(names),
        };
        let key = marks.iter().map(|(c, name, n)| {
            let name = name.strip_prefix(shared).unwrap_or(name);
            match n {
                1 => format!("{c} {name}"),
                n => format!("{c} {name} and {} like it", n - 1),
            }
        });
        let mut out = String::new();
        let _ = writeln!(
            out,
            "{}",
            style.heading(&format!(
                "the roofs of {}, and the steps as measured",
                self.machine
            ))
        );
        out.push_str(&plotted.plot(style));
        for k in key {
            let width = style.width.saturating_sub(2).max(20);
            let _ = writeln!(out, "  {}", units::shortened(&k, width));
        }
        if plotted.points.iter().any(|p| p.mark == '.') {
            out.push_str("  . steps that take less\n");
        }
        out
    }
}

/// Steps that are named under a profile's plot.
const NAMED: usize = 8;

/// One computation at every level.
fn level_table(out: &mut String, p: &PointView, style: Style) {
    // What has no place in the plot has no letter.
    let mark = match p.mark {
        ' ' => String::new(),
        mark => format!("{mark}: "),
    };
    let title = match p.predicted_s {
        None => format!("{mark}{}", p.name),
        Some(s) => format!(
            "{mark}our {} kernel, step {}: predicted {}, {} of it at the roof",
            p.family,
            p.name,
            units::seconds(s),
            p.share().map_or("-".into(), units::percent)
        ),
    };
    let _ = writeln!(out, "\n{}", style.heading(&title));
    let mut t = Table::new(&[
        ("  level", Align::Left),
        ("bytes", Align::Right),
        ("FLOP/byte", Align::Right),
        ("ridge", Align::Right),
        ("roof", Align::Right),
        ("bytes take", Align::Right),
        ("arithmetic", Align::Right),
        ("bound", Align::Left),
    ]);
    for l in p.levels.iter().filter(|l| l.counts || l.bytes > 0.0) {
        t.row(vec![
            format!("  {}", l.level),
            units::bytes(l.bytes),
            intensity(l.intensity),
            units::number(l.ridge),
            match p.ops > 0.0 {
                true => units::flop_rate(l.roof),
                false => "-".into(),
            },
            units::seconds(l.bytes_s),
            units::seconds(p.compute_s),
            match l.counts {
                true => l.bound.clone(),
                false => format!("({})", l.bound),
            },
        ]);
    }
    out.push_str(&t.render(style));
    if let Some(l) = p.levels.iter().find(|l| !l.counts && l.bytes > 0.0) {
        let _ = writeln!(
            out,
            "  ({} counts only if operands had to come from there)",
            l.level
        );
    }
    let _ = writeln!(
        out,
        "  at the roof: {}, bound by {}",
        units::seconds(p.roof_s),
        p.bound
    );
}
