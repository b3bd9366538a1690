//! A hand-made GEMM: what the text holds, and what is refused by which rule.
use expr::ExprBuilder;
use kernel::*;
use layout::{DType, Dim};
use shopfloor_emit::{EmitError, ptx};

const A: TileId = 0;
const B: TileId = 1;
const ACC: TileId = 2;
const Y: TileId = 3;

/// y[m, n] = cast(sum over k of a[m, k] * b[k, n]); axes m, k, n.
fn gemm(k: Dim) -> Kernel {
    let (m, n) = (Dim::sym("m"), Dim::Known(96));
    let flat = |axis, extent: &Dim, stride: Dim| Term::flat(axis, extent.clone(), stride);
    let operand = |name: &str, role, terms| Operand {
        name: name.into(),
        dtype: DType::F16,
        role,
        access: Access::strided(Dim::ZERO, terms),
        elements: Dim::ONE,
    };
    let tile = |name: &str, dtype, axes: &[AxisId]| Tile {
        name: name.into(),
        dtype,
        axes: axes.to_vec(),
    };
    let mut e = ExprBuilder::new();
    let zero = e.constant(0.0, DType::F32);
    let zero = e.finish(&[zero]);
    let mut e = ExprBuilder::new();
    let x = e.input(0, DType::F32);
    let x = e.cast(x, DType::F16);
    let cast = e.finish(&[x]);
    let axis = |name: &str, extent: &Dim| Axis {
        name: name.into(),
        extent: extent.clone(),
    };
    Kernel {
        name: "gemm".into(),
        family: Family::Contract,
        axes: vec![axis("m", &m), axis("k", &k), axis("n", &n)],
        operands: vec![
            operand(
                "a",
                Role::Read,
                vec![flat(0, &m, k.clone()), flat(1, &k, Dim::ONE)],
            ),
            operand(
                "b",
                Role::Read,
                vec![flat(1, &k, n.clone()), flat(2, &n, Dim::ONE)],
            ),
            operand(
                "y",
                Role::Write,
                vec![flat(0, &m, n.clone()), flat(2, &n, Dim::ONE)],
            ),
        ],
        tiles: vec![
            tile("ta", DType::F16, &[0, 1]),
            tile("tb", DType::F16, &[1, 2]),
            tile("acc", DType::F32, &[0, 2]),
            tile("ty", DType::F16, &[0, 2]),
        ],
        body: vec![
            Stmt::Map {
                dst: ACC,
                expr: zero,
                args: vec![],
            },
            Stmt::Load { dst: A, operand: 0 },
            Stmt::Load { dst: B, operand: 1 },
            Stmt::Contract {
                acc: ACC,
                a: A,
                b: B,
                over: vec![1],
            },
            Stmt::Map {
                dst: Y,
                expr: cast,
                args: vec![ACC],
            },
            Stmt::Store { operand: 2, src: Y },
        ],
    }
}

fn schedule() -> Schedule {
    let shared = |bits| Place::Shared {
        swizzle: Swizzle {
            bits,
            base: 3,
            shift: 3,
        },
        stages: 3,
    };
    Schedule {
        grid: vec![
            AxisTile { axis: 0, tile: 64 },
            AxisTile { axis: 2, tile: 64 },
        ],
        loops: vec![AxisTile { axis: 1, tile: 32 }],
        places: vec![shared(2), shared(3), Place::Register, Place::Register],
        chunk: 1,
        raster: 4,
        mapping: Mapping::Gpu(GpuMapping {
            threads: 128,
            warps: [2, 2],
            copiers: 0,
            walkers: 0,
            cluster: 1,
            combined: kernel::Combined::ByLast,
            store_bytes: 0,
            rows: vec![0],
            columns: vec![2],
            fragment: Some(Fragment {
                m: 16,
                n: 8,
                k: 16,
                input: DType::F16,
                acc: DType::F32,
                factors: Factors::Whole,
                right: None,
            }),
            load_bytes: 16,
            unroll: 1,
            registers: 128,
            spread: vec![],
            code: None,
            constants: vec![],
            triggers: false,
        }),
    }
}

fn emit(k: Kernel, s: Schedule) -> Result<ptx::Ptx, EmitError> {
    ptx::emit(&TileProgram::new(k, s).unwrap(), "sm_80")
}

fn rule(k: Kernel, change: impl Fn(&mut Schedule, &mut GpuMapping)) -> &'static str {
    let mut s = schedule();
    let Mapping::Gpu(mut m) = s.mapping.clone() else {
        unreachable!()
    };
    change(&mut s, &mut m);
    if matches!(s.mapping, Mapping::Gpu(_)) {
        s.mapping = Mapping::Gpu(m);
    }
    // Some schedules the verifier refuses before the emitter sees them.
    let program = match TileProgram::new(k, s) {
        Ok(p) => p,
        Err(KernelError::Rule { rule, .. }) => return rule,
        Err(e) => panic!("{e}"),
    };
    match ptx::emit(&program, "sm_80") {
        Err(EmitError::Rule {
            rule,
            statement,
            why,
            ..
        }) => {
            assert!(!statement.is_empty() && !why.is_empty());
            rule
        }
        Err(EmitError::Kernel(KernelError::Rule { rule, .. })) => rule,
        other => panic!("{other:?}"),
    }
}

#[test]
fn the_text_follows_the_schedule() {
    let p = emit(gemm(Dim::Known(256)), schedule()).unwrap();
    let count = |what: &str| p.text.lines().filter(|l| l.contains(what)).count();
    // A warp has 32 x 32 of the accumulator and 32 of depth: 2 x 4 x 2 blocks.
    assert_eq!(count("mma.sync"), 16);
    // Per 16 of depth: two blocks of A, two of B (which is stored depth first: transposed).
    assert_eq!(count("ldmatrix"), 8);
    assert_eq!(count(".x4.trans"), 4);
    // 64 x 32 of A and of B in vectors of 8: two of each per thread, before the loop and in it.
    assert_eq!(count("cp.async.cg"), 8);
    assert_eq!(count("cp.async.wait_group 1"), 1);
    assert_eq!(count("bar.sync"), 1);
    assert_eq!(p.shared_bytes, 3 * 2 * 64 * 32 * 2);
    // Rows end inside a tile, and so do the 96 columns; depth does not.
    assert_eq!(count("selp.b32"), 8);
    assert!(
        p.params
            .iter()
            .any(|p| p.value == ptx::ParamValue::Dim(Dim::sym("m")))
    );
    assert_eq!(
        p.params.len(),
        3 + 2,
        "three pointers, m and its number of tiles: {:?}",
        p.params
    );
}

#[test]
fn narrow_loads_where_rows_are_not_aligned() {
    let change = |m: &mut GpuMapping, b| m.load_bytes = b;
    let k = || gemm(Dim::sym("k"));
    assert_eq!(rule(k(), |_, _| ()), "load bytes");
    let mut s = schedule();
    let Mapping::Gpu(mut m) = s.mapping.clone() else {
        unreachable!()
    };
    change(&mut m, 2);
    s.mapping = Mapping::Gpu(m);
    let p = emit(k(), s).unwrap();
    assert!(p.text.contains("st.shared.b16") && !p.text.contains("shared.global"));
}

#[test]
fn what_cannot_be_printed_is_named() {
    let k = || gemm(Dim::Known(256));
    assert_eq!(rule(k(), |_, m| m.threads = 64), "mapping");
    assert_eq!(rule(k(), |_, m| m.threads = 384), "mapping");
    // Each of four warps has less than a fragment of the depth.
    assert_eq!(rule(k(), |_, m| m.threads = 512), "warps along the depth");
    assert_eq!(rule(k(), |s, _| s.chunk = 2), "chunk");
    assert_eq!(rule(k(), |_, m| m.registers = 300), "mapping");
    assert_eq!(rule(k(), |s, _| s.grid[0].tile = 48), "rows of a warp");
    assert_eq!(rule(k(), |s, _| s.grid[0].tile = 1 << 30), "limits");
    assert_eq!(rule(k(), |s, _| s.loops[0].tile = 24), "depth");
    assert_eq!(
        rule(k(), |s, _| s.places[0] = Place::Shared {
            swizzle: Swizzle {
                bits: 3,
                base: 3,
                shift: 3
            },
            stages: 3
        }),
        "swizzle"
    );
    assert_eq!(
        rule(k(), |s, _| s.places[0] = Place::Shared {
            swizzle: Swizzle::default(),
            stages: 2
        }),
        "stages"
    );
    let mut large = k();
    large.operands[0].elements = Dim::Known(1 << 31);
    assert_eq!(rule(large, |_, _| ()), "coordinates");
    assert_eq!(
        rule(k(), |s, _| s.mapping = Mapping::Cpu(CpuMapping::default())),
        "GPU mapping"
    );
    assert!(matches!(
        ptx::emit(&TileProgram::new(k(), schedule()).unwrap(), "sm_70"),
        Err(EmitError::Arch(_))
    ));
    assert!(ptx::target("sm_70").families.is_empty());
}

#[test]
fn swizzles_keep_lines_and_spread_banks() {
    let gpu = ptx::target("sm_80").gpu.unwrap();
    for s in &gpu.swizzles {
        for inner in [16u32, 24, 32, 64, 128, 256]
            .into_iter()
            .filter(|&n| s.fits(n, 16))
        {
            let place = |line: u32, i: u32| {
                let at = line * inner + i;
                let mask = if s.bits == 0 {
                    0
                } else {
                    ((1 << s.bits) - 1) << s.base
                };
                at ^ (at >> s.shift & mask)
            };
            let mut seen = vec![false; 64 * inner as usize];
            for line in 0..64 {
                for i in 0..inner {
                    let p = place(line, i);
                    assert_eq!(p / inner, line, "{s:?} leaves its line");
                    assert!(!std::mem::replace(&mut seen[p as usize], true));
                    assert_eq!(p % 8, i % 8, "vectors of 8 stay whole");
                    // Blocks of 16 commute with it: what fragment addresses rely on.
                    if i < 16 && inner.is_multiple_of(32) {
                        assert_eq!(place(line, i ^ 16), p ^ 16);
                    }
                    assert_eq!(place(line + 8, i), p + 8 * inner);
                }
            }
            // The eight lines of one 8x8 matrix: 16 bytes each, over 8 groups of 4 banks.
            let best = s.bits
                == gpu
                    .swizzles
                    .iter()
                    .filter(|x| x.fits(inner, 16))
                    .map(|x| x.bits)
                    .max()
                    .unwrap();
            if best && inner.is_power_of_two() {
                let mut groups: Vec<u32> = (0..8).map(|line| place(line, 0) / 8 % 8).collect();
                groups.sort_unstable();
                groups.dedup();
                assert_eq!(groups.len(), 8, "{s:?} on lines of {inner}");
            }
        }
    }
}

/// What the threads of a CTA do, as text: copies run ahead of the loop that multiplies, and what does not change
/// in it stands before it.
#[test]
fn threads_of_a_gemm() {
    let program = TileProgram::new(gemm(Dim::Known(256)), schedule()).unwrap();
    let caps = shopfloor_emit::simt::Caps {
        shuffle: 32,
        copies: true,
        warpgroups: false,
        dependents: false,
    };
    let threads = shopfloor_emit::simt::lower(&program, caps).unwrap();
    shopfloor_emit::simt::verify::verify(&threads).unwrap();
    let text = threads.to_string();
    let count = |what: &str| {
        text.lines()
            .filter(|l| l.trim_start().starts_with(what))
            .count()
    };
    // Before the loop and in it, two of each factor per thread.
    assert_eq!((count("copy ta"), count("copy tb")), (4, 4), "{text}");
    assert_eq!(
        (count("wait 1"), count("barrier"), count("commit")),
        (1, 1, 2),
        "{text}"
    );
    let multiplied = text
        .lines()
        .filter(|l| l.contains("+= m16n8k16 f16"))
        .count();
    assert_eq!(multiplied, 16, "{text}");
    let body = text.split("for ").nth(2).unwrap_or_default();
    let divides = |l: &&str| l.contains("= div ") || l.contains("= fmod ");
    let inside: Vec<&str> = body.lines().filter(divides).collect();
    // Three stages take turns; nothing else is divided in the loop.
    assert!(inside.len() <= 2, "{inside:?}");
}

/// What is copied before the wait for the kernels before, and where the one behind may be launched: read off the schedule,
/// for kernels by themselves on what knows it.
#[test]
fn constants_are_copied_before_the_wait() {
    let texts = |constants: &[u16], triggers: bool| {
        let mut s = schedule();
        if let Mapping::Gpu(g) = &mut s.mapping {
            (g.constants, g.triggers) = (constants.to_vec(), triggers);
        }
        let p = TileProgram::new(gemm(Dim::Known(256)), s).unwrap();
        ["sm_80", "sm_90"].map(|arch| ptx::emit(&p, arch).unwrap().text)
    };
    let [plain, waits] = texts(&[], false);
    let lines = |text: &str| -> Vec<String> {
        let words = |l: &str| Some(l.trim().split([' ', ';']).next()?.to_string());
        text.lines().filter_map(words).collect()
    };
    let before = |text: &str, what: &str| {
        let all = lines(text);
        let at = all.iter().position(|l| l == "griddepcontrol.wait").unwrap();
        all[..at].iter().filter(|l| l.starts_with(what)).count()
    };
    assert!(!plain.contains("griddepcontrol"), "{plain}");
    for what in ["cp.async", "ld.global", "st.global"] {
        assert_eq!(before(&waits, what), 0, "{waits}");
    }
    assert_eq!(waits.matches("griddepcontrol").count(), 1, "{waits}");
    // Of sm_80 nothing is different.
    assert_eq!(texts(&[1], true)[0], plain);
    let [_, early] = texts(&[1], true);
    assert_eq!(before(&early, "cp.async.cg"), 2, "{early}");
    assert_eq!(before(&early, "cp.async.commit"), 0, "{early}");
    // Both factors are there at once, in as many groups.
    let copies = |text: &str, what| lines(text).iter().filter(|l| l.starts_with(what)).count();
    for what in ["cp.async.cg", "cp.async.commit"] {
        assert_eq!(copies(&early, what), copies(&waits, what), "{early}");
    }
    let at = |what: &str| {
        early
            .find(what)
            .unwrap_or_else(|| panic!("{what} in {early}"))
    };
    let next = at("griddepcontrol.launch_dependents");
    assert!(at("griddepcontrol.wait") < next, "{early}");
    // The kernel behind may come beside all of the work.
    assert!(next < at("mma.sync"), "{early}");
    // All that the loop reads being constants, results alone are behind the wait.
    let [_, all] = texts(&[0, 1], false);
    assert!(all.rfind("mma.sync").unwrap() < all.find("griddepcontrol.wait").unwrap());
}
