//! The catalog held to its own arithmetic, and names to their machines.

use shopfloor_machine::calc::{self, Block};
use shopfloor_machine::{
    Machine, MachineError, MachineKind, NumType, Source, UnitClass, catalog, lookup,
};

fn near(a: f64, b: f64, share: f64, what: &str) {
    assert!(
        (a - b).abs() <= share * b.abs(),
        "{what}: {a:e} is not within {share} of {b:e}"
    );
}

fn gpus() -> impl Iterator<Item = &'static Machine> {
    let all = catalog().iter().map(|e| &e.machine);
    all.filter(|m| m.kind == MachineKind::Gpu)
}

#[test]
fn every_name_and_alias_finds_its_machine() {
    let h100 = lookup("NVIDIA H100 80GB HBM3").unwrap();
    assert_eq!(h100.short_name(), "h100");
    for e in catalog() {
        let m = &e.machine;
        let found = lookup(&m.short_name()).map(|f| f.name);
        assert_eq!(found.ok().as_ref(), Some(&m.name));
        for n in std::iter::once(&m.name).chain(&m.aliases) {
            for n in [n.clone(), n.to_lowercase(), n.replace(['-', ' '], "_")] {
                assert_eq!(lookup(&n).map(|f| f.name).ok(), Some(m.name.clone()), "{n}");
            }
        }
        let vendor = format!("{} {}", m.vendor, m.name);
        assert_eq!(lookup(&vendor).unwrap().name, m.name, "{vendor}");
    }
    for (asked, name) in [
        ("a100", "A100-SXM4-80GB"),
        ("h100", "H100-SXM5-80GB"),
        ("h200", "H200-SXM5-141GB"),
        ("rtx pro 6000", "RTX-PRO-6000-BW"),
        ("GeForce RTX 4090", "RTX-4090"),
        ("4090", "RTX-4090"),
        ("3090", "RTX-3090"),
        ("mi300x", "MI300X"),
        ("Tesla V100", "V100-SXM2-16GB"),
        ("p100", "P100-PCIE-16GB"),
        ("Apple M1 Pro 16-core GPU", "APPLE-M1-PRO-16C"),
        ("rx 7900 xtx", "RX-7900XTX"),
        ("dgx spark", "GB10-DGX-SPARK"),
    ] {
        assert_eq!(lookup(asked).unwrap().name, name, "{asked}");
    }
}

#[test]
fn an_ambiguous_name_lists_its_candidates_and_an_unknown_one_near_names() {
    let Err(MachineError::Ambiguous { candidates, .. }) = lookup("m3 max") else {
        panic!("it should be ambiguous");
    };
    assert_eq!(candidates, ["APPLE-M3-MAX-30C", "APPLE-M3-MAX-40C"]);
    for (asked, near) in [
        ("rtx 5099", "RTX-5090"),
        ("a1000", "A100"),
        ("mi300z", "MI300"),
    ] {
        let e = lookup(asked).unwrap_err().to_string();
        assert!(e.contains(near), "{asked}: {e}");
    }
    let e = lookup("zzz").unwrap_err().to_string();
    assert!(e.contains("`shopfloor machines list`"), "{e}");
    let e = lookup(&"a10".repeat(100_000)).unwrap_err();
    assert!(matches!(e, MachineError::Unknown { .. }));
}

/// The published table that the catalog was begun from, where the checkout has it.
fn published() -> Option<String> {
    let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../../../../shared/measurements/devices.csv");
    std::fs::read_to_string(path).ok()
}

/// Fields of a CSV line; quotes hold commas.
fn fields(line: &str) -> Vec<String> {
    let (mut out, mut quoted) = (vec![String::new()], false);
    for c in line.chars() {
        match c {
            '"' => quoted = !quoted,
            ',' if !quoted => out.push(String::new()),
            c => out.last_mut().unwrap().push(c),
        }
    }
    out
}

#[test]
fn every_published_device_is_there_with_its_figures() {
    let Some(text) = published() else {
        testing::skip(
            "measurements: 109 published devices",
            "there is no ../shared/measurements",
        );
        return;
    };
    let mut lines = text.lines();
    let head = fields(lines.next().unwrap());
    let at = |name: &str| head.iter().position(|h| h == name).unwrap();
    let (mut n, mut names) = (0, 0);
    for line in lines {
        let f = fields(line);
        let number = |k: &str| f[at(k)].parse::<f64>().ok();
        let m = lookup(&f[0]).unwrap();
        assert_eq!(m.name, f[0]);
        for alias in f[at("aliases")].split(';').filter(|a| !a.is_empty()) {
            assert_eq!(lookup(alias).unwrap().name, f[0], "{alias}");
            names += 1;
        }
        assert_eq!(
            Some(m.workers.count.value as f64),
            number("sms"),
            "{}",
            f[0]
        );
        near(
            m.memory().peak() / 1e9,
            number("bw_gbs").unwrap(),
            0.03,
            &f[0],
        );
        let f32s = m.unit(UnitClass::Fma, NumType::F32).unwrap().all.value;
        near(f32s / 1e12, number("fp32_tflops").unwrap(), 0.03, &f[0]);
        for (column, dtype) in [
            ("fp16_tensor_tflops", NumType::F16),
            ("bf16_tflops", NumType::Bf16),
            ("tf32_tflops", NumType::Tf32),
            ("fp8_tflops", NumType::F8),
        ] {
            let unit = m.unit(UnitClass::Tensor, dtype);
            if let Some(t) = number(column) {
                near(unit.unwrap().all.value / 1e12, t, 1e-3, &f[0]);
            }
        }
        if let Some(l2) = number("l2_mb") {
            assert_eq!(
                m.level("L2").unwrap().bytes.value,
                l2 * 1048576.0,
                "{}",
                f[0]
            );
        }
        let unified = matches!(f[at("unified_memory")].as_str(), "yes" | "coherent");
        assert_eq!(m.is_unified(), unified, "{}", f[0]);
        n += 1;
    }
    assert_eq!(n, 109);
    assert!(names >= 109);
}

#[test]
fn gpus_agree_with_their_own_arithmetic() {
    for m in gpus() {
        let what = &m.name;
        let bus = m.memory().bus.as_ref().unwrap_or_else(|| panic!("{what}"));
        near(
            m.memory().peak(),
            bus.bits.value as f64 * bus.pin_bits_per_s.value / 8.0,
            0.03,
            what,
        );
        let w = &m.workers;
        let peak = calc::vector_peak(w.lanes.value, w.count.value, w.clock_hz.value);
        let fma = m.unit(UnitClass::Fma, NumType::F32).unwrap();
        near(fma.all.value, peak, 0.03, what);
        assert!(
            m.memory().read.all.value <= m.memory().peak() * 1.001,
            "{what}"
        );
        // What is nearer is no slower and no farther away.
        let caches: Vec<_> = m.caches().map(|c| c.1).chain([m.memory()]).collect();
        for pair in caches.windows(2) {
            let (a, b) = (pair[0], pair[1]);
            assert!(
                a.latency_s.value <= b.latency_s.value,
                "{what}: {} {}",
                a.name,
                b.name
            );
            assert!(
                a.read.all.value >= b.read.all.value * 0.99,
                "{what}: {} {}",
                a.name,
                b.name
            );
        }
        for u in &m.units {
            near(
                u.per_worker.value * w.count.value as f64,
                u.all.value,
                1e-3,
                what,
            );
        }
        for r in calc::ridge_points(m, UnitClass::Fma, NumType::F32) {
            assert!(r.ops_per_byte.is_finite() && r.ops_per_byte > 0.0, "{what}");
        }
        let ridge = fma.all.value / m.memory().peak();
        assert!((0.5..150.0).contains(&ridge), "{what}: ridge {ridge}");
        assert!(!m.note.is_empty(), "{what} has no note on its sources");
        if let Some(pcie) = m.links.iter().find(|l| l.name == "pcie") {
            let known = [3, 4, 5]
                .iter()
                .flat_map(|g| [1, 4, 8, 16].map(|l| (*g, l)));
            let fits = known
                .map(|(g, l)| calc::pcie_bandwidth(g, l))
                .any(|b| (b - pcie.bandwidth.value).abs() <= 1e-3 * b);
            assert!(fits, "{what}: {:e} is no PCIe link", pcie.bandwidth.value);
        }
    }
}

#[test]
fn matrix_units_are_those_of_the_architecture() {
    let has = |name: &str, d: NumType| lookup(name).unwrap().unit(UnitClass::Tensor, d).is_some();
    for m in gpus().filter(|m| m.vendor == "NVIDIA") {
        let (n, cc) = (&m.name, m.limits.cc);
        assert_eq!(has(n, NumType::F16), cc >= 70, "{n}");
        assert_eq!(has(n, NumType::Bf16), cc >= 80, "{n}");
        assert_eq!(has(n, NumType::Tf32), cc >= 80, "{n}");
        assert_eq!(has(n, NumType::I8), cc >= 72, "{n}");
        assert_eq!(has(n, NumType::F8), cc >= 89, "{n}");
    }
    assert!(has("mi100", NumType::F16) && !has("mi25", NumType::F16));
    assert!(has("mi300x", NumType::F8) && !has("mi250", NumType::F8));
    assert!(has("arc a770", NumType::F16) && has("m1 pro 16c", NumType::F16));
    // GeForce cards sum in f16 twice as fast; the rate that counts is the one with f32 sums.
    let m = lookup("rtx 4090").unwrap();
    let u = m.unit(UnitClass::Tensor, NumType::F16).unwrap();
    assert_eq!((u.dtype_acc, u.all.value), (NumType::F32, 165.2e12));
}

#[test]
fn limits_of_a_machine_are_those_of_its_compute_capability() {
    for m in gpus().filter(|m| m.vendor == "NVIDIA") {
        let of = calc::limits_of_capability(m.limits.cc).unwrap();
        // Which multiprocessors have clusters is the chip's.
        let own = shopfloor_machine::Limits {
            clustered: vec![],
            ..m.limits.clone()
        };
        assert_eq!(own, of, "{}", m.name);
    }
}

#[test]
fn one_memory_and_no_workgroup_memory() {
    for n in [
        "m1 pro 16c",
        "jetson agx orin",
        "gh200-96gb",
        "mi300a",
        "gb10",
    ] {
        assert!(lookup(n).unwrap().is_unified(), "{n}");
    }
    assert!(!lookup("a100").unwrap().is_unified());
    let phone = lookup("mali-t628").unwrap();
    assert!(phone.level("shared").is_none() && phone.is_unified());
    let block = Block {
        threads: 64,
        registers: 16,
        shared: 0,
    };
    assert!(calc::occupancy(&phone.limits, block).is_none());
    assert!(!calc::occupancy_lacks(&phone.limits).is_empty());
    let gh = lookup("gh200-96gb").unwrap();
    let c2c = gh.links.iter().find(|l| l.to == "host").unwrap();
    assert_eq!(c2c.bandwidth.value, 450e9);
    assert!(
        catalog()
            .iter()
            .filter(|e| e.machine.kind == MachineKind::Cpu)
            .count()
            >= 6
    );
}

#[test]
fn measured_figures_are_marked_so() {
    for (name, level) in [
        ("v100-pcie-16gb", "L1"),
        ("a40", "L2"),
        ("l40", "device"),
        ("mi300x", "LLC"),
        ("rx 6900 xt", "L2"),
        ("gh200-96gb", "device"),
    ] {
        let m = lookup(name).unwrap();
        let l = m.level(level).unwrap();
        assert_eq!(l.latency_s.source, Source::Measured, "{name} {level}");
    }
    let m = lookup("rtx 4080").unwrap();
    assert_eq!(m.level("L2").unwrap().latency_s.source, Source::Assumed);
}

#[test]
fn double_precision_is_there_where_the_hardware_has_it() {
    use shopfloor_machine::{NumType, UnitClass};
    for e in catalog() {
        let m = &e.machine;
        let f64 = m.unit(UnitClass::Fma, NumType::F64);
        // Apple's and Intel's Xe-HPG GPUs have none; of the phone GPU nothing is published.
        let none =
            m.isa.name == "metal" || m.arch.contains("alchemist") || m.name.starts_with("ARC-A");
        let unknown = m.name.to_lowercase().contains("mali");
        assert_eq!(f64.is_none(), none || unknown, "{}", m.name);
        let f32 = m.unit(UnitClass::Fma, NumType::F32).unwrap();
        if let Some(u) = f64 {
            assert!(u.all.value <= f32.all.value * 1.001, "{}", m.name);
        }
    }
    // The data sheets' figures: 9.7 and 19.5 TFLOPS, 33.5 and 66.9.
    for (name, fma, tensor) in [("a100", 9.7e12, 19.5e12), ("h100", 33.5e12, 66.9e12)] {
        let m = lookup(name).unwrap();
        let rate = |class| m.unit(class, NumType::F64).unwrap().all.value;
        assert!((rate(UnitClass::Fma) / fma - 1.0).abs() < 0.01);
        assert!((rate(UnitClass::Tensor) / tensor - 1.0).abs() < 0.01);
    }
}
