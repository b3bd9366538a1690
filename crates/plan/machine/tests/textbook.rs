//! Figures of textbooks and programming guides, and the calculators beside hand counts.

use shopfloor_machine::calc::access::{self, parse_index};
use shopfloor_machine::calc::{self, Batches, Block, Ideal, Launch, Product};
use shopfloor_machine::{Machine, NumType, UnitClass, lookup};

fn near(a: f64, b: f64, share: f64) {
    assert!((a - b).abs() <= share * b.abs(), "{a:e} is not {b:e}");
}

#[test]
fn roofline_figures() {
    let a = lookup("a100").unwrap();
    let ridge = calc::ridge_points(&a, UnitClass::Tensor, NumType::F16);
    let device = ridge.iter().find(|r| r.level == "device").unwrap();
    assert_eq!(device.ops_per_byte.round(), 153.0);
    // 4096^3 in f16: 137 GFLOP over 100 MB.
    assert_eq!(
        Ideal::matmul(4096, 4096, 4096, 2.0).intensity().round(),
        1365.0
    );
    // f32 matmul of n gives n / 6.
    for n in [6, 96, 1024, 6000] {
        near(
            Ideal::matmul(n, n, n, 4.0).intensity(),
            n as f64 / 6.0,
            1e-12,
        );
    }
    near(calc::bus_bandwidth(256, 6.4e9), 205e9, 0.01);
    let m = lookup("apple-m1-pro-16c").unwrap();
    let rate = m.unit(UnitClass::Fma, NumType::F32).unwrap().all.value;
    let (ops, memory) = Ideal::map(1_000_000, 2, 4.0).seconds(rate, m.memory().peak());
    near(memory, 58.5e-6, 0.01);
    near(ops, 0.188e-6, 0.01);
    let (ops, memory) = Ideal::matmul(4096, 4096, 4096, 4.0).seconds(rate, m.memory().peak());
    near(ops, 25.9e-3, 0.01);
    assert!(memory < ops);
}

#[test]
fn occupancy_figures() {
    let a = lookup("a100").unwrap();
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
    // 64 registers a thread leave 32 warps of 64; 48 KiB of 164 leave 3 CTAs.
    let r = o(256, 64, 0);
    assert_eq!((r.warps, r.max_warps, r.share), (32, 64, 0.5));
    assert_eq!(r.limiters, ["regs"]);
    let s = o(128, 32, 48 * 1024);
    assert_eq!((s.ctas, s.limiters.as_slice()), (3, ["smem"].as_slice()));
    assert_eq!(o(0, 0, 0).ctas, 0);
    assert_eq!(o(u64::MAX, u64::MAX, u64::MAX).ctas, 0);
}

#[test]
fn the_next_step_of_occupancy_is_the_least_that_gains() {
    let a = lookup("a100").unwrap();
    let launch = Launch::from(Block {
        threads: 256,
        registers: 64,
        shared: 48 * 1024,
    });
    let now = calc::occupancy_of(&a.limits, &launch).unwrap();
    let steps = calc::occupancy_steps(&a.limits, &launch);
    let s = steps.iter().find(|s| s.what == "shared memory").unwrap();
    assert!(s.warps > now.warps && s.to < 48 * 1024);
    let just_above = Launch {
        shared: s.to + 128,
        ..launch
    };
    let o = calc::occupancy_of(&a.limits, &just_above).unwrap();
    assert_eq!(o.warps, now.warps);
    // Registers do not limit here, so fewer of them gain nothing.
    assert!(steps.iter().all(|s| s.what != "registers"));
    assert!(steps.iter().any(|s| s.what == "threads"));
}

#[test]
fn littles_law() {
    let m = lookup("a100").unwrap();
    let h = calc::hiding(&m, 32, 16);
    let d = h.iter().find(|h| h.level == "device").unwrap();
    // 2042 GB/s times 392 ns is 800 kB under way, 7.4 kB an SM; 32 warps of 512 bytes have 16 kB.
    near(d.bytes, 2.0416e12 * 3.9184e-7, 1e-9);
    near(d.bytes_per_worker, 7407.0, 0.01);
    near(d.warps, 14.5, 0.01);
    assert_eq!((d.has_bytes, d.share), (16384.0, 1.0));
    let few = calc::hiding(&m, 4, 4);
    let d = few.iter().find(|h| h.level == "device").unwrap();
    near(d.share, 512.0 / 7407.0, 0.01);
    near(calc::bytes_in_flight(205e9, 500e-9), 102_500.0, 1e-12);
}

#[test]
fn access_patterns() {
    let g = |stride, width| access::global_access(&access::strided(32, stride), width, 0);
    let one = g(1, 4);
    assert_eq!((one.sectors, one.lines, one.efficiency), (4, 1, 1.0));
    // A stride of 1024 floats: every lane its own line.
    let far = g(1024, 4);
    assert_eq!((far.sectors, far.lines, far.efficiency), (32, 32, 0.125));
    let two = g(2, 4);
    assert_eq!((two.sectors, two.lines, two.efficiency), (8, 2, 0.5));
    let wide = g(1, 16);
    assert_eq!((wide.sectors, wide.lines), (16, 4));
    let same = g(0, 4);
    assert_eq!((same.sectors, same.wanted, same.ideal_sectors), (1, 4, 1));
    let off = access::global_access(&access::strided(32, 1), 4, 4);
    assert_eq!((off.sectors, off.lines), (5, 2));
    assert_eq!(access::global_access(&[], 4, 0).efficiency, 1.0);
    let end = access::global_access(&[Some(u64::MAX)], 16, 0);
    assert_eq!(end.sectors, 1);
}

#[test]
fn bank_conflicts() {
    let s = |stride, width| {
        let a = access::shared_access(&access::strided(32, stride), width);
        (a.passes, a.ideal, a.degree)
    };
    assert_eq!(s(1, 4), (1, 1, 1));
    assert_eq!(s(2, 4), (2, 1, 2));
    assert_eq!(s(32, 4), (32, 1, 32));
    assert_eq!(s(33, 4), (1, 1, 1));
    assert_eq!(s(0, 4), (1, 1, 1));
    assert_eq!(s(1024, 4), (32, 1, 32));
    // 64 bits go by half warps, 128 bits by quarters.
    assert_eq!(s(1, 8), (2, 2, 1));
    assert_eq!(s(2, 8), (4, 2, 2));
    assert_eq!(s(1, 16), (4, 4, 1));
    assert_eq!(s(8, 16), (32, 4, 8));
    for stride in (1..64).step_by(2) {
        assert_eq!(s(stride, 4).0, 1, "an odd stride has no conflicts");
    }
}

#[test]
fn a_remedy_takes_the_conflicts_away() {
    let column = access::row_remedies(32, 32, 4);
    assert_eq!(column.len(), 2);
    assert_eq!((column[0].kind, column[0].by), ("padding", 1));
    assert_eq!(column[0].formula, "row * 33 + column");
    assert_eq!((column[1].kind, column[1].overhead), ("swizzle", 0.0));
    assert!(access::row_remedies(32, 33, 4).is_empty());
    for (stride, width) in [
        (32, 4),
        (64, 4),
        (1024, 4),
        (16, 8),
        (64, 8),
        (8, 16),
        (64, 16),
    ] {
        let lanes = access::strided(32, stride);
        let found = access::remedies(&lanes, width);
        assert!(!found.is_empty(), "stride {stride} of {width} bytes");
        for r in found {
            // The count that found the conflicts finds none, and places stay distinct.
            let put = |e: u64| match r.kind {
                "padding" => e + e / r.row * r.by,
                _ => e ^ (e / r.row % r.by),
            };
            let moved: Vec<_> = lanes.iter().map(|l| l.map(put)).collect();
            let after = access::shared_access(&moved, width);
            assert_eq!(after, r.after);
            assert_eq!(after.passes, after.ideal, "{r:?}");
            let mut all: Vec<u64> = (0..4096).map(put).collect();
            all.sort_unstable();
            all.dedup();
            assert_eq!(all.len(), 4096);
        }
    }
}

#[test]
fn index_expressions() {
    let at = |text: &str| access::indexed(32, &parse_index(text).unwrap(), None).unwrap();
    assert_eq!(at("lane*33 % 1024")[31], Some(1023));
    assert_eq!(at("lane ^ (lane / 8)")[9], Some(9 ^ 1));
    assert_eq!(at("(lane & 7) << 4 | lane >> 3")[30], Some(6 << 4 | 3));
    assert_eq!(at("31 - lane")[0], Some(31));
    assert_eq!(at("1 + 2*lane == 7")[3], Some(1));
    assert_eq!(
        at("%0 = index 0; %1 = int 4 i64; %2 = mul %0 %1; out %2")[5],
        Some(20)
    );
    for (bad, place) in [
        ("lane *", "character 7"),
        ("(lane", "character 6"),
        ("row + 1", "character 1"),
        ("lane $ 2", "character 6"),
        ("99999999999999999999", "below 2^63"),
    ] {
        let e = parse_index(bad).unwrap_err().to_string();
        assert!(e.contains(place), "{bad}: {e}");
    }
    assert!(parse_index(&"(".repeat(5000)).is_err());
    assert!(parse_index(&"(".repeat(100)).is_err());
    let e = access::indexed(32, &parse_index("lane - 1").unwrap(), None).unwrap_err();
    assert!(e.to_string().starts_with("lane 0 accesses element"), "{e}");
    for bad in ["lane / 0", "lane % (lane - lane)", "0 / (lane - 3)"] {
        let e = access::indexed(32, &parse_index(bad).unwrap(), None).unwrap_err();
        assert!(e.to_string().contains("divides by 0"), "{bad}: {e}");
    }
    let some = parse_index("lane != 3").unwrap();
    let others = access::indexed(
        32,
        &parse_index("64 / (lane - 3) * 0").unwrap(),
        Some(&some),
    );
    assert_eq!(others.unwrap().iter().flatten().count(), 31);
    let e = access::divergence(32, &parse_index("lane % 0 == 1").unwrap()).unwrap_err();
    assert!(e.to_string().contains("divides by 0"), "{e}");
    let even = parse_index("lane % 2 == 0").unwrap();
    let half = access::indexed(32, &parse_index("lane").unwrap(), Some(&even)).unwrap();
    assert_eq!(half.iter().flatten().count(), 16);
    let d = access::divergence(32, &even).unwrap();
    assert_eq!((d.taken, d.sides, d.efficiency), (16, 2, 0.5));
    let d = access::divergence(32, &parse_index("lane < 32").unwrap()).unwrap();
    assert_eq!((d.sides, d.efficiency), (1, 1.0));
}

#[test]
fn launches_and_copies() {
    let none = Batches {
        batches: 100,
        copy_in_s: 0.0,
        copy_out_s: 0.0,
        kernel_s: 10e-6,
        launch_s: 15e-6,
        graph_gap_s: 0.0,
        handoff_s: 0.0,
    };
    let c = calc::compare_transfers(&none);
    let total = |name: &str| c.ways.iter().find(|w| w.name == name).unwrap().total_s;
    // 100 batches of 10 us with a 15 us launch: one by one, and in a kernel that stays.
    near(total("one by one"), 2500e-6, 1e-9);
    near(total("persistent"), 1015e-6, 1e-9);
    near(total("resident, ring"), 1015e-6, 1e-9);
    near(total("resident, copied"), 1015e-6, 1e-9);
    near(total("graph"), 1015e-6, 1e-9);
    // 4 MB each way at 500 us: 1010 us a batch, 12 through a ring of one microsecond a hand-off.
    let far = Batches {
        copy_in_s: 500e-6,
        copy_out_s: 500e-6,
        launch_s: 0.0,
        handoff_s: 1e-6,
        ..none
    };
    let c = calc::compare_transfers(&far);
    let each = |name: &str| c.ways.iter().find(|w| w.name == name).unwrap().per_batch_s;
    near(each("one by one"), 1010e-6, 1e-9);
    near(each("resident, ring"), 12e-6, 1e-9);
    near(each("streams"), 500e-6, 1e-9);
    // The break-even is where the totals cross.
    let at = c.breakeven_batches.unwrap();
    let totals = |n: u64| {
        let c = calc::compare_transfers(&Batches { batches: n, ..far });
        (c.ways[0].total_s, c.ways[3].total_s)
    };
    let (one, resident) = totals(at);
    assert!(resident < one);
    if at > 1 {
        let (one, resident) = totals(at - 1);
        assert!(resident >= one * (1.0 - 1e-12));
    }
    let zero = calc::compare_transfers(&Batches { batches: 0, ..far });
    assert!(zero.ways.iter().all(|w| w.total_s == 0.0));
    let stages = calc::launch_stages(15e-6);
    near(stages.iter().map(|s| s.seconds).sum(), 15e-6, 1e-12);
    let unified = Batches::on(&lookup("m1 pro 16c").unwrap(), 4e6, 10, 1e-5);
    assert_eq!(unified.copy_in_s, 0.0);
    let pcie = Batches::on(&lookup("a100").unwrap(), 4e6, 10, 1e-5);
    near(pcie.copy_in_s, 4e6 / 31.508e9 + 1.5e-6, 1e-3);
}

#[test]
fn machines_of_the_catalog_look_right_and_a_slip_does_not() {
    for e in shopfloor_machine::catalog() {
        let found = e.machine.oddities();
        assert!(found.is_empty(), "{}: {found:?}", e.machine.name);
    }
    let mut m = lookup("a100").unwrap();
    m.units[0].all.value *= 2.0;
    m.levels[4].read.all.value *= 10.0;
    let found = m.oddities();
    assert!(
        found[0].contains("twice") || found[0].contains("lanes"),
        "{found:?}"
    );
    assert!(found.iter().any(|f| f.contains("bus")), "{found:?}");
}

#[test]
fn tensor_units() {
    let fit = |name: &str, m, n, k, dtype| {
        let machine: Machine = lookup(name).unwrap();
        calc::tensor_fit(&machine, &Product { m, n, k, dtype })
    };
    let f = fit("a100", 4096, 4096, 4096, NumType::F16);
    assert!(f.uses && f.unaligned.is_empty());
    assert_eq!((f.ways[0].tile, f.ways[0].useful), ((16, 8, 16), 1.0));
    near(f.ways[0].seconds, 2.0 * 4096f64.powi(3) / 312e12, 1e-9);
    let odd = fit("a100", 17, 9, 17, NumType::F16);
    assert_eq!(odd.ways[0].padded, (32, 16, 32));
    near(
        odd.ways[0].useful,
        17.0 * 9.0 * 17.0 / (32.0 * 16.0 * 32.0),
        1e-12,
    );
    assert_eq!(odd.unaligned, [("k", 17, 24), ("n", 9, 16)]);
    // f32 does not run on them as it stands; tf32 would.
    let single = fit("a100", 1024, 1024, 1024, NumType::F32);
    assert!(!single.uses);
    assert_eq!(single.ways[0].dtype, NumType::Tf32);
    assert!(single.ways[0].rounds && single.reasons[0].contains("not f32"));
    assert!(fit("mi100", 1024, 1024, 1024, NumType::F32).uses);
    assert!(!fit("v100", 64, 64, 64, NumType::Bf16).uses);
    assert!(fit("v100", 64, 64, 64, NumType::F16).uses);
    let old = fit("p100", 64, 64, 64, NumType::F16);
    assert!(!old.uses && old.reasons[0].contains("no matrix units"));
    assert!(fit("rtx 4090", 64, 64, 64, NumType::F8).uses);
    assert!(!fit("a100", 64, 64, 64, NumType::F8).uses);
    let p: Product = "matmul:17x9x33:bf16".parse().unwrap();
    assert_eq!((p.m, p.n, p.k, p.dtype), (17, 9, 33, NumType::Bf16));
    for (bad, why) in [
        ("matmul:17x9:f16", "MxNxK"),
        ("matmul:axbxc:f16", "MxNxK"),
        ("matmul:1x2x3:f13", "f13"),
        ("map:17:f16", "matmul"),
    ] {
        let e = bad.parse::<Product>().unwrap_err();
        assert!(e.contains(why), "{bad}: {e}");
    }
    let huge = fit("a100", u64::MAX, u64::MAX, u64::MAX, NumType::F16);
    assert!(huge.ways[0].seconds.is_finite());
    assert_eq!(fit("a100", 0, 8, 8, NumType::F16).ways[0].useful, 1.0);
}

#[test]
fn rooflines_at_every_level() {
    let a = lookup("a100").unwrap();
    let ideal = Ideal::matmul(4096, 4096, 4096, 2.0);
    let r = calc::roofline_of(&a, UnitClass::Tensor, NumType::F16, &ideal).unwrap();
    let d = r.level("device").unwrap();
    assert_eq!((d.ridge.round(), d.ops_per_byte.round()), (153.0, 1365.0));
    assert_eq!(r.bound.to_string(), "compute:tensor");
    near(r.seconds, 2.0 * 4096f64.powi(3) / 312e12, 1e-9);
    assert_eq!(d.roof, 312e12);
    // Over PCIe it would be the link that bounds; it is shown and does not count.
    let h = r.level("host").unwrap();
    assert!(!h.counts && h.seconds > r.seconds);
    assert_eq!(r.memory().unwrap().level, "device");
    // Two vectors of a million floats.
    let m = lookup("apple-m1-pro-16c").unwrap();
    let r = calc::roofline_of(
        &m,
        UnitClass::Fma,
        NumType::F32,
        &Ideal::map(1_000_000, 2, 4.0),
    );
    let r = r.unwrap();
    near(r.seconds, 58.5e-6, 0.01);
    near(r.compute_s, 0.188e-6, 0.01);
    assert_eq!(r.bound.to_string(), "memory:device");
    assert!(r.level("host").is_none(), "host and device are one place");
    // Work counts what its own bytes are at each level; elements apart are no arithmetic.
    let mut w = shopfloor_machine::Work::default();
    w.add_ops(UnitClass::Tensor, NumType::F16, 312e9);
    w.add_ops(UnitClass::Simple, NumType::F32, 1e9);
    w.add_ops(UnitClass::Element, NumType::F32, 1e12);
    let at = |n: &str| a.level_index(n).unwrap();
    w.add_traffic(at("L2"), 54.3e9, 0.0);
    w.add_traffic(at("device"), 1e9, 0.0);
    let r = calc::roofline(&a, &w);
    near(r.compute_s, 1e-3, 1e-9);
    near(r.seconds, 54.3e9 / 5.43e12, 1e-9);
    assert_eq!(r.bound.to_string(), "memory:L2");
    near(r.ops, 313e9, 1e-9);
    assert!(r.level("L1").unwrap().ops_per_byte.is_infinite());
    // What units do beyond the model's work takes their time and is none of it.
    w.repeated = 12e9;
    let padded = calc::roofline(&a, &w);
    near(padded.ops, 301e9, 1e-9);
    near(padded.compute_s, r.compute_s, 1e-9);
    assert!(calc::roofline_of(&m, UnitClass::Tensor, NumType::F8, &ideal).is_none());
    let none = calc::roofline(&a, &shopfloor_machine::Work::default());
    assert_eq!((none.seconds, none.compute_rate()), (0.0, 0.0));
}
