//! A broken program per rule, and damaged programs of every kind.
use crate::common;
#[path = "common/random.rs"]
mod random;
#[path = "common/recurrence.rs"]
mod recurrence;
use common::*;
use expr::{Monoid, Unary};
use fastrand::Rng;
use kernel::*;
use layout::{DType, Dim, DimBox};
use random::mutate;
use shopfloor_kernel as kernel;

fn d(n: i64) -> Dim {
    Dim::Known(n)
}

fn good() -> Vec<(Kernel, Schedule)> {
    let m = Dim::sym("m");
    vec![
        (gemm(d(64), d(64), d(64), DType::F16), gemm_gpu()),
        (
            gemm(m.clone(), d(65), d(33), DType::F32),
            gemm_cpu(50, 64, 16),
        ),
        (conv(14, 14, 8, 16, 2), conv_cpu(2)),
        (
            attention(d(2), m.clone(), d(50), d(16)),
            attention_cpu(8, 16),
        ),
        (softmax(m.clone(), d(33)), softmax_cpu(4)),
        (gather(m.clone(), 10, 8), gather_cpu(4)),
        (pointwise(m.clone(), d(9), Unary::Exp), pointwise_cpu(3)),
        (recurrence::elman(m, d(5), 7), recurrence::elman_cpu(2)),
    ]
}

/// The rule that `change` breaks in the program of that number.
fn broken(which: usize, change: impl FnOnce(&mut Kernel, &mut Schedule)) -> String {
    let (mut k, mut s) = good().swap_remove(which);
    change(&mut k, &mut s);
    match TileProgram::new(k, s) {
        Err(KernelError::Rule { rule, .. }) => rule.to_string(),
        Err(e) => e.to_string(),
        Ok(_) => "nothing".into(),
    }
}

const GPU: usize = 0;
const GEMM: usize = 1;
const CONV: usize = 2;
const ATTENTION: usize = 3;
const ROW: usize = 4;
const GATHER: usize = 5;
const RECURRENT: usize = 7;

#[test]
fn good_programs_pass() {
    for (k, s) in good() {
        k.verify().unwrap();
        TileProgram::new(k, s).unwrap();
    }
}

#[test]
fn names() {
    assert_eq!(broken(GEMM, |k, _| k.name.clear()), "names");
    assert_eq!(broken(GEMM, |k, _| k.axes[1].name = "m".into()), "names");
    assert_eq!(broken(GEMM, |k, _| k.tiles[1].name = "a".into()), "names");
    assert_eq!(broken(GEMM, |k, _| k.operands[1].name.clear()), "names");
}

#[test]
fn size() {
    let many = |k: &mut Kernel, _: &mut Schedule| {
        for i in 0..65 {
            k.axes.push(Axis {
                name: format!("x{i}"),
                extent: Dim::ONE,
            });
        }
    };
    assert_eq!(broken(GEMM, many), "size");
    let leaves = |k: &mut Kernel, _: &mut Schedule| {
        let l = k.operands[0].access.terms[0].leaves[0].clone();
        k.operands[0].access.terms[0].leaves = vec![l; 17];
    };
    assert_eq!(broken(GEMM, leaves), "size");
}

#[test]
fn ids() {
    assert_eq!(broken(GEMM, |k, _| k.tiles[0].axes = vec![0, 9]), "ids");
    assert_eq!(
        broken(GEMM, |k, _| k.operands[0].access.terms[0].axis = 9),
        "ids"
    );
    assert_eq!(
        broken(GEMM, |k, _| k.body[0] = Stmt::Load {
            dst: 77,
            operand: 0
        }),
        "ids"
    );
    assert_eq!(
        broken(GEMM, |k, _| k.body[0] = Stmt::Load {
            dst: 0,
            operand: 77
        }),
        "ids"
    );
    assert_eq!(broken(GEMM, |_, s| s.grid[0].axis = 40), "ids");
    assert_eq!(
        broken(CONV, |k, _| k.operands[0].access.bounds[0].terms[0].0 = 40),
        "ids"
    );
    assert_eq!(
        broken(GATHER, |k, _| k.operands[1].access.indexed[0].by = 40),
        "ids"
    );
}

#[test]
fn axes() {
    assert_eq!(broken(GEMM, |k, _| k.tiles[0].axes = vec![2, 0]), "axes");
    let twice = |k: &mut Kernel, _: &mut Schedule| {
        if let Stmt::Contract { over, .. } = &mut k.body[3] {
            over.push(2);
        }
    };
    assert_eq!(broken(GEMM, twice), "axes");
}

#[test]
fn access() {
    assert_eq!(
        broken(GEMM, |k, _| k.operands[0].access.terms[0].axis = 2),
        "access"
    );
    assert_eq!(
        broken(GEMM, |k, _| k.operands[0].access.terms[0].leaves.clear()),
        "access"
    );
    assert_eq!(
        broken(GEMM, |k, _| k.operands[0].access.outside = f64::NAN),
        "access"
    );
    assert_eq!(
        broken(CONV, |k, _| k.operands[0].access.bounds[0].terms[1].0 = 0),
        "access"
    );
}

#[test]
fn indexed() {
    assert_eq!(
        broken(GATHER, |k, _| k.operands[0].dtype = DType::F32),
        "indexed"
    );
    assert_eq!(
        broken(GATHER, |k, _| k.operands[1].access.indexed[0].by = 1),
        "indexed"
    );
    assert_eq!(
        broken(GATHER, |k, _| k.operands[2].access.indexed =
            k.operands[1].access.indexed.clone()),
        "indexed"
    );
}

#[test]
fn program() {
    let at = |which: usize, change: fn(&mut expr::Expr)| {
        broken(which, |k, _| {
            for s in k.body.iter_mut().rev() {
                if let Stmt::Map { expr, .. } = s {
                    return change(expr);
                }
            }
        })
    };
    assert_eq!(
        at(GEMM, |e| e.insts[0] = expr::Inst::Input {
            slot: 0,
            dtype: DType::I32
        }),
        "program"
    );
    assert_eq!(
        at(GEMM, |e| e.insts[0] = expr::Inst::Input {
            slot: 9,
            dtype: DType::F32
        }),
        "program"
    );
    assert_eq!(at(GEMM, |e| e.outputs.clear()), "program");
    assert_eq!(at(GEMM, |e| e.outputs = vec![4000]), "program");
    assert_eq!(
        at(GEMM, |e| e.insts[0] = expr::Inst::Index { axis: 2 }),
        "program"
    );
    assert_eq!(
        at(GATHER + 1, |e| e.insts[1] =
            expr::Inst::Unary(Unary::Exp, 1)),
        "program"
    );
    let state = |k: &mut Kernel, _: &mut Schedule| {
        for s in &mut k.body {
            if let Stmt::Fold { monoid, .. } = s {
                *monoid = Monoid::welford(DType::F32, DType::F32, 0);
                return;
            }
        }
    };
    assert_eq!(broken(ROW, state), "program");
    let count = |k: &mut Kernel, _: &mut Schedule| {
        for s in &mut k.body {
            if let Stmt::Fold { monoid, .. } = s {
                monoid.combine.insts.push(expr::Inst::Index { axis: 0 });
                return;
            }
        }
    };
    assert_eq!(broken(ROW, count), "program");
}

#[test]
fn defined() {
    assert_eq!(broken(GEMM, |k, _| drop(k.body.remove(0))), "defined");
    assert_eq!(broken(GEMM, |k, _| drop(k.body.remove(2))), "defined");
    assert_eq!(broken(ROW, |k, _| drop(k.body.remove(1))), "defined");
    assert_eq!(broken(GEMM, |k, _| k.body.swap(5, 6)), "defined");
}

#[test]
fn load() {
    assert_eq!(broken(GEMM, |k, _| k.tiles[0].dtype = DType::F16), "load");
    assert_eq!(broken(GEMM, |k, _| k.tiles[0].axes = vec![2]), "load");
    assert_eq!(
        broken(GEMM, |k, _| k.operands[0].role = Role::Write),
        "load"
    );
    assert_eq!(broken(GATHER, |k, _| k.tiles[0].axes = vec![1]), "load");
}

#[test]
fn store() {
    assert_eq!(
        broken(GEMM, |k, _| k.operands[3].role = Role::Read),
        "store"
    );
    assert_eq!(broken(GEMM, |k, _| k.body.push(k.body[6].clone())), "store");
    assert_eq!(broken(GEMM, |k, _| drop(k.body.pop())), "store");
    assert_eq!(
        broken(GEMM, |k, _| drop(k.operands[3].access.terms.pop())),
        "store"
    );
    assert_eq!(
        broken(GEMM, |k, _| k.operands[3].dtype = DType::F64),
        "store"
    );
}

#[test]
fn map() {
    assert_eq!(broken(GEMM, |k, _| k.tiles[4].axes = vec![0]), "map");
}

#[test]
fn contract() {
    let change = |f: fn(&mut Vec<AxisId>)| {
        broken(GEMM, |k, _| {
            if let Stmt::Contract { over, .. } = &mut k.body[3] {
                f(over);
            }
        })
    };
    assert_eq!(change(|o| o.clear()), "contract");
    assert_eq!(change(|o| o.push(0)), "contract");
    let own = |k: &mut Kernel, _: &mut Schedule| {
        if let Stmt::Contract { acc, a, .. } = &mut k.body[3] {
            *a = *acc;
        }
    };
    assert_eq!(broken(GEMM, own), "contract");
}

fn change_fold(which: usize, f: impl Fn(&mut Stmt)) -> String {
    broken(which, |k, _| {
        let s = k
            .body
            .iter_mut()
            .find(|s| matches!(s, Stmt::Fold { .. }))
            .unwrap();
        f(s);
    })
}

#[test]
fn fold() {
    assert_eq!(
        change_fold(ROW, |s| if let Stmt::Fold { over, .. } = s {
            over.clear()
        }),
        "fold"
    );
    assert_eq!(
        change_fold(ROW, |s| if let Stmt::Fold { over, .. } = s {
            over.push(0)
        }),
        "fold"
    );
    assert_eq!(
        change_fold(ROW, |s| if let Stmt::Fold { state, .. } = s {
            state.clear()
        }),
        "fold"
    );
    assert_eq!(
        change_fold(ROW, |s| if let Stmt::Fold { state, .. } = s {
            state.push(state[0])
        }),
        "fold"
    );
    assert_eq!(
        change_fold(ROW, |s| if let Stmt::Fold { state, args, .. } = s {
            *args = state.clone()
        }),
        "fold"
    );
}

#[test]
fn rescale() {
    let change = |f: fn(&mut Rescale)| {
        change_fold(ATTENTION, |s| {
            if let Stmt::Fold {
                rescale: Some(r), ..
            } = s
            {
                f(r);
            }
        })
    };
    assert_eq!(change(|r| r.tiles.push(r.tiles[0])), "rescale");
    assert_eq!(change(|r| r.tiles.push(3)), "rescale"); // the state itself
    assert_eq!(change(|r| r.tiles.push(2)), "defined"); // the values are loaded, not summed
    assert_eq!(change(|r| r.factor.outputs.clear()), "rescale");
    assert_eq!(
        change(|r| r.factor.insts[0] = expr::Inst::Input {
            slot: 5,
            dtype: DType::F32
        }),
        "program"
    );
}

#[test]
fn tiling() {
    assert_eq!(broken(GEMM, |_, s| s.loops.push(at(0, 4))), "tiling");
    assert_eq!(broken(GEMM, |_, s| s.grid.push(at(0, 4))), "tiling");
    assert_eq!(broken(GEMM, |_, s| s.grid[0].tile = 0), "tiling");
    assert_eq!(broken(GEMM, |_, s| s.chunk = 0), "tiling");
    assert_eq!(broken(GEMM, |_, s| s.raster = -1), "tiling");
}

#[test]
fn grid() {
    let reduced = |_: &mut Kernel, s: &mut Schedule| {
        s.loops.clear();
        s.grid.push(at(2, 8));
    };
    assert_eq!(broken(GEMM, reduced), "grid");
    // A second output over rows alone, with columns in the grid.
    let rows = |k: &mut Kernel, s: &mut Schedule| {
        let mut m = Make { k: k.clone() };
        let t = m.fill("rows", DType::F32, &[0], 1.0);
        m.store_dense("ROWS", t, &[0]);
        s.places.push(Place::Register);
        *k = m.k;
    };
    assert_eq!(broken(GEMM, rows), "grid");
}

#[test]
fn loops() {
    // A row reduction over a looped axis cannot be used before the loop is over.
    assert_eq!(broken(ROW, |_, s| s.loops.push(at(1, 8))), "loop");
    // Attention whose sum is not rescaled, or whose maximum is not carried.
    let drop_one = |s: &mut Stmt| {
        if let Stmt::Fold {
            rescale: Some(r), ..
        } = s
        {
            r.tiles.remove(0);
        }
    };
    assert_eq!(change_fold(ATTENTION, drop_one), "loop");
    assert_eq!(
        change_fold(ATTENTION, |s| if let Stmt::Fold { rescale, .. } = s {
            *rescale = None
        }),
        "loop"
    );
    // Positions counted along a looped axis that is not the first.
    let count = |k: &mut Kernel, s: &mut Schedule| {
        let mut m = Make::new(
            "pick",
            Family::Select,
            &[("m", d(4)), ("a", d(6)), ("b", d(6))],
        );
        let x = m.load_dense("x", DType::F32, &[0, 1, 2]);
        let best = Monoid::argmax(DType::F32, 0, false);
        let types = best.identity.output_types().unwrap();
        let state: Vec<TileId> = types
            .iter()
            .enumerate()
            .map(|(i, &t)| m.fill(&format!("s{i}"), t, &[0], 0.0))
            .collect();
        m.k.body.push(Stmt::Fold {
            monoid: best,
            state: state.clone(),
            args: vec![x],
            over: vec![1, 2],
            rescale: None,
        });
        m.store_dense("Y", state[0], &[0]);
        *s = softmax_cpu(2);
        s.loops.push(at(2, 3));
        s.places = vec![Place::Register; m.k.tiles.len()];
        *k = m.k;
    };
    assert_eq!(broken(ROW, count), "loop");
    let first = |k: &mut Kernel, s: &mut Schedule| {
        count(k, s);
        s.loops = vec![at(1, 3)];
    };
    assert_eq!(broken(ROW, first), "nothing");
    // A tile of the loop stored after it: the loop is taken apart by what stands between.
    let apart = |k: &mut Kernel, _: &mut Schedule| {
        let mut m = Make { k: k.clone() };
        let args = [0, 2].map(|t: TileId| t);
        let axes = [0, 1, 2];
        let t = m.map(
            "late",
            DType::F32,
            &axes,
            binary(expr::Binary::Add, DType::F32),
            &args,
        );
        m.store_dense("LATE", t, &axes);
        *k = m.k;
    };
    let rule = broken(GEMM, |k, s| {
        apart(k, s);
        s.places.push(Place::Register);
    });
    assert_eq!(rule, "loop");
}

#[test]
fn places() {
    assert_eq!(broken(GEMM, |_, s| s.places.truncate(1)), "places");
    assert_eq!(broken(GEMM, |_, s| s.places[2] = Place::InPlace), "places");
    let stages = |n| Place::Shared {
        swizzle: Swizzle::default(),
        stages: n,
    };
    assert_eq!(broken(GEMM, |_, s| s.places[0] = stages(0)), "places");
    assert_eq!(broken(GEMM, |_, s| s.places[0] = stages(17)), "places");
    let wide = Place::Shared {
        swizzle: Swizzle {
            bits: u32::MAX,
            base: 1,
            shift: 0,
        },
        stages: 1,
    };
    assert_eq!(broken(GEMM, |_, s| s.places[0] = wide), "places");
}

#[test]
fn staged_tiles() {
    fn change(t: usize, f: impl Fn(&mut Swizzle, &mut u32)) -> String {
        broken(GPU, |_, s| {
            if let Place::Shared { swizzle, stages } = &mut s.places[t] {
                f(swizzle, stages);
            }
        })
    }
    // Different depths in one loop; copies ahead of a loop that is not there.
    assert_eq!(change(0, |_, n| *n += 1), "stages");
    assert_eq!(broken(GPU, |_, s| s.loops.clear()), "stages");
    // Two elements at one place; elements beyond the tile.
    assert_eq!(change(0, |s, _| s.shift = s.bits - 1), "swizzle");
    assert_eq!(
        change(0, |s, _| *s = Swizzle {
            bits: 3,
            base: 20,
            shift: 3
        }),
        "swizzle"
    );
}

#[test]
fn mapping() {
    fn cpu(f: impl Fn(&mut CpuMapping)) -> String {
        broken(GEMM, |_, s| {
            if let Mapping::Cpu(c) = &mut s.mapping {
                f(c);
            }
        })
    }
    fn gpu(f: impl Fn(&mut GpuMapping)) -> String {
        broken(GPU, |_, s| {
            if let Mapping::Gpu(g) = &mut s.mapping {
                f(g);
            }
        })
    }
    assert_eq!(
        cpu(|c| c.micro = Some(MicroKernel { mr: 0, nr: 16 })),
        "mapping"
    );
    assert_eq!(cpu(|c| c.rows = vec![0, 0]), "mapping");
    assert_eq!(cpu(|c| c.lanes = Some(0)), "mapping");
    assert_eq!(cpu(|c| c.lanes = Some(9)), "mapping");
    // Warps that copy stand beside warpgroups, and a factor as it lies is copied by them.
    assert_eq!(gpu(|g| g.copiers = 4), "mapping");
    // So do CTAs that walk tasks.
    assert_eq!(gpu(|g| g.walkers = 132), "mapping");
    for constants in [vec![3], vec![9], vec![1, 0], vec![0, 0]] {
        assert_eq!(gpu(|g| g.constants.clone_from(&constants)), "mapping");
    }
    let as_it_lies = broken(GPU, |_, s| s.places[1] = Place::Image { stages: 3 });
    assert_eq!(as_it_lies, "image");
    let swizzle = Swizzle::of_lines(64, 16).unwrap();
    let boxed = broken(GPU, |_, s| {
        s.places[1] = Place::Tensor { swizzle, stages: 3 };
    });
    assert_eq!(boxed, "tensor copies");
    let once = broken(GPU, |_, s| {
        s.places[1] = Place::Tensor { swizzle, stages: 1 };
    });
    assert_eq!(once, "places");
    assert_eq!(gpu(|g| g.threads = 0), "mapping");
    assert_eq!(gpu(|g| g.warps = [3, 4]), "mapping");
    assert_eq!(gpu(|g| g.warps = [u32::MAX, u32::MAX]), "mapping");
    assert_eq!(gpu(|g| g.load_bytes = 3), "mapping");
    assert_eq!(gpu(|g| g.store_bytes = 8), "mapping");
    assert_eq!(gpu(|g| g.registers = 300), "mapping");
    assert_eq!(gpu(|g| g.columns = vec![0]), "mapping");
}

fn change_relabel(f: impl Fn(&mut TileId, &mut Vec<Label>, &mut Option<AxisId>)) -> String {
    broken(RECURRENT, |k, _| {
        for s in &mut k.body {
            if let Stmt::Relabel {
                dst, labels, along, ..
            } = s
            {
                f(dst, labels, along);
            }
        }
    })
}

#[test]
fn relabel() {
    // Onto itself, without the new label, to an axis that is there already, beyond the source.
    assert_eq!(change_relabel(|dst, _, _| *dst = 4), "relabel");
    assert_eq!(change_relabel(|_, l, _| l.clear()), "relabel");
    assert_eq!(change_relabel(|_, l, _| l[0].to = 1), "relabel");
    assert_eq!(change_relabel(|_, l, _| l[0].from = 2), "relabel");
    assert_eq!(change_relabel(|_, l, _| l[0].first = d(1)), "relabel");
    assert_eq!(change_relabel(|_, l, _| l[0].first = d(-1)), "relabel");
    assert_eq!(change_relabel(|_, l, _| l[0].to = 9), "ids");
    assert_eq!(change_relabel(|_, _, a| *a = Some(9)), "ids");
    // Carried along nothing the result would have the axis.
    assert_eq!(change_relabel(|_, _, a| *a = None), "relabel");
    let wide = |k: &mut Kernel, _: &mut Schedule| k.axes[2].extent = d(8);
    assert_eq!(broken(RECURRENT, wide), "relabel");
}

#[test]
fn ordered() {
    use recurrence::{K, N, T};
    // The first position would find nothing.
    let first = |k: &mut Kernel, _: &mut Schedule| {
        k.body.remove(0);
    };
    assert_eq!(broken(RECURRENT, first), "defined");
    // Written by others behind it.
    let twice = |k: &mut Kernel, _: &mut Schedule| {
        let s = k.body[0].clone();
        k.body.push(s);
    };
    assert_eq!(broken(RECURRENT, twice), "ordered");
    // Carried by two statements.
    let both = |k: &mut Kernel, _: &mut Schedule| {
        let s = k.body[7].clone();
        k.body.insert(7, s);
    };
    assert_eq!(broken(RECURRENT, both), "ordered");
    // Not walked, walked two at a time, walked inside another loop, shared out.
    assert_eq!(broken(RECURRENT, |_, s| s.loops.clear()), "ordered");
    assert_eq!(broken(RECURRENT, |_, s| s.loops[0].tile = 2), "ordered");
    let inner = |_: &mut Kernel, s: &mut Schedule| {
        let rows = s.grid.pop().unwrap();
        s.loops.insert(0, rows);
    };
    assert_eq!(broken(RECURRENT, inner), "ordered");
    let grid = |_: &mut Kernel, s: &mut Schedule| {
        s.grid.push(s.loops.pop().unwrap());
    };
    assert_eq!(broken(RECURRENT, grid), "grid");
    // Units that get another label in pieces.
    for axis in [K, N] {
        let cut = |_: &mut Kernel, s: &mut Schedule| s.loops.push(AxisTile { axis, tile: 3 });
        assert_eq!(broken(RECURRENT, cut), "ordered");
    }
    // A second loop behind what the first one left.
    let rule = broken(RECURRENT, |k, s| {
        let mut m = Make { k: k.clone() };
        let late = m.fill("late", DType::F32, &[T, 1, N], 1.0);
        m.store_dense("LATE", late, &[T, 1, N]);
        *k = m.k;
        s.places.push(Place::Register);
    });
    assert_eq!(rule, "ordered");
}

#[test]
fn ordered_axes_are_loops_of_the_whole_kernel_too() {
    let k = recurrence::elman(d(3), d(2), 4);
    assert_eq!(k.ordered(), [recurrence::T]);
    let nodes = k.nodes();
    let loops: Vec<usize> = nodes
        .iter()
        .filter_map(|n| match n {
            Node::Loop { body, .. } => Some(body.len()),
            Node::Stmt(_) => None,
        })
        .collect();
    // Fill, product, load, map, store and what is carried; both loads before, one store behind.
    assert_eq!(loops, [6]);
    assert_eq!(nodes.len(), 4);
    let p = TileProgram::new(k, recurrence::elman_cpu(2)).unwrap();
    let text = p.to_string();
    assert!(
        text.contains("h : f32 [b,k] in registers = y[n as k], for the next t"),
        "{text}"
    );
}

#[test]
fn damaged_programs_never_panic() {
    let machine = machine::catalog()[0].machine.clone();
    let originals: Vec<serde_json::Value> = good()
        .iter()
        .map(|p| serde_json::to_value(p).unwrap())
        .collect();
    let (mut read, mut valid) = (0, 0);
    for seed in 0..20_000u64 {
        let mut rng = Rng::with_seed(seed);
        let mut v = originals[rng.usize(..originals.len())].clone();
        for _ in 0..1 + rng.usize(..3) {
            mutate(&mut v, &mut rng);
        }
        let Ok((k, s)) = serde_json::from_value::<(Kernel, Schedule)>(v) else {
            continue;
        };
        read += 1;
        let Ok(p) = TileProgram::new(k, s) else {
            continue;
        };
        valid += 1;
        let mut dims = DimBox::new();
        dims.insert("m", 1, 7);
        dims.insert("b", 1, 7);
        let _ = work::work(&p, &machine, &|_| Some(7));
        let _ = work::scratch_bytes(&p, &dims);
        let _ = work::tasks(p.kernel(), p.schedule());
    }
    // The mutations get past the reader, and the verifier finds most of them.
    assert!(read > 3_000 && valid > 500, "{read} read, {valid} valid");
    println!("{read} of 20000 damaged programs read, {valid} still valid");
}
