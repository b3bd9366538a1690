//! The command as a user runs it, with what every test of its output looks at.

use serde_json::Value;
use std::process::{Command, Output};

pub fn shopfloor(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_shopfloor"))
        .args(args)
        .env("NO_COLOR", "1")
        // Nothing is measured unasked.
        .env("CI", "true")
        .env_remove("COLUMNS")
        .env(
            "XDG_CACHE_HOME",
            concat!(env!("CARGO_TARGET_TMPDIR"), "/cache"),
        )
        .output()
        .unwrap()
}

/// What it prints when it ends with `code`.
pub fn ends(code: i32, args: &[&str]) -> String {
    let o = shopfloor(args);
    let out = String::from_utf8(o.stdout).unwrap();
    let err = String::from_utf8_lossy(&o.stderr);
    assert_eq!(o.status.code(), Some(code), "{args:?}\n{out}\n{err}");
    out
}

/// What it prints, which fits 100 columns.
pub fn text(args: &[&str]) -> String {
    let out = ends(0, args);
    for l in out.lines() {
        assert!(l.chars().count() <= 100, "{args:?}: {l}");
    }
    out
}

/// What it prints with `--json`.
pub fn json(args: &[&str]) -> Value {
    let args: Vec<&str> = args.iter().copied().chain(["--json"]).collect();
    serde_json::from_str(&ends(0, &args)).unwrap()
}

/// What it says when it ends with `code`: one error.
pub fn fails(code: i32, args: &[&str]) -> String {
    let o = shopfloor(args);
    let e = String::from_utf8(o.stderr).unwrap();
    assert_eq!(o.status.code(), Some(code), "{args:?}\n{e}");
    assert!(!e.contains("panicked"), "{e}");
    let errors = e.lines().filter(|l| l.starts_with("error")).count();
    assert_eq!(errors, 1, "{e}");
    e
}
