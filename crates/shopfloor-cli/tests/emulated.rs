//! `--on emulated:...` from the command line.
use std::process::{Command, Output};

fn shopfloor(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_shopfloor"))
        .args(args)
        .output()
        .expect("the program starts")
}

fn model(file: &str) -> String {
    format!(
        "{}/../../models/digits_cnn/{file}",
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
