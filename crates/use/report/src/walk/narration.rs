//! The walk as prose for a terminal.

use super::{Pane, Picture, Scene, Walk};
use crate::units;
use crate::{Align, Style, Table};
use std::fmt::Write;

/// Lines of a program that are printed; the rest is what other commands are for.
const LINES: usize = 48;

impl Walk {
    /// The walk as prose, `style.width` columns wide; with `analogy` also as a warehouse and factory.
    pub fn told(&self, style: Style, analogy: bool) -> String {
        let mut out = String::new();
        let title = format!(
            "A walk through step {} of {}: {}",
            self.step.number, self.model, self.step.name
        );
        for line in units::wrapped(&title, style.width) {
            let _ = writeln!(out, "{}", style.heading(&line));
        }
        let on = match &self.device {
            Some(d) => format!("run on {d}"),
            None => "planned for it; nothing ran".into(),
        };
        let on = format!("{} ({}), {on}. {}", self.machine, self.target, self.note);
        for line in units::wrapped(&on, style.width) {
            let _ = writeln!(out, "{}", style.faint(&line));
        }
        for (i, scene) in self.scenes.iter().enumerate() {
            let _ = writeln!(
                out,
                "\n{}",
                style.heading(&format!("{}. {}", i + 1, scene.title))
            );
            told(scene, style, analogy, &mut out);
        }
        out
    }
}

fn paragraph(text: &str, style: Style, faint: bool, out: &mut String) {
    for line in units::wrapped(text, style.width) {
        let _ = match faint {
            true => writeln!(out, "{}", style.faint(&line)),
            false => writeln!(out, "{line}"),
        };
    }
}

fn told(scene: &Scene, style: Style, analogy: bool, out: &mut String) {
    let say = |f: &dyn Fn(&super::Beat) -> String| -> String {
        let all: Vec<String> = scene.beats.iter().map(|b| scene.say(&f(b))).collect();
        let all: Vec<&str> = all.iter().map(|s| s.trim()).collect();
        let all: Vec<&str> = all.into_iter().filter(|s| !s.is_empty()).collect();
        all.join(" ")
    };
    paragraph(&say(&|b| b.text.clone()), style, false, out);
    if analogy {
        paragraph(&say(&|b| b.analogy.clone()), style, true, out);
    }
    let drawn = drawn(&scene.picture, style);
    if !drawn.is_empty() {
        let _ = write!(out, "\n{drawn}");
    }
}

/// The part of a picture that is worth its lines in a terminal.
fn drawn(picture: &Picture, style: Style) -> String {
    let us = |v: f64| units::seconds(v * 1e-6);
    match picture {
        Picture::Code { panes, note } => {
            let mut out = String::new();
            // The program is what everything else follows from; machine code is for `emit` and the page.
            for pane in panes
                .iter()
                .filter(|p| p.language == "tile program" || p.language == "calls")
            {
                out += &code(pane, style);
            }
            if !note.is_empty() {
                paragraph(note, style, true, &mut out);
            }
            out
        }
        Picture::Bars { bars, .. } if !bars.is_empty() => {
            let mut t = Table::new(&[("", Align::Wrap), ("predicted", Align::Right)]);
            for b in bars {
                t.row(vec![b.name.clone(), us(b.us)]);
            }
            t.render(style)
        }
        Picture::Levels { levels } => {
            let mut t = Table::new(&[
                ("level", Align::Left),
                ("loaded", Align::Right),
                ("stored", Align::Right),
                ("alone", Align::Right),
            ]);
            for l in levels {
                t.row(vec![
                    l.level.clone(),
                    units::bytes(l.loaded),
                    units::bytes(l.stored),
                    us(l.us),
                ]);
            }
            t.render(style)
        }
        Picture::Bill {
            parts,
            predicted_us,
            measured_us,
            ..
        } => {
            let mut t = Table::new(&[("where the time goes", Align::Left), ("", Align::Right)]);
            for p in parts {
                t.row(vec![p.name.clone(), us(p.us)]);
            }
            t.row(vec!["predicted".into(), us(*predicted_us)]);
            if let Some(m) = measured_us {
                t.row(vec!["measured".into(), us(*m)]);
            }
            t.render(style)
        }
        Picture::Stalls { rows, .. } => {
            let mut t = Table::new(&[("warps", Align::Left), ("cycles", Align::Right)]);
            for r in rows {
                t.row(vec![r.reason.clone(), units::count(r.cycles)]);
            }
            t.render(style)
        }
        _ => String::new(),
    }
}

fn code(pane: &Pane, style: Style) -> String {
    let mut out = String::new();
    for l in pane.lines.iter().take(LINES) {
        let indent = l.text.len() - l.text.trim_start().len();
        let room = style.width.saturating_sub(indent + 6).max(20);
        for (i, part) in units::wrapped(&l.text, room).iter().enumerate() {
            let _ = writeln!(out, "{:1$}{part}", "", 2 + indent + 4 * usize::from(i > 0));
        }
    }
    let more = (pane.of as usize).saturating_sub(LINES);
    if more > 0 {
        let _ = writeln!(
            out,
            "  {}",
            style.faint(&format!("... and {more} more lines"))
        );
    }
    out
}
