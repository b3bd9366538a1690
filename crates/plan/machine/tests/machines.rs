//! Catalog, text forms, lookup, calculators and predictions on hand-computed cases.

use shopfloor_machine::calc::{self, Block};
use shopfloor_machine::{
    Bound, Efficiencies, Machine, MachineError, MachineKind, NumType, UnitClass, Work, catalog,
    lookup, predict, predict_phases, predict_seconds,
};

fn near(a: f64, b: f64, share: f64) {
    assert!(
        (a - b).abs() <= share * b.abs(),
        "{a:e} is not within {share} of {b:e}"
    );
}

#[test]
fn every_catalog_file_reads_and_round_trips() {
    let dir = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("machines");
    let files: Vec<_> = std::fs::read_dir(dir)
        .unwrap()
        .map(|e| e.unwrap().path())
        .filter(|p| p.extension().is_some_and(|e| e == "toml"))
        .collect();
    assert_eq!(
        files.len(),
        catalog().len(),
        "a file of machines/ is not in the catalog or does not read"
    );
    for f in files {
        let m = Machine::from_file(&f).unwrap_or_else(|e| panic!("{e}"));
        let text = m.to_toml().unwrap();
        let again = Machine::from_toml(&text, "again").unwrap_or_else(|e| panic!("{e}\n{text}"));
        assert_eq!(m, again);
        assert_eq!(text, again.to_toml().unwrap());
        assert_eq!(m.hash(), again.hash());
        assert_eq!(m.hash_hex().len(), 64);
        let json = serde_json::to_string(&m).unwrap();
        assert_eq!(serde_json::from_str::<Machine>(&json).unwrap(), m);
    }
}

#[test]
fn hash_changes_with_any_number() {
    let m = lookup("a100").unwrap();
    let mut other = m.clone();
    other.levels[2].read.all.value += 1.0;
    assert_ne!(m.hash(), other.hash());
    let mut other = m.clone();
    other.costs.step_s.source = shopfloor_machine::Source::Measured;
    assert_ne!(m.hash(), other.hash());
}

#[test]
fn lookup_ignores_case_vendor_and_punctuation() {
    for n in [
        "a100",
        "A100",
        "NVIDIA A100",
        "nvidia a100-sxm4-80gb",
        "A100_SXM4-80gb",
        "Tesla A100",
    ] {
        assert_eq!(lookup(n).unwrap().name, "A100-SXM4-80GB", "{n}");
    }
    assert_eq!(lookup("h100").unwrap().name, "H100-SXM5-80GB");
    assert_eq!(lookup("H 200").unwrap().name, "H200-SXM5-141GB");
    assert_eq!(Machine::load("zen4-2core").unwrap().kind, MachineKind::Cpu);
    assert_eq!(
        lookup("gh200").unwrap_err().to_string(),
        "`gh200` fits several machines: GH200-144GB, GH200-96GB; give one of these names"
    );
    let near = lookup("rtx 4099").unwrap_err().to_string();
    assert!(
        near.contains("near it are RTX-4090") && near.contains("machines list"),
        "{near}"
    );
    assert!(matches!(
        lookup("nothing like it"),
        Err(MachineError::Unknown { .. })
    ));
    assert!(matches!(lookup("  "), Err(MachineError::Unknown { .. })));
    assert!(matches!(
        Machine::load("no/such.toml"),
        Err(MachineError::Io { .. })
    ));
}

#[test]
fn load_takes_a_path() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("mine.toml");
    let mut m = lookup("a100").unwrap();
    m.name = "mine".into();
    std::fs::write(&path, m.to_toml().unwrap()).unwrap();
    assert_eq!(Machine::load(path.to_str().unwrap()).unwrap(), m);
}

#[test]
fn wrong_files_name_line_and_field() {
    let good = lookup("zen4-2core").unwrap().to_toml().unwrap();
    let cases: &[(&str, &str, &str)] = &[
        (
            "kind = \"cpu\"",
            "kind = \"cqu\"",
            "unknown variant `cqu`, expected `cpu` or `gpu`",
        ),
        (
            "shared_by = 1\n",
            "",
            "missing field `shared_by` (in [[levels]])",
        ),
        (
            "shared_by = 2\n",
            "shared_by = 0\n",
            "field `levels[3].shared_by`: 0 workers share it; a private level says 1",
        ),
        (
            "src = \"spec\"",
            "src = \"guess\"",
            "unknown variant `guess`, expected one of `spec`, `measured`, `recalled`, `fitted`, `assumed`",
        ),
        (
            "name = \"L2\"",
            "name = \"L1\"",
            "field `levels[2].name`: there are two levels called `L1`; names must differ",
        ),
        (
            "clock_hz = { v = 3.69e9, src = \"measured\" }",
            "clock_hz = -1",
            "field `workers.clock_hz`: -1 must be a finite number above 0",
        ),
        ("line = 64", "lines = 64", "unknown field `lines`"),
        (
            "count = { v = 2, src = \"spec\" }",
            "count = { v = 2.5, src = \"spec\" }",
            "2.5 is not a whole number",
        ),
        (
            "count = { v = 2, src = \"spec\" }",
            "count = { v = 2 }",
            "missing field `src`",
        ),
        (
            "[workers]",
            "[workers",
            "expected a right bracket, found a newline (in [workers)",
        ),
    ];
    for (from, to, want) in cases {
        assert!(good.contains(from), "{from}\n{good}");
        let bad = good.replacen(from, to, 1);
        let e = Machine::from_toml(&bad, "m.toml").unwrap_err().to_string();
        assert!(e.contains(want), "got  {e}\nwant {want}");
        let line: usize = e
            .strip_prefix("m.toml:")
            .unwrap()
            .split(':')
            .next()
            .unwrap()
            .parse()
            .unwrap();
        assert!(line > 0, "{e}");
    }
    let e = Machine::from_toml("", "m.toml").unwrap_err().to_string();
    assert_eq!(e, "m.toml:1: missing field `name`");
    let first = good.lines().position(|l| l == "shared_by = 2").unwrap() + 1;
    let e = Machine::from_toml(
        &good.replacen("shared_by = 2", "shared_by = 0", 1),
        "m.toml",
    )
    .unwrap_err();
    assert!(
        e.to_string().starts_with(&format!("m.toml:{first}: ")),
        "{e}"
    );
}

#[test]
fn textbook_figures() {
    let a = lookup("a100").unwrap();
    let ridge = calc::ridge_points(&a, UnitClass::Tensor, NumType::F16);
    let device = ridge.iter().find(|r| r.level == "device").unwrap();
    assert_eq!(device.ops_per_byte.round(), 153.0);
    assert_eq!(
        calc::roof(&a, UnitClass::Tensor, NumType::F16, "device", 1e9),
        Some(312e12)
    );
    near(calc::bus_bandwidth(256, 6.4e9), 204.8e9, 1e-12);
    near(calc::pcie_bandwidth(4, 16), 31.508e9, 1e-3);
    let o = |threads, registers, shared| {
        calc::occupancy(
            &a.limits,
            Block {
                threads,
                registers,
                shared,
            },
        )
        .unwrap()
    };
    assert_eq!(o(256, 64, 0).warps, 32);
    assert_eq!(o(128, 32, 48 * 1024).ctas, 3);
    assert_eq!(o(2048, 32, 0).ctas, 0);
    assert!(
        calc::occupancy(
            &lookup("zen4-2core").unwrap().limits,
            Block {
                threads: 1,
                registers: 1,
                shared: 0
            }
        )
        .is_none()
    );
}

#[test]
fn occupancy_agrees_with_the_vendor_on_a_sample() {
    let mut n = 0;
    for row in include_str!("occupancy.csv")
        .lines()
        .filter(|l| !l.starts_with('#'))
    {
        let f: Vec<&str> = row.split(',').collect();
        let num = |i: usize| f[i].parse::<u64>().unwrap();
        let m = lookup(if f[0] == "80" { "a100" } else { "h100" }).unwrap();
        let o = calc::occupancy(
            &m.limits,
            Block {
                threads: num(1),
                registers: num(2),
                shared: num(3),
            },
        )
        .unwrap();
        assert_eq!(o.ctas, num(4), "{row}: {o:?}");
        if o.ctas > 0 {
            assert_eq!(o.limiters.join("|"), f[5], "{row}: {o:?}");
        }
        n += 1;
    }
    assert!(n > 50);
}

fn zen4() -> Machine {
    lookup("zen4-2core").unwrap()
}

#[test]
fn prediction_of_a_gemm_is_compute_bound() {
    let m = zen4();
    let mut w = Work {
        steps: 1,
        tasks: 18,
        ..Work::default()
    };
    w.add_ops(UnitClass::Fma, NumType::F32, 2.0 * 1024f64.powi(3));
    w.add_traffic(m.level_index("L2").unwrap(), 1e8, 4.2e6);
    let c = predict(&m, &Efficiencies::default(), &w, 2);
    assert_eq!(c.bound.to_string(), "compute:fma");
    // 2.147 GFLOP at 235.7 GFLOPS is 9.11 ms, and 0.1 of the level's time shows beside it; 18 tasks
    // on two workers leave no hole.
    let shows = 0.1 * c.levels[0].seconds;
    near(
        c.time_s,
        2.0 * 1024f64.powi(3) / 2.357e11 + shows + 3.8e-9 + 1e-7 + 9.0 * 3e-8,
        1e-9,
    );
    assert_eq!(
        c.time_s,
        predict_seconds(&m, &Efficiencies::default(), &w, 2)
    );
    assert!(c.interval.0 <= c.time_s && c.time_s <= c.interval.1);
    let half = predict(&m, &Efficiencies::default().with_unit("fma", 0.5), &w, 2);
    near(half.units[0].seconds, 2.0 * c.units[0].seconds, 1e-12);
    // 17 tasks on two workers: nine rounds, the last half empty.
    w.tasks = 17;
    let odd = predict(&m, &Efficiencies::default(), &w, 2);
    near(
        odd.time_s - c.time_s,
        (c.units[0].seconds + shows) * (18.0 / 17.0 - 1.0),
        1e-6,
    );
    // One task runs on one worker at one worker's rate.
    w.tasks = 1;
    let one = predict(&m, &Efficiencies::default(), &w, 2);
    near(one.units[0].seconds, 2.0 * 1024f64.powi(3) / 1.179e11, 1e-9);
}

#[test]
fn prediction_of_a_copy_is_memory_bound_and_of_nothing_is_launch() {
    let m = zen4();
    let host = m.level_index("DRAM").unwrap();
    let mut w = Work {
        steps: 1,
        tasks: 2,
        ..Work::default()
    };
    w.add_traffic(host, 1e9, 1e9);
    let c = predict(&m, &Efficiencies::default(), &w, 2);
    assert_eq!(c.bound, Bound::Memory("host".into()));
    near(c.levels[0].seconds, 1e9 / 3.5e10 + 1e9 / 2.6e10, 1e-9);
    let c = predict(
        &m,
        &Efficiencies::default(),
        &Work {
            steps: 1,
            ..Work::default()
        },
        2,
    );
    assert_eq!((c.bound.clone(), c.time_s), (Bound::Launch, 1e-7));
    let c = predict(
        &m,
        &Efficiencies::default(),
        &Work {
            handoffs: 100,
            steps: 1,
            ..Work::default()
        },
        2,
    );
    assert_eq!(c.bound.to_string(), "latency");
    let c = predict(&m, &Efficiencies::default(), &Work::default(), 0);
    assert_eq!(c.time_s, 0.0);
}

#[test]
fn prediction_on_a_gpu_counts_waves() {
    let m = lookup("a100").unwrap();
    let mut w = Work {
        tasks: 1024,
        ctas_per_worker: 2,
        launches: 1,
        ..Work::default()
    };
    w.add_ops(UnitClass::Tensor, NumType::F16, 2.0 * 4096f64.powi(3));
    w.add_traffic(m.memory_index(), 2.15e9, 33.6e6);
    let c = predict(&m, &Efficiencies::default(), &w, usize::MAX);
    // 1024 tasks on 216 slots are 5 waves: 1080 slots paid for.
    near(c.units[0].seconds, 2.0 * 4096f64.powi(3) / 312e12, 1e-9);
    let memory = 2.15e9 / 1.78e12 + 33.6e6 / 1.78e12;
    assert_eq!(c.bound.to_string(), "memory:device");
    near(
        c.time_s,
        memory * 1080.0 / 1024.0 + 5.0 * m.memory().latency_s.value + 5.75e-6 + 5.0 * 2e-7,
        1e-6,
    );
}

#[test]
fn work_adds_and_formats_without_a_unit_fall_back() {
    let m = zen4();
    let mut a = Work {
        tasks: 1,
        steps: 1,
        unique_read: 8.0,
        ..Work::default()
    };
    a.add_ops(UnitClass::Simple, NumType::F32, 10.0);
    a.add_ops(UnitClass::Fma, NumType::F32, 10.0);
    a.add_traffic(2, 5.0, 1.0);
    let mut b = a.clone();
    b.add_ops(UnitClass::Transcendental, NumType::F64, 1.0);
    let c = a.clone() + b;
    assert_eq!(
        (c.tasks, c.steps, c.unique_read, c.flop()),
        (2, 2, 16.0, 20.0)
    );
    assert_eq!(c.ops_of(UnitClass::Simple), 20.0);
    assert_eq!(c.traffic_at(2).loaded, 10.0);
    assert_eq!(c.traffic_at(7).loaded, 0.0);
    let mut w = Work::default();
    w.add_ops(UnitClass::Tensor, NumType::F16, 1.179e11);
    near(
        predict(&m, &Efficiencies::default(), &w, 1).time_s,
        1.0,
        1e-9,
    );
}

#[test]
fn levels_are_found_by_need() {
    let m = zen4();
    assert_eq!(m.nearest_holding(16e3).name, "L1");
    assert_eq!(m.nearest_holding(1e6).name, "L2");
    assert_eq!(m.nearest_holding(8e6).name, "L3");
    assert_eq!(m.nearest_holding(9e6).name, "host");
    assert_eq!(m.nearest_holding(1e15).name, "host");
    assert_eq!(m.level("l3").unwrap().capacity_per_worker(2), 4194304.0);
    assert_eq!(
        m.caches().map(|c| c.1.name.as_str()).collect::<Vec<_>>(),
        ["L1", "L2", "L3"]
    );
    let g = lookup("a100").unwrap();
    // A multiprocessor's own cache is empty when a kernel begins.
    assert_eq!(g.nearest_holding(48e3).name, "L2");
    assert_eq!(g.memory().name, "device");
}

#[test]
fn bounds_read_back() {
    for b in [
        Bound::Memory("L2".into()),
        Bound::Compute("fma".into()),
        Bound::Latency,
        Bound::Launch,
    ] {
        assert_eq!(b.to_string().parse::<Bound>(), Ok(b));
    }
    assert!("memory".parse::<Bound>().is_err());
}

#[test]
fn calibration_replaces_only_what_was_measured() {
    use shopfloor_machine::{LevelMeasure, Measurements, OpRate, Source, WorkerPoint};
    let m = zen4();
    let p = |workers, per_s| WorkerPoint { workers, per_s };
    let me = Measurements {
        machine: m.identity(),
        workers: 2,
        handoff_s: Some(5e-8),
        ops: vec![OpRate {
            class: UnitClass::Fma,
            dtype: NumType::F32,
            isa: "avx512".into(),
            lanes: 16,
            rate: vec![p(1, 2e11), p(2, 3.9e11)],
        }],
        levels: vec![LevelMeasure {
            name: "L3".into(),
            bytes: 4e6,
            read: vec![p(1, 9e10), p(2, 1.7e11)],
            write: vec![],
            copy: vec![],
            latency_s: Some(2e-8),
        }],
        ..Measurements::default()
    };
    let text = me.to_toml().unwrap();
    assert_eq!(Measurements::from_toml(&text, "x").unwrap(), me);
    let c = m.calibrated(&me);
    c.check().unwrap();
    let l3 = c.level("L3").unwrap();
    assert_eq!(
        (l3.read.at(1), l3.read.at(2), l3.read.per_worker.source),
        (9e10, 1.7e11, Source::Measured)
    );
    assert_eq!(l3.write, m.level("L3").unwrap().write);
    // What was not measured is not faster than what is nearer to the cores.
    let memory = |m: &Machine| m.memory().read.all;
    let mut slow = me.clone();
    slow.levels[0].read = vec![p(1, 1e9), p(2, 2e9)];
    let mut assumed = m.clone();
    let last = assumed.levels.last_mut().unwrap();
    last.read.all.source = Source::Assumed;
    let slowed = memory(&assumed.calibrated(&slow));
    assert_eq!((slowed.value, slowed.source), (2e9, Source::Assumed));
    assert_eq!(memory(&assumed.calibrated(&me)).value, memory(&m).value);
    assert_eq!(c.unit(UnitClass::Fma, NumType::F32).unwrap().at(2), 3.9e11);
    assert_eq!(c.costs.handoff_s.value, 5e-8);
    assert_eq!(c.costs.wake_s, m.costs.wake_s);
    assert_eq!(c.identity(), m.identity());
    let text = c.to_toml().unwrap();
    assert_eq!(Machine::from_toml(&text, "x").unwrap(), c);
}

#[test]
fn a_machine_can_be_restricted_to_an_instruction_set() {
    let m = zen4();
    let same = m.restricted_to_isa("avx512");
    assert_eq!(same, m);
    let a = m.restricted_to_isa("avx2");
    a.check().unwrap();
    assert!(a.units.iter().all(|u| !u.isa.starts_with("avx512")));
    assert_eq!(a.unit(UnitClass::Fma, NumType::F32).unwrap().lanes(), 8);
    assert_eq!((a.isa.vector_bytes, a.isa.vector_registers), (32, 16));
    assert!(!a.isa.has("avx512f") && a.isa.has("avx2"));
    assert_ne!(a.hash(), m.hash());
    assert_eq!(m.restricted_to_isa("altivec"), m);
}

#[test]
fn damaged_files_are_errors_never_panics() {
    if !testing::turn("damaged_files_are_errors_never_panics") {
        return;
    }
    let good = lookup("h100").unwrap().to_toml().unwrap();
    let mut bytes = good.clone().into_bytes();
    for cut in (0..bytes.len()).step_by(61) {
        let _ = Machine::from_toml(&good[..cut], "m.toml");
    }
    let mut drawn = fastrand::Rng::with_seed(1);
    for _ in 0..2000 {
        let at = drawn.usize(..bytes.len());
        let old = bytes[at];
        bytes[at] = drawn.u8(..128);
        if let Ok(m) = Machine::from_toml(std::str::from_utf8(&bytes).unwrap(), "m.toml") {
            m.check().unwrap();
            let w = Work {
                tasks: u64::MAX,
                waves: u64::MAX,
                ctas_per_worker: u64::MAX,
                ..Work::default()
            };
            let _ = predict(&m, &Efficiencies::default(), &w, usize::MAX);
            let _ = calc::occupancy(
                &m.limits,
                Block {
                    threads: 64,
                    registers: u64::MAX,
                    shared: u64::MAX,
                },
            );
        }
        bytes[at] = old;
    }
}

#[test]
fn registers_never_bound() {
    let m = zen4();
    let mut w = Work {
        tasks: 2,
        ..Work::default()
    };
    w.add_ops(UnitClass::Fma, NumType::F32, 1e9);
    w.add_traffic(0, 1e15, 1e15);
    assert_eq!(
        predict(&m, &Efficiencies::default(), &w, 2)
            .bound
            .to_string(),
        "compute:fma"
    );
}

#[test]
fn phases_follow_one_another_and_overlap_only_themselves() {
    let m = zen4();
    let host = m.level_index("DRAM").unwrap();
    let eff = Efficiencies::default();
    let (mut sums, mut copy) = (Work::default(), Work::default());
    sums.add_ops(UnitClass::Fma, NumType::F32, 1e9);
    copy.add_traffic(host, 1e8, 0.0);
    let mut all = sums.clone() + copy.clone();
    (all.steps, all.tasks) = (1, 2);
    let apart = predict_phases(&m, &[(&sums, &eff), (&copy, &eff)], &all, 2);
    let together = predict(&m, &eff, &all, 2);
    let (a, b) = (apart.units[0].seconds, apart.levels[0].seconds);
    near(apart.time_s - apart.latency_s - apart.launch_s, a + b, 1e-9);
    let shows = m.workers.exposed.value * a.min(b);
    near(
        together.time_s - together.latency_s - together.launch_s,
        a.max(b) + shows,
        1e-9,
    );
}

#[test]
fn nobody_waits_longer_than_for_the_largest_task() {
    let m = zen4();
    let mut w = Work {
        tasks: 2,
        largest: 2.0 / 3.0,
        ..Work::default()
    };
    w.add_ops(UnitClass::Fma, NumType::F32, 1e9);
    let uneven = predict(&m, &Efficiencies::default(), &w, 2);
    w.largest = 0.5;
    let even = predict(&m, &Efficiencies::default(), &w, 2);
    let busy = |c: &shopfloor_machine::Cost| c.time_s - c.launch_s - c.latency_s;
    near(busy(&uneven) / busy(&even), 4.0 / 3.0, 1e-6);
}

#[test]
fn rows_calls_and_elements_on_their_own_cost_time() {
    let m = zen4();
    let eff = Efficiencies::default();
    let base = Work {
        tasks: 1,
        ..Work::default()
    };
    let time = |w: &Work| predict(&m, &eff, w, 1).time_s;
    let rows = Work {
        rows: 1e6,
        ..base.clone()
    };
    near(time(&rows) - time(&base), 1e6 * m.costs.row_s.value, 1e-9);
    let calls = Work {
        calls: 1e6,
        ..base.clone()
    };
    near(time(&calls) - time(&base), 1e6 * m.costs.call_s.value, 1e-9);
    let mut elements = base.clone();
    elements.add_ops(UnitClass::Element, NumType::F32, 2.1e9);
    near(time(&elements) - time(&base), 1.0, 1e-6);
}
