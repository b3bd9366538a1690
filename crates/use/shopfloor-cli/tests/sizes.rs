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
