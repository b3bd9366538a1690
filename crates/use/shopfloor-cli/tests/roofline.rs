//! `shopfloor roofline`: figures of textbooks, points of a model, plots, wrong input.

use crate::common;

use common::{fails, json, text};
use serde_json::Value;
use std::path::{Path, PathBuf};

fn near(v: &Value, want: f64, share: f64) {
    let got = v.as_f64().unwrap();
    assert!((got - want).abs() <= share * want.abs(), "{got:e} {want:e}");
}

fn digits() -> String {
    let root: PathBuf = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../..");
    root.join("models/digits_cnn/model.onnx")
        .display()
        .to_string()
}

const PRODUCT: [&str; 5] = [
    "roofline",
    "--on",
    "a100",
    "--op",
    "matmul:4096x4096x4096:f16",
];

#[test]
fn figures_of_textbooks() {
    let v = json(&PRODUCT);
    assert_eq!(v["ridge"].as_f64().unwrap().round(), 153.0);
    assert_eq!(v["intensity"].as_f64().unwrap().round(), 1365.0);
    assert_eq!(v["bound"], "compute:tensor");
    near(&v["time_s"], 2.0 * 4096f64.powi(3) / 312e12, 1e-9);
    // Every operand once, then our kernel, whose tiles ask more of near levels than of far ones.
    let ours = &v["points"][1];
    assert_eq!(ours["family"], "contract");
    let bytes = |level: &str| {
        let levels = ours["levels"].as_array().unwrap();
        let l = levels.iter().find(|l| l["level"] == level).unwrap();
        l["bytes"].as_f64().unwrap()
    };
    assert!(bytes("shared") > bytes("L2") && bytes("L2") > bytes("device"));
    assert!(bytes("device") >= v["bytes"].as_f64().unwrap());
    assert!(ours["predicted_s"].as_f64() > ours["roof_s"].as_f64());
    // 205 GB/s and 5.3 TFLOPS.
    let m1 = |op: &str| json(&["roofline", "--on", "m1 pro 16c", "--op", op]);
    let add = m1("map:1000000:f32:2in");
    near(&add["memory_s"], 58.5e-6, 0.01);
    near(&add["compute_s"], 0.188e-6, 0.01);
    assert_eq!(add["bound"], "memory:device");
    near(&m1("matmul:4096x4096x4096:f32")["time_s"], 25.9e-3, 0.01);
    for n in [96, 1024] {
        let v = m1(&format!("matmul:{n}x{n}x{n}:f32"));
        near(&v["intensity"], f64::from(n) / 6.0, 1e-9);
    }
}

#[test]
fn tables_plots_and_reasons() {
    let out = text(&PRODUCT);
    for part in [
        "Ridge point",
        "tensor f16 312 TFLOPS",
        "device 2.04 TB/s",
        "1365",
    ] {
        assert!(out.contains(part), "{part}: {out}");
    }
    // Lines in braille.
    assert!(out.chars().any(|c| ('\u{2801}'..='\u{28ff}').contains(&c)));
    // A CPU, a GPU through WebGPU, one newer than what PTX is printed for, formats without kernels.
    for (on, op, part) in [
        ("zen5-2core", "matmul:512x512x512:f32", "cpu-avx512"),
        ("mi300x", "map:4096:f32:gelu", "wgsl"),
        ("rtx 5090", "conv:1,64,56,56,64,3,3,1,1", "ptx-sm_90"),
        (
            "a100",
            "matmul:64x64x64:i8",
            "no kernel of ours multiplies i8",
        ),
        ("a100", "matmul:0x5x5:f16", "bound by"),
    ] {
        let out = text(&["roofline", "--on", on, "--op", op]);
        assert!(out.contains(part), "{on} {op}: {out}");
    }
}

#[test]
fn every_step_of_a_model_is_a_point() {
    let model = digits();
    let v = json(&["roofline", "--on", "a100", &model]);
    let points = v["points"].as_array().unwrap();
    assert!(points.len() > 4, "{}", points.len());
    let sum: f64 = points.iter().map(|p| p["roof_s"].as_f64().unwrap()).sum();
    near(&v["time_s"], sum, 1e-9);
    for p in points {
        assert!(p["predicted_s"].as_f64() >= p["roof_s"].as_f64(), "{p}");
    }
    let out = text(&[
        "roofline",
        "--on",
        "zen5-2core",
        &model,
        "--dim",
        "batch=1..8",
    ]);
    assert!(
        out.contains("batch=1..8") && out.contains("  fma  "),
        "{out}"
    );
    text(&["roofline", "--on", "h100", &model, "--all"]);
    let out = text(&["roofline", "--on", "h100", &model, "--kernels", "vendor"]);
    assert!(out.contains("kernels: vendor"), "{out}");
}

#[test]
fn the_picture_is_well_formed() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("roof.svg");
    let path = file.display().to_string();
    text(&["roofline", "--on", "h100", &digits(), "--svg", &path]);
    let svg = std::fs::read_to_string(&file).unwrap();
    assert!(svg.starts_with("<svg") && svg.trim_end().ends_with("</svg>"));
    assert!(svg.contains("prefers-color-scheme:dark") && svg.contains("fma f32"));
    for tag in ["text", "g", "style", "title"] {
        let opened =
            svg.matches(&format!("<{tag}>")).count() + svg.matches(&format!("<{tag} ")).count();
        assert_eq!(opened, svg.matches(&format!("</{tag}>")).count(), "{tag}");
    }
    assert!(!svg.contains("NaN") && !svg.contains("inf"), "{svg}");
    let nowhere = folder.path().join("no/where.svg").display().to_string();
    let e = fails(
        1,
        &["roofline", "--on", "h100", &digits(), "--svg", &nowhere],
    );
    assert!(e.contains("where.svg"), "{e}");
}

#[test]
fn wrong_input() {
    assert!(fails(2, &["roofline", "--on", "a100"]).contains("--op"));
    for (op, part) in [
        ("foo", "matmul:MxNxK:DTYPE"),
        ("matmul:4096x4096:f16", "matmul:MxNxK:DTYPE"),
        ("map:100:f32:0in", "K from 1 to 64"),
        ("map:100:f32:foo", "gelu"),
        ("matmul:1x2x3:f13", "f13"),
    ] {
        let e = fails(2, &["roofline", "--on", "a100", "--op", op]);
        assert!(
            e.contains(part) && e.trim().lines().count() == 1,
            "{op}: {e}"
        );
    }
}
