//! The fixtures are real PTX: NVIDIA's assembler takes them.

use crate::suite::{arithmetic, convert, floats, matrix, pipeline, tensor, wgmma};
use std::path::{Path, PathBuf};
use std::process::Command;

/// Path of ptxas, or why it is left out.
fn ptxas() -> Result<PathBuf, String> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../..");
    let out = Command::new("sh")
        .arg(root.join("scripts/fetch-ptxas.sh"))
        .output()
        .map_err(|e| e.to_string())?;
    match out.status.success() {
        true => Ok(String::from_utf8_lossy(&out.stdout).trim().into()),
        false => Err(String::from_utf8_lossy(&out.stderr).trim().to_string()),
    }
}

/// Every text that the tests run.
fn sources() -> Vec<(String, String)> {
    let mut all: Vec<(String, String)> = [
        ("gemm", include_str!("ptx/gemm.ptx")),
        ("bulk", include_str!("ptx/bulk.ptx")),
        ("cluster", include_str!("ptx/cluster.ptx")),
        ("faults", include_str!("ptx/faults.ptx")),
        ("matrix", include_str!("ptx/matrix.ptx")),
        ("mbarrier", include_str!("ptx/mbarrier.ptx")),
        ("memory", include_str!("ptx/memory.ptx")),
        ("order", include_str!("ptx/order.ptx")),
        ("warps", include_str!("ptx/warps.ptx")),
        ("stored", matrix::STORED),
    ]
    .map(|(n, s)| (n.to_string(), s.to_string()))
    .into();
    all.push(("wgmma".into(), wgmma::fixtures()));
    all.push(("tensor".into(), tensor::fixtures()));
    all.push(("pipeline".into(), pipeline::fixtures()));
    // Kernels of one module, under one head.
    let mut joined = |name: &str, kernels: Vec<String>| {
        let head = crate::suite::common::HEAD;
        let bodies: String = kernels.iter().map(|k| k.replacen(head, "", 1)).collect();
        all.push((name.to_string(), format!("{head}{bodies}")));
    };
    let one = |name: &str, bits, out, text: &str| arithmetic::module(name, bits, out, text);
    let c = arithmetic::CASES.iter();
    joined(
        "integers",
        c.map(|c| one(c.name, c.bits, c.out, c.text)).collect(),
    );
    let c = floats::CASES.iter();
    joined(
        "floats",
        c.map(|c| one(c.name, c.bits, c.out, c.text)).collect(),
    );
    let c = convert::CASES.iter();
    joined("conversions", c.map(|c| one(c.0, c.1, c.2, c.3)).collect());
    let forms = matrix::FORMS.iter().enumerate();
    joined(
        "products",
        forms
            .map(|(k, (f, n))| matrix::product(f, *n).replace("product(", &format!("product{k}(")))
            .collect(),
    );
    all
}

#[test]
fn ptxas_assembles_every_fixture() {
    let tool = match ptxas() {
        Ok(t) => t,
        Err(why) => {
            testing::skip("ptxas: every fixture", &why);
            return;
        }
    };
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR"));
    for (name, source) in sources() {
        let arch = if source.contains("sm_90a") {
            "sm_90a"
        } else if source.contains("sm_90") {
            "sm_90"
        } else {
            "sm_80"
        };
        let path = folder.join(format!("emulator-{name}.ptx"));
        std::fs::write(&path, &source).unwrap();
        let out = Command::new(&tool)
            .args([&format!("-arch={arch}"), "-v", "-o", "/dev/null"])
            .arg(&path)
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&out.stderr);
        assert!(
            out.status.success(),
            "{name}:\n{said}\n{}",
            crate::suite::common::numbered(&source)
        );
        // It says so when it lets products wait for each other.
        assert!(!said.contains("C75"), "{name}:\n{said}");
    }
}
