//! Tests that cannot run where they are say so by name, and the last lines of a run list them.
//!
//! Cargo starts every test program of a run itself, so that all of them have one parent process. What they
//! leave out is noted in a file that has the parent's number; the last program of the run, a test of `xtask`,
//! prints and removes it.

use std::io::Write;
use std::path::PathBuf;

/// The variable that lists, separated by commas, what may be skipped although `CI` is set. A name that ends
/// with `*` allows all that begin so.
pub const ALLOWED: &str = "SHOPFLOOR_MAY_SKIP";

/// Whether `name` is in the list `allowed`.
fn allows(allowed: &str, name: &str) -> bool {
    let all = allowed.split(',').map(str::trim);
    all.filter(|a| !a.is_empty())
        .any(|a| match a.strip_suffix('*') {
            Some(beginning) => name.starts_with(beginning),
            None => name == a,
        })
}

/// Notes that `name`, a test or what it looks at, is not run here, and `why`.
///
/// # Panics
/// Where the variable `CI` is `true` and [`ALLOWED`] does not name it.
pub fn skip(name: &str, why: &str) {
    let ci = std::env::var("CI").is_ok_and(|v| v == "true");
    let allowed = std::env::var(ALLOWED).unwrap_or_default();
    assert!(
        !ci || allows(&allowed, name),
        "{name} cannot run here: {why}; where that is meant, name it in {ALLOWED}"
    );
    println!("skipped: {name}: {why}");
    note(name, why);
}

/// Notes for the end of the run that `name` is left out, and why.
pub(crate) fn note(name: &str, why: &str) {
    let Some(file) = file() else { return };
    let line = format!("{name}\t{}\n", why.replace(['\n', '\t'], " "));
    let made = std::fs::create_dir_all(file.with_file_name(""));
    let noted = made.and_then(|()| {
        let mut f = std::fs::File::options()
            .create(true)
            .append(true)
            .open(&file)?;
        f.write_all(line.as_bytes())
    });
    if let Err(e) = noted {
        eprintln!("{}: {e}; what is skipped is not listed", file.display());
    }
}

/// What was skipped so far by the programs that have this one's parent, by name with the reason; the note of
/// it is removed.
pub fn skipped() -> Vec<(String, String)> {
    let Some(file) = file() else { return vec![] };
    let text = std::fs::read_to_string(&file).unwrap_or_default();
    // Where there is none, nothing was skipped.
    let _ = std::fs::remove_file(&file);
    let lines = text.lines().filter_map(|l| l.split_once('\t'));
    let mut all: Vec<_> = lines.map(|(n, w)| (n.to_string(), w.to_string())).collect();
    all.sort();
    all.dedup();
    all
}

/// Beside the folder that test programs are built into.
fn file() -> Option<PathBuf> {
    #[cfg(unix)]
    let parent = std::os::unix::process::parent_id();
    #[cfg(not(unix))]
    let parent = 0;
    let exe = std::env::current_exe().ok()?;
    let built = exe.parent()?.parent()?;
    Some(built.join("skipped").join(parent.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_skipped_is_listed_once() {
        assert!(allows("a, zoo:*", "a") && allows("a, zoo:*", "zoo:x"));
        assert!(!allows("a, zoo:*", "b") && !allows("", "a"));
        if std::env::var_os("CI").is_some() {
            return;
        }
        let name = "testing: this test's own";
        skip(name, "two\nlines");
        skip(name, "two\nlines");
        let file = file().unwrap();
        let text = std::fs::read_to_string(&file).unwrap();
        assert_eq!(text.matches("two lines\n").count(), 2, "{text}");
        // It takes its own note back and leaves those of others.
        let rest: String = text
            .lines()
            .filter(|l| !l.starts_with(name))
            .map(|l| format!("{l}\n"))
            .collect();
        std::fs::write(file, rest).unwrap();
    }
}
