//! Report pages, annotated models and traces of models that are bundled.

use crate::common;

use common::{fails, json, shopfloor, text};
use serde_json::Value;
use std::path::{Path, PathBuf};

fn model(name: &str) -> String {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../..");
    let path = root.join("models").join(name).join("model.onnx");
    path.display().to_string()
}

fn done(args: &[&str]) {
    let o = shopfloor(args);
    let err = String::from_utf8_lossy(&o.stderr);
    assert!(o.status.success(), "{args:?}: {err}");
}

fn carried(path: &Path) -> Value {
    let html = std::fs::read_to_string(path).unwrap();
    let data = html.split("id=\"data\">").nth(1).unwrap();
    serde_json::from_str(data.split("</script>").next().unwrap()).unwrap()
}

fn at(dir: &tempfile::TempDir, name: &str) -> (PathBuf, String) {
    let path = dir.path().join(name);
    let text = path.display().to_string();
    (path, text)
}

#[test]
fn a_plan_as_a_page_says_what_plan_says() {
    let dir = tempfile::tempdir().unwrap();
    let (page, out) = at(&dir, "report.html");
    let m = model("digits_cnn");
    let args = ["plan", &m, "--on", "h100", "--dim", "batch=8"];
    let view = json(&args);
    done(&[&args[..], &["--report", &out]].concat());
    let data = carried(&page);
    for key in [
        "model",
        "dims",
        "predicted_us",
        "interval_us",
        "flop",
        "target",
        "memory",
        "goal",
    ] {
        assert_eq!(data[key], view[key], "{key}");
    }
    // The page has no list of parts: its note says what leads from the steps to the request.
    let (note, own) = (
        data["note"].as_str().unwrap(),
        view["note"].as_str().unwrap(),
    );
    assert!(note.starts_with(own), "{note}");
    for part in view["parts"].as_array().unwrap() {
        assert!(note.contains(part["what"].as_str().unwrap()), "{note}");
    }
    let (a, b) = (
        data["steps"].as_array().unwrap(),
        view["steps"].as_array().unwrap(),
    );
    assert_eq!(a.len(), b.len());
    for (a, b) in a.iter().zip(b) {
        for (key, value) in b.as_object().unwrap() {
            assert_eq!(&a[key], value, "{key}");
        }
    }
    // Every machine of the plan is there with the levels that traffic is counted at.
    assert_eq!(data["machines"].as_array().unwrap().len(), 2);
    assert_eq!(data["machines"][1]["name"], "H100-SXM5-80GB");
    assert!(!data["roofline"]["roofs"].as_array().unwrap().is_empty());
    // What would help is what `advise` says.
    let advice = json(&["advise", &m, "--on", "h100", "--dim", "batch=8"]);
    assert_eq!(data["advice"], advice);
    // The roofs are those of `roofline`.
    let roof = json(&["roofline", &m, "--on", "h100", "--dim", "batch=8"]);
    assert_eq!(data["roofline"]["roofs"], roof["roofs"]);
    let points = roof["points"].as_array().unwrap();
    let own: Vec<f64> = a.iter().filter_map(|s| s["roof_us"].as_f64()).collect();
    assert_eq!(own.len(), points.len());
    for (own, p) in own.iter().zip(points) {
        let other = p["roof_s"].as_f64().unwrap() * 1e6;
        assert!((own - other).abs() <= 1e-9 * other, "{own} {other}");
    }
    let total = data["accounting"]["total"].as_u64().unwrap();
    assert_eq!(
        total,
        data["accounting"]["nodes"].as_array().unwrap().len() as u64
    );
    assert_eq!(total, 11);
}

#[test]
fn a_profile_as_a_page_and_two_side_by_side() {
    if !testing::turn("a_profile_as_a_page_and_two_side_by_side") {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let (page, out) = at(&dir, "report.html");
    let (_, other) = at(&dir, "other.json");
    let m = model("magika");
    let run = [
        "profile",
        &m,
        "--no-cache",
        "--warmup",
        "1",
        "--active",
        "3",
    ];
    done(&["plan", &m, "--on", "a100", "--report", &other]);
    let o = shopfloor(&[&run[..], &["--report", &out, "--against", &other, "--json"]].concat());
    assert!(o.status.success(), "{}", String::from_utf8_lossy(&o.stderr));
    let profile: Value = serde_json::from_slice(&o.stdout).unwrap();
    let data = carried(&page);
    assert_eq!(data["measured"]["request_us"], profile["request_us"]);
    assert_eq!(data["measured"]["active"], 3);
    let of = |v: &Value, key: &str| -> std::collections::BTreeMap<String, Value> {
        let steps = v["steps"].as_array().unwrap().iter();
        let own = steps.map(|s| match key {
            "time_us" => (
                s["name"].as_str().unwrap().to_string(),
                s["measured"]["time_us"].clone(),
            ),
            _ => (
                s["name"].as_str().unwrap().to_string(),
                s["time_us"].clone(),
            ),
        });
        own.filter(|(_, v)| !v.is_null()).collect()
    };
    assert_eq!(of(&data, "time_us"), of(&profile, ""));
    let lanes = data["timeline"]["lanes"].as_array().unwrap();
    assert!(!lanes.is_empty() && !data["timeline"]["spans"].as_array().unwrap().is_empty());
    assert_eq!(data["against"]["machine"], "A100-SXM4-80GB");
    assert_eq!(data["against"]["measured"], false);
    // A page is read as well as its data, and what is neither is refused before anything runs.
    done(&[
        "plan",
        &m,
        "--on",
        "h100",
        "--report",
        &other,
        "--against",
        &out,
    ]);
    let (none, nothing) = at(&dir, "notes.txt");
    std::fs::write(none, "no report").unwrap();
    let e = fails(
        1,
        &[&run[..], &["--report", &out, "--against", &nothing]].concat(),
    );
    assert!(e.contains("notes.txt") && e.contains("--report"), "{e}");
    let e = fails(2, &["plan", &m, "--on", "a100,h100", "--report", &out]);
    assert!(e.contains("one machine"), "{e}");
}

#[test]
fn a_profile_draws_the_request_and_the_roofs() {
    let m = model("magika");
    let out = text(&[
        "profile",
        &m,
        "--no-cache",
        "--warmup",
        "1",
        "--active",
        "2",
    ]);
    for part in [
        "a column is",
        "worker 0",
        "█",
        "the roofs of",
        "operations for each byte",
    ] {
        assert!(out.contains(part), "{part}: {out}");
    }
}

#[test]
fn a_trace_as_protobuf() {
    let dir = tempfile::tempdir().unwrap();
    let (binary, out) = at(&dir, "t.pftrace");
    let (_, text) = at(&dir, "t.json");
    let m = model("digits_cnn");
    let run = [
        "profile",
        &m,
        "--no-cache",
        "--warmup",
        "1",
        "--active",
        "1",
        "--trace",
    ];
    done(&[&run[..], &[&out]].concat());
    done(&[&run[..], &[&text]].concat());
    let chrome: Value = serde_json::from_str(&std::fs::read_to_string(&text).unwrap()).unwrap();
    let bytes = std::fs::read(binary).unwrap();
    // A trace is packets and nothing else: field 1, a length, so many bytes.
    let (mut at, mut packets) = (0, 0);
    while at < bytes.len() {
        assert_eq!(bytes[at], 0x0a);
        at += 1;
        let (mut len, mut shift) = (0usize, 0);
        loop {
            let b = bytes[at];
            at += 1;
            len |= usize::from(b & 0x7f) << shift;
            shift += 7;
            if b & 0x80 == 0 {
                break;
            }
        }
        at += len;
        packets += 1;
    }
    assert_eq!(at, bytes.len());
    // Two ends for each span, and a description for each track; the request is another one, whose
    // spans may be cut otherwise.
    let events = chrome["traceEvents"].as_array().unwrap();
    let spans = events.iter().filter(|e| e["ph"] == "X").count();
    assert!(
        packets > spans && packets < 8 * spans + 8,
        "{packets} packets, {spans} spans"
    );
    let holds = |text: &str| bytes.windows(text.len()).any(|w| w == text.as_bytes());
    assert!(holds("worker 0 (caller)") && holds("predicted us") && holds("measured: digits_cnn"));
}

#[test]
fn a_model_annotated_is_the_same_model() {
    let dir = tempfile::tempdir().unwrap();
    let (first, a) = at(&dir, "a.onnx");
    let (second, b) = at(&dir, "b.onnx");
    let m = model("digits_cnn");
    let base = std::fs::metadata(&m).unwrap().len();
    done(&["annotate", &m, "--on", "a100", "--out", &a]);
    // Facts of an earlier time are replaced, not added to.
    done(&["annotate", &a, "--on", "a100", "--out", &b]);
    let (x, y) = (
        std::fs::read(&first).unwrap(),
        std::fs::read(&second).unwrap(),
    );
    assert!(x == y && x.len() as u64 > base);
    let holds = |text: &str| x.windows(text.len()).any(|w| w == text.as_bytes());
    for part in [
        "shopfloor.step",
        "shopfloor.predicted",
        "bound by",
        "shopfloor.machine",
    ] {
        assert!(holds(part), "{part}");
    }
    let strip = |mut v: Value| {
        for key in ["model", "path", "name"] {
            v.as_object_mut().unwrap().remove(key);
        }
        v
    };
    assert_eq!(
        strip(json(&["plan", &m, "--on", "a100"]))["steps"],
        strip(json(&["plan", &a, "--on", "a100"]))["steps"]
    );
    let e = fails(2, &["annotate", &a, "--on", "a100", "--out", &a]);
    assert!(e.contains("another name"), "{e}");
}
