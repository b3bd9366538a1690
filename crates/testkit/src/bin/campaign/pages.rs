//! What the pages that campaigns write say of themselves.
use std::path::Path;
use std::process::Command;

/// The repository's root.
pub fn root() -> &'static Path {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.ancestors().nth(2).unwrap_or(here)
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
