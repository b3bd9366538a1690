//! `--on emulated:...` from the command line.

// One helper of several is enough here.
#[allow(dead_code)]
use crate::common;

use common::shopfloor;

fn model(file: &str) -> String {
    format!(
        "{}/../../../models/digits_cnn/{file}",
        env!("CARGO_MANIFEST_DIR")
    )
}

#[test]
fn a_bundled_model_runs_profiles_and_plans_on_emulated_gpus() {
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

/// Lines of a page that a terminal of a hundred columns would break.
fn too_wide(page: &str) -> Vec<&str> {
    page.lines().filter(|l| l.chars().count() > 100).collect()
}

#[test]
fn bench_tells_emulated_time_and_compares_the_two_ways() {
    if !testing::turn("bench_tells_emulated_time_and_compares_the_two_ways", 5) {
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
        "step by step",
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
        vec![of("step_by_step"), of("resident")]
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
    if !testing::turn("the_textbook_case_is_shown_both_ways", 5) {
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
        "100 batches",
        "copy, launch, copy",
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
    // The CPU is faster for one picture; a fast GPU for thousands, whose road is in the plan.
    for (dim, on) in [
        ("batch=1", "cpu+a100"),
        ("batch=8192", "zen5-2core+h100"),
        ("batch=1", "cpu+emulated:a100"),
    ] {
        let out = shopfloor(&["plan", &onnx, "--on", on, "--dim", dim, "--why"]);
        let text = String::from_utf8_lossy(&out.stdout).into_owned();
        let said = String::from_utf8_lossy(&out.stderr);
        assert!(out.status.success(), "{on}: {said}");
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
    let out = shopfloor(&["run", &onnx, "--on", "cpu+cuda+wgpu"]);
    let said = String::from_utf8_lossy(&out.stderr);
    assert!(!out.status.success() && said.contains("cpu+cuda"), "{said}");
}
