//! The commands as a user calls them: exit codes, keys of the JSON forms, sentences of errors.

use crate::common;

use common::{ends, fails, json, one_node, shopfloor, text};
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

fn models() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../models")
}

fn file(model: &str, name: &str) -> String {
    models().join(model).join(name).display().to_string()
}

fn keys(v: &Value) -> Vec<&str> {
    v.as_object().unwrap().keys().map(String::as_str).collect()
}

#[test]
fn the_demo_reads_digits() {
    let out = ends(0, &["demo", "--threads", "2"]);
    assert!(
        out.contains("all 16: 2 0 4 9 4 1 2 4 6 7 9 1 8 0 9 8"),
        "{out}"
    );
    assert!(out.contains("agrees with the stored reference"), "{out}");
    assert!(
        out.contains("predicted") && out.contains("measured"),
        "{out}"
    );
}

#[test]
fn run_compares_saves_and_reports() {
    let dir = tempfile::tempdir().unwrap();
    let saved = dir.path().join("y.npz").display().to_string();
    let (model, inputs, want) = (
        file("digits_cnn", "model.onnx"),
        file("digits_cnn", "inputs.npz"),
        file("digits_cnn", "outputs.npz"),
    );
    let v = json(&[
        "run",
        &model,
        "--inputs",
        &inputs,
        "--outputs",
        &saved,
        "--compare",
        &want,
    ]);
    assert_eq!(v["outputs"][0]["shape"], serde_json::json!([16, 10]));
    assert_eq!(v["fallback_steps"], serde_json::json!([]));
    assert_eq!(v["compare"]["agrees"], true);
    assert!(v["steps_by_device"]["cpu"].as_u64() > Some(3), "{v}");
    assert!(v["flop_by_device"]["cpu"].as_f64() > Some(1e6), "{v}");
    assert_eq!(v["bytes_moved"], 0);
    // What was saved compares equal, within nothing at all.
    ends(
        0,
        &[
            "run",
            &model,
            "--inputs",
            &inputs,
            "--compare",
            &saved,
            "--rtol",
            "0",
        ],
    );
    let out = text(&[
        "run",
        &model,
        "--inputs",
        &inputs,
        "--labels",
        &file("digits_cnn", "labels.txt"),
    ]);
    assert!(
        out.contains("probabilities f32 [16, 10]") && out.contains("[0] "),
        "{out}"
    );
    // Another model's reference: the output is named.
    let err = fails(
        4,
        &[
            "run",
            &model,
            "--inputs",
            &inputs,
            "--compare",
            &file("magika", "outputs.npz"),
        ],
    );
    assert!(err.contains("'target_label'"), "{err}");
    let err = fails(
        4,
        &[
            "run",
            &model,
            "--inputs",
            &inputs,
            "--compare",
            &want,
            "--rtol",
            "0",
            "--isa",
            "portable",
        ],
    );
    assert!(
        err.contains("'probabilities'") && err.contains("element ["),
        "{err}"
    );
}

#[test]
fn wrong_inputs_are_named() {
    let model = file("digits_cnn", "model.onnx");
    let e = fails(2, &["run", &model]);
    for part in ["'image' is missing", "--inputs image=FILE.npy", "--random"] {
        assert!(e.contains(part), "{e}");
    }
    let out = text(&["run", &model, "--random", "--dim", "batch=3"]);
    assert!(out.contains("[3, 10]"), "{out}");
    let several = file("silero_vad", "model.onnx");
    let e = fails(2, &["run", &several]);
    assert!(
        e.contains("inputs '") && e.contains("' are missing; give them"),
        "{e}"
    );
    let other = file("ppocr_cls", "inputs.npz");
    assert!(fails(2, &["run", &model, "--inputs", &other]).contains("'image' is missing"));
    let own = file("digits_cnn", "inputs.npz");
    let err = fails(1, &["run", &model, "--inputs", &own, "--inputs", &other]);
    assert!(err.contains("'x'"), "{err}");
    assert!(fails(1, &["run", &model, "--inputs", "nowhere.npz"]).contains("nowhere.npz"));
    assert!(fails(2, &["run", &model, "--inputs", "image.npy"]).contains("NAME="));
    let bytes = file("magika", "inputs.npz");
    let err = fails(
        2,
        &[
            "run",
            &file("magika", "model.onnx"),
            "--inputs",
            &bytes,
            "--inputs",
            &bytes,
        ],
    );
    assert!(err.contains("given twice"), "{err}");
}

#[test]
fn usage_is_checked() {
    let model = file("digits_cnn", "model.onnx");
    assert!(fails(2, &["plan", &model, "--shape", "image"]).contains("INPUT=SIZE"));
    assert!(fails(2, &["plan", &model, "--dim", "batch=3..1"]).contains("FROM..TO"));
    assert!(fails(2, &["plan", &model, "--dim", "rows=1..3"]).contains("'batch'"));
    assert!(fails(2, &["plan", &model, "--isa", "sse9"]).contains("avx512"));
    assert!(fails(2, &["plan", &model, "--goal", "fame"]).contains("latency"));
    assert!(fails(2, &["plan", &model, "--machine", "abacus"]).contains("abacus"));
    assert!(fails(1, &["plan", "nowhere.onnx"]).contains("nowhere.onnx"));
    assert!(fails(2, &["bench", "--op", "map:8:f32:sing"]).contains("gelu"));
    assert!(fails(2, &["bench", "--op", "matmul:8x8:f32"]).contains("3 whole numbers"));
}

#[test]
fn damaged_models_give_errors() {
    let dir = tempfile::tempdir().unwrap();
    let bytes = std::fs::read(file("digits_cnn", "model.onnx")).unwrap();
    let broken = dir.path().join("broken.onnx");
    let path = broken.display().to_string();
    for n in [0, 1, bytes.len() / 2] {
        std::fs::write(&broken, &bytes[..n]).unwrap();
        assert!(fails(1, &["inspect", &path]).contains("broken.onnx"));
    }
}

#[test]
fn unsupported_operators_end_with_3() {
    let model = one_node("Flimflam", &[2], &[2]);
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("m.onnx");
    std::fs::write(&path, model).unwrap();
    let path = path.display().to_string();
    let err = fails(3, &["inspect", &path]);
    assert!(err.contains("Flimflam") && err.contains("n0"), "{err}");
    let v: Value = serde_json::from_str(&ends(3, &["inspect", &path, "--json"])).unwrap();
    assert_eq!(v["unsupported"][0]["node"], "n0");
    let err = fails(3, &["plan", &path]);
    assert!(err.contains("--kernel ai.onnx:Flimflam=FILE"), "{err}");
    // As the error says: a kernel of one's own for it.
    let kernel = dir.path().join("flimflam.kernel");
    let text = "kernel flimflam (map)\nspace  i: n\nread x f32 [n..] = i*(1)\nwrite y f32 [n..] = i*(1)\n\
                v : f32 [i] = load x\nw : f32 [i] = v*3\nstore y = w\n";
    std::fs::write(&kernel, text).unwrap();
    let bound = format!("ai.onnx:Flimflam={}", kernel.display());
    for command in ["plan", "profile", "inspect"] {
        let v = json(&[command, &path, "--kernel", &bound]);
        assert!(v.is_object(), "{command}");
    }
    assert!(fails(2, &["plan", &path, "--kernel", "Flimflam"]).contains("DOMAIN:OP=FILE"));
    let gone = fails(1, &["plan", &path, "--kernel", "my.co:F=gone.kernel"]);
    assert!(gone.contains("gone.kernel"), "{gone}");
}

#[test]
fn inspect_reads_work_off_the_kernels() {
    let model = file("digits_cnn", "model.onnx");
    let v = json(&["inspect", &model, "--dim", "batch=16"]);
    assert_eq!(v["parameters"], 23658);
    assert_eq!(v["operators"]["Conv"], 2);
    assert_eq!(v["unsupported"], serde_json::json!([]));
    // Stated in the model's description, counted by another program.
    let flop = v["flop"].as_f64().unwrap();
    assert!((flop / 6_164_480.0 - 1.0).abs() < 0.1, "{flop}");
    text(&["inspect", &model]);
}

#[test]
fn plans_print_save_and_load() {
    let dir = tempfile::tempdir().unwrap();
    let saved = dir.path().join("plan.json").display().to_string();
    let again = dir.path().join("again.json").display().to_string();
    let (model, inputs) = (
        file("digits_cnn", "model.onnx"),
        file("digits_cnn", "inputs.npz"),
    );
    let out = ends(
        0,
        &[
            "plan",
            &model,
            "--dim",
            "batch=1..16",
            "--out",
            &saved,
            "--why",
        ],
    );
    assert!(
        out.contains("packed weights") && out.contains("why: "),
        "{out}"
    );
    ends(
        0,
        &["plan", &model, "--dim", "batch=1..16", "--out", &again],
    );
    assert_eq!(
        std::fs::read(&saved).unwrap(),
        std::fs::read(&again).unwrap()
    );
    let want = file("digits_cnn", "outputs.npz");
    ends(
        0,
        &[
            "run",
            &model,
            "--inputs",
            &inputs,
            "--plan",
            &saved,
            "--compare",
            &want,
        ],
    );
    let v = json(&["plan", &model, "--dim", "batch=4"]);
    assert!(v["predicted_us"].as_f64().unwrap() > 0.0);
    assert!(!v["steps"].as_array().unwrap().is_empty());
    let text = std::fs::read_to_string(&saved).unwrap();
    // A plan that was changed is taken only by who says so, one of another model never.
    let by_plan = ["run", &model, "--inputs", &inputs, "--plan", &saved];
    let waived = [&by_plan[..], &["--plan-unchecked", "--compare", &want]].concat();
    std::fs::write(
        &saved,
        text.replacen("\"predicted_s\": ", "\"predicted_s\": 1", 1),
    )
    .unwrap();
    assert!(fails(1, &by_plan).contains("--plan-unchecked"));
    ends(0, &waived);
    let bound = ["plan", &model, "--dim", "batch=1", "--out", &saved];
    ends(0, &bound);
    for args in [&by_plan[..], &waived] {
        let e = fails(1, args);
        assert!(e.contains("rule program") && e.contains("dims"), "{e}");
    }
    std::fs::write(&saved, &text[..text.len() / 2]).unwrap();
    assert!(
        fails(1, &["run", &model, "--inputs", &inputs, "--plan", &saved]).contains("plan.json")
    );
    // A plan for a machine that is not here.
    let v = json(&["plan", &model, "--on", "zen4-2core"]);
    assert_eq!(v["machine"], "zen4-2core");
    assert!(ends(0, &["plan", &model, "--on", "h100"]).contains("not here"));
}

#[cfg(unix)]
#[test]
fn files_that_never_end_are_refused() {
    let model = file("digits_cnn", "model.onnx");
    let inputs = file("digits_cnn", "inputs.npz");
    let run = ["run", &model, "--inputs", &inputs];
    let tail = |more: &[&'static str]| [&run[..], more].concat();
    for args in [
        tail(&["--plan", "/dev/zero"]),
        tail(&["--machine", "/dev/zero"]),
        tail(&["--labels", "/dev/zero"]),
        vec!["plan", &model, "--on", "/dev/zero"],
        vec![
            "plan",
            &model,
            "--report",
            "r.html",
            "--against",
            "/dev/zero",
        ],
        vec!["machines", "check", "/dev/zero"],
        vec!["simulate", "/dev/zero"],
    ] {
        let o = shopfloor(&args);
        let e = String::from_utf8(o.stderr).unwrap();
        assert!(
            !o.status.success() && e.contains("regular file"),
            "{args:?}: {e}"
        );
    }
    let kernel = tail(&["--kernel", "my.co:Clip2=/dev/zero"]);
    assert!(fails(1, &kernel).contains("regular file"));
}

#[cfg(unix)]
#[test]
fn an_annotated_model_never_takes_the_place_of_the_model() {
    let dir = tempfile::tempdir().unwrap();
    let at = |n: &str| dir.path().join(n).display().to_string();
    std::fs::copy(file("digits_cnn", "model.onnx"), at("model.onnx")).unwrap();
    let model = std::fs::read(at("model.onnx")).unwrap();
    std::fs::hard_link(at("model.onnx"), at("hard.onnx")).unwrap();
    std::os::unix::fs::symlink("model.onnx", at("soft.onnx")).unwrap();
    ends(
        0,
        &["annotate", &at("model.onnx"), "--out", &at("hard.onnx")],
    );
    assert!(std::fs::read(at("hard.onnx")).unwrap().len() > model.len());
    for same in ["soft.onnx", "model.onnx"] {
        fails(2, &["annotate", &at("model.onnx"), "--out", &at(same)]);
    }
    assert_eq!(std::fs::read(at("model.onnx")).unwrap(), model);
}

#[test]
fn memory_stays_within_what_the_plan_states() {
    for name in ["digits_cnn", "magika", "ppocr_rec"] {
        let model = file(name, "model.onnx");
        let plan = json(&["plan", &model]);
        let m = &plan["memory"];
        let stated = m["total"].as_u64().unwrap() + m["beside"].as_u64().unwrap();
        let args = ["bench", &model, "--no-cache", "--iterations", "20"];
        if let Some(peak) = json(&args)["peak_rss_bytes"].as_u64() {
            assert!(peak <= stated, "{name}: {peak} B, stated {stated} B");
        }
    }
}

#[test]
fn fixed_cost_is_measured_beside_the_ping_pong() {
    if !testing::turn("fixed_cost_is_measured_beside_the_ping_pong") {
        return;
    }
    let v = json(&["bench", "--demo", "fixed-cost", "--threads", "1"]);
    let rows = v["rows"].as_array().unwrap();
    assert_eq!(rows.len(), 7);
    // Chains that cannot be fused: a step for every node.
    assert!(rows.iter().all(|r| r["nodes"] == r["steps"]));
    assert!(v["pingpong_us"].is_number());
}

#[test]
fn a_hand_off_is_measured_in_every_way() {
    let args = ["bench", "--demo", "ring", "--seconds", "0.2"];
    if std::thread::available_parallelism().map_or(1, usize::from) < 2 {
        let e = fails(1, &args);
        assert!(e.contains("two processors"), "{e}");
        return;
    }
    let v = json(&args);
    let ways: Vec<&str> = (v["rows"].as_array().unwrap().iter())
        .map(|r| r["way"].as_str().unwrap())
        .collect();
    let all = ["ping-pong", "ring", "channel", "parked thread", "fork/join"];
    assert_eq!(ways, all);
    for r in v["rows"].as_array().unwrap() {
        let (median, p99) = (r["median_ns"].as_f64(), r["p99_ns"].as_f64());
        assert!(median > Some(0.0) && p99 >= median, "{r}");
        assert!(r["trips"].as_u64() >= Some(250), "{r}");
    }
    assert_eq!(v["rows"][0]["ratio"], 1.0);
    let within = v["rows"][1]["ratio"].as_f64() <= v["ring_aim"].as_f64();
    assert_eq!(v["ring_within_aim"], within);
    let out = text(&args);
    assert!(out.contains("the aim is at most 3"), "{out}");
    fails(2, &[&args[..], &["model.onnx"]].concat());
}

#[test]
fn streams_are_measured_alone_and_joined() {
    let args = [
        "bench",
        "--demo",
        "streams",
        "--seconds",
        "0.1",
        "--threads",
        "1",
    ];
    let v = json(&args);
    let rows = v["rows"].as_array().unwrap();
    let counts: Vec<u64> = rows.iter().filter_map(|r| r["streams"].as_u64()).collect();
    assert_eq!(counts, [1, 2, 4, 8, 16]);
    for r in rows {
        let (alone, joined) = (r["alone_per_s"].as_f64(), r["joined_per_s"].as_f64());
        assert!(alone > Some(0.0) && joined > Some(0.0), "{r}");
    }
    text(&args);
    fails(2, &[&args[..], &["model.onnx"]].concat());
}

#[test]
fn a_cache_is_kept_where_it_is_asked_for() {
    let dir = tempfile::tempdir().unwrap();
    let folder = dir.path().join("kept").display().to_string();
    let model = file("digits_cnn", "model.onnx");
    let inputs = file("digits_cnn", "inputs.npz");
    let outputs = file("digits_cnn", "outputs.npz");
    let run = ["run", &model, "--inputs", &inputs, "--compare", &outputs];
    ends(0, &[&run[..], &["--cache", &folder]].concat());
    let kept = || std::fs::read_dir(&folder).unwrap().count();
    let first = kept();
    assert!(first > 1);
    ends(0, &[&run[..], &["--cache", &folder]].concat());
    assert_eq!(kept(), first);
    std::fs::remove_dir_all(&folder).unwrap();
    ends(0, &[&run[..], &["--no-cache"]].concat());
    assert!(!Path::new(&folder).exists());
    let both = ["run", &model, "--cache", &folder, "--no-cache"];
    assert!(fails(2, &both).contains("--no-cache"));
}

#[test]
fn bench_has_its_keys_and_goals() {
    let want = [
        "device",
        "iterations",
        "latency_ms",
        "load_ms",
        "model",
        "peak_rss_bytes",
        "plan_ms",
        "precision",
        "predicted_ms",
        "ran_on",
        "threads",
        "throughput_per_s",
    ];
    for op in [
        "matmul:32x48x64:f32",
        "matmul:32x48x64:f32:dynamic",
        "conv:1,8,14,14,16,3,3,1,1",
        "map:1000:f32:gelu",
        "map:1000:f32:add",
    ] {
        let v = json(&["bench", "--op", op, "--iterations", "5", "--threads", "1"]);
        let mut found = keys(&v);
        found.sort_unstable();
        // How exactly it multiplies is said of what multiplies.
        let multiplies = !op.starts_with("map");
        let own = want.iter().filter(|k| multiplies || **k != "precision");
        assert!(found.iter().eq(own), "{op}: {found:?}");
        assert_eq!(
            (v["model"].as_str(), v["iterations"].as_u64()),
            (Some(op), Some(5))
        );
        let mut found = keys(&v["latency_ms"]);
        found.sort_unstable();
        assert_eq!(found, ["mean", "min", "p50", "p90", "p99", "p999"]);
    }
    let model = file("digits_cnn", "model.onnx");
    let v = json(&[
        "bench",
        &model,
        "--iterations",
        "20",
        "--concurrency",
        "3",
        "--threads",
        "2",
    ]);
    assert_eq!(
        (v["iterations"].as_u64(), v["threads"].as_u64()),
        (Some(20), Some(2))
    );
    let err = fails(
        5,
        &[
            "bench",
            &model,
            "--iterations",
            "3",
            "--goal",
            "latency:0.001us",
        ],
    );
    assert!(err.contains("goal"), "{err}");
}

#[test]
fn profile_accounts_for_every_node() {
    let dir = tempfile::tempdir().unwrap();
    let trace = dir.path().join("trace.json").display().to_string();
    let (model, inputs) = (
        file("digits_cnn", "model.onnx"),
        file("digits_cnn", "inputs.npz"),
    );
    let v = json(&[
        "profile", &model, "--inputs", &inputs, "--warmup", "1", "--active", "3", "--trace", &trace,
    ]);
    let a = &v["accounting"];
    let n = |k: &str| a[k].as_u64().unwrap();
    assert_eq!(n("total"), 11);
    assert_eq!(
        n("in_steps") + n("views") + n("folded") + n("dead") + n("control"),
        11
    );
    let steps = v["steps"].as_array().unwrap();
    let share: f64 = steps.iter().map(|s| s["share"].as_f64().unwrap()).sum();
    assert!((share - 1.0).abs() < 1e-6, "{share}");
    // Every step that a node names is there.
    for node in a["nodes"].as_array().unwrap() {
        for s in node["steps"].as_array().unwrap() {
            assert!(steps.iter().any(|p| p["name"] == *s), "{s}");
        }
    }
    let t: Value = serde_json::from_str(&std::fs::read_to_string(&trace).unwrap()).unwrap();
    let events = t["traceEvents"].as_array().unwrap();
    assert!(
        events.iter().any(|e| e["ph"] == "X" && e["pid"] == 1)
            && events.iter().any(|e| e["ph"] == "X" && e["pid"] == 2)
    );
    let out = text(&[
        "profile", &model, "--inputs", &inputs, "--warmup", "1", "--active", "3", "--nodes",
    ]);
    assert!(out.contains("nodes of the model: 11 ="), "{out}");
}

#[test]
fn a_run_stops_after_a_step() {
    let (model, inputs) = (
        file("digits_cnn", "model.onnx"),
        file("digits_cnn", "inputs.npz"),
    );
    let v = json(&["run", &model, "--inputs", &inputs, "--stop-after", "1"]);
    assert_eq!(v["steps"].as_array().unwrap().len(), 2);
    assert!(
        fails(
            2,
            &[
                "run",
                &model,
                "--inputs",
                &inputs,
                "--stop-after",
                "nothing"
            ]
        )
        .contains("nothing")
    );
}

#[test]
fn machines_are_listed_and_shown() {
    let out = ends(0, &["machines", "list"]);
    assert!(out.contains("detected") && out.contains("H100"), "{out}");
    let out = ends(0, &["machines", "show", "a100"]);
    assert!(out.contains("device") && out.contains("tensor"), "{out}");
    let v = json(&["machines", "show", "detected"]);
    assert_eq!(v["kind"], "cpu");
    assert!(fails(2, &["machines", "show", "abacus"]).contains("abacus"));
}

#[test]
fn a_closed_pipe_is_no_fault() {
    let mut child = Command::new(env!("CARGO_BIN_EXE_shopfloor"))
        .args(["machines", "show", "h100"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    drop(child.stdout.take());
    let o = child.wait_with_output().unwrap();
    assert!(o.status.success());
    assert!(
        o.stderr.is_empty(),
        "{}",
        String::from_utf8_lossy(&o.stderr)
    );
}

#[test]
fn a_cache_that_cannot_be_kept_costs_one_line() {
    let (model, npz) = (
        file("digits_cnn", "model.onnx"),
        file("digits_cnn", "inputs.npz"),
    );
    let nowhere = format!("{}/below", file("digits_cnn", "labels.txt"));
    let run = ["run", &model, "--inputs", &npz];
    let told = |more: &[&str]| {
        let o = shopfloor(&[&run[..], more].concat());
        assert_eq!(o.status.code(), Some(0));
        String::from_utf8_lossy(&o.stderr).into_owned()
    };
    let why = told(&["--cache", &nowhere]);
    assert_eq!(why.lines().count(), 1, "{why}");
    assert!(why.starts_with("note: the cache in "), "{why}");
    assert_eq!(told(&["--no-cache"]), "");
    assert_eq!(told(&["--cache-limit", "1GiB"]), "");
    let small = told(&["--cache-limit", "1kB", "--precision", "bf16"]);
    assert!(small.contains("allow it more"), "{small}");
}

/// A limit on the size of files ends a process by a signal unless it is asked about first.
#[cfg(target_os = "linux")]
#[test]
fn a_limit_on_the_size_of_files_is_no_crash() {
    let (model, npz) = (
        file("digits_cnn", "model.onnx"),
        file("digits_cnn", "inputs.npz"),
    );
    let dir = tempfile::tempdir().unwrap();
    let at = |n: &str| dir.path().join(n).to_string_lossy().into_owned();
    let limited = |args: &[&str]| {
        std::process::Command::new("sh")
            .args([
                "-c",
                "ulimit -f 1; exec \"$0\" \"$@\"",
                env!("CARGO_BIN_EXE_shopfloor"),
            ])
            .args(args)
            .env("CI", "true")
            .output()
            .unwrap()
    };
    let o = limited(&["run", &model, "--inputs", &npz, "--cache", &at("cache")]);
    let e = String::from_utf8_lossy(&o.stderr);
    assert_eq!(o.status.code(), Some(0), "{e}");
    assert!(e.starts_with("note: "), "{e}");
    for args in [
        ["plan", &model, "--out", &at("plan.json")],
        ["annotate", &model, "--out", &at("a.onnx")],
        ["plan", &model, "--report", &at("r.html")],
    ] {
        let o = limited(&args);
        let e = String::from_utf8_lossy(&o.stderr);
        assert_eq!(o.status.code(), Some(1), "{args:?}: {e}");
        assert!(e.contains(args[3]), "{e}");
    }
}

/// Steps of branches have numbers of their own for every command.
#[test]
fn steps_of_branches_are_explained_followed_and_printed() {
    let file = |name: &str| {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../models/silero_vad");
        root.join(name).display().to_string()
    };
    let (model, inputs) = (file("model.onnx"), file("inputs.npz"));
    let given = |command: &str, more: &[&str]| {
        let args = [&[command, &model, "--inputs", &inputs], more].concat();
        text(&args)
    };
    let on = ["--on", "a100"];
    let plan = json(&["plan", &model, "--inputs", &inputs, "--on", "a100"]);
    let then = &plan["bodies"][0];
    assert_eq!(then["which"], "then");
    let steps = then["steps"].as_array().unwrap();
    let first = steps[0]["number"].as_u64().unwrap() as usize;
    assert_eq!(first, plan["steps"].as_array().unwrap().len());
    let product = |s: &&Value| s["flop"].as_f64().unwrap() > 0.0;
    let product = steps.iter().find(product).unwrap();
    let flop: f64 = steps.iter().map(|s| s["flop"].as_f64().unwrap()).sum();
    assert!(
        flop > 0.0 && plan["flop"] == flop,
        "{flop} {}",
        plan["flop"]
    );
    let (number, name) = (
        product["number"].to_string(),
        product["name"].as_str().unwrap(),
    );
    for step in [number.as_str(), name] {
        let why = given("plan", &[&on[..], &["--why", step]].concat());
        assert!(
            why.contains(&format!("step {number} of silero_vad")),
            "{why}"
        );
        let walked = given("walk", &[&on[..], &["--step", step, "--text"]].concat());
        assert!(walked.contains(&format!("step {number} of")), "{walked}");
        let emit = ["emit", &model, "--inputs", &inputs, "--step", step];
        let emitted = shopfloor(&[&emit[..], &on].concat());
        assert!(emitted.status.success());
    }
    let roofs = given("roofline", &on);
    assert!(roofs.contains("MFLOP"), "{roofs}");
    // The request's own values decide which branch runs.
    let ran = given("walk", &["--on", "cpu", "--text"]);
    assert!(ran.contains("then_branch"), "{ran}");
}
