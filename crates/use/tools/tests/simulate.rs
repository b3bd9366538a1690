//! Scenarios whose steps are those of real plans and whose proposals are the planner's.
use crate::common;

use common::sums;
use shopfloor_tools::{SimulateOptions, replay, simulate};
use std::path::{Path, PathBuf};

fn folder() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../../scenarios")
}

/// Logs of one run replay to its decisions, and a second run is the same.
#[test]
fn plans_in_virtual_time() {
    if !testing::turn("plans_in_virtual_time") {
        return;
    }
    let path = folder().join("planned.toml");
    let options = SimulateOptions {
        log: true,
        ..SimulateOptions::default()
    };
    let s = simulate(&path, options).unwrap();
    let text = s.verdict.render(shopfloor_tools::report::Style::default());
    let all = s.outcome.render(shopfloor_tools::report::Style::default());
    assert!(s.verdict.holds(), "{all}\n{text}");
    assert!(s.outcome.promotions >= 1, "{all}");
    let kept = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(kept.path(), &s.logs[0]).unwrap();
    let again = replay(kept.path()).unwrap();
    assert_eq!(again.differs_at, None);
    let made: Vec<_> = s
        .outcome
        .decisions
        .iter()
        .map(|d| d.decision.clone())
        .collect();
    assert_eq!(again.decisions, made);
}

#[test]
fn files_that_are_none_are_errors() {
    let no = |p: &Path| {
        simulate(p, SimulateOptions::default())
            .unwrap_err()
            .to_string()
    };
    assert!(no(Path::new("no-such.toml")).contains("no-such.toml"));
    let bad = tempfile::NamedTempFile::with_suffix(".toml").unwrap();
    std::fs::write(bad.path(), "name = 3").unwrap();
    assert!(no(bad.path()).contains("scenario"));
    assert!(replay(bad.path()).is_err());
}

/// A GPU that is not what its file says: the supervisor finds that its steps belong to the CPU.
#[test]
fn another_device_where_the_file_of_one_promises_too_much() {
    if !testing::turn("another_device_where_the_file_of_one_promises_too_much") {
        return;
    }
    let path = folder().join("pair.toml");
    let s = simulate(&path, SimulateOptions::default()).unwrap();
    let text = s.verdict.render(shopfloor_tools::report::Style::default());
    let all = s.outcome.render(shopfloor_tools::report::Style::default());
    assert!(s.verdict.holds(), "{all}\n{text}");
    println!("{all}");
    let whys = s.outcome.decisions.iter().map(|d| &d.decision.why);
    let promoted = whys.filter(|w| w.pass == "promoted");
    let choices: Vec<&str> = promoted.map(|w| w.choice.as_str()).collect();
    assert!(
        choices.iter().any(|c| c.contains("zen5-2core")),
        "{choices:?}"
    );
}

/// Tanh, exp and the sum are one kernel and, since there is one sum, one task. On a clock of a quarter of what
/// the file says the functions are worth a step of their own, on all workers.
#[test]
fn another_fusion_where_the_clock_is_not_what_the_file_says() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("model.onnx"), sums(4096)).unwrap();
    let toml = r#"
name = "sums"
seed = 15
seconds = 8

[[devices]]
name = "cpu"
machine = "zen5-2core"
truth = ["clock=0.25x"]

[[models]]
name = "sums"
path = "model.onnx"

[[sessions]]
name = "sums"
model = "sums"
[[sessions.traffic]]
kind = "steady"
rate = 500

[[expect]]
session = "sums"
metric = "p50_ms"
from = 4
most = 1.05
of_oracle = true

[[expect]]
metric = "lost"
most = 0
"#;
    let path = folder.path().join("sums.toml");
    std::fs::write(&path, toml).unwrap();
    let s = simulate(&path, SimulateOptions::default()).unwrap();
    let text = s.verdict.render(shopfloor_tools::report::Style::default());
    let all = s.outcome.render(shopfloor_tools::report::Style::default());
    println!("{all}\n{text}");
    assert!(s.verdict.holds(), "{all}\n{text}");
    let whys = s.outcome.decisions.iter().map(|d| &d.decision.why);
    let promoted = whys.filter(|w| w.pass == "promoted");
    let choices: Vec<&str> = promoted.map(|w| w.choice.as_str()).collect();
    assert!(
        choices.iter().any(|c| c.contains("another fusion")),
        "{choices:?}"
    );
}
