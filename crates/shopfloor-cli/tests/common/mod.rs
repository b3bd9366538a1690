//! The command as a user runs it, with what every test of its output looks at.

use serde_json::Value;
use std::process::{Command, Output};

pub fn shopfloor(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_shopfloor"))
        .args(args)
        .env_remove("COLUMNS")
        .output()
        .unwrap()
}

/// What it prints, which fits 100 columns.
pub fn text(args: &[&str]) -> String {
    let o = shopfloor(args);
    let err = String::from_utf8_lossy(&o.stderr);
    assert!(o.status.success(), "{args:?}: {err}");
    let out = String::from_utf8(o.stdout).unwrap();
    for l in out.lines() {
        assert!(l.chars().count() <= 100, "{args:?}: {l}");
    }
    out
}

/// What it prints with `--json`.
pub fn json(args: &[&str]) -> Value {
    let args: Vec<&str> = args.iter().copied().chain(["--json"]).collect();
    let o = shopfloor(&args);
    let err = String::from_utf8_lossy(&o.stderr);
    assert!(o.status.success(), "{args:?}: {err}");
    serde_json::from_slice(&o.stdout).unwrap()
}

/// What it says when it ends with `code`: one error.
pub fn fails(code: i32, args: &[&str]) -> String {
    let o = shopfloor(args);
    assert_eq!(o.status.code(), Some(code), "{args:?}");
    let e = String::from_utf8(o.stderr).unwrap();
    let errors = e.lines().filter(|l| l.starts_with("error")).count();
    assert_eq!(errors, 1, "{e}");
    e
}
