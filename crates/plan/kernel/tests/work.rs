//! Work counted by hand against work read off the programs.
use crate::common;
use common::*;
use kernel::{Term, TileProgram, work};
use layout::{DType, Dim, DimBox};
use machine::{Machine, UnitClass};
use shopfloor_kernel as kernel;

fn known(n: i64) -> Dim {
    Dim::Known(n)
}

fn machine(name: &str) -> Machine {
    machine::catalog()
        .iter()
        .find(|m| m.file == name)
        .map(|m| m.machine.clone())
        .unwrap_or_else(|| panic!("{name}"))
}

fn count(k: kernel::Kernel, s: kernel::Schedule, m: &Machine) -> machine::Work {
    let p = TileProgram::new(k, s).unwrap_or_else(|e| panic!("{e}"));
    work::work(&p, m, &|_| None).unwrap_or_else(|| panic!("no work"))
}

fn close(a: f64, b: f64, share: f64) {
    assert!((a - b).abs() <= share * b.abs().max(1.0), "{a} is not {b}");
}

/// Threads of a GPU's tile are there for all of it: 129 rows and columns in tiles of 128 take four.
#[test]
fn edge_tiles_of_a_gpu_are_whole() {
    let (m, n) = (machine("a100.toml"), known(129));
    let k = gemm(n.clone(), n.clone(), known(64), DType::F16);
    let w = count(k.clone(), gemm_gpu(), &m);
    assert_eq!(w.ops_of(UnitClass::Tensor), 2.0 * 256.0 * 256.0 * 64.0);
    // The model's work is what there is, however it is tiled.
    assert_eq!(w.flop(), 2.0 * 129.0 * 129.0 * 64.0);
    // What is stored is what there is.
    let l2 = w.traffic_at(m.level_index("L2").unwrap());
    assert_eq!(l2.stored, 2.0 * 129.0 * 129.0);
}

#[test]
fn gemm_of_the_page() {
    let m = machine("a100.toml");
    let w = count(
        gemm(known(4096), known(4096), known(4096), DType::F16),
        gemm_gpu(),
        &m,
    );
    assert_eq!(w.ops_of(UnitClass::Tensor), 2.0 * 4096f64.powi(3)); // 137.4 GFLOP
    close(w.ops_of(UnitClass::Transcendental), 16.8e6, 0.01);
    // A, B, Y of 33.6 MB each, and the bias.
    assert_eq!(w.unique_bytes(), 3.0 * 2.0 * 4096.0 * 4096.0 + 4.0 * 4096.0);
    close(w.unique_bytes(), 100.7e6, 0.001);
    assert_eq!(w.tasks, 1024);
    let level = |n: &str| w.traffic_at(m.level_index(n).unwrap());
    // Every task stages its A and its B once: 1024 * 2 * 128 * 4096 * 2 bytes, and its bias.
    assert_eq!(
        level("L2").loaded,
        1024.0 * (2.0 * 128.0 * 4096.0 * 2.0 + 128.0 * 4.0)
    );
    close(level("L2").loaded, 2.15e9, 0.01);
    assert_eq!(level("L2").stored, 2.0 * 4096.0 * 4096.0);
    assert_eq!(level("shared").stored, 1024.0 * 2.0 * 128.0 * 4096.0 * 2.0);
    // Warps 2x4 of 64x32: each A byte is read by 4 warps, each B byte by 2.
    assert_eq!(
        level("shared").loaded,
        1024.0 * 128.0 * 4096.0 * 2.0 * (4.0 + 2.0)
    );
    // Between what is distinct and what is staged.
    let device = level("device").loaded;
    assert!((67e6..500e6).contains(&device), "{device}");
    assert_eq!(level("host").loaded, 0.0);
    // Bands of the raster need no more from memory than a wave of tiles at a time, never less than once.
    let mut banded = gemm_gpu();
    banded.raster = 8;
    let w = count(
        gemm(known(4096), known(4096), known(4096), DType::F16),
        banded,
        &m,
    );
    let b = w.traffic_at(m.level_index("device").unwrap()).loaded;
    assert!((67e6..500e6).contains(&b), "{b}");
}

#[test]
fn gemm_on_a_cpu() {
    let m = machine("zen5-2core.toml");
    let n = 1024.0f64;
    let w = count(
        gemm(known(1024), known(1024), known(1024), DType::F32),
        gemm_cpu(120, 512, 1024),
        &m,
    );
    assert_eq!(w.ops_of(UnitClass::Fma), 2.0 * n.powi(3));
    assert_eq!(w.tasks, 9 * 2);
    let l1 = w.traffic_at(m.level_index("L1").unwrap());
    // A once per 64 columns, B once per 6 rows, c and the sum by the epilogue.
    let factors = 4.0 * n.powi(3) * (1.0 / 64.0 + 1.0 / 6.0);
    assert!(
        l1.loaded > factors && l1.loaded < factors * 1.1,
        "{} {factors}",
        l1.loaded
    );
    let l2 = w.traffic_at(m.level_index("L2").unwrap()).loaded;
    assert!(l2 < l1.loaded && l2 > 2.0 * 4.0 * n * n, "{l2}");
    let host = w.traffic_at(m.memory_index()).loaded;
    close(host, 2.0 * 4.0 * n * n + 4.0 * n, 1.0);
    assert!(host >= 2.0 * 4.0 * n * n);
}

#[test]
fn odd_extents_count_exactly() {
    let m = machine("zen5-2core.toml");
    let w = count(
        gemm(known(127), known(65), known(33), DType::F32),
        gemm_cpu(50, 64, 16),
        &m,
    );
    assert_eq!(w.flop(), 2.0 * 127.0 * 65.0 * 33.0);
    assert_eq!(w.tasks, 3 * 2);
    let w = count(
        gemm(known(0), known(65), known(33), DType::F32),
        gemm_cpu(50, 64, 16),
        &m,
    );
    assert_eq!((w.flop(), w.tasks), (0.0, 0));
}

/// Panels of 16 columns are filled up with zeros, which are no bytes of the model.
#[test]
fn packed_panels_hold_what_the_model_has() {
    let (m, n, k) = (known(64), known(17), known(32));
    let mut packed = gemm(m.clone(), n.clone(), k.clone(), DType::F32);
    let b = &mut packed.operands[1];
    let leaf = |extent: i64, stride: i64| layout::Leaf {
        extent: known(extent),
        stride: known(stride),
    };
    b.access.terms = vec![
        Term {
            axis: 1,
            leaves: vec![leaf(2, 32 * 16), leaf(16, 1)],
        },
        Term::flat(2, k.clone(), known(16)),
    ];
    b.elements = known(2 * 32 * 16);
    let cpu = machine("zen5-2core.toml");
    for (schedule, on) in [
        (gemm_cpu(64, 17, 32), &cpu),
        (gemm_gpu(), &machine("a100.toml")),
    ] {
        let plain = count(
            gemm(m.clone(), n.clone(), k.clone(), DType::F32),
            schedule.clone(),
            on,
        );
        let w = count(packed.clone(), schedule, on);
        assert_eq!(w.unique_bytes(), plain.unique_bytes());
        assert_eq!(w.unique_read, 4.0 * (64.0 * 32.0 + 17.0 * 32.0 + 17.0));
    }
}

#[test]
fn convolution() {
    let m = machine("zen5-2core.toml");
    // 3x3, 56x56, 64 -> 64: 231.2 MFLOP; 0.8 MB in, 0.8 MB out, 0.15 MB of weights.
    let w = count(conv(56, 56, 64, 64, 1), conv_cpu(7), &m);
    assert_eq!(w.flop(), 2.0 * 56.0 * 56.0 * 64.0 * 64.0 * 9.0);
    close(w.flop(), 231.2e6, 0.001);
    let (x, wt) = (4.0 * 56.0 * 56.0 * 64.0, 4.0 * 9.0 * 64.0 * 64.0);
    assert_eq!(w.unique_read, x + wt);
    assert_eq!(w.unique_written, x);
    assert_eq!(w.tasks, 8);
    // Windows overlap: nine reads of every input element stay in the near caches.
    let host = w.traffic_at(m.memory_index()).loaded;
    assert!(host >= x + wt && host < 1.5 * x + 3.0 * wt, "{host}");
    let l1 = w.traffic_at(m.level_index("L1").unwrap()).loaded;
    assert!(l1 >= 9.0 * x, "{l1}");
    // Stride 2 reads the same input for a quarter of the output.
    let half = count(conv(56, 56, 64, 64, 2), conv_cpu(7), &m);
    assert_eq!(half.flop() * 4.0, w.flop());
}

#[test]
fn attention_over_tiles() {
    let m = machine("zen5-2core.toml");
    let (h, q, t, d) = (12.0, 384.0, 384.0, 64.0);
    let k = attention(known(12), known(384), known(384), known(64));
    let w = count(k, attention_cpu(64, 64), &m);
    // Two contractions over every pair of query and key.
    assert_eq!(w.flop(), 2.0 * 2.0 * h * q * t * d);
    // One exp per score, one per rescaled row and key tile.
    assert_eq!(w.ops_of(UnitClass::Transcendental), h * q * t + h * q * 6.0);
    assert_eq!(w.ops_of(UnitClass::Divsqrt), h * q * d);
    assert_eq!(w.tasks, 12 * 6);
    assert_eq!(w.unique_read, 4.0 * h * d * (q + 2.0 * t));
    let host = w.traffic_at(m.memory_index()).loaded;
    assert!(
        host >= w.unique_read && host < 1.6 * w.unique_read,
        "{host}"
    );
    // Keys and values of a head (196 KB) are read anew by each of its 6 query tiles from beyond L1.
    let l2 = w.traffic_at(m.level_index("L2").unwrap()).loaded;
    assert!(l2 >= 4.0 * h * d * (q + 6.0 * 2.0 * t) * 0.9, "{l2}");
}

#[test]
fn scratch_counts_tiles_that_are_not_in_place() {
    let p = TileProgram::new(
        gemm(Dim::sym("b"), known(65), known(33), DType::F32),
        gemm_cpu(50, 64, 16),
    )
    .unwrap();
    let mut dims = DimBox::new();
    assert_eq!(work::scratch_bytes(&p, &dims), None);
    dims.insert("b", 1, 20);
    // Only the accumulator, 20 x 64 f32.
    assert_eq!(work::scratch_bytes(&p, &dims), Some(20 * 64 * 4));
    dims.insert("b", 1, 2000);
    assert_eq!(work::scratch_bytes(&p, &dims), Some(50 * 64 * 4));
    let b = Dim::sym("b");
    let tasks = work::tasks(p.kernel(), p.schedule());
    assert_eq!(tasks, (b + known(49)).floor_div(&known(50)) * known(2));
    let p = TileProgram::new(softmax(known(9), known(5)), softmax_cpu(4)).unwrap();
    assert_eq!(work::scratch_bytes(&p, &DimBox::new()), Some(64 + 128 + 64));
}

#[test]
fn resident_data_takes_no_memory_traffic() {
    let m = machine("zen5-2core.toml");
    let w = count(softmax(known(32), known(128)), softmax_cpu(4), &m);
    assert!(w.traffic_at(m.memory_index()).loaded > 0.0);
    let bytes = w.unique_bytes();
    let p = TileProgram::new(softmax(known(32), known(128)), softmax_cpu(4)).unwrap();
    let (near, _) = work::statements(&p, &m, &|_| None, &|_| bytes).unwrap();
    assert_eq!(near.traffic_at(m.memory_index()).loaded, 0.0);
    assert_eq!(near.ops, w.ops);
}

#[test]
fn statements_sum_to_the_whole_and_say_where_time_goes() {
    let m = machine("zen5-2core.toml");
    let p = TileProgram::new(softmax(known(32), known(128)), softmax_cpu(4)).unwrap();
    let (whole, parts) = work::statements(&p, &m, &|_| None, &|_| f64::INFINITY).unwrap();
    assert_eq!(parts.len(), p.kernel().body.len());
    let rows: f64 = parts.iter().map(|w| w.rows).sum();
    assert!(rows > 0.0 && whole.rows == rows);
    for class in [UnitClass::Simple, UnitClass::Transcendental] {
        let sum: f64 = parts.iter().map(|w| w.ops_of(class)).sum();
        assert_eq!(whole.ops_of(class), sum);
    }
    // Rows in memory one behind the other have no element on its own.
    assert_eq!(whole.ops_of(UnitClass::Element), 0.0);
    let p = TileProgram::new(gather(known(64), 100, 32), gather_cpu(8)).unwrap();
    let (g, _) = work::statements(&p, &m, &|_| None, &|_| f64::INFINITY).unwrap();
    assert!(g.rows >= 64.0, "a row per looked-up index: {}", g.rows);
    // Register tiles do not reach over a task's rows: 3 tasks of 50, 50 and 20 rows.
    let cpu = gemm_cpu(50, 64, 16);
    let p = TileProgram::new(gemm(known(120), known(64), known(16), DType::F32), cpu).unwrap();
    let (w, _) = work::statements(&p, &m, &|_| None, &|_| f64::INFINITY).unwrap();
    assert!(w.calls > 0.0 && w.largest > 0.4 && w.largest < 0.42);
}
