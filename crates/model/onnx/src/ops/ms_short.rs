//! com.microsoft operators that are short forms of a few core ops.
use super::{OpDef, layer_norm, matmul, op_of};
use crate::import::{Ctx, LowerError, Lowered, NodeView, axis_of, monoids};
use expr::{Binary, Compare, ExprBuilder, Ref, Unary, functions};
use graph::{Op, ValueId};
use layout::{DType, Dim};

const MS: &str = "com.microsoft";

pub(crate) const OPS: &[OpDef] = &[
    op_of(MS, "BranchwiseRMSNorm", branch_norm), op_of(MS, "CDist", distances), op_of(MS, "GatedAdd", gated_add),
    op_of(MS, "GatedRMSNorm", gated_norm), op_of(MS, "IsAllFinite", all_finite),
    op_of(MS, "LinearAttentionGate", attention_gate), op_of(MS, "MatMulBnb4", bnb4), op_of(MS, "MatMulInteger16", integer16),
    op_of(MS, "ScaledSiLU", scaled_silu), op_of(MS, "UnfoldTensor", unfold),
];

/// Distances between the rows of two matrices.
fn distances<'m>(c: &mut Ctx<'m>, n: &NodeView<'m>) -> Lowered {
    n.at_most(2)?;
    let (a, b) = (n.input(0)?, n.input(1)?);
    let root = match n.text("metric", "sqeuclidean")?.as_str() {
        "euclidean" => true,
        "sqeuclidean" => false,
        m => return Err(LowerError::Unsupported(format!("its metric '{m}' is not covered; use euclidean or sqeuclidean"))),
    };
    let (sa, sb, d) = (c.shape(a), c.shape(b), c.dtype(a));
    let ([rows, width], [columns, _]) = (sa.as_slice(), sb.as_slice()) else {
        return Err(format!("its inputs have ranks {} and {}, not 2", sa.len(), sb.len()).into());
    };
    let a = c.reshape(n, n.tmp("rows"), a, vec![rows.clone(), Dim::ONE, width.clone()])?;
    let b = c.reshape(n, n.tmp("columns"), b, vec![Dim::ONE, columns.clone(), sb[1].clone()])?;
    let squares = c.map(n, n.tmp("squares"), &[a, b], |e, x| {
        let y = e.sub(x[0], x[1]);
        e.mul(y, y)
    })?;
    let name = if root { n.tmp("sums") } else { n.name(0) };
    let mut y = c.reduce(n, name, squares, monoids::sum(d), &[2], false)?;
    if root {
        y = c.map(n, n.name(0), &[y], |e, x| e.unary(Unary::Sqrt, x[0]))?;
    }
    c.set(n, 0, y);
    Ok(())
}

/// The last dimension as `parts` rows, each divided by the root of its mean of squares.
fn normed_rows<'m>(c: &mut Ctx<'m>, n: &NodeView<'m>, x: ValueId, width: Dim, eps: f64) -> Lowered<ValueId> {
    let mut s = c.shape(x);
    let last = s.pop().ok_or("its input is a single number")?;
    let parts = last.exact_div(&width).ok_or_else(|| format!("its last dimension {last} is no multiple of {width}"))?;
    s.extend([parts, width]);
    let rows = c.reshape(n, n.tmp("rows"), x, s)?;
    let acc = monoids::accumulator(c.dtype(x));
    let v = layer_norm::normalise(c, n, rows, &[c.rank(rows) - 1], acc, true)?;
    layer_norm::scaled(c, n, n.tmp("normed"), &v, eps, None, None, acc)
}

fn gated_norm<'m>(c: &mut Ctx<'m>, n: &NodeView<'m>) -> Lowered {
    n.at_most(3)?;
    let (x, scale, gate) = (n.input(0)?, n.input(1)?, n.input(2)?);
    let (s, d, ds) = (c.shape(x), c.dtype(x), c.dtype(scale));
    let linear = match n.text("activation", "silu")?.as_str() {
        "silu" | "swish" => true,
        "sigmoid" => false,
        a => return Err(format!("attribute 'activation' is '{a}', it must be silu, swish or sigmoid").into()),
    };
    let width = c.shape(scale).first().cloned().ok_or("its scale is a single number")?;
    let y = normed_rows(c, n, x, width, n.float("epsilon", 1e-5)?)?;
    let gate = c.reshaped(n, n.tmp("gate"), gate, c.shape(y))?;
    let y = c.map(n, n.tmp("gated"), &[y, scale, gate], |e, a| {
        let (scale, gate) = (wide(e, a[1], ds), wide(e, a[2], d));
        let g = e.unary(Unary::Sigmoid, gate);
        let g = if linear { e.mul(gate, g) } else { g };
        let y = e.mul(a[0], scale);
        let y = e.mul(y, g);
        narrow(e, y, d)
    })?;
    let y = c.reshape(n, n.name(0), y, s)?;
    c.set(n, 0, y);
    Ok(())
}

fn branch_norm<'m>(c: &mut Ctx<'m>, n: &NodeView<'m>) -> Lowered {
    n.at_most(2)?;
    let (x, scale) = (n.input(0)?, n.opt(1));
    let (s, d) = (c.shape(x), c.dtype(x));
    let last = s.last().cloned().ok_or("its input is a single number")?;
    let width = match n.int("num_branches", 0)? {
        0 => last,
        b => last.exact_div(&Dim::Known(b)).ok_or_else(|| format!("its last dimension {last} is not {b} equal branches"))?,
    };
    let mut y = normed_rows(c, n, x, width.clone(), n.float("epsilon", 1e-5)?)?;
    if let Some(scale) = scale {
        // One number for each element of each branch, or the same for all branches.
        let ds = c.dtype(scale);
        let all = Dim::product(&c.shape(scale));
        let branches = all.exact_div(&width).ok_or_else(|| format!("its scale of {all} numbers does not fit {width} elements"))?;
        let grouped = c.shape(x).len() > 1 && n.int("num_branches", 0)? == 0;
        let shape = if grouped { vec![branches, Dim::ONE, width] } else { vec![branches, width] };
        let scale = c.reshaped(n, n.tmp("scale"), scale, shape)?;
        y = c.map(n, n.tmp("scaled"), &[y, scale], |e, a| {
            let scale = wide(e, a[1], ds);
            e.mul(a[0], scale)
        })?;
    }
    let y = c.cast(n, n.tmp("narrow"), y, d)?;
    let y = c.reshape(n, n.name(0), y, s)?;
    c.set(n, 0, y);
    Ok(())
}

/// `x`, which has type `d`, in the type that sums of such are made in.
fn wide(e: &mut ExprBuilder, x: Ref, d: DType) -> Ref {
    let acc = monoids::accumulator(d);
    if acc == d { x } else { e.cast(x, acc) }
}

/// The way back.
fn narrow(e: &mut ExprBuilder, x: Ref, d: DType) -> Ref {
    if monoids::accumulator(d) == d { x } else { e.cast(x, d) }
}

/// `X + Y * gate`, or with the sigmoid of a projection as the gate.
fn gated_add<'m>(c: &mut Ctx<'m>, n: &NodeView<'m>) -> Lowered {
    n.at_most(4)?;
    let (x, y, mut gate) = (n.input(0)?, n.input(1)?, n.input(2)?);
    let d = c.dtype(x);
    if let Some(w) = n.opt(3) {
        let p = matmul::product(c, n, n.tmp("projected"), gate, w, (false, false))?;
        gate = c.map(n, n.tmp("gate"), &[p], |e, a| {
            // The projection and its sigmoid are rounded to bf16.
            let p = e.cast(a[0], DType::BF16);
            let p = e.cast(p, DType::F32);
            let s = e.unary(Unary::Sigmoid, p);
            let s = e.cast(s, DType::BF16);
            e.cast(s, d)
        })?;
    }
    let y = c.map(n, n.name(0), &[x, y, gate], |e, a| {
        let y = e.mul(a[1], a[2]);
        e.add(a[0], y)
    })?;
    c.set(n, 0, y);
    Ok(())
}

fn attention_gate<'m>(c: &mut Ctx<'m>, n: &NodeView<'m>) -> Lowered {
    n.at_most(4)?;
    let (a, bias, scale) = (n.input(0)?, n.input(1)?, n.input(2)?);
    let (d, ds) = (c.dtype(a), c.dtype(bias));
    let decay = c.map(n, n.name(0), &[a, bias, scale], |e, x| {
        let (a, b, k) = (wide(e, x[0], d), wide(e, x[1], ds), wide(e, x[2], ds));
        let y = e.add(a, b);
        let y = functions::softplus(e, y, monoids::accumulator(d));
        let y = e.mul(k, y);
        narrow(e, y, d)
    })?;
    c.set(n, 0, decay);
    if let (Some(b), true) = (n.opt(3), n.wants(1)) {
        let beta = c.map_wide(n, n.name(1), &[b], |e, x, _| e.unary(Unary::Sigmoid, x[0]))?;
        c.set(n, 1, beta);
    }
    Ok(())
}

fn scaled_silu<'m>(c: &mut Ctx<'m>, n: &NodeView<'m>) -> Lowered {
    n.at_most(2)?;
    let (x, alpha) = (n.input(0)?, n.float("alpha", 1.0)?);
    let d = c.dtype(x);
    let mut inputs = vec![x];
    if let Some(s) = n.opt(1) {
        inputs.push(c.reshaped(n, n.tmp("scale"), s, vec![])?);
    }
    let ds = inputs.get(1).map(|&s| c.dtype(s));
    let y = c.map(n, n.name(0), &inputs, |e, a| {
        let acc = monoids::accumulator(d);
        let k = match (a.get(1), ds) {
            (Some(&k), Some(ds)) if ds == acc => k,
            (Some(&k), _) => e.cast(k, acc),
            _ => e.constant(alpha, acc),
        };
        // Each step is rounded to the input's type.
        let rounded = |e: &mut ExprBuilder, v| {
            let v = narrow(e, v, d);
            wide(e, v, d)
        };
        let z = wide(e, a[0], d);
        let z = e.mul(z, k);
        let z = rounded(e, z);
        let s = e.unary(Unary::Sigmoid, z);
        let s = rounded(e, s);
        let y = e.mul(z, s);
        narrow(e, y, d)
    })?;
    c.set(n, 0, y);
    Ok(())
}

/// Whether no element of any input is infinite or no number.
fn all_finite<'m>(c: &mut Ctx<'m>, n: &NodeView<'m>) -> Lowered {
    let (nan_only, inf_only) = (n.flag("isnan_only", false)?, n.flag("isinf_only", false)?);
    let flag = DType::I32;
    let mut worst = Vec::new();
    for (i, x) in n.all_inputs()?.into_iter().enumerate() {
        let bad = c.map(n, n.tmp(&format!("bad{i}")), &[x], |e, a| {
            let nan = e.compare(Compare::Ne, a[0], a[0]);
            let infinite = e.unary(Unary::IsInf, a[0]);
            let bad = match (nan_only, inf_only) {
                (true, false) => nan,
                (false, true) => infinite,
                _ => e.binary(Binary::Or, nan, infinite),
            };
            e.cast(bad, flag)
        })?;
        let axes: Vec<usize> = (0..c.rank(bad)).collect();
        worst.push(c.reduce(n, n.tmp(&format!("worst{i}")), bad, monoids::max(flag), &axes, false)?);
    }
    let y = c.map(n, n.name(0), &worst, |e, a| {
        let (one, mut worst) = (e.int(1, flag), e.int(0, flag));
        for &v in a {
            worst = e.binary(Binary::Max, worst, v);
        }
        e.compare(Compare::Lt, worst, one)
    })?;
    c.set(n, 0, y);
    Ok(())
}

fn integer16<'m>(c: &mut Ctx<'m>, n: &NodeView<'m>) -> Lowered {
    n.at_most(2)?;
    let (a, b) = (n.input(0)?, n.input(1)?);
    let d = if c.dtype(a).is_signed_int() || c.dtype(b).is_signed_int() { DType::I32 } else { DType::U32 };
    let (a, b) = (c.cast(n, n.tmp("a"), a, d)?, c.cast(n, n.tmp("b"), b, d)?);
    let y = matmul::product(c, n, n.name(0), a, b, (false, false))?;
    c.set(n, 0, y);
    Ok(())
}

/// All slices of `size` elements along a dimension, `step` apart, as a last dimension.
fn unfold<'m>(c: &mut Ctx<'m>, n: &NodeView<'m>) -> Lowered {
    n.at_most(1)?;
    let x = n.input(0)?;
    let rank = c.rank(x);
    let axis = axis_of(n.int("dim", -1)?, rank)?;
    let (size, step) = (n.int("size", 0)?, n.int("step", 1)?);
    if size < 1 || step < 1 {
        return Err(format!("attributes 'size' {size} and 'step' {step} must be positive").into());
    }
    let extent = c.shape(x)[axis].clone();
    c.assume_at_most(n, &Dim::Known(size), &extent);
    let count = (extent - Dim::Known(size)).floor_div(&Dim::Known(step)) + Dim::ONE;
    let at = c.fill(n, n.tmp("at"), &[count, Dim::Known(size)], DType::I64, |e| {
        let (i, j, step) = (e.index(0), e.index(1), e.int(step, DType::I64));
        let i = e.mul(i, step);
        e.add(i, j)
    })?;
    let y = c.add1(n, Op::Gather { axis, batch: 0 }, &[x, at], n.tmp("slices"))?;
    // The slice's own dimension goes to the end.
    let order = (0..=axis).chain(axis + 2..=rank).chain([axis + 1]).collect();
    let y = c.permute(n, n.name(0), y, order)?;
    c.set(n, 0, y);
    Ok(())
}

/// The values that codes of 4 bits stand for: the FP4 and NF4 types of bitsandbytes (Dettmers et al., QLoRA, 2023).
const BNB4: [[f32; 16]; 2] = [
    [
        0.0, 5.208_333_4e-3, 0.666_666_7, 1.0, 0.333_333_34, 0.5, 0.166_666_67, 0.25, -0.0, -5.208_333_4e-3,
        -0.666_666_7, -1.0, -0.333_333_34, -0.5, -0.166_666_67, -0.25,
    ],
    [
        -1.0, -0.696_192_8, -0.525_073_05, -0.394_917_5, -0.284_441_38, -0.184_773_43, -0.091_050_036, 0.0,
        0.079_580_3, 0.160_930_2, 0.246_112_3, 0.337_915_24, 0.440_709_83, 0.562_617, 0.722_956_84, 1.0,
    ],
];

/// A product with weights as codes of 4 bits, the first of two in the high half of a byte, scaled block by block.
fn bnb4<'m>(c: &mut Ctx<'m>, n: &NodeView<'m>) -> Lowered {
    n.at_most(3)?;
    let (x, w, scales) = (n.input(0)?, n.input(1)?, n.input(2)?);
    let size = |name: &str| -> Lowered<i64> {
        let v = n.int_opt(name)?.filter(|v| (1..=1 << 30).contains(v));
        v.ok_or_else(|| format!("attribute '{name}' must be a positive number").into())
    };
    let (k, rows, block) = (size("K")?, size("N")?, size("block_size")?);
    n.flag("training_mode", false)?;
    let table = n.int_opt("quant_type")?.and_then(|t| BNB4.get(usize::try_from(t).ok()?));
    let table = table.ok_or("attribute 'quant_type' must be 0 (FP4) or 1 (NF4)")?;
    if !n.flag("transB", true)? {
        return Err(LowerError::Unsupported("keeps its weights untransposed; export it with transB = 1".into()));
    }
    let all = Dim::Known(k * rows);
    let bytes = Dim::Known((k * rows + 1) / 2);
    let blocks = Dim::Known((k * rows + block - 1) / block);
    let w = c.reshaped(n, n.tmp("bytes"), w, vec![bytes.clone(), Dim::ONE])?;
    let w = c.expand(n, n.tmp("halves"), w, vec![bytes.clone(), Dim::Known(2)])?;
    let codes = c.map(n, n.tmp("codes"), &[w], |e, a| {
        let half = e.index(1);
        let half = e.cast(half, DType::I32);
        let (one, four, mask) = (e.int(1, DType::I32), e.int(4, DType::I32), e.int(15, DType::I32));
        let by = e.sub(one, half);
        let by = e.mul(by, four);
        let b = e.cast(a[0], DType::I32);
        let b = e.binary(Binary::Shr, b, by);
        e.binary(Binary::And, b, mask)
    })?;
    let codes = c.reshape(n, n.tmp("codes.flat"), codes, vec![bytes * Dim::Known(2)])?;
    let codes = c.slice(n, n.tmp("codes.cut"), codes, 0, Dim::ZERO, all.clone())?;
    let scales = c.reshaped(n, n.tmp("scales"), scales, vec![blocks.clone(), Dim::ONE])?;
    let scales = c.expand(n, n.tmp("scales.wide"), scales, vec![blocks.clone(), Dim::Known(block)])?;
    let scales = c.reshape(n, n.tmp("scales.flat"), scales, vec![blocks * Dim::Known(block)])?;
    let scales = c.slice(n, n.tmp("scales.cut"), scales, 0, Dim::ZERO, all)?;
    let bytes = table.iter().flat_map(|v| v.to_le_bytes()).collect();
    let table = tensor::Tensor::from_bytes(DType::F32, &[16], bytes).map_err(|e| e.to_string())?;
    let table = c.constant(&n.tmp("values"), table)?;
    let real = c.add1(n, Op::Gather { axis: 0, batch: 0 }, &[table, codes], n.tmp("values.picked"))?;
    let (d, dx) = (c.dtype(scales), c.dtype(x));
    let w = c.map(n, n.tmp("w.flat"), &[real, scales], |e, a| {
        let s = wide(e, a[1], d);
        let y = e.mul(a[0], s);
        if dx == DType::F32 { y } else { e.cast(y, dx) }
    })?;
    let w = c.reshape(n, n.tmp("w"), w, vec![Dim::Known(rows), Dim::Known(k)])?;
    let y = matmul::product(c, n, n.name(0), x, w, (false, true))?;
    c.set(n, 0, y);
    Ok(())
}
