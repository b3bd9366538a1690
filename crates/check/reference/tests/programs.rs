//! Kernels and tile programs: two oracles against each other and against the graph's, in any order
//! of tasks; and programs that are wrong, which must be found out.
use expr::{Binary, Compare, Expr, ExprBuilder, Inst, Monoid, Unary};
use kernel::*;
use layout::{DType, Dim, Leaf};
use shopfloor_reference::{Memory, RefError, run_body, run_kernel, run_tiles};
use tensor::Tensor;

const F: DType = DType::F32;

fn random(n: usize, seed: u64) -> Tensor {
    let mut drawn = fastrand::Rng::with_seed(seed);
    let v: Vec<f32> = (0..n).map(|_| 2.0 * drawn.f32() - 1.0).collect();
    Tensor::from_f32(&[n], &v).unwrap()
}

fn axis(name: &str, extent: Dim) -> Axis {
    Axis {
        name: name.into(),
        extent,
    }
}

fn tile(name: &str, axes: &[AxisId]) -> Tile {
    Tile {
        name: name.into(),
        dtype: F,
        axes: axes.to_vec(),
    }
}

fn operand(name: &str, role: Role, access: Access) -> Operand {
    Operand {
        name: name.into(),
        dtype: F,
        role,
        access,
        elements: Dim::ONE,
    }
}

fn flat(axis: AxisId, extent: &Dim, stride: impl Into<Dim>) -> Term {
    Term::flat(axis, extent.clone(), stride.into())
}

fn fill(dst: TileId, v: f64) -> Stmt {
    let mut b = ExprBuilder::new();
    let c = b.constant(v, F);
    Stmt::Map {
        dst,
        expr: b.finish(&[c]),
        args: vec![],
    }
}

fn map(dst: TileId, args: &[TileId], f: impl Fn(&mut ExprBuilder, &[u32]) -> u32) -> Stmt {
    let mut b = ExprBuilder::new();
    let a: Vec<u32> = (0..args.len() as u32).map(|i| b.input(i, F)).collect();
    let r = f(&mut b, &a);
    Stmt::Map {
        dst,
        expr: b.finish(&[r]),
        args: args.to_vec(),
    }
}

fn schedule(k: &Kernel, grid: &[(AxisId, i64)], loops: &[(AxisId, i64)]) -> Schedule {
    let cuts = |l: &[(AxisId, i64)]| {
        l.iter()
            .map(|(axis, tile)| AxisTile {
                axis: *axis,
                tile: *tile,
            })
            .collect()
    };
    Schedule {
        grid: cuts(grid),
        loops: cuts(loops),
        places: vec![Place::Register; k.tiles.len()],
        chunk: 1,
        raster: 1,
        mapping: Mapping::Cpu(CpuMapping::default()),
    }
}

/// Loops around the statements that `inside` names, without any check.
fn bodies(k: &Kernel, at: AxisTile, inside: std::ops::Range<usize>) -> Vec<Node> {
    let stmts = |r: std::ops::Range<usize>| k.body[r].iter().cloned().map(Node::Stmt);
    let mut out: Vec<Node> = stmts(0..inside.start).collect();
    out.push(Node::Loop {
        axis: at,
        seen: Seen::default(),
        body: stmts(inside.clone()).collect(),
    });
    out.extend(stmts(inside.end..k.body.len()));
    out
}

/// relu(x · w + b) over axes m, n, k.
fn gemm() -> Kernel {
    let (m, n, k) = (Dim::sym("m"), Dim::sym("n"), Dim::sym("k"));
    Kernel {
        name: "gemm".into(),
        family: Family::Contract,
        axes: vec![
            axis("m", m.clone()),
            axis("n", n.clone()),
            axis("k", k.clone()),
        ],
        operands: vec![
            operand(
                "x",
                Role::Read,
                Access::strided(Dim::ZERO, vec![flat(0, &m, k.clone()), flat(2, &k, 1i64)]),
            ),
            operand(
                "w",
                Role::Read,
                Access::strided(Dim::ZERO, vec![flat(2, &k, n.clone()), flat(1, &n, 1i64)]),
            ),
            operand(
                "b",
                Role::Read,
                Access::strided(Dim::ZERO, vec![flat(1, &n, 1i64)]),
            ),
            operand(
                "y",
                Role::Write,
                Access::strided(Dim::ZERO, vec![flat(0, &m, n.clone()), flat(1, &n, 1i64)]),
            ),
        ],
        tiles: vec![
            tile("acc", &[0, 1]),
            tile("a", &[0, 2]),
            tile("b", &[2, 1]),
            tile("bias", &[1]),
            tile("out", &[0, 1]),
        ],
        body: vec![
            fill(0, 0.0),
            Stmt::Load { dst: 1, operand: 0 },
            Stmt::Load { dst: 2, operand: 1 },
            Stmt::Contract {
                acc: 0,
                a: 1,
                b: 2,
                over: vec![2],
            },
            Stmt::Load { dst: 3, operand: 2 },
            map(4, &[0, 3], |b, a| {
                let s = b.add(a[0], a[1]);
                let z = b.constant(0.0, F);
                b.binary(Binary::Max, s, z)
            }),
            Stmt::Store { operand: 3, src: 4 },
        ],
    }
}

fn sizes(s: &str) -> Option<i64> {
    match s {
        "m" => Some(13),
        "n" => Some(10),
        "k" => Some(17),
        _ => None,
    }
}

fn gemm_memory() -> Memory {
    let mut m = Memory::new();
    m.bind(0, random(13 * 17, 1));
    m.bind(1, random(17 * 10, 2));
    m.bind(2, random(10, 3));
    m.bind(3, Tensor::zeros(F, &[13, 10]).unwrap());
    m
}

fn assert_close(a: &Tensor, b: &Tensor) {
    assert_eq!(a.shape(), b.shape());
    for i in 0..a.len() {
        let (x, y) = (a.get_f64(i), b.get_f64(i));
        assert!((x - y).abs() <= 1e-5 * y.abs().max(1.0), "{i}: {x} {y}");
    }
}

#[test]
fn gemm_in_any_order() {
    let k = gemm();
    let mut whole = gemm_memory();
    run_kernel(&k, &sizes, &mut whole).unwrap();
    let y = whole.get(3).unwrap();
    for r in 0..13 {
        for c in 0..10 {
            let dot: f64 = (0..17)
                .map(|q| {
                    whole.get(0).unwrap().get_f64(r * 17 + q)
                        * whole.get(1).unwrap().get_f64(q * 10 + c)
                })
                .sum();
            let want = (dot + whole.get(2).unwrap().get_f64(c)).max(0.0);
            assert!((y.get_f64(r * 10 + c) - want).abs() < 1e-5);
        }
    }
    let s = schedule(&k, &[(0, 4), (1, 3)], &[(2, 5)]);
    let body = bodies(&k, AxisTile { axis: 2, tile: 5 }, 1..4);
    let mut first: Option<Tensor> = None;
    for seed in [0, 1, 7, 99] {
        let mut m = gemm_memory();
        run_body(&k, &s.grid, &body, &sizes, &mut m, seed).unwrap();
        assert_close(m.get(3).unwrap(), y);
        let f = first.get_or_insert_with(|| m.get(3).unwrap().clone());
        assert_eq!(f, m.get(3).unwrap());
    }
}

/// State (m, l): maximum and sum of exponentials relative to it.
fn online() -> Monoid {
    let mut b = ExprBuilder::new();
    let (lo, zero) = (b.constant(f64::NEG_INFINITY, F), b.constant(0.0, F));
    let identity = b.finish(&[lo, zero]);
    let mut b = ExprBuilder::new();
    let x = b.input(0, F);
    let one = b.constant(1.0, F);
    let lift = b.finish(&[x, one]);
    let mut b = ExprBuilder::new();
    let v: Vec<u32> = (0..4).map(|i| b.input(i, F)).collect();
    let m = b.binary(Binary::Max, v[0], v[2]);
    let mut sum = b.constant(0.0, F);
    for (x, l) in [(v[0], v[1]), (v[2], v[3])] {
        // exp(x - m), 0 where x is still -inf.
        let d = b.sub(x, m);
        let e = b.unary(Unary::Exp, d);
        let lo = b.constant(f64::NEG_INFINITY, F);
        let none = b.compare(Compare::Eq, x, lo);
        let zero = b.constant(0.0, F);
        let e = b.select(none, zero, e);
        let p = b.mul(l, e);
        sum = b.add(sum, p);
    }
    let combine = b.finish(&[m, sum]);
    Monoid {
        name: "online".into(),
        identity,
        lift,
        combine,
        finish: Expr {
            insts: vec![
                Inst::Input { slot: 0, dtype: F },
                Inst::Input { slot: 1, dtype: F },
            ],
            outputs: vec![0, 1],
        },
    }
}

/// What a sum is multiplied by when its maximum grows.
fn rescaled() -> Expr {
    let mut b = ExprBuilder::new();
    let v: Vec<u32> = (0..4).map(|i| b.input(i, F)).collect();
    let diff = b.sub(v[0], v[2]);
    let e = b.unary(Unary::Exp, diff);
    b.finish(&[e])
}

/// Attention of q [s, d] over k, v [t, d] with a causal mask, online over t.
fn attention() -> Kernel {
    let (s, t, d) = (Dim::Known(9), Dim::Known(11), Dim::Known(4));
    let rows = |a: AxisId, n: &Dim, b: AxisId| {
        Access::strided(Dim::ZERO, vec![flat(a, n, d.clone()), flat(b, &d, 1i64)])
    };
    let (monoid, factor) = (online(), rescaled());
    Kernel {
        name: "attention".into(),
        family: Family::Attention,
        axes: vec![
            axis("q", s.clone()),
            axis("t", t.clone()),
            axis("d", d.clone()),
            axis("e", d.clone()),
        ],
        operands: vec![
            operand("q", Role::Read, rows(0, &s, 2)),
            operand("k", Role::Read, rows(1, &t, 2)),
            operand("v", Role::Read, rows(1, &t, 3)),
            operand("y", Role::Write, rows(0, &s, 3)),
        ],
        tiles: vec![
            tile("q", &[0, 2]),
            tile("m", &[0]),
            tile("l", &[0]),
            tile("o", &[0, 3]),
            tile("k", &[1, 2]),
            tile("v", &[1, 3]),
            tile("s", &[0, 1]),
            tile("p", &[0, 1]),
            tile("y", &[0, 3]),
        ],
        body: vec![
            Stmt::Load { dst: 0, operand: 0 },
            fill(1, f64::NEG_INFINITY),
            fill(2, 0.0),
            fill(3, 0.0),
            Stmt::Load { dst: 4, operand: 1 },
            Stmt::Load { dst: 5, operand: 2 },
            fill(6, 0.0),
            Stmt::Contract {
                acc: 6,
                a: 0,
                b: 4,
                over: vec![2],
            },
            map(6, &[6], |b, a| {
                let (q, t) = (b.index(0), b.index(1));
                let two = b.int(2, DType::I64);
                let reach = b.add(q, two);
                let far = b.compare(Compare::Gt, t, reach);
                let lo = b.constant(f64::NEG_INFINITY, F);
                b.select(far, lo, a[0])
            }),
            Stmt::Fold {
                monoid,
                state: vec![1, 2],
                args: vec![6],
                over: vec![1],
                rescale: Some(Rescale {
                    tiles: vec![3],
                    factor,
                }),
            },
            map(7, &[6, 1], |b, a| {
                let d = b.sub(a[0], a[1]);
                b.unary(Unary::Exp, d)
            }),
            Stmt::Contract {
                acc: 3,
                a: 7,
                b: 5,
                over: vec![1],
            },
            map(8, &[3, 2], |b, a| b.div(a[0], a[1])),
            Stmt::Store { operand: 3, src: 8 },
        ],
    }
}

#[test]
fn online_softmax() {
    let k = attention();
    let memory = || {
        let mut m = Memory::new();
        m.bind(0, random(36, 1));
        m.bind(1, random(44, 2));
        m.bind(2, random(44, 3));
        m.bind(3, Tensor::zeros(F, &[9, 4]).unwrap());
        m
    };
    let mut want = vec![];
    let (q, kk, v) = (random(36, 1), random(44, 2), random(44, 3));
    for r in 0..9 {
        let p: Vec<f64> = (0..11)
            .map(|t| {
                let dot: f64 = (0..4)
                    .map(|x| q.get_f64(r * 4 + x) * kk.get_f64(t * 4 + x))
                    .sum();
                if t > r + 2 { 0.0 } else { dot.exp() }
            })
            .collect();
        let sum: f64 = p.iter().sum();
        for x in 0..4 {
            want.push(
                (0..11)
                    .map(|t| p[t] / sum * v.get_f64(t * 4 + x))
                    .sum::<f64>() as f32,
            );
        }
    }
    let want = Tensor::from_f32(&[9, 4], &want).unwrap();
    let mut m = memory();
    run_kernel(&k, &|_| None, &mut m).unwrap();
    assert_close(m.get(3).unwrap(), &want);
    for (seed, rows, step) in [(0, 4, 3), (3, 2, 11), (4, 9, 1)] {
        let mut m = memory();
        let body = bodies(
            &k,
            AxisTile {
                axis: 1,
                tile: step,
            },
            4..12,
        );
        let grid = [AxisTile {
            axis: 0,
            tile: rows,
        }];
        run_body(&k, &grid, &body, &|_| None, &mut m, seed).unwrap();
        assert_close(m.get(3).unwrap(), &want);
    }
    // The program that the schedule itself places, when it is accepted, agrees as well.
    let s = schedule(&k, &[(0, 4)], &[(1, 3)]);
    if let Ok(p) = TileProgram::new(k, s) {
        let mut m = memory();
        run_tiles(&p, &|_| None, &mut m, 5).unwrap();
        assert_close(m.get(3).unwrap(), &want);
    }
}

/// y[o] = sum over (c, r) of x[c, 2*o + r - 1] * w[c, r]; 3 channels stored in blocks of 2.
fn blocked_convolution() -> Kernel {
    let (o, c, r) = (Dim::Known(4), Dim::Known(3), Dim::Known(3));
    let x = Access {
        offset: Dim::Known(-2),
        terms: vec![
            flat(0, &o, 4i64),
            Term {
                axis: 1,
                leaves: vec![
                    Leaf {
                        extent: Dim::Known(2),
                        stride: Dim::Known(14),
                    },
                    Leaf {
                        extent: Dim::Known(2),
                        stride: Dim::ONE,
                    },
                ],
            },
            flat(2, &r, 2i64),
        ],
        bounds: vec![Bound {
            terms: vec![(0, Dim::Known(2)), (2, Dim::ONE)],
            base: Dim::Known(-1),
            extent: Dim::Known(7),
        }],
        outside: 0.0,
        indexed: vec![],
    };
    Kernel {
        name: "conv".into(),
        family: Family::Conv,
        axes: vec![
            axis("o", o.clone()),
            axis("c", c.clone()),
            axis("r", r.clone()),
        ],
        operands: vec![
            operand("x", Role::Read, x),
            operand(
                "w",
                Role::Read,
                Access::strided(Dim::ZERO, vec![flat(1, &c, 3i64), flat(2, &r, 1i64)]),
            ),
            operand(
                "y",
                Role::Write,
                Access::strided(Dim::ZERO, vec![flat(0, &o, 1i64)]),
            ),
        ],
        tiles: vec![tile("acc", &[0]), tile("x", &[0, 1, 2]), tile("w", &[1, 2])],
        body: vec![
            fill(0, 0.0),
            Stmt::Load { dst: 1, operand: 0 },
            Stmt::Load { dst: 2, operand: 1 },
            Stmt::Contract {
                acc: 0,
                a: 1,
                b: 2,
                over: vec![1, 2],
            },
            Stmt::Store { operand: 2, src: 0 },
        ],
    }
}

#[test]
fn convolution_through_bounds_and_blocked_layouts() {
    let k = blocked_convolution();
    let (xs, ws) = (random(28, 5), random(9, 6));
    let mut m = Memory::new();
    m.bind(0, xs.clone());
    m.bind(1, ws.clone());
    m.bind(2, Tensor::zeros(F, &[4]).unwrap());
    let mut tiled = m.clone();
    run_kernel(&k, &|_| None, &mut m).unwrap();
    for p in 0..4i64 {
        let mut sum = 0.0;
        for c in 0..3 {
            for r in 0..3i64 {
                let at = 2 * p + r - 1;
                if (0..7).contains(&at) {
                    sum += xs.get_f64(c / 2 * 14 + at as usize * 2 + c % 2)
                        * ws.get_f64(c * 3 + r as usize);
                }
            }
        }
        assert!((m.get(2).unwrap().get_f64(p as usize) - sum).abs() < 1e-5);
    }
    let body = bodies(&k, AxisTile { axis: 1, tile: 2 }, 1..4);
    run_body(
        &k,
        &[AxisTile { axis: 0, tile: 3 }],
        &body,
        &|_| None,
        &mut tiled,
        2,
    )
    .unwrap();
    assert_close(tiled.get(2).unwrap(), m.get(2).unwrap());
    // Without its bound the access leaves the buffer, and the message says where.
    let mut bare = k;
    bare.operands[0].access.bounds.clear();
    let e = run_kernel(&bare, &|_| None, &mut m).unwrap_err();
    assert!(
        matches!(&e, RefError::OutOfBuffer { operand, element: -2, .. } if operand == "x"),
        "{e}"
    );
    assert!(e.to_string().contains("(o=0, c=0, r=0)"), "{e}");
}

#[test]
fn gathered_rows() {
    let (n, d) = (Dim::Known(3), Dim::Known(2));
    let ids = Operand {
        dtype: DType::I64,
        ..operand(
            "ids",
            Role::Read,
            Access::strided(Dim::ZERO, vec![flat(0, &n, 1i64)]),
        )
    };
    let table = Access {
        indexed: vec![Indexed {
            by: 0,
            stride: Dim::Known(2),
            extent: Dim::Known(4),
        }],
        ..Access::strided(Dim::ZERO, vec![flat(1, &d, 1i64)])
    };
    let k = Kernel {
        name: "gather".into(),
        family: Family::Move,
        axes: vec![axis("n", n.clone()), axis("d", d)],
        operands: vec![
            ids,
            operand("table", Role::Read, table),
            operand(
                "y",
                Role::Write,
                Access::strided(Dim::ZERO, vec![flat(0, &n, 2i64), flat(1, &n, 1i64)]),
            ),
        ],
        tiles: vec![tile("t", &[0, 1])],
        body: vec![
            Stmt::Load { dst: 0, operand: 1 },
            Stmt::Store { operand: 2, src: 0 },
        ],
    };
    let run = |ids: &[i64]| {
        let mut m = Memory::new();
        m.bind(0, Tensor::from_i64(&[3], ids).unwrap());
        m.bind(
            1,
            Tensor::from_f32(&[8], &[0., 1., 2., 3., 4., 5., 6., 7.]).unwrap(),
        );
        m.bind(2, Tensor::zeros(F, &[6]).unwrap());
        run_kernel(&k, &|_| None, &mut m).map(|()| m.get(2).unwrap().to_f32().unwrap())
    };
    assert_eq!(run(&[3, -4, 1]).unwrap(), [6., 7., 0., 1., 2., 3.]);
    let e = run(&[0, 4, 0]).unwrap_err().to_string();
    assert!(e.contains("index 4") && e.contains("(n=1, d=0)"), "{e}");
}

#[test]
fn wrong_programs_are_found_out() {
    let k = gemm();
    let go = |k: &Kernel, grid: &[(AxisId, i64)], body: &[Node]| {
        let s = schedule(k, grid, &[]);
        run_body(k, &s.grid, body, &sizes, &mut gemm_memory(), 0)
    };
    // Tasks over the summed axis write the same outputs.
    let plain: Vec<Node> = k.body.iter().cloned().map(Node::Stmt).collect();
    let e = go(&k, &[(0, 4), (2, 5)], &plain).unwrap_err();
    assert!(matches!(e, RefError::Race { .. }), "{e}");
    // The fill inside the loop loses the sum; values differ though no access is wrong.
    let lost = bodies(&k, AxisTile { axis: 2, tile: 5 }, 0..4);
    let mut m = gemm_memory();
    run_body(&k, &[], &lost, &sizes, &mut m, 0).unwrap();
    let mut right = gemm_memory();
    run_kernel(&k, &sizes, &mut right).unwrap();
    assert_ne!(m.get(3), right.get(3));
    // A tile left over from the loop's last step is not what a later statement reads.
    let stale = bodies(&k, AxisTile { axis: 2, tile: 5 }, 1..3);
    let e = go(&k, &[], &stale).unwrap_err().to_string();
    assert!(e.contains("tile 'a' holds"), "{e}");
    // An accumulator that nobody filled.
    let mut unfilled = k.clone();
    unfilled.body.remove(0);
    let body: Vec<Node> = unfilled.body.iter().cloned().map(Node::Stmt).collect();
    let e = go(&unfilled, &[], &body).unwrap_err().to_string();
    assert!(e.contains("tile 'acc' is read before"), "{e}");
    // A store through an access with an axis that the tile lacks, a type that differs.
    let mut bad = k.clone();
    bad.operands[3]
        .access
        .terms
        .push(flat(2, &Dim::sym("k"), 1i64));
    assert!(
        run_kernel(&bad, &sizes, &mut gemm_memory())
            .unwrap_err()
            .to_string()
            .contains("axis 'k'")
    );
    let mut bad = k.clone();
    bad.tiles[4].dtype = DType::F16;
    assert!(run_kernel(&bad, &sizes, &mut gemm_memory()).is_err());
    // A buffer that is too small, a missing one, a missing symbol.
    let mut m = gemm_memory();
    m.bind(1, random(169, 2));
    let e = run_kernel(&k, &sizes, &mut m).unwrap_err();
    assert!(
        matches!(&e, RefError::OutOfBuffer { elements: 169, .. }),
        "{e}"
    );
    assert!(run_kernel(&k, &sizes, &mut Memory::new()).is_err());
    assert!(run_kernel(&k, &|_| None, &mut gemm_memory()).is_err());
    // In place: tasks that read what other tasks write.
    let n = Dim::Known(4);
    let shift = Kernel {
        name: "shift".into(),
        family: Family::Map,
        axes: vec![axis("i", n.clone())],
        operands: vec![
            operand(
                "x",
                Role::Read,
                Access::strided(Dim::ONE, vec![flat(0, &n, 1i64)]),
            ),
            operand(
                "y",
                Role::Write,
                Access::strided(Dim::ZERO, vec![flat(0, &n, 1i64)]),
            ),
        ],
        tiles: vec![tile("t", &[0])],
        body: vec![
            Stmt::Load { dst: 0, operand: 0 },
            Stmt::Store { operand: 1, src: 0 },
        ],
    };
    let mut m = Memory::new();
    m.bind(0, random(5, 1));
    assert!(m.share(1, 0));
    let body: Vec<Node> = shift.body.iter().cloned().map(Node::Stmt).collect();
    let one = [AxisTile { axis: 0, tile: 1 }];
    let e = run_body(&shift, &one, &body, &|_| None, &mut m.clone(), 0).unwrap_err();
    assert!(matches!(e, RefError::Race { .. }), "{e}");
    let x = m.get(0).unwrap().to_f32().unwrap();
    run_kernel(&shift, &|_| None, &mut m).unwrap();
    assert_eq!(m.get(1).unwrap().to_f32().unwrap()[..4], x[1..]);
}
