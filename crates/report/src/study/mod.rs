//! Plans for machines that need not be there, compared: over devices, over changes of one, and over what
//! its user could change.

mod advise;
mod fleet;
mod what_if;

pub use advise::{Advice, AdviceView, Computed};
pub use fleet::{FleetPoint, FleetRow, FleetView, bounds_of, memory_on};
pub use what_if::{AloneView, ChangedStep, WhatIfView};

use crate::table::Style;
use crate::units;

/// Sentences as lines, each begun with a dash.
fn because(lines: &[String], style: Style) -> String {
    let mut out = String::new();
    for l in lines {
        for (i, part) in units::wrapped(l, style.width.saturating_sub(4))
            .iter()
            .enumerate()
        {
            out.push_str(if i == 0 { "  - " } else { "    " });
            out.push_str(part);
            out.push('\n');
        }
    }
    out
}

/// A heading that may be longer than a line.
pub(crate) fn headline(text: &str, style: Style) -> String {
    let lines = units::wrapped(text, style.width);
    let lines: Vec<String> = lines.iter().map(|l| style.heading(l)).collect();
    lines.join("\n")
}

/// How many times as fast: `1.52x`.
fn times(old: f64, new: f64) -> String {
    match new > 0.0 {
        true => format!("{}x", units::number(old / new)),
        false => "-".into(),
    }
}
