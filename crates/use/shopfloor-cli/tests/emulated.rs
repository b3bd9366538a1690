//! `--on emulated:...` from the command line.

// One helper of several is enough here.
#[allow(dead_code)]
use crate::common;

use common::{fails, json, one_node, shopfloor, text};

fn model(file: &str) -> String {
    format!(
        "{}/../../../models/digits_cnn/{file}",
        env!("CARGO_MANIFEST_DIR")
    )
}

#[test]
fn a_bundled_model_runs_profiles_and_plans_on_emulated_gpus() {
    if !testing::turn("a_bundled_model_runs_profiles_and_plans_on_emulated_gpus") {
        return;
    }
    let (onnx, inputs, outputs) = (
        model("model.onnx"),
        model("inputs.npz"),
        model("outputs.npz"),
    );
    for on in ["emulated:a100,checks", "emulated:t4", "emulated:h100"] {
        let out = shopfloor(&[
            "run",
            &onnx,
            "--inputs",
            &inputs,
            "--compare",
            &outputs,
            "--no-cache",
            "--on",
            on,
            "--json",
        ]);
        let text = String::from_utf8_lossy(&out.stdout).into_owned();
        let said = String::from_utf8_lossy(&out.stderr);
        assert!(out.status.success(), "{on}: {said}{text}");
        assert!(text.contains(on), "{text}");
    }
    let out = shopfloor(&[
        "profile",
        &onnx,
        "--inputs",
        &inputs,
        "--no-cache",
        "--on",
        "emulated:a100",
        "--active",
        "1",
        "--warmup",
        "0",
    ]);
    let text = String::from_utf8_lossy(&out.stdout).into_owned();
    assert!(
        out.status.success(),
        "{}",
        String::from_utf8_lossy(&out.stderr)
    );
    assert!(text.contains("emulated:a100 compute: steps "), "{text}");
    let out = shopfloor(&["plan", &onnx, "--on", "emulated:t4"]);
    let text = String::from_utf8_lossy(&out.stdout).into_owned();
    assert!(out.status.success() && text.contains("T4"), "{text}");
}

#[test]
fn what_cannot_be_is_said_in_a_sentence() {
    let onnx = model("model.onnx");
    let cases = [
        ("emulated:z80", "known are a100, h100, t4"),
        ("emulated:a100,sms=x", "memory=SIZE"),
        ("cuda:x", "GPU's number"),
        ("cuda:9", "cuda:9"),
        ("emulated:a100,memory=1040KiB", "16384"),
    ];
    for (on, want) in cases {
        let out = shopfloor(&[
            "run",
            &onnx,
            "--inputs",
            &model("inputs.npz"),
            "--no-cache",
            "--on",
            on,
        ]);
        let said = String::from_utf8_lossy(&out.stderr).into_owned();
        assert!(!out.status.success() && said.contains(want), "{on}: {said}");
    }
}

#[test]
fn every_time_names_the_way_that_was_taken_and_the_precision() {
    let onnx = model("model.onnx");
    let on = ["--on", "emulated:a100,sms=4", "--dim", "batch=1"];
    let with = |args: &[&'static str]| [&[args[0], onnx.as_str()][..], &args[1..], &on].concat();
    let planned = json(&with(&["plan"]));
    let precision = &planned["precision"];
    assert!(
        precision.as_str().is_some_and(|p| p.starts_with("f32: ")),
        "{planned}"
    );
    let bench = ["bench", "--iterations", "1", "--warmup", "0", "--no-cache"];
    let run = ["run", "--random", "--no-cache"];
    let profile = ["profile", "--active", "1", "--warmup", "0", "--no-cache"];
    let share = testing::Share::of_run(3);
    println!("{share}");
    for (_, launch) in (0..)
        .zip(["steps", "graph", "resident"])
        .filter(|(n, _)| share.picks(*n))
    {
        let asked = ["--launch", launch];
        for command in [&bench[..], &run, &profile] {
            let args = [command, &asked].concat();
            // A profile takes the times of each launch.
            let taken = match (command[0], launch) {
                ("profile", "graph") => "steps",
                _ => launch,
            };
            let v = json(&with(&args));
            assert_eq!(
                (&v["launch"], &v["precision"]),
                (&taken.into(), precision),
                "{args:?}"
            );
            let page = text(&with(&args));
            let head = format!(", launch {taken}, precision f32");
            if args[0] == "profile" {
                let said = page.contains("launches no step");
                assert_eq!(said, taken == "resident", "{page}");
                let other = page.contains("go by launch graph");
                assert_eq!(other, launch == "graph", "{page}");
            }
            let first: String = page.lines().take(2).collect::<Vec<_>>().join(" ");
            assert!(first.contains(&head), "{page}");
            let also = match args[0] {
                "run" => "planning and emulation here included",
                _ => "4 multiprocessors",
            };
            assert!(first.contains(also), "{page}");
        }
    }
    // Fewer SMs are planned for than the GPU of that name has.
    let takes = |on: &str| {
        let v = json(&["plan", &onnx, "--dim", "batch=256", "--on", on]);
        v["predicted_us"].as_f64().expect("a time")
    };
    assert!(takes("emulated:a100,sms=4") > 3.0 * takes("emulated:a100"));
    // What nobody asks for is what the plan says.
    let v = json(&with(&bench));
    assert_eq!(v["launch"], planned["launch"]);
    // A run that ends early goes step by step.
    let v = json(&with(&[
        "run",
        "--random",
        "--no-cache",
        "--launch",
        "resident",
        "--stop-after",
        "0",
    ]));
    assert_eq!(v["launch"], "steps");
    let on_cpu = json(&["bench", &onnx, "--iterations", "1"]);
    assert!(
        on_cpu.get("launch").is_none() && on_cpu["precision"].is_string(),
        "{on_cpu}"
    );
}

#[test]
fn a_saved_plan_keeps_its_way() {
    let onnx = model("model.onnx");
    let dir = tempfile::tempdir().unwrap();
    let saved = dir.path().join("plan.json").display().to_string();
    let on = ["--on", "emulated:a100,sms=4"];
    for launch in ["resident", "steps"] {
        let way = ["--dim", "batch=1", "--launch", launch, "--out", &saved];
        text(&[&["plan", &onnx], &on[..], &way].concat());
        let by = [
            "run",
            &onnx,
            "--random",
            "--dim",
            "batch=1",
            "--no-cache",
            "--plan",
            &saved,
        ];
        let v = json(&[&by[..], &on].concat());
        assert_eq!(v["launch"], launch);
    }
    // Of a machine that is not here as well; what is asked for when it runs comes first.
    text(&[
        "plan", &onnx, "--dim", "batch=1", "--on", "a100", "--launch", "resident", "--out", &saved,
    ]);
    let text = std::fs::read_to_string(&saved).unwrap();
    assert!(
        text.contains("\"launch\": \"resident\""),
        "{}",
        &text[..400]
    );
}

#[test]
fn where_every_step_is_the_hosts_nothing_is_launched() {
    let dir = tempfile::tempdir().unwrap();
    let onnx = dir.path().join("det.onnx");
    std::fs::write(&onnx, one_node("Det", &[2, 2], &[])).unwrap();
    let onnx = onnx.display().to_string();
    for on in ["a100", "emulated:a100"] {
        let v = json(&["plan", &onnx, "--on", on]);
        assert_eq!(
            (&v["launch"], v.get("ways")),
            (&"none".into(), None),
            "{on}: {v}"
        );
        let page = text(&["plan", &onnx, "--on", on]);
        assert!(page.contains("nothing reaches the GPU"), "{page}");
        let e = fails(2, &["plan", &onnx, "--on", on, "--launch", "graph"]);
        assert!(
            e.contains("runs on the host") && e.contains("leave --launch out"),
            "{e}"
        );
    }
    let v = json(&[
        "run",
        &onnx,
        "--random",
        "--no-cache",
        "--on",
        "emulated:a100",
    ]);
    assert_eq!(v["launch"], "none");
    // The emulated clock stands still meanwhile, and tells no time.
    let bench = ["bench", &onnx, "--iterations", "3", "--no-cache"];
    let v = json(&[&bench[..], &["--on", "emulated:a100"]].concat());
    assert!(v["launch"] == "none" && v.get("emulated").is_none(), "{v}");
    assert!(v["latency_ms"]["min"].as_f64() > Some(0.0), "{v}");
}

#[test]
fn many_callers_are_not_measured_by_one_emulated_clock() {
    let onnx = model("model.onnx");
    for many in [&["--sweep"][..], &["--concurrency", "2"]] {
        let e = fails(
            2,
            &[&["bench", &onnx, "--on", "emulated:a100"], many].concat(),
        );
        assert!(e.contains("one clock") && e.contains(many[0]), "{e}");
    }
}

#[test]
fn inputs_and_outputs_that_stay_on_the_device_are_not_copied() {
    let onnx = model("model.onnx");
    let bench = |more: &[&str]| {
        let few = [
            "bench",
            &onnx,
            "--no-cache",
            "--iterations",
            "2",
            "--warmup",
            "1",
        ];
        json(&[&few[..], &["--on", "emulated:a100"], more].concat())
    };
    let (host, stays) = (bench(&[]), bench(&["--bind", "device"]));
    let p50 = |v: &serde_json::Value| v["latency_ms"]["p50"].as_f64().unwrap();
    assert!(p50(&stays) < p50(&host), "{stays} {host}");
    assert!(stays["bound_to_device"] == true && host.get("bound_to_device").is_none());
    assert!(
        stays.get("predicted_copies_ms").is_none() && host.get("predicted_copies_ms").is_some()
    );
    let e = fails(2, &["bench", &onnx, "--bind", "device"]);
    assert!(e.contains("leave out --bind device"), "{e}");
}

/// Lines of a page that a terminal of a hundred columns would break.
fn too_wide(page: &str) -> Vec<&str> {
    page.lines().filter(|l| l.chars().count() > 100).collect()
}

#[test]
fn bench_tells_emulated_time_and_compares_the_two_ways() {
    if !testing::turn("bench_tells_emulated_time_and_compares_the_two_ways") {
        return;
    }
    let onnx = model("model.onnx");
    let bench = |more: &[&str]| {
        let mut args = vec!["bench", &onnx, "--on", "emulated:a100,sms=4", "--no-cache"];
        args.extend(["--iterations", "3", "--warmup", "1"]);
        args.extend(more);
        let out = shopfloor(&args);
        let said = String::from_utf8_lossy(&out.stderr).into_owned();
        assert!(out.status.success(), "{said}");
        String::from_utf8_lossy(&out.stdout).into_owned()
    };
    let page = bench(&[]);
    assert!(
        page.contains("emulated    p50") && page.contains("emulating a request took"),
        "{page}"
    );
    assert!(!page.contains("latency"), "{page}");
    let page = bench(&["--launch", "steps,resident"]);
    for part in [
        "launch",
        "steps",
        "resident",
        "predicted",
        "emulated p50",
        "acknowledged round trip",
        "the aim on an H100 is 3.00 us",
        "starts before the host's store and stops when the host has read the answer",
    ] {
        assert!(page.contains(part), "no '{part}' in\n{page}");
    }
    assert_eq!(too_wide(&page), Vec::<&str>::new());
    // Emulated time is the same however often it is measured.
    let p50 = || -> Vec<f64> {
        let v: serde_json::Value =
            serde_json::from_str(&bench(&["--launch", "steps,resident", "--json"])).unwrap();
        let of = |way: &str| v[way]["latency_ms"]["p50"].as_f64().unwrap();
        assert_eq!(v["resident"]["emulated"], true);
        let trip = v["resident"]["round_trip_us"].as_f64().unwrap();
        assert!(trip > 1.0 && trip < 20.0, "{trip}");
        vec![of("steps"), of("resident")]
    };
    let first = p50();
    for (a, b) in first.iter().zip(p50()) {
        assert!((a - b).abs() < 0.05 * a, "{first:?}");
    }
    let out = shopfloor(&["bench", &onnx, "--launch", "resident", "--no-cache"]);
    let said = String::from_utf8_lossy(&out.stderr).into_owned();
    assert!(
        !out.status.success() && said.contains("emulated:a100"),
        "{said}"
    );
}

#[test]
fn the_textbook_case_is_shown_both_ways() {
    if !testing::turn("the_textbook_case_is_shown_both_ways") {
        return;
    }
    let out = shopfloor(&["bench", "--demo", "launch", "--on", "emulated:h100,sms=2"]);
    let page = String::from_utf8_lossy(&out.stdout).into_owned();
    assert!(
        out.status.success(),
        "{}",
        String::from_utf8_lossy(&out.stderr)
    );
    for part in [
        "10 batches",
        "steps copies, launches and copies",
        "resident",
        "round trip",
    ] {
        assert!(page.contains(part), "no '{part}' in\n{page}");
    }
    assert_eq!(too_wide(&page), Vec::<&str>::new());
    let out = shopfloor(&["bench", "--demo", "launch", "--on", "cpu"]);
    assert!(!out.status.success());
}

#[test]
fn two_devices_share_a_plan() {
    let onnx = model("model.onnx");
    // The CPU is faster for one picture; a fast GPU for thousands, whose link is in the plan.
    for (dim, on) in [
        ("batch=1", "cpu+a100"),
        ("batch=8192", "zen5-2core+h100"),
        ("batch=1", "cpu+emulated:a100"),
    ] {
        let out = shopfloor(&["plan", &onnx, "--on", on, "--dim", dim, "--why"]);
        let text = String::from_utf8_lossy(&out.stdout).into_owned();
        let said = String::from_utf8_lossy(&out.stderr);
        assert!(out.status.success(), "{on}: {said}");
        // Where a sentence is broken depends on this CPU's name.
        let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
        for want in ["steps on", "copies between", "least of all placements"] {
            assert!(text.contains(want), "{on}: {text}");
        }
    }
    let out = shopfloor(&[
        "run",
        &onnx,
        "--inputs",
        &model("inputs.npz"),
        "--compare",
        &model("outputs.npz"),
        "--no-cache",
        "--no-fallback",
        "--on",
        "cpu+emulated:a100",
        "--json",
    ]);
    let text = String::from_utf8_lossy(&out.stdout).into_owned();
    let said = String::from_utf8_lossy(&out.stderr);
    assert!(out.status.success(), "{said}{text}");
    assert!(text.contains("steps_by_device"), "{text}");
    let both = ["--on", "zen5-2core+h100", "--dim", "batch=8192"];
    let of_both = |args: &[&str]| shopfloor(&[args, &[&onnx], &both].concat());
    for (args, part) in [
        (["emit", "--step", "node_Conv_20"], ".target sm_90a"),
        (["walk", "--text", "--step=3"], "H100-SXM5-80GB"),
    ] {
        let out = of_both(&args);
        let page = String::from_utf8_lossy(&out.stdout).into_owned();
        assert!(out.status.success() && page.contains(part), "{page}");
    }
    let more: &[&str] = &["what-if", "--set", "sms=2x"];
    for command in [&["roofline"], &["advise"], more] {
        let out = of_both(command);
        let said = String::from_utf8_lossy(&out.stderr);
        assert!(
            !out.status.success() && said.contains("name one of them"),
            "{said}"
        );
    }
    let out = shopfloor(&["run", &onnx, "--on", "cpu+cuda+wgpu"]);
    let said = String::from_utf8_lossy(&out.stderr);
    assert!(!out.status.success() && said.contains("cpu+cuda"), "{said}");
}
