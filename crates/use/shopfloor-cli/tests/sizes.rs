//! Sizes that a plan is for, and units of bounds, as the command line says them.

use crate::common;

use common::{fails, text};
use std::path::Path;

fn digits() -> String {
    let models = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../models");
    models.join("digits_cnn/model.onnx").display().to_string()
}

#[test]
fn plans_say_the_sizes_that_were_asked_for() {
    let out = text(&["plan", &digits(), "--dim", "batch=16"]);
    assert!(out.contains("dims       batch=16\n"), "{out}");
    // What the file has a number for is not taken as 1.
    let out = text(&["plan", &digits(), "--open-dims"]);
    assert!(out.contains("image.d2=8, image.d3=8"), "{out}");
}

#[test]
fn bounds_have_units() {
    let why = fails(2, &["plan", &digits(), "--goal", "throughput:5"]);
    assert!(why.contains("throughput:5ms"), "{why}");
    let args = [
        "plan",
        &digits(),
        "--goal",
        "throughput",
        "--max-latency",
        "5",
    ];
    let why = fails(2, &args);
    assert!(why.contains("5us, 5ms or 5s"), "{why}");
}

#[test]
fn a_cpu_is_not_described_as_a_gpu() {
    let why = fails(2, &["plan", &digits(), "--machine", "h100"]);
    assert!(why.contains("--on h100"), "{why}");
}

#[test]
fn sizes_of_inputs_and_of_dims_are_one_number() {
    let inputs = digits().replace("model.onnx", "inputs.npz");
    for command in ["plan", "advise"] {
        let args = [command, &digits(), "--inputs", &inputs, "--dim", "batch=3"];
        let why = fails(1, &[&args[..], &["--on", "cpu"]].concat());
        assert!(
            why.contains("'batch' is given as 16, elsewhere as 3"),
            "{why}"
        );
    }
}

#[test]
fn a_plan_of_other_sizes_or_workers_is_told() {
    let inputs = digits().replace("model.onnx", "inputs.npz");
    let folder = tempfile::tempdir().unwrap();
    let plan = folder.path().join("p.plan").display().to_string();
    text(&["plan", &digits(), "--out", &plan]);
    for command in ["run", "profile"] {
        let why = fails(
            2,
            &[command, &digits(), "--plan", &plan, "--inputs", &inputs],
        );
        assert!(why.contains("batch=16") && why.contains("batch=1"), "{why}");
    }
    let run = ["run", &digits(), "--random", "--plan", &plan];
    let told = |more: &[&str]| {
        let out = common::shopfloor(&[&run, more].concat());
        assert!(out.status.success());
        String::from_utf8(out.stderr).unwrap()
    };
    assert!(!told(&[]).contains("was made for"));
    assert!(told(&["--threads", "1"]).contains("was made for"));
    assert!(told(&["--isa", "portable"]).contains("cpu-portable run it"));
}
