//! The help: it fits, its examples run, and docs/commands.md says the same.

use crate::common;

use common::{ends, fails, json, shopfloor, text};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../..")
}

/// The commands that `--help` lists, in its order.
fn commands() -> Vec<String> {
    let help = ends(0, &["--help"]);
    let lines = help.lines().skip_while(|l| !l.starts_with("  start"));
    let lines = lines.take_while(|l| !l.starts_with("Options"));
    let rows = lines.filter(|l| !l.is_empty());
    rows.map(|l| l[14..].split_whitespace().next().unwrap().to_string())
        .collect()
}

/// The examples of a command, each as one line.
fn examples(command: &str) -> Vec<String> {
    let help = ends(0, &[command, "--help"]);
    let at = help
        .find("\nExamples:\n")
        .unwrap_or_else(|| panic!("{help}"));
    let text = help[at + 11..].replace("\\\n", " ");
    let lines = text
        .lines()
        .map(|l| l.split_whitespace().collect::<Vec<_>>().join(" "));
    lines.filter(|l| !l.is_empty()).collect()
}

#[test]
fn the_help_is_one_page() {
    let help = ends(0, &["--help"]);
    assert!(help.lines().count() <= 50, "{help}");
    let want = [
        "demo",
        "run",
        "bench",
        "profile",
        "test",
        "inspect",
        "plan",
        "walk",
        "annotate",
        "emit",
        "emulate",
        "machines",
        "occupancy",
        "access",
        "transfer",
        "tensorcore",
        "roofline",
        "advise",
        "what-if",
        "predict",
        "simulate",
        "supervise",
        "top",
    ];
    assert_eq!(commands(), want);
    for c in commands() {
        let page = ends(0, &[&c, "--help"]);
        for l in help.lines().chain(page.lines()) {
            assert!(l.chars().count() <= 100, "{c}: {l}");
        }
        assert_eq!(examples(&c).len(), 2, "{page}");
    }
}

#[test]
fn the_help_keeps_to_the_width() {
    let help = |args: &[&str]| {
        let o = Command::new(env!("CARGO_BIN_EXE_shopfloor"))
            .args(args)
            .env("COLUMNS", "72")
            .output()
            .unwrap();
        let out = String::from_utf8(o.stdout).unwrap();
        // What is to be copied stays whole.
        out.split("\nExamples:").next().unwrap().to_string()
    };
    for c in commands() {
        for l in help(&["--help"])
            .lines()
            .chain(help(&[&c, "--help"]).lines())
        {
            let copied = l.starts_with("Usage: ");
            assert!(copied || l.chars().count() <= 72, "{c}: {l}");
        }
    }
}

/// Words of a line as a shell has them.
fn words(line: &str) -> Vec<String> {
    let parts: Vec<&str> = line.split('"').collect();
    let mut out = Vec::new();
    for (i, p) in parts.iter().enumerate() {
        match i % 2 {
            0 => out.extend(p.split_whitespace().map(String::from)),
            _ => out.push(p.to_string()),
        }
    }
    out
}

/// A folder that has what examples name.
fn here() -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    for name in ["models", "scenarios"] {
        crate::folders::linked(&root().join(name), &dir.path().join(name));
    }
    crate::folders::folder(dir.path(), "cases/digits", Some(0.0));
    let measured = "source,gpu,op,params,dtype,measured_us,note\n\
                    here,A100-SXM4-80GB,gemm,m=1024;n=10240;k=5120;ta=0;tb=1,bf16,395.92,an example\n";
    std::fs::write(dir.path().join("measurements.csv"), measured).unwrap();
    dir
}

#[test]
fn every_example_runs() {
    let dir = here();
    let share = testing::Share::of_run(6);
    println!("{share}");
    for command in commands() {
        for example in examples(&command) {
            let line = words(&example);
            // What one example writes others read.
            let writes = example.contains(" --ptx ");
            if !writes && !share.has(&example) {
                continue;
            }
            let o = Command::new(env!("CARGO_BIN_EXE_shopfloor"))
                .args(&line[1..])
                .current_dir(dir.path())
                .env("NO_COLOR", "1")
                .env("CI", "true")
                .env("XDG_CACHE_HOME", dir.path().join("cache"))
                .output()
                .unwrap();
            let (out, err) = (
                String::from_utf8_lossy(&o.stdout),
                String::from_utf8_lossy(&o.stderr),
            );
            assert_eq!(line[0], "shopfloor");
            match command.as_str() {
                // No engine answers here.
                "top" => assert!(
                    err.contains("engine.sock") && o.status.code() == Some(1),
                    "{err}"
                ),
                _ => assert_eq!(o.status.code(), Some(0), "{example}\n{out}\n{err}"),
            }
            // The demonstration has a width of its own; rows and code are for programs.
            let narrow =
                !["demo", "emit"].contains(&command.as_str()) && !example.contains("--rows");
            for l in out.lines().filter(|_| narrow) {
                assert!(l.chars().count() <= 100, "{example}: {l}");
            }
        }
    }
}

#[test]
fn the_page_on_commands_is_made_of_the_help() {
    let page = std::fs::read_to_string(root().join("docs/commands.md")).unwrap();
    let made = ends(0, &["commands-page"]);
    let (from, to) = ("<!-- commands: from the help -->\n", "<!-- end -->\n");
    let rest = page.split_once(from).expect("a mark").1;
    let stands = rest.split_once(to).expect("an end").0;
    assert_eq!(
        stands, made,
        "docs/commands.md is old; `cargo xtask pages` writes it"
    );
}

#[test]
fn what_does_nothing_is_refused_by_name() {
    let model = root()
        .join("models/digits_cnn/model.onnx")
        .display()
        .to_string();
    let m = model.as_str();
    for (args, option) in [
        (
            vec!["bench", "--demo", "ring", "--threads", "1"],
            "--threads",
        ),
        (
            vec!["bench", "--demo", "launch", "--seconds", "1"],
            "--seconds",
        ),
        (vec!["bench", m, "--demo", "streams"], "MODEL"),
        (
            vec!["bench", "--op", "map:8:f32:relu", "--dim", "n=1"],
            "--dim",
        ),
        (
            vec!["plan", m, "--on", "a100,h100", "--isa", "avx2"],
            "--isa",
        ),
        (
            vec!["plan", m, "--on", "a100", "--no-streaming"],
            "--no-streaming",
        ),
        (
            vec!["plan", m, "--on", "a100", "--machine", "cpu"],
            "--machine",
        ),
        (vec!["plan", m, "--no-streaming"], "--no-streaming"),
        (
            vec!["plan", m, "--on", "zen5-2core+h100", "--isa", "avx2"],
            "--isa",
        ),
        (
            vec!["advise", m, "--on", "a100", "--launch", "resident"],
            "--launch",
        ),
        (
            vec!["emit", m, "--on", "a100", "--step", "0", "--no-streaming"],
            "--no-streaming",
        ),
        (vec!["roofline", "--op", "map:8:f32:relu", "--all"], "--all"),
        (vec!["run", m, "--launch", "steps,resident"], "--launch"),
        (vec!["inspect", m, "--precision", "bf16"], "--precision"),
        (vec!["plan", m, "--launch", "steps"], "--launch"),
    ] {
        let e = fails(2, &args);
        assert!(e.contains(option), "{args:?}: {e}");
    }
    assert!(fails(2, &["plan", m, "--on", "a100", "--isa", "avx2"]).contains("avx2"));
    assert!(fails(2, &["plan", m, "--launch", "resident"]).contains("NVIDIA"));
    assert!(fails(2, &["run", m, "--on", "h100"]).contains("planned for"));
    assert!(fails(2, &["advise", m, "--on", "cuda"]).contains("is a device that runs"));
}

#[test]
fn machines_are_planned_for_with_the_same_options() {
    if !testing::turn("machines_are_planned_for_with_the_same_options") {
        return;
    }
    let model = root()
        .join("models/digits_cnn/model.onnx")
        .display()
        .to_string();
    let m = model.as_str();
    let us = |more: &[&str]| {
        let v = json(&[&["plan", m, "--dim", "batch=64", "--on"], more].concat());
        v["predicted_us"].as_f64().unwrap()
    };
    let both = us(&["zen5-2core"]);
    assert!(us(&["zen5-2core", "--threads", "1"]) > both);
    assert!(us(&["zen5-2core", "--isa", "portable"]) > both);
    // Of its own accord it is the shorter of launches and graphs.
    let of = |way| us(&["h100", "--launch", way]);
    assert!(of("graph") < of("steps"));
    assert_eq!(us(&["h100"]), of("graph"));
    let v = json(&["plan", m, "--on", "h100", "--launch", "resident"]);
    let ways = v["ways"].as_array().unwrap();
    let names: BTreeSet<&str> = ways.iter().map(|w| w["way"].as_str().unwrap()).collect();
    assert_eq!(names, BTreeSet::from(["graph", "resident", "steps"]));
    assert_eq!(v["launch"], "resident");
    let page = text(&["plan", m, "--on", "h100", "--why"]);
    for what in ["predicted by", "steps", "resident", "between and around"] {
        assert!(page.contains(what), "{what}: {page}");
    }
    let e = fails(1, &["plan", m, "--on", "h100", "--memory", "1KiB"]);
    assert!(e.contains("memory") || e.contains("B"), "{e}");
    for command in [
        vec!["advise", m, "--dim", "batch=64"],
        vec!["what-if", m, "--dim", "batch=64", "--set", "clock=2x"],
    ] {
        let of = |more: &[&str]| json(&[&command[..], &["--on", "zen5-2core"], more].concat());
        assert_ne!(of(&[]), of(&["--threads", "1"]), "{command:?}");
    }
    let v = json(&["plan", m]);
    assert_eq!(v["device"], "cpu");
    assert!(json(&["plan", m, "--on", "h100"]).get("device").is_none());
}

#[test]
fn one_step_is_explained() {
    let model = root()
        .join("models/digits_cnn/model.onnx")
        .display()
        .to_string();
    let m = model.as_str();
    let whole = ends(0, &["plan", m, "--why"]);
    assert!(
        whole.contains("why: fuse (") && whole.contains(" x  fused with *"),
        "{whole}"
    );
    // The model may stand behind `--why`.
    assert_eq!(ends(0, &["plan", "--why", m]), whole);
    let one = ends(0, &["plan", m, "--why", "2"]);
    for part in [
        "step 2 of digits_cnn",
        "nodes",
        "predicted",
        "schedule:",
        "instead:",
    ] {
        assert!(one.contains(part), "no '{part}' in\n{one}");
    }
    assert!(!one.contains("one request"), "{one}");
    let v = json(&["plan", m, "--why", "2"]);
    let name = v["step"]["name"].as_str().unwrap().to_string();
    assert!(!v["whys"].as_array().unwrap().is_empty());
    assert_eq!(ends(0, &["plan", m, "--why", &name]), one);
    assert!(fails(2, &["plan", m, "--why", "nothing"]).contains("no step 'nothing'"));
}

#[test]
fn what_emit_writes_emulate_runs() {
    if !testing::turn("what_emit_writes_emulate_runs") {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let model = root()
        .join("models/digits_cnn/model.onnx")
        .display()
        .to_string();
    let plan = json(&["plan", &model, "--on", "a100"]);
    let steps = plan["steps"].as_array().unwrap().len();
    let mut ran = 0;
    for step in 0..steps {
        let file = dir.path().join(format!("{step}.ptx")).display().to_string();
        let step = step.to_string();
        let emit = [
            "emit", &model, "--on", "a100", "--step", &step, "--ptx", &file,
        ];
        let o = shopfloor(&emit);
        let (out, err) = (
            String::from_utf8(o.stdout).unwrap(),
            String::from_utf8(o.stderr).unwrap(),
        );
        if !o.status.success() {
            // Copies between host and device have no text.
            assert!(
                err.contains("has no GPU's text") || err.contains("has no text"),
                "{err}"
            );
            continue;
        }
        ran += 1;
        let command = out.split("\n\n").nth(1).unwrap().replace("\\\n", " ");
        let words = words(&command);
        assert_eq!(
            words[..3],
            ["shopfloor".into(), "emulate".into(), file.clone()]
        );
        let args: Vec<&str> = words[1..].iter().map(String::as_str).collect();
        ends(0, &args);
        // As it says: cycles by reason.
        let hint = out.split("add ").nth(1).unwrap();
        let more: Vec<&str> = hint.split_whitespace().collect();
        assert!(
            ends(0, &[&args[..], &more].concat()).contains("on A100"),
            "{out}"
        );
    }
    // Those of the request's first input and of its output are copies.
    assert!(ran > 0 && ran + 2 == steps, "{ran} of {steps}");
    let e = fails(
        2,
        &[
            "emit", &model, "--on", "mi300x", "--step", "1", "--ptx", "x.ptx",
        ],
    );
    assert!(e.contains("a100"), "{e}");
}
