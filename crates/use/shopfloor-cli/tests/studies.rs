//! Plans for machines that are not there: over several, with a change, with advice.

use crate::common;

use common::{fails, json, text};
use serde_json::Value;
use std::path::Path;

fn model(name: &str) -> String {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../..");
    let path = root.join("models").join(name).join("model.onnx");
    path.display().to_string()
}

fn f(v: &Value) -> f64 {
    v.as_f64().unwrap_or_else(|| panic!("{v} is no number"))
}

#[test]
fn one_model_over_machines() {
    if !testing::turn("one_model_over_machines") {
        return;
    }
    let m = model("digits_cnn");
    let v = json(&[
        "plan",
        &m,
        "--on",
        "a100,h100,mi300x,zen5-2core",
        "--batch",
        "1,8,64",
    ]);
    assert_eq!(v["batch"], "batch");
    let rows = v["rows"].as_array().unwrap();
    let of = |machine: &str, kernels: &str| {
        let found = rows
            .iter()
            .find(|r| r["machine"] == machine && r["kernels"] == kernels);
        found.unwrap_or_else(|| panic!("{machine} {kernels}: {v}"))
    };
    for (machine, target) in [
        ("A100-SXM4-80GB", "ptx-sm_80"),
        ("H100-SXM5-80GB", "ptx-sm_90a"),
        ("MI300X", "wgsl"),
    ] {
        let ours = of(machine, "ours");
        assert_eq!(ours["target"], target);
        let points = ours["points"].as_array().unwrap();
        assert_eq!(points.len(), 3);
        for (p, batch) in points.iter().zip([1.0, 8.0, 64.0]) {
            assert_eq!(f(&p["batch"]), batch);
            let per_s = batch / f(&p["latency_s"]);
            assert!((f(&p["per_s"]) / per_s - 1.0).abs() < 1e-9);
            // A machine with more registers than a tile program may have runs kernels all the same.
            assert_eq!(
                (&p["on_host"], &p["fits"]),
                (&0.into(), &true.into()),
                "{machine}"
            );
        }
        assert!(f(&points[2]["latency_s"]) >= f(&points[0]["latency_s"]));
        assert!(f(&points[2]["per_s"]) > f(&points[0]["per_s"]));
        assert!(f(&points[2]["memory"]) > f(&points[0]["memory"]));
        // The vendor's library is another target, told apart.
        let vendor = of(machine, "vendor");
        assert!(vendor["target"].as_str().unwrap().starts_with("vendor"));
    }
    // What the cost model says of one machine is what `plan` says of it.
    let alone = json(&["plan", &m, "--on", "a100", "--dim", "batch=8"]);
    let same = f(&of("A100-SXM4-80GB", "ours")["points"][1]["latency_s"]);
    // But for the same instructions: of a size that `--dim` fixes a number is printed, of one that is fixed
    // for a request only a parameter.
    let off = f(&alone["predicted_us"]) * 1e-6 / same - 1.0;
    assert!(off.abs() < 5e-3, "{off}");
    let out = text(&["plan", &m, "--on", "a100,t4"]);
    for part in ["batch 64", "vendor", "ours", "items/s", "fits"] {
        assert!(out.contains(part), "{part}: {out}");
    }
    // One machine with batches is a table too; "cpu" in a list is the CPU at hand.
    text(&["plan", &m, "--on", "a100", "--batch", "4"]);
    text(&["plan", &m, "--on", "cpu,a100"]);
}

#[test]
fn comparisons_that_cannot_be() {
    let m = model("digits_cnn");
    for (args, part) in [
        (vec!["plan", &m, "--on", "a100,nosuch"], "nosuch"),
        (vec!["plan", &m, "--on", ","], "names no machine"),
        (vec!["plan", &m, "--on", "a100,h100", "--why"], "--why"),
        (
            vec!["plan", &m, "--on", "emulated:a100", "--batch", "1,8"],
            "emulated:a100",
        ),
        (vec!["plan", &m, "--on", "a100", "--batch", "0"], "--batch"),
        (
            vec![
                "plan", &m, "--on", "a100", "--dim", "batch=4", "--batch", "1",
            ],
            "leave --batch out",
        ),
    ] {
        let o = common::shopfloor(&args);
        assert!(!o.status.success(), "{args:?}");
        let e = String::from_utf8(o.stderr).unwrap();
        assert!(e.contains(part), "{args:?}: {e}");
    }
}

/// What is asked of a machine that nobody knows is refused before the model is looked for.
#[test]
fn machines_are_found_before_models() {
    for command in [
        "run",
        "bench",
        "profile",
        "plan",
        "walk",
        "roofline",
        "advise",
        "emit",
        "annotate",
        "supervise",
        "what-if",
    ] {
        for option in ["--machine", "--on"] {
            let mut args = vec![command, "there_is_none.onnx", option, "nosuch"];
            match command {
                "annotate" => args.extend(["--out", "none.onnx"]),
                "emit" => args.extend(["--step", "0"]),
                "what-if" => args.extend(["--set", "l2=2x"]),
                _ => {}
            }
            let o = common::shopfloor(&args);
            let e = String::from_utf8_lossy(&o.stderr).into_owned();
            let named = e.contains("nosuch") && !e.contains("onnx:");
            assert!(!o.status.success() && named, "{args:?}: {e}");
        }
    }
}

#[test]
fn what_a_change_buys() {
    if !testing::turn("what_a_change_buys") {
        return;
    }
    let m = model("ppocr_rec");
    let base = ["what-if", &m, "--on", "a100"];
    let with = |sets: &[&str]| {
        let args: Vec<&str> = base
            .iter()
            .copied()
            .chain(sets.iter().flat_map(|s| ["--set", s]))
            .collect();
        json(&args)
    };
    let none = with(&["l2=1x"]);
    assert_eq!(none["old_s"], none["new_s"]);
    let v = with(&["overhead=0.5x", "fma=2x"]);
    assert!(f(&v["new_s"]) < f(&v["old_s"]));
    let alone = v["alone"].as_array().unwrap();
    assert_eq!(alone.len(), 2);
    for a in alone {
        assert!(
            f(&a["new_s"]) < f(&v["old_s"]) && f(&a["new_s"]) > f(&v["new_s"]),
            "{a}"
        );
    }
    let steps = v["steps"].as_array().unwrap();
    let sum = |key: &str| -> f64 { steps.iter().filter_map(|s| s[key].as_f64()).sum() };
    assert!((sum("old_s") / f(&v["old_s"]) - 1.0).abs() < 1e-6);
    assert!((sum("new_s") / f(&v["new_s"]) - 1.0).abs() < 1e-6);
    assert!(steps.iter().all(|s| !s["why"].as_str().unwrap().is_empty()));
    // It is the plan of the changed machine, which a file describes as well.
    let folder = tempfile::tempdir().unwrap();
    let mut machine = shopfloor::machines::find("a100").unwrap();
    "fma=2x"
        .parse::<shopfloor::Change>()
        .unwrap()
        .apply(&mut machine)
        .unwrap();
    let file = folder.path().join("faster.toml");
    std::fs::write(&file, machine.to_toml().unwrap()).unwrap();
    let plan = json(&["plan", &m, "--on", &file.display().to_string()]);
    let new = f(&with(&["fma=2x"])["new_s"]);
    assert!((f(&plan["predicted_us"]) * 1e-6 / new - 1.0).abs() < 1e-9);
    let out = text(&[
        "what-if",
        &m,
        "--on",
        "h100",
        "--set",
        "l2=2x",
        "--set",
        "bandwidth=1.5x",
    ]);
    for part in [
        "each change alone",
        "step by step",
        "what bounds the request",
    ] {
        assert!(out.contains(part), "{part}: {out}");
    }
    text(&[
        "what-if",
        &m,
        "--on",
        "zen5-2core",
        "--set",
        "l2=4x",
        "--all",
    ]);
    text(&[
        "what-if",
        &m,
        "--on",
        "a100",
        "--set",
        "l2=2x",
        "--kernels",
        "vendor",
    ]);
    fails(2, &["what-if", &m, "--on", "a100"]);
    fails(2, &["what-if", &m, "--on", "a100", "--set", "l2"]);
    let e = fails(2, &["what-if", &m, "--on", "a100", "--set", "l4=2x"]);
    assert!(e.contains("L2") && e.contains("bandwidth"), "{e}");
    let e = fails(
        2,
        &[
            "what-if",
            &m,
            "--on",
            "zen5-2core",
            "--set",
            "l2=2x",
            "--kernels",
            "vendor",
        ],
    );
    assert!(e.contains("vendor"), "{e}");
}

#[test]
fn advice_is_ranked_and_holds() {
    if !testing::turn("advice_is_ranked_and_holds") {
        return;
    }
    let m = model("digits_cnn");
    let v = json(&["advise", &m, "--on", "a100"]);
    let list = v["advice"].as_array().unwrap();
    let kinds: Vec<&str> = list.iter().map(|a| a["kind"].as_str().unwrap()).collect();
    for k in [
        "precision",
        "batch",
        "fuse",
        "layout",
        "on device",
        "launch",
    ] {
        assert!(kinds.contains(&k), "{k}: {kinds:?}");
    }
    for pair in list.windows(2) {
        assert!(f(&pair[0]["gain"]) >= f(&pair[1]["gain"]));
    }
    let now = f(&v["now_s"]);
    for a in list.iter().filter(|a| !a["new_s"].is_null()) {
        assert!((f(&a["gain"]) * f(&a["new_s"]) / now - 1.0).abs() < 1e-9);
        assert!(!a["reason"].as_str().unwrap().is_empty());
    }
    // A gain by batch or precision is that of the plan that has them.
    let batch = list
        .iter()
        .find(|a| a["what"].as_str().unwrap().contains("batch=8"));
    let plan = json(&["plan", &m, "--on", "a100", "--dim", "batch=8"]);
    let each = f(&plan["predicted_us"]) * 1e-6 / 8.0;
    // Printed instructions differ a little, as above.
    let off = f(&batch.unwrap()["new_s"]) / each - 1.0;
    assert!(off.abs() < 5e-3, "{off}");
    let with = |part: &str| {
        let has = |a: &&Value| a["what"].as_str().unwrap().contains(part);
        list.iter()
            .find(has)
            .unwrap_or_else(|| panic!("{part}: {v}"))
    };
    let bf16 = with("bf16");
    let plan = json(&["plan", &m, "--on", "a100", "--precision", "bf16"]);
    assert!((f(&bf16["new_s"]) / (f(&plan["predicted_us"]) * 1e-6) - 1.0).abs() < 1e-9);
    // Storage in f16 is planned, not scaled: half the bytes are not half the time of so small a model.
    let f16 = with("f16");
    assert_eq!(f16["kind"], "precision");
    assert_eq!(f16["computed"], "replanned");
    assert!(f(&f16["gain"]) > 0.5 && f(&f16["gain"]) < 4.0, "{f16}");
    let out = text(&["advise", &m, "--on", "h100"]);
    assert!(out.contains("ours, unvalidated"), "{out}");
    assert!(out.contains("as fast") && out.contains("why"), "{out}");
    let out = text(&["advise", &m, "--on", "zen5-2core"]);
    assert!(out.contains("resident already"), "{out}");
    text(&[
        "advise",
        &model("silero_vad"),
        "--on",
        "t4",
        "--kernels",
        "vendor",
    ]);
    let e = fails(2, &["advise", &m, "--on", "a100", "--kernels", "theirs"]);
    assert!(e.contains("vendor"), "{e}");
    fails(1, &["advise", "nofile.onnx", "--on", "a100"]);
}

/// Sum of what is predicted for steps, and for what is counted of control flow, in microseconds.
fn parts(plan: &Value) -> (f64, f64) {
    let of = |key: &str| plan[key].as_array().unwrap().clone();
    let steps = of("steps").iter().map(|s| f(&s["predicted_us"])).sum();
    let bodies = of("bodies");
    let inside = |node: &Value| -> f64 {
        let own = bodies.iter().filter(|b| b["node"] == *node);
        own.map(|b| f(&b["predicted_us"])).fold(0.0, f64::max)
    };
    let mut nodes: Vec<&Value> = bodies.iter().map(|b| &b["node"]).collect();
    nodes.dedup();
    (steps, nodes.into_iter().map(inside).sum())
}

/// A model whose time is in the branches of an `If`: the costlier one counts, in every prediction alike.
#[test]
fn branches_count() {
    if !testing::turn("branches_count") {
        return;
    }
    let m = model("silero_vad");
    for kernels in ["ours", "vendor"] {
        let sized = |command: &[&str]| {
            let more = [
                "--dim",
                "input.d0=1",
                "--dim",
                "input.d1=512",
                "--dim",
                "state.d1=1",
            ];
            let on = ["--on", "a100", "--kernels", kernels];
            let args: Vec<&str> = command.iter().copied().chain(on).chain(more).collect();
            json(&args)
        };
        let plan = sized(&["plan", &m]);
        assert_eq!(plan["kernels"], kernels);
        assert_eq!(plan["unvalidated"], kernels == "ours");
        let (_, branches) = parts(&plan);
        assert!(branches > 0.0, "{plan}");
        let all = f(&plan["predicted_us"]);
        // Steps take what the way of launching them takes that was chosen.
        let ways = plan["ways"].as_array().unwrap();
        let chosen = ways.iter().find(|w| w["way"] == plan["launch"]).unwrap();
        let steps = f(&chosen["predicted_us"]);
        assert!(((steps + branches) / all - 1.0).abs() < 1e-9);
        let change = sized(&["what-if", &m, "--set", "launch=0.5x"]);
        assert!((f(&change["old_s"]) * 1e6 / all - 1.0).abs() < 1e-9);
        assert!(f(&change["new_s"]) <= f(&change["old_s"]));
        let rows = change["steps"].as_array().unwrap();
        let sum: f64 = rows.iter().filter_map(|s| s["old_s"].as_f64()).sum();
        assert!((sum / f(&change["old_s"]) - 1.0).abs() < 1e-6, "{change}");
        let advice = sized(&["advise", &m]);
        assert!((f(&advice["now_s"]) * 1e6 / all - 1.0).abs() < 1e-9);
        assert!(!advice["notes"].as_array().unwrap().is_empty());
    }
    let sizes = ["--dim", "input.d1=512", "--dim", "state.d1=1"];
    let with = |args: &[&str]| -> Vec<String> {
        let all = args.iter().chain(&sizes).map(|s| s.to_string());
        all.collect()
    };
    let over = with(&["plan", &m, "--on", "a100,t4", "--batch", "1"]);
    let over: Vec<&str> = over.iter().map(String::as_str).collect();
    let one = with(&["plan", &m, "--on", "a100"]);
    let one = json(&one.iter().map(String::as_str).collect::<Vec<_>>());
    let v = json(&over);
    let rows = v["rows"].as_array().unwrap();
    let ours = |r: &&Value| r["kernels"] == "ours" && r["machine"] == "A100-SXM4-80GB";
    let latency = f(&rows.iter().find(ours).unwrap()["points"][0]["latency_s"]);
    assert!((latency * 1e6 / f(&one["predicted_us"]) - 1.0).abs() < 1e-9);
    let out = text(&over);
    assert!(out.contains("costlier branch"), "{out}");
    // Sizes for which a branch cannot be are said, not passed over.
    let out = text(&["plan", &m, "--on", "a100,t4", "--batch", "1"]);
    assert!(out.contains("not in these figures"), "{out}");
}

/// Whose kernels a plan is of is said, and can be chosen.
/// A processor may be called anything.
#[test]
fn a_long_name_of_a_machine_is_broken() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("mine.toml");
    let toml = include_str!("../../../plan/machine/machines/zen5-2core.toml");
    let long =
        "Some(R) Processor of a Maker(TM) With a Long Name (generic), 2 cores of a virtual machine";
    let own = toml.replacen("zen5-2core", long, 1);
    std::fs::write(
        &file,
        own.replace("EPYC Zen 5", "Mine").replace("Turin", "Own"),
    )
    .unwrap();
    let out = text(&["plan", &model("digits_cnn"), "--on", file.to_str().unwrap()]);
    let words: Vec<&str> = out.split_whitespace().collect();
    assert!(words.join(" ").contains(long), "{out}");
}

#[test]
fn kernels_are_told_apart() {
    let m = model("digits_cnn");
    let out = text(&["plan", &m, "--on", "a100"]);
    assert!(out.contains("ours, unvalidated"), "{out}");
    // Headings are whole, and the way is named of each machine that has several.
    let out = text(&["plan", &m, "--on", "a100,h100,cpu", "--batch", "1,64"]);
    assert!(
        out.contains("\n  machine  ") && out.contains("  graph  "),
        "{out}"
    );
    let out = text(&["plan", &m, "--on", "a100", "--kernels", "vendor"]);
    assert!(
        out.contains("kernels    vendor") && out.contains("vendor-a100"),
        "{out}"
    );
    let out = text(&["plan", &m, "--on", "zen5-2core"]);
    assert!(!out.contains("unvalidated"), "{out}");
    let v = json(&["plan", &m, "--on", "a100,h100", "--kernels", "vendor"]);
    let rows = v["rows"].as_array().unwrap();
    assert!(rows.len() == 2 && rows.iter().all(|r| r["kernels"] == "vendor"));
    for (args, part) in [
        (vec!["plan", &m, "--kernels", "vendor"], "--on"),
        (
            vec!["plan", &m, "--on", "zen5-2core", "--kernels", "vendor"],
            "no vendor target",
        ),
        (
            vec!["plan", &m, "--on", "cpu+a100", "--kernels", "vendor"],
            "cut between two",
        ),
        (
            vec![
                "plan",
                &m,
                "--on",
                "a100",
                "--kernels",
                "vendor",
                "--out",
                "x.json",
            ],
            "cannot be run",
        ),
    ] {
        let e = fails(2, &args);
        assert!(e.contains(part), "{args:?}: {e}");
    }
}
