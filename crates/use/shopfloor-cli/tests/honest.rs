//! What the command line says is so: pages add up, options do something or are refused, exit codes tell who is at
//! fault, tables keep to the width they are given.

use crate::common::{ends, fails, json, one_node, shopfloor, text};
use std::path::Path;
use std::process::Command;

fn model(name: &str) -> String {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../..");
    root.join("models")
        .join(name)
        .join("model.onnx")
        .display()
        .to_string()
}

fn errors(args: &[&str]) -> String {
    String::from_utf8(shopfloor(args).stderr).unwrap()
}

#[test]
fn the_times_of_a_plan_add_up() {
    let m = model("digits_cnn");
    for on in ["h100", "a100", "t4", "zen5-2core", "zen5-2core+h100"] {
        let v = json(&["plan", &m, "--on", on, "--dim", "batch=64"]);
        let us = |v: &serde_json::Value| v.as_f64().unwrap();
        let steps: f64 = v["steps"]
            .as_array()
            .unwrap()
            .iter()
            .map(|s| us(&s["predicted_us"]))
            .sum();
        let parts = v["parts"].as_array().unwrap();
        let all: f64 = match parts.is_empty() {
            true => steps,
            false => parts.iter().map(|p| us(&p["us"])).sum(),
        };
        let whole = us(&v["predicted_us"]);
        assert!(
            (all - whole).abs() <= 0.01 * whole,
            "{on}: {all} is not {whole}: {parts:?}"
        );
        if let Some(first) = parts.first() {
            assert!((us(&first["us"]) - steps).abs() < 1e-6, "{on}: {parts:?}");
        }
    }
    let page = text(&["plan", &m, "--on", "h100"]);
    for what in [
        "the steps, one after the other",
        "by --launch graph",
        "of it ",
    ] {
        assert!(page.contains(what), "{what}: {page}");
    }
}

#[test]
fn the_work_of_a_model_is_the_same_wherever_it_is_planned() {
    for (name, dim) in [("digits_cnn", "batch=64"), ("magika", "unk__214=3")] {
        let m = model(name);
        let is = |v: &serde_json::Value| v["flop"].as_f64().unwrap();
        let own = is(&json(&["inspect", &m, "--dim", dim]));
        for on in ["h100", "a100", "t4", "mi300x", "zen5-2core"] {
            let planned = is(&json(&["plan", &m, "--on", on, "--dim", dim]));
            assert!(
                (planned - own).abs() <= 1e-9 * own,
                "{name} on {on}: {planned}, {own}"
            );
        }
    }
}

/// What is carried from position to position is computed at each of them.
#[test]
fn the_work_of_a_recurrence_is_counted() {
    let dir = tempfile::tempdir().unwrap();
    let file = |name: &str, bytes: &[u8]| {
        let path = dir.path().join(name);
        std::fs::write(&path, bytes).unwrap();
        path.display().to_string()
    };
    let onnx = file("sum.onnx", &one_node("Flimflam", &[5, 4], &[5, 4]));
    let kernel = "kernel sums (recurrent)\nspace  t: 5  i: 4\n\
                  read  x f32 [5,4] = t*(4) + i*(1)\nwrite  y f32 [5,4] = t*(4) + i*(1)\n\
                  h : f32 [i] = 0\nv : f32 [t,i] = load x\ns : f32 [t,i] = h + v\nstore y = s\n\
                  h : f32 [i] = s[], for the next t\n";
    let kernel = format!("ai.onnx:Flimflam={}", file("sum.kernel", kernel.as_bytes()));
    let v = json(&["inspect", &onnx, "--kernel", &kernel]);
    assert_eq!(v["ops"], 20.0, "{v}");
    assert_eq!(v["bytes"], 2.0 * 4.0 * 20.0, "{v}");
}

#[test]
fn the_rows_of_memory_add_up() {
    let page = text(&[
        "plan",
        &model("digits_cnn"),
        "--on",
        "zen5-2core",
        "--threads",
        "2",
    ]);
    let at = page.find("\nmemory\n").unwrap();
    let bytes = |line: &str| -> Option<f64> {
        let words: Vec<&str> = line.split_whitespace().collect();
        let unit = words.iter().position(|w| ["B", "KiB", "MiB"].contains(w))?;
        let scale = match words[unit] {
            "B" => 1.0,
            "KiB" => 1024.0,
            _ => 1048576.0,
        };
        Some(words[unit - 1].parse::<f64>().ok()? * scale)
    };
    let rows = page[at..].lines().skip(3);
    let (mut sum, mut total) = (0.0, None);
    for line in rows {
        match (line.trim_start().starts_with("total"), bytes(line)) {
            (true, n) => {
                total = n;
                break;
            }
            (false, n) => sum += n.unwrap_or(0.0),
        }
    }
    let total = total.expect("a total");
    assert!(
        (sum - total).abs() <= 0.01 * total,
        "{sum} is not {total}:\n{}",
        &page[at..]
    );
    assert!(page.contains("for each of 2 workers"), "{page}");
}

#[test]
fn exit_codes_tell_a_wrong_command_line_from_what_failed() {
    let m = model("digits_cnn");
    let dir = tempfile::tempdir().unwrap();
    let file = |name: &str, text: &str| {
        let path = dir.path().join(name);
        std::fs::write(&path, text).unwrap();
        path.display().to_string()
    };
    let (words, toml) = (file("words.txt", "one two\n"), file("m.toml", "name = 3\n"));
    for args in [
        vec!["plan", &m, "--on", "abacus"],
        vec!["plan", &m, "--machine", "abacus"],
        vec!["machines", "show", "abacus"],
        vec!["run", &m, "--random", "--on", "nowhere"],
        vec!["plan", &m, "--why", "nothing"],
        vec!["plan", &m, "--nothing"],
        vec!["nothing"],
        vec!["plan", &m, "--dim", "rows=3"],
        vec!["plan", &m, "--shape", "picture=1x1x8x8"],
        vec!["bench"],
        vec!["machines", "calibrate", "--seconds", "0.1"],
        vec!["what-if", &m, "--on", "a100", "--set", "memory=1KiB"],
        vec!["what-if", &m, "--set", "cores=0"],
        vec!["roofline", "--op", "matmul:8x8:f32"],
        vec!["bench", "--demo", "streams", "--on", "emulated:a100"],
        vec!["run", &m, "--random", "--stop-after", "99"],
        vec!["plan", &m, "--on", "h100+a100"],
        vec!["plan", &m, "--on", ""],
    ] {
        fails(2, &args);
    }
    for args in [
        vec!["plan", "nowhere.onnx"],
        vec!["plan", &words],
        vec!["plan", &m, "--on", &toml],
        vec!["plan", &m, "--kernel", "my.co:Clip2=nowhere.kernel"],
        vec!["plan", &m, "--report", "r.html", "--against", &words],
        vec!["run", &m, "--inputs", "nowhere.npz"],
        vec!["run", &m, "--random", "--plan", &words],
        vec!["run", &m, "--random", "--on", "cuda"],
        vec!["emulate", "nowhere.ptx"],
        vec!["emulate", &words],
        vec!["simulate", &words],
        vec!["simulate", "--replay", &words],
        vec!["simulate", "nowhere.toml"],
        vec!["machines", "check", &toml],
        vec!["predict", "--measurements", &words],
        vec!["demo", "--models", "nowhere"],
        vec!["test", &dir.path().display().to_string()],
        vec!["top", "--attach", "nowhere.sock", "--once"],
    ] {
        // A machine with a GPU runs it there.
        if args.contains(&"cuda") && shopfloor(&args).status.success() {
            continue;
        }
        fails(1, &args);
    }
    let help = ends(0, &["--help"]);
    assert!(help.contains("2 the command line is wrong"), "{help}");
}

#[test]
fn options_that_do_nothing_are_refused() {
    let m = model("digits_cnn");
    let dir = tempfile::tempdir().unwrap();
    let labels = dir.path().join("labels.txt");
    std::fs::write(&labels, "a\nb\n").unwrap();
    let labels = labels.display().to_string();
    let kernel = format!("my.co:Clip2={labels}");
    let run = |more: &[&str]| -> String { fails(2, &[&["run", &m, "--random"], more].concat()) };
    for (more, says) in [
        (&["--no-fallback"][..], "--no-fallback"),
        (&["--state", "auto"], "state"),
        (&["--state", "auto", "--state", "a=b"], "--state auto"),
        (&["--dim", "batch=2", "--dim", "batch=3"], "'batch' twice"),
        (
            &["--shape", "image=1x1x8x8", "--shape", "image=2x1x8x8"],
            "'image' twice",
        ),
        (&["--labels", &labels], "2 names"),
        (&["--labels", &labels, "--json"], "--labels"),
        (&["--stop-after", "1", "--steady"], "--steady"),
        (&["--goal", "latency:5ms"], "bench"),
        (&["--kernel", &kernel], "my.co:Clip2"),
    ] {
        let e = run(more);
        assert!(e.contains(says), "{more:?}: {e}");
    }
    for (args, says) in [
        (vec!["walk", "--tour", "--fuel", "3"], "--fuel"),
        (
            vec!["bench", &m, "--sweep", "--concurrency", "2"],
            "--concurrency",
        ),
        (
            vec!["bench", "--op", "map:8:f32:relu", "--cache", "x"],
            "--cache",
        ),
        (
            vec![
                "emit", &m, "--on", "wgpu", "--step", "1", "--launch", "steps",
            ],
            "--launch",
        ),
        (vec!["emulate", "x.ptx", "--in-flight", "0"], "--in-flight"),
        (
            vec!["top", "--attach", "x", "--once", "--every", "2"],
            "--every",
        ),
    ] {
        let e = fails(2, &args);
        assert!(e.contains(says), "{args:?}: {e}");
    }
    // Where there is no folder to keep a cache in.
    let o = Command::new(env!("CARGO_BIN_EXE_shopfloor"))
        .args(["run", &m, "--random", "--cache-limit", "1GiB"])
        .env_remove("HOME")
        .env_remove("XDG_CACHE_HOME")
        .output()
        .unwrap();
    let e = String::from_utf8(o.stderr).unwrap();
    assert_eq!(o.status.code(), Some(2), "{e}");
    assert!(e.contains("--cache-limit"), "{e}");
}

#[test]
fn what_is_taken_otherwise_is_said() {
    let m = model("digits_cnn");
    for args in [
        vec!["plan", &m, "--on", "zen5-2core", "--threads", "99"],
        vec!["run", &m, "--random", "--threads", "4096"],
    ] {
        let e = errors(&args);
        let told = e
            .lines()
            .filter(|l| l.contains("plans use no more"))
            .count();
        assert_eq!(told, 1, "{args:?}: {e}");
    }
    let e = errors(&[
        "roofline",
        "--op",
        "map:64:f32:relu",
        "--on",
        "zen5-2core",
        "--isa",
        "avx2",
    ]);
    assert!(e.contains("the kernels are those of avx2"), "{e}");
    // Nothing reaches a GPU for which a step is too small.
    let out = text(&["run", &m, "--random", "--on", "cpu+emulated:a100"]);
    let flat = out.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(
        flat.contains("every step on the CPU and none on the GPU"),
        "{out}"
    );
    let e = fails(2, &["what-if", &m, "--on", "a100", "--set", "memory=1KiB"]);
    assert!(e.contains("needs") && e.contains("1.00 KiB"), "{e}");
    let o = text(&["what-if", &m, "--on", "a100", "--set", "memory=1GiB"]);
    assert!(o.contains("memory=1GiB"), "{o}");
    let e = fails(1, &["simulate", &m]);
    assert!(e.contains("is no scenario") && e.contains("TOML"), "{e}");
}

#[test]
fn missing_arguments_are_named_with_what_else_would_do() {
    for (args, says) in [
        (&["bench"][..], &["--op", "--demo"][..]),
        (&["walk"], &["--tour"]),
        (&["roofline"], &["--op"]),
        (&["occupancy", "--threads", "64"], &["--on", "--cc"]),
        (&["supervise"], &["--replay"]),
    ] {
        let e = fails(2, args);
        for s in says {
            assert!(e.contains(s), "{args:?}: {e}");
        }
    }
    for (command, says) in [
        ("bench", "gelu_tanh"),
        ("tensorcore", "tf32"),
        ("predict", "measured_us"),
    ] {
        let help = ends(0, &[command, "--help"]);
        assert!(help.contains(says), "{help}");
    }
}

#[test]
fn tables_keep_to_the_width_they_are_given() {
    let m = model("digits_cnn");
    let dir = tempfile::tempdir().unwrap();
    let csv = dir.path().join("m.csv");
    let rows = "source,gpu,op,params,dtype,measured_us,note\n\
                here,A100-SXM4-80GB,gemm,m=1024;n=10240;k=5120;ta=0;tb=1,bf16,395.92,an example\n";
    std::fs::write(&csv, rows).unwrap();
    let csv = csv.display().to_string();
    for args in [
        vec!["plan", &m, "--on", "h100", "--why"],
        vec!["plan", &m, "--on", "a100,h100"],
        vec!["inspect", &m, "--all"],
        vec!["machines", "list"],
        vec!["machines", "show", "h100"],
        vec!["roofline", &m, "--on", "zen5-2core", "--all"],
        vec!["advise", &m, "--on", "a100"],
        vec!["what-if", &m, "--on", "a100", "--set", "l2=2x", "--all"],
        vec!["predict", "--measurements", &csv],
    ] {
        let o = Command::new(env!("CARGO_BIN_EXE_shopfloor"))
            .args(&args)
            .env("COLUMNS", "72")
            .env("CI", "true")
            .env("NO_COLOR", "1")
            .output()
            .unwrap();
        let out = String::from_utf8(o.stdout).unwrap();
        assert!(o.status.success(), "{args:?}");
        for l in out.lines() {
            assert!(l.chars().count() <= 72, "{args:?}: {l}");
        }
    }
}
