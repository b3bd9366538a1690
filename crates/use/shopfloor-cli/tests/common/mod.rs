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

/// An ONNX file of one node `op(x) -> y`, of f32 with these extents.
pub fn one_node(op: &str, from: &[u8], to: &[u8]) -> Vec<u8> {
    fn field(n: u8, body: &[u8]) -> Vec<u8> {
        let mut out = vec![n << 3 | 2, body.len() as u8];
        out.extend(body);
        out
    }
    let value = |name: &str, extents: &[u8]| {
        let dims = extents.iter().flat_map(|&n| field(1, &[0x08, n]));
        let shape = field(2, &dims.collect::<Vec<u8>>());
        let tensor = [vec![0x08, 1], shape].concat();
        [field(1, name.as_bytes()), field(2, &field(1, &tensor))].concat()
    };
    let node = [
        field(1, b"x"),
        field(2, b"y"),
        field(3, b"n0"),
        field(4, op.as_bytes()),
    ];
    let graph = [
        field(1, &node.concat()),
        field(2, b"g"),
        field(11, &value("x", from)),
        field(12, &value("y", to)),
    ];
    // IR version 8, opset 17.
    [
        vec![0x08, 8],
        field(7, &graph.concat()),
        field(8, &[0x10, 17]),
    ]
    .concat()
}
