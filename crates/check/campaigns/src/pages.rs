//! What the pages that campaigns write say of themselves.
use std::fmt::Write as _;
use std::path::Path;
use std::process::Command;

/// The repository's root: the folder with the lock file.
pub fn root() -> &'static Path {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let root = here.ancestors().find(|p| p.join("Cargo.lock").is_file());
    root.unwrap_or(here)
}

fn said(program: &str, args: &[&str]) -> Option<String> {
    let out = Command::new(program)
        .args(args)
        .current_dir(root())
        .output()
        .ok()?;
    let text = String::from_utf8_lossy(&out.stdout).trim().to_string();
    (out.status.success() && !text.is_empty()).then_some(text)
}

/// Commit of the checkout, with a word when files differ from it.
pub fn commit() -> String {
    let changed = ["status", "--porcelain", "--untracked-files=no"];
    // The pages that campaigns write are no part of what was measured.
    let changed = said("git", &changed).is_some_and(|t| t.lines().any(|l| !l.contains("bench/")));
    let id = said("git", &["rev-parse", "--short", "HEAD"]).unwrap_or("unknown".into());
    match changed {
        true => format!("{id} with changes"),
        false => id,
    }
}

/// Now, to the minute.
pub fn date() -> String {
    said("date", &["-u", "+%Y-%m-%d %H:%M UTC"]).unwrap_or("date unknown".into())
}

/// The figures of a page as a table between markers, for other documents to take from there
/// (`cargo xtask pages`): what each is, and its value.
pub fn figures(name: &str, machine: &str, rows: &[(String, String)]) -> String {
    let (now, mut table) = (date(), String::new());
    // The day alone: a figure's page has the minute.
    let day = now.split(' ').next().unwrap_or_default();
    for (what, value) in rows {
        let _ = writeln!(table, "| {what} | {value} | {machine} | {day} |");
    }
    format!(
        "<!-- figures: {name} -->\n| figure | value | machine | date |\n|---|---|---|---|\n{table}<!-- end -->\n"
    )
}

/// The CPU at hand and how many threads ran on it.
pub fn cpu_with(threads: usize) -> String {
    format!("{}, {threads} threads", cpu::detect::detect().name)
}

/// Three digits are enough to compare by.
pub fn number(v: f64) -> String {
    match v.abs() {
        a if a >= 100.0 => format!("{v:.0}"),
        a if a >= 10.0 => format!("{v:.1}"),
        a if a >= 1.0 => format!("{v:.2}"),
        _ => format!("{v:.3}"),
    }
}

/// Geometric mean, and of how many.
pub fn geometric(values: impl Iterator<Item = f64>) -> (f64, usize) {
    let (sum, n) = values.fold((0.0, 0usize), |(s, n), r| (s + r.ln(), n + 1));
    ((sum / n.max(1) as f64).exp(), n)
}
