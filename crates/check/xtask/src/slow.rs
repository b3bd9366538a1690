//! Which tests take long: `cargo xtask slow-tests [ARGS OF cargo test]`.
//!
//! `cargo test` runs each test program through this one (its `runner`), which reads what the program prints:
//! with one test thread a test's name comes before it runs and its result after.
use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::path::Path;
use std::process::{Command, ExitCode, Stdio};
use std::time::Instant;

/// Tests that are shown.
const SHOWN: usize = 30;
/// The subcommand that runs one test program.
pub const RUNNER: &str = "time-test-program";

/// Runs `cargo test ARGS` and prints the slowest tests and programs.
///
/// # Errors
/// Cargo cannot be started, or the times cannot be written down.
pub fn slow_tests(root: &Path, args: &[String]) -> Result<ExitCode, String> {
    let dir = root.join("target");
    std::fs::create_dir_all(&dir).map_err(|e| format!("{}: {e}", dir.display()))?;
    let kept = dir.join("slow-tests.tsv");
    let _ = std::fs::remove_file(&kept);
    let me = std::env::current_exe().map_err(|e| e.to_string())?;
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let runner = format!("{} {RUNNER} {}", me.display(), kept.display());
    let target = format!(
        "CARGO_TARGET_{}_RUNNER",
        host().replace('-', "_").to_uppercase()
    );
    let all = ["--workspace".to_string()];
    let status = Command::new(cargo)
        .arg("test")
        .args(if args.is_empty() { &all } else { args })
        .args(["--tests", "--no-fail-fast", "--", "--test-threads=1"])
        .env(target, runner)
        .current_dir(root)
        .status()
        .map_err(|e| format!("cargo could not be started ({e}); run this through cargo"))?;
    let text = std::fs::read_to_string(&kept).unwrap_or_default();
    print!("{}", table(&text));
    Ok(match status.success() {
        true => ExitCode::SUCCESS,
        false => ExitCode::FAILURE,
    })
}

/// The triple of this machine, as `rustc` names it.
fn host() -> String {
    let said = Command::new("rustc").arg("-vV").output();
    let text = said.map_or(String::new(), |o| {
        String::from_utf8_lossy(&o.stdout).into_owned()
    });
    let line = text.lines().find_map(|l| l.strip_prefix("host: "));
    line.unwrap_or("x86_64-unknown-linux-gnu").to_string()
}

/// Runs the test program `args[1]` with the arguments after it and adds what each test took to the file
/// `args[0]`: seconds, crate, test, separated by tabs.
///
/// # Errors
/// The program cannot be started, or the file cannot be written.
pub fn run_program(args: &[String]) -> Result<ExitCode, String> {
    let [kept, program, rest @ ..] = args else {
        return Err(format!("usage: xtask {RUNNER} FILE PROGRAM [ARGS]"));
    };
    let mut child = Command::new(program)
        .args(rest)
        .stdout(Stdio::piped())
        .spawn()
        .map_err(|e| format!("{program}: {e}"))?;
    let mut out = child.stdout.take().ok_or("no standard output")?;
    let of = std::env::var("CARGO_PKG_NAME").unwrap_or_default();
    let (mut rows, mut line, mut began) = (String::new(), Vec::new(), Instant::now());
    let mut buffer = [0; 4096];
    loop {
        let n = out.read(&mut buffer).map_err(|e| e.to_string())?;
        if n == 0 {
            break;
        }
        let _ = std::io::stdout().write_all(&buffer[..n]);
        for &byte in &buffer[..n] {
            if byte != b'\n' {
                line.push(byte);
                if line.ends_with(b" ... ") {
                    began = Instant::now();
                }
                continue;
            }
            if let Some(name) = finished(&String::from_utf8_lossy(&line)) {
                rows += &format!("{:.3}\t{of}\t{name}\n", began.elapsed().as_secs_f64());
            }
            line.clear();
        }
    }
    let status = child.wait().map_err(|e| e.to_string())?;
    let mut file = std::fs::File::options()
        .create(true)
        .append(true)
        .open(kept)
        .map_err(|e| format!("{kept}: {e}"))?;
    file.write_all(rows.as_bytes())
        .map_err(|e| format!("{kept}: {e}"))?;
    let code = status.code().and_then(|c| u8::try_from(c).ok());
    Ok(ExitCode::from(code.unwrap_or(1)))
}

/// Name of the test that a line of a test program says has ended.
fn finished(line: &str) -> Option<&str> {
    let (name, result) = line.strip_prefix("test ")?.split_once(" ... ")?;
    (result.ends_with("ok") || result.ends_with("FAILED")).then_some(name)
}

/// The slowest tests and the crates' sums, of lines that [`run_program`] writes.
fn table(text: &str) -> String {
    let mut rows: Vec<(f64, &str, &str)> = text
        .lines()
        .filter_map(|l| {
            let mut parts = l.splitn(3, '\t');
            Some((parts.next()?.parse().ok()?, parts.next()?, parts.next()?))
        })
        .collect();
    rows.sort_by(|a, b| b.0.total_cmp(&a.0));
    let mut sums: BTreeMap<&str, f64> = BTreeMap::new();
    for (s, of, _) in &rows {
        *sums.entry(of).or_default() += s;
    }
    let mut sums: Vec<(&str, f64)> = sums.into_iter().collect();
    sums.sort_by(|a, b| b.1.total_cmp(&a.1));
    let mut out = format!("\n{:>8}  slowest tests, one at a time\n", "seconds");
    for (s, of, name) in rows.iter().take(SHOWN) {
        out += &format!("{s:>8.1}  {of} {name}\n");
    }
    out += &format!("\n{:>8}  by crate\n", "seconds");
    for (of, s) in &sums {
        out += &format!("{s:>8.1}  {of}\n");
    }
    let all: f64 = sums.iter().map(|s| s.1).sum();
    out + &format!("{all:>8.1}  all\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tests_that_ended_are_told_from_other_lines() {
        assert_eq!(finished("test a::b ... ok"), Some("a::b"));
        assert_eq!(finished("test a::b ... said something ok"), Some("a::b"));
        assert_eq!(finished("test a::b ... FAILED"), Some("a::b"));
        assert_eq!(finished("test a::b ... ignored"), None);
        assert_eq!(finished("test result: ok. 3 passed"), None);
        let shown = table("1.5\tx\ta\n20.25\ty\tb\n");
        let at = |s: &str| shown.find(s).unwrap();
        assert!(at("20.2  y b") < at("1.5  x a"), "{shown}");
        assert!(shown.contains("21.8  all"), "{shown}");
    }
}
