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
    // What is assumed, by every command that takes a size for granted.
    for args in [
        &["bench", &m, "--iterations", "2"][..],
        &["plan", &m],
        &["profile", &m, "--active", "2"],
        &["run", &m, "--random"],
        &["advise", &m, "--on", "a100"],
    ] {
        let e = errors(args);
        assert!(
            e.contains("batch of digits_cnn is not given"),
            "{args:?}: {e}"
        );
    }
    for args in [
        &["bench", &m, "--iterations", "2"][..],
        &["run", &m, "--random"],
        &["profile", &m, "--iterations", "2"],
    ] {
        let e = errors(&[args, &["--dim", "batch=2..4"]].concat());
        assert!(e.contains("requests have batch=4"), "{args:?}: {e}");
    }
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
    if !testing::turn("tables_keep_to_the_width_they_are_given") {
        return;
    }
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
        vec!["occupancy", "--on", "a100", "--threads", "256"],
        vec!["access", "--stride", "3"],
        vec!["run", &m, "--random"],
        vec!["bench", &m, "--iterations", "3"],
        vec![
            "transfer", "--on", "a100", "--bytes", "1KiB", "--kernel", "1us",
        ],
    ] {
        for columns in [40, 72] {
            keeps_to(&args, columns);
        }
    }
}

/// What the command prints keeps to so many columns.
fn keeps_to(args: &[&str], columns: usize) {
    let o = Command::new(env!("CARGO_BIN_EXE_shopfloor"))
        .args(args)
        .env("COLUMNS", columns.to_string())
        .env("CI", "true")
        .env("NO_COLOR", "1")
        .output()
        .unwrap();
    let out = String::from_utf8(o.stdout).unwrap();
    assert!(o.status.success(), "{args:?}");
    for l in out.lines() {
        assert!(l.chars().count() <= columns, "{args:?}: {l}");
    }
}

#[test]
fn numbers_out_of_range_are_refused_with_the_range() {
    let occupancy = |more: &[&'static str]| [&["occupancy", "--on", "a100"], more].concat();
    for (args, says) in [
        (occupancy(&["--threads", "99999"]), "1 to 1024"),
        (occupancy(&["--threads", "0"]), "1 to 1024"),
        (occupancy(&["--threads", "-1"]), "--threads"),
        (
            occupancy(&["--threads", "32", "--registers", "300"]),
            "1 to 255",
        ),
        (
            vec!["occupancy", "--cc", "9.0", "--threads", "2048"],
            "1 to 1024",
        ),
        (
            occupancy(&["--threads", "32", "--per-lane", "0"]),
            "1 byte or more",
        ),
        (
            vec![
                "occupancy",
                "--cc",
                "9.0",
                "--threads",
                "32",
                "--barriers",
                "99",
            ],
            "0 to 64",
        ),
        (vec!["access", "--stride", "99999999999999"], "from 0 to"),
        (vec!["access", "--lanes", "65"], "from 1 to 64"),
        (
            vec![
                "transfer",
                "--on",
                "a100",
                "--bytes",
                "1KiB",
                "--kernel",
                "1us",
                "--batches",
                "0",
            ],
            "from 1 to",
        ),
        (
            vec!["bench", "--op", "map:8:f32:relu", "--iterations", "-1"],
            "from 1 on",
        ),
        (
            vec!["machines", "calibrate", "--seconds", "-3"],
            "from 0.5 to 3600",
        ),
        (vec!["test", ".", "--rtol", "-1"], "from 0 on"),
        (
            vec!["plan", "x.onnx", "--dim", "n=99999999999"],
            "from 0 to",
        ),
    ] {
        let e = fails(2, &args);
        assert!(e.contains(says), "{args:?}: {e}");
    }
}

/// Where standard error is no terminal, as here.
#[test]
fn what_takes_long_shows_that_it_goes_on() {
    let o = shopfloor(&["bench", "--op", "map:8:f32:relu", "--seconds", "4"]);
    let e = String::from_utf8(o.stderr).unwrap();
    assert!(o.status.success(), "{e}");
    let lines: Vec<&str> = e.lines().filter(|l| l.contains(" after 3 s")).collect();
    assert_eq!(lines.len(), 1, "{e}");
    assert!(
        lines[0].starts_with("measuring: ") && lines[0].contains('%'),
        "{e}"
    );
    // What is done in a moment says nothing.
    assert_eq!(errors(&["occupancy", "--cc", "9.0", "--threads", "64"]), "");
}

#[test]
fn an_emulated_device_is_timed_by_its_own_clock() {
    let m = model("digits_cnn");
    let on = ["--on", "emulated:a100"];
    let v = json(&[&["bench", "--demo", "fixed-cost"], &on[..]].concat());
    assert_eq!(v["emulated"], true);
    assert_eq!(v["ran_on"], serde_json::json!([["multiprocessor", 108]]));
    let rows = v["rows"].as_array().unwrap();
    // What is allowed to a CPU's workers says nothing about a GPU.
    assert!(rows.iter().all(|r| r.get("allowed_us").is_none()), "{v}");
    let us = |v: &serde_json::Value| v.as_f64().unwrap();
    // Microseconds of the device, and not the milliseconds that emulating it takes.
    assert!(us(&rows[0]["run_us"]) < 20.0, "{v}");
    let v = json(&[&["profile", &m, "--active", "2"], &on[..]].concat());
    assert_eq!(v["emulated"], true);
    let (request, steps) = (us(&v["request_us"]), us(&v["steps_us"]));
    assert!(request >= steps && request < 2.0 * steps, "{v}");
    let page = text(&[&["profile", &m, "--active", "2"], &on[..]].concat());
    assert!(page.contains("the emulated device's times"), "{page}");
    assert!(!page.contains("  measured "), "{page}");
}

#[test]
fn workers_are_those_of_devices_that_computed() {
    let m = model("digits_cnn");
    let on = ["--on", "cpu+emulated:a100", "--threads", "2"];
    let args = [&["profile", &m, "--active", "2"], &on[..]].concat();
    let v = json(&args);
    assert_eq!(v["ran_on"], serde_json::json!([["thread", 2]]), "{v}");
    assert_eq!(v["threads"], 2);
    let page = text(&args);
    assert!(
        page.contains("2 threads") && !page.contains("multiprocessor"),
        "{page}"
    );
    let v = json(&["bench", &m, "--iterations", "2", "--on", "emulated:a100"]);
    assert_eq!(v["threads"], 108);
    let v = json(&["bench", &m, "--iterations", "2", "--threads", "1"]);
    assert_eq!(v["ran_on"], serde_json::json!([["thread", 1]]));
}

#[test]
fn what_a_step_beat_is_told_apart_from_what_it_has() {
    let m = model("digits_cnn");
    for on in ["a100", "h100", "zen5-2core"] {
        let v = json(&["plan", &m, "--on", on]);
        let whys = v["whys"].as_array().unwrap();
        let of_schedules = whys.iter().filter(|w| w["pass"] == "schedule");
        for w in of_schedules {
            for a in w["alternatives"].as_array().unwrap() {
                assert_ne!(a["what"], w["choice"], "{on}: {w}");
            }
        }
    }
    // Times in reasons are those of tables.
    let page = text(&["plan", &m, "--on", "zen5-2core", "--why", "0"]);
    let of = |line: &str| {
        let rest = line.trim_start().strip_prefix("predicted")?.trim_start();
        Some(rest.split(',').next()?.to_string())
    };
    let all: Vec<String> = page.lines().filter_map(of).collect();
    assert!(all.len() == 2 && all[0] == all[1], "{all:?}: {page}");
}

#[test]
fn shares_are_no_more_than_the_whole() {
    let m = model("digits_cnn");
    let v = json(&["what-if", &m, "--on", "a100", "--set", "l2=2x"]);
    let said = v["explanation"][0].as_str().unwrap();
    let share = said.split(", ").nth(1).unwrap().split('%').next().unwrap();
    assert!(share.parse::<f64>().unwrap() <= 100.0, "{said}");
    let page = text(&[
        "transfer", "--on", "a100", "--bytes", "1KiB", "--kernel", "1us",
    ]);
    assert!(!page.contains("longer than 0 "), "{page}");
}

#[test]
fn the_demonstration_keeps_to_the_width() {
    for columns in ["40", "60", "100"] {
        let o = Command::new(env!("CARGO_BIN_EXE_shopfloor"))
            .arg("demo")
            .env("COLUMNS", columns)
            .env("CI", "true")
            .output()
            .unwrap();
        let out = String::from_utf8(o.stdout).unwrap();
        assert!(o.status.success(), "{out}");
        // What is to be copied stays whole.
        let (page, commands) = out.split_once("\nwhat to try next\n").unwrap();
        for l in page.lines() {
            assert!(
                l.chars().count() <= columns.parse().unwrap(),
                "{columns}: {l}"
            );
        }
        assert_eq!(commands.lines().count(), 3, "{commands}");
    }
}

/// Files below `dir` with one of these endings.
fn sources(dir: &Path, endings: &[&str], out: &mut Vec<std::path::PathBuf>) {
    for e in std::fs::read_dir(dir).unwrap() {
        let path = e.unwrap().path();
        let ending = path.extension().and_then(|e| e.to_str()).unwrap_or("");
        match path.is_dir() {
            true if !path.ends_with("tests") => sources(&path, endings, out),
            true => {}
            false if endings.contains(&ending) => out.push(path),
            false => {}
        }
    }
}

/// What this repository calls things among its authors, and what it is called to people.
const OF_AUTHORS: &[(&str, &str)] = &[
    ("box of dims", "a range of sizes"),
    ("the box", "the sizes that the plan covers"),
    ("bind symbolic", "give sizes"),
    ("of family", "of kind"),
    ("kernel family", "kind of kernel"),
    ("every family", "every kind"),
    ("no family", "no kind of kernel"),
    ("in contractions", "in products"),
    ("nor conv\"", "convolutions"),
    (" dims with --dim", "sizes with --dim"),
];

#[test]
fn texts_have_the_words_of_the_field() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut files = Vec::new();
    for group in ["model", "plan", "target", "run", "use"] {
        sources(&root.join(group), &["rs", "js", "html"], &mut files);
    }
    assert!(files.len() > 300, "{}", files.len());
    let mut found = Vec::new();
    for file in files {
        let text = std::fs::read_to_string(&file).unwrap();
        let lines = text.lines().enumerate();
        let shown = lines.filter(|(_, l)| !l.trim_start().starts_with("//") && l.contains('"'));
        for (n, line) in shown {
            let literal = &line[line.find('"').unwrap()..];
            let of = OF_AUTHORS.iter().find(|(word, _)| literal.contains(word));
            if let Some((word, better)) = of {
                found.push(format!("{}:{}: '{word}': {better}", file.display(), n + 1));
            }
        }
    }
    assert!(found.is_empty(), "{}", found.join("\n"));
}

#[test]
fn sessions_have_one_name() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../..");
    let shift = root.join("scenarios/shift.toml").display().to_string();
    let out = text(&["simulate", &shift]);
    assert!(
        out.contains("noticed b: ") && !out.contains("session 1"),
        "{out}"
    );
}

#[test]
fn a_step_that_there_is_not_is_told_alike_by_every_command() {
    let m = model("digits_cnn");
    let commands: [&[&str]; 4] = [
        &["plan", &m, "--on", "a100", "--why"],
        &["walk", &m, "--on", "a100", "--text", "--step"],
        &["emit", &m, "--on", "a100", "--step"],
        &["run", &m, "--random", "--stop-after"],
    ];
    for command in commands {
        for step in ["99", "nobody"] {
            let why = fails(2, &[command, &[step]].concat());
            let said = format!("error: the plan has no step '{step}'; give a number up to ");
            assert!(why.contains(&said), "{command:?}: {why}");
            let remedy = "or a name or node that `shopfloor plan --json` lists";
            assert!(why.contains(remedy), "{command:?}: {why}");
        }
        // A node names its step for every command.
        let found = shopfloor(&[command, &["node_linear_1"]].concat());
        assert!(found.status.success(), "{command:?}");
    }
}

#[test]
fn a_number_that_is_none_is_told_with_what_is_allowed() {
    let m = model("digits_cnn");
    let cases: [(&[&str], &str); 5] = [
        (
            &["run", &m, "--threads", "two"],
            "'two' should be a whole number from 1 to 4096",
        ),
        (
            &["run", &m, "--threads", "0"],
            "'0' should be a whole number from 1 to 4096",
        ),
        (
            &["profile", &m, "--warmup", "1.5"],
            "'1.5' should be a whole number from 0 on",
        ),
        (
            &["occupancy", "--on", "a100", "--threads", "-"],
            "should be a whole number from 0 on",
        ),
        (
            &["profile", &m, "--top", "99999999999"],
            "'99999999999' is too large",
        ),
    ];
    for (args, said) in cases {
        let why = fails(2, args);
        assert!(why.contains(said), "{args:?}: {why}");
    }
}

/// What a device lacks is multiplied more exactly, and the page says so.
#[test]
fn a_precision_that_a_device_lacks_is_the_next_more_exact_one() {
    let m = model("digits_cnn");
    let said = |on: &[&str], precision: &str| {
        let page = text(&[&["plan", &m, "--precision", precision], on].concat());
        let line = page.lines().find(|l| l.starts_with("  precision"));
        line.unwrap_or_default().trim().to_string()
    };
    for (on, asked) in [
        (&["--isa", "portable"][..], "bf16"),
        (&["--on", "t4"], "bf16"),
        (&["--on", "t4"], "tf32"),
    ] {
        let line = said(on, asked);
        let of = format!("{asked}: ");
        assert!(
            line.contains(&of) && line.ends_with("by multiply-adds"),
            "{on:?}: {line}"
        );
    }
    for (asked, by) in [("bf16", "by bf16"), ("bf16x3", "by three bf16 products")] {
        let line = said(&["--on", "a100", "--dim", "batch=256"], asked);
        assert!(line.contains(by), "{line}");
    }
    let out = shopfloor(&[
        "run",
        &m,
        "--random",
        "--isa",
        "portable",
        "--precision",
        "bf16",
    ]);
    assert!(out.status.success());
}
