//! A plan's decisions: grouped by what was decided, or those about one step.
use crate::table::Style;
use crate::{PlanView, StepView, step_number, units};
use layout::{Arrange, Inserted};
use plan::Why;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;

/// Subjects that a group names.
const NAMED: usize = 3;
/// What stands for names and numbers that differ within a group.
const VARIES: &str = "*";

/// The first name of a subject: `node_Conv_19` of `node_Conv_19 +1`.
fn first_name(subject: &str) -> &str {
    subject.split(" +").next().unwrap_or(subject)
}

/// `text` without the names of subjects and without numbers, so that decisions of a kind read alike.
fn kind(text: &str, names: &BTreeSet<&str>) -> String {
    let mut out: Vec<String> = Vec::new();
    for word in text.split_whitespace() {
        let bare = word.trim_end_matches([',', ';', '.', ':']);
        let mark = &word[bare.len()..];
        // `memory:L2` is a bound and no number.
        let bound = bare.contains(':') && bare.starts_with(char::is_alphabetic);
        let number = !bound && bare.contains(|c: char| c.is_ascii_digit());
        let varies = number || names.contains(bare);
        let unit = matches!(bare, "ns" | "us" | "ms" | "s" | "B" | "KiB" | "MiB" | "GiB");
        match out.last_mut() {
            // `Conv@1 +2` and `1.2 us` are one thing.
            Some(last) if last == VARIES && (varies || unit) => last.push_str(mark),
            _ if varies => out.push(format!("{VARIES}{mark}")),
            _ => out.push(word.to_string()),
        }
    }
    out.join(" ")
}

/// Decisions of a pass that read alike.
struct Group<'a> {
    what: String,
    subjects: Vec<&'a str>,
}

/// Decisions by pass, and within one by kind, in the order of the first of each.
fn groups(whys: &[Why]) -> Vec<(&str, Vec<Group<'_>>)> {
    let names: BTreeSet<&str> = whys.iter().map(|w| first_name(&w.subject)).inserted();
    let mut passes: Vec<(&str, Vec<Group>)> = Vec::new();
    let mut at: BTreeMap<(&str, String), (usize, usize)> = BTreeMap::new();
    for w in whys {
        let said = match w.choice.as_str() {
            "done" => w.reason.clone(),
            choice => format!("{choice}: {}", w.reason),
        };
        let key = (w.pass.as_str(), kind(&said, &names));
        let (p, g) = *at.entry(key).or_insert_with_key(|(pass, _)| {
            let p = passes.iter().position(|p| p.0 == *pass).unwrap_or_else(|| {
                passes.push((pass, Vec::new()));
                passes.len() - 1
            });
            passes[p].1.push(Group {
                what: said.clone(),
                subjects: Vec::new(),
            });
            (p, passes[p].1.len() - 1)
        });
        let group = &mut passes[p].1[g];
        if !group.subjects.is_empty() {
            // What a single decision says whole, several say without what differs.
            group.what = kind(&said, &names);
        }
        group.subjects.push(&w.subject);
    }
    passes
}

/// Decisions grouped by what was decided, with how many there are of each kind.
pub fn grouped(whys: &[Why], style: Style) -> String {
    let mut out = String::new();
    let width = style.width.saturating_sub(10).max(20);
    for (pass, mut list) in groups(whys) {
        let all: usize = list.iter().map(|g| g.subjects.len()).sum();
        let _ = writeln!(
            out,
            "\n{} ({})",
            style.heading(&format!("why: {pass}")),
            units::plural(all as u64, "decision")
        );
        list.arrange_by_key(|g| std::cmp::Reverse(g.subjects.len()));
        for g in list {
            let mut names: Vec<&str> = Vec::new();
            for s in &g.subjects {
                if !names.contains(s) {
                    names.push(s);
                }
            }
            let more = match names.len().saturating_sub(NAMED) {
                0 => String::new(),
                n => format!(" and {n} more"),
            };
            names.truncate(NAMED);
            for (i, line) in units::wrapped(&g.what, width).iter().enumerate() {
                let count = match i {
                    0 => format!("{:>6} x", g.subjects.len()),
                    _ => String::new(),
                };
                let _ = writeln!(out, "{count:<8}  {line}");
            }
            let subjects = format!("{}{more}", names.join(", "));
            for line in units::wrapped(&subjects, width) {
                let _ = writeln!(out, "          {}", style.faint(&line));
            }
        }
    }
    if !whys.is_empty() {
        let _ = writeln!(
            out,
            "\n{VARIES} stands for what differs; `--why STEP` explains one step with its alternatives"
        );
    }
    out
}

/// One decision, with what else there was.
fn whole(out: &mut String, w: &Why, style: Style) {
    let width = style.width.saturating_sub(6).max(20);
    let lines = units::wrapped(&format!("{}: {}, {}", w.pass, w.subject, w.choice), width);
    for (i, line) in lines.iter().enumerate() {
        let _ = writeln!(out, "  {}{line}", if i == 0 { "" } else { "  " });
    }
    for line in units::wrapped(&w.reason, width) {
        let _ = writeln!(out, "      {line}");
    }
    for a in &w.alternatives {
        let text = format!(
            "instead: {}, predicted {}",
            a.what,
            units::seconds(a.predicted_s)
        );
        for line in units::wrapped(&text, width) {
            let _ = writeln!(out, "      {}", style.faint(&line));
        }
    }
}

impl PlanView {
    /// The step of this number or name, or with a node of this name.
    ///
    /// # Errors
    /// There is none: a sentence that says what names one.
    pub fn step(&self, text: &str) -> Result<&StepView, String> {
        let all: Vec<&StepView> = self.all_steps().collect();
        let named = all.iter().map(|s| (s.name.as_str(), &*s.nodes));
        step_number(text, named).map(|i| all[i])
    }

    /// Decisions about `step` and its nodes.
    pub fn whys_of(&self, step: &StepView) -> Vec<&Why> {
        let own = |w: &&Why| w.subject == step.name || step.nodes.contains(&w.subject);
        self.whys.iter().filter(own).collect()
    }

    /// `step` explained: what it is, and every decision about it and its nodes with what else there was.
    pub fn explained(&self, step: &StepView, style: Style) -> String {
        let mut out = format!(
            "{}\n",
            style.heading(&format!(
                "step {} of {}: {}",
                step.number, self.model, step.name
            ))
        );
        let said = |out: &mut String, what: &str, text: &str| {
            for (i, line) in units::wrapped(text, style.width.saturating_sub(13))
                .iter()
                .enumerate()
            {
                let _ = writeln!(out, "  {:<9}  {line}", if i == 0 { what } else { "" });
            }
        };
        said(&mut out, "machine", &self.machine);
        said(&mut out, "nodes", &step.nodes.join(", "));
        said(
            &mut out,
            "kernel",
            &format!("{}, {}", step.family, step.kernel),
        );
        said(&mut out, "shapes", &step.shapes);
        let tasks = units::plural(step.tasks.max(0) as u64, "task");
        said(&mut out, "tiles", &format!("{}, {tasks}", step.schedule));
        said(
            &mut out,
            "predicted",
            &format!(
                "{}, bound by {}; {}, {} of distinct bytes",
                units::seconds(step.predicted_us * 1e-6),
                step.bound,
                units::flop(step.flop),
                units::bytes(step.unique_bytes())
            ),
        );
        let _ = writeln!(out, "\n{}", style.heading("why"));
        let whys = self.whys_of(step);
        if whys.is_empty() {
            let reason = match step.reason.is_empty() {
                true => "nothing else was possible",
                false => &step.reason,
            };
            let _ = writeln!(out, "  {reason}");
        }
        for w in whys {
            whole(&mut out, w, style);
        }
        out
    }
}
