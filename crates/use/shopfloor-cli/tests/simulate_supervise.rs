//! Scenarios in virtual time, and models under load with a supervisor, as a user calls them.

use crate::common;

use common::{fails, json, shopfloor, text};
use serde_json::Value;
use std::path::Path;

fn scenario(name: &str) -> String {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../scenarios");
    root.join(name).display().to_string()
}

fn model() -> String {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../models");
    root.join("digits_cnn/model.onnx").display().to_string()
}

#[test]
fn a_scenario_is_simulated_and_its_log_replays() {
    if !testing::turn("a_scenario_is_simulated_and_its_log_replays") {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let log = folder.path().join("log").display().to_string();
    let out = text(&["simulate", &scenario("neighbour.toml"), "--log", &log]);
    assert!(
        out.contains("worker 1 last") && out.contains("vision"),
        "{out}"
    );
    let again = text(&["simulate", &log, "--replay"]);
    assert!(
        again.contains("worker 1 last") && again.contains("decisions"),
        "{again}"
    );
    let first = json(&["simulate", &scenario("neighbour.toml"), "--seed", "5"]);
    let second = json(&["simulate", &scenario("neighbour.toml"), "--seed", "5"]);
    assert_eq!(first, second);
    assert!(
        first["sessions"].is_array() && first["expected"].is_object(),
        "{first}"
    );
    // A log whose decisions are others is found out.
    let lines = std::fs::read_to_string(&log).unwrap();
    std::fs::write(&log, lines.replace("worker 1 last", "worker 0 last")).unwrap();
    let e = fails(4, &["simulate", &log, "--replay"]);
    assert!(e.contains("says other actions"), "{e}");
    let e = fails(1, &["simulate", "nowhere.toml"]);
    assert!(e.contains("nowhere.toml"), "{e}");
    let e = fails(
        2,
        &[
            "simulate",
            &scenario("neighbour.toml"),
            "--supervise",
            "maybe",
        ],
    );
    assert!(e.contains("off, observe or on"), "{e}");
}

#[test]
fn models_under_load_are_supervised_and_the_log_replays() {
    if !testing::turn("models_under_load_are_supervised_and_the_log_replays") {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let log = folder.path().join("log").display().to_string();
    let trace = folder.path().join("trace.json").display().to_string();
    let args = [
        "supervise",
        &model(),
        &model(),
        "--seconds",
        "1",
        "--callers",
        "2",
    ];
    let to = ["--threads", "2", "--log", &log, "--trace", &trace, "--json"];
    let o = shopfloor(&[&args[..], &to].concat());
    let err = String::from_utf8_lossy(&o.stderr);
    assert!(o.status.success(), "{err}");
    let out = String::from_utf8(o.stdout).unwrap();
    let lines: Vec<Value> = out
        .lines()
        .map(|l| serde_json::from_str(l).unwrap())
        .collect();
    let (last, decisions) = lines.split_last().unwrap();
    assert!(
        decisions
            .iter()
            .all(|d| d["at"].is_number() && d["why"]["reason"].is_string())
    );
    let summary = &last["summary"];
    assert_eq!(summary["models"].as_array().unwrap().len(), 2);
    for m in summary["models"].as_array().unwrap() {
        assert!(
            m["requests"].as_u64().unwrap() > 0 && m["failed"] == 0,
            "{m}"
        );
    }
    assert!(summary["windows"].as_u64().unwrap() > 0);
    // The same decisions in the timeline, but for any of its last moment.
    let text_of_trace = std::fs::read_to_string(&trace).unwrap();
    let traced: Value = serde_json::from_str(&text_of_trace).unwrap();
    let events = traced["traceEvents"].as_array().unwrap();
    let marks: Vec<&Value> = events.iter().filter(|e| e["ph"] == "i").collect();
    assert!(marks.len() <= decisions.len());
    for (m, d) in marks.iter().zip(decisions) {
        assert_eq!(m["args"]["reason"], d["why"]["reason"]);
        assert!(
            m["name"]
                .as_str()
                .unwrap()
                .starts_with(d["why"]["pass"].as_str().unwrap())
        );
    }
    let again = text(&["supervise", "--replay", &log]);
    assert!(again.contains("records"), "{again}");
    let replayed = json(&["simulate", &log, "--replay"]);
    assert_eq!(replayed.as_array().unwrap().as_slice(), decisions);
    let shown = text(&[
        "supervise",
        &model(),
        "--seconds",
        "0.3",
        "--supervise",
        "observe",
    ]);
    assert!(shown.contains("The supervisor's loop took"), "{shown}");
    let e = fails(2, &["supervise"]);
    assert!(e.contains("ONNX files") && e.contains("--replay"), "{e}");
    let beside = shopfloor(&[
        "bench",
        &model(),
        "--seconds",
        "0.3",
        "--supervise",
        "on",
        "--json",
    ]);
    assert!(beside.status.success());
    let report: Value = serde_json::from_slice(&beside.stdout).unwrap();
    assert!(report["iterations"].as_u64().unwrap() > 0);
}
