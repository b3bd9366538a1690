//! Conv, ConvTranspose, ConvInteger.
use super::{ALL, OpDef, op, op_of, standard, whole_steps};
use crate::import::{Ctx, LowerError, Lowered, NodeView};
use expr::Compare;
use graph::{ConvSpec, Op, ValueId};
use layout::{DType, Dim};

pub(crate) const OPS: &[OpDef] = &[
    op("Conv", conv), op("ConvTranspose", transposed), op("ConvInteger", integer),
    op_of("com.microsoft", "ConvTransposeWithDynamicPads", padded_by_input),
];

/// Window attributes shared by convolutions and pools.
pub(crate) struct Window {
    pub kernel: Vec<i64>,
    pub strides: Vec<i64>,
    pub dilations: Vec<i64>,
    pub before: Vec<Dim>,
    pub after: Vec<Dim>,
}

/// Reads strides, dilations, pads and auto_pad for windows of `kernel` over `extents`.
pub(crate) fn window<'m>(n: &NodeView<'m>, kernel: Vec<i64>, extents: &[Dim]) -> Lowered<Window> {
    let r = extents.len();
    let positive = |name: &str| -> Lowered<Vec<i64>> {
        let v = n.ints(name)?.unwrap_or_else(|| vec![1; r]);
        if v.len() != r || v.iter().any(|&x| !(1..=1 << 31).contains(&x)) {
            return Err(format!("attribute '{name}' {v:?} must be {r} positive numbers").into());
        }
        Ok(v)
    };
    let (strides, dilations) = (positive("strides")?, positive("dilations")?);
    if kernel.len() != r || kernel.iter().any(|&k| !(1..=1 << 31).contains(&k)) {
        return Err(format!("its kernel {kernel:?} must be {r} positive numbers").into());
    }
    let pads = n.ints("pads")?;
    if let Some(p) = &pads
        && p.len() != 2 * r
    {
        return Err(format!("attribute 'pads' {p:?} must be {} numbers", 2 * r).into());
    }
    let (mut before, mut after) = (vec![Dim::ZERO; r], vec![Dim::ZERO; r]);
    match n.text("auto_pad", "NOTSET")?.as_str() {
        "NOTSET" | "" => {
            if let Some(p) = pads {
                before = p[..r].iter().map(|&x| Dim::Known(x)).collect();
                after = p[r..].iter().map(|&x| Dim::Known(x)).collect();
            }
        }
        "VALID" => {}
        same @ ("SAME_UPPER" | "SAME_LOWER") => {
            for i in 0..r {
                let reach = Dim::Known((kernel[i] - 1) * dilations[i] + 1);
                let out = extents[i].ceil_div(&Dim::Known(strides[i]));
                let total = (out - Dim::ONE) * Dim::Known(strides[i]) + reach - extents[i].clone();
                let total = if total.provably_nonneg() { total } else { total.max_with(&Dim::ZERO) };
                let small = total.floor_div(&Dim::Known(2));
                let large = total - small.clone();
                (before[i], after[i]) = if same == "SAME_UPPER" { (small, large) } else { (large, small) };
            }
        }
        a => return Err(format!("attribute 'auto_pad' is '{a}', it must be NOTSET, VALID, SAME_UPPER or SAME_LOWER").into()),
    }
    Ok(Window { kernel, strides, dilations, before, after })
}

/// Kernel extents from the weight's shape, which `kernel_shape` may repeat, and the weight with these extents.
fn kernel<'m>(c: &mut Ctx<'m>, n: &NodeView<'m>, w: ValueId) -> Lowered<(Vec<i64>, ValueId)> {
    let mut s = c.shape(w);
    let k = s.iter().skip(2).map(|d| c.number(n, d, 1..=4).map(|k| k as i64));
    let k = k.collect::<Option<Vec<i64>>>().ok_or_else(|| LowerError::Unsupported("its kernel's extents are not known; give them with --shape".into()))?;
    if let Some(given) = n.ints("kernel_shape")?
        && given != k
    {
        return Err(format!("attribute 'kernel_shape' is {given:?}, its weight has {k:?}").into());
    }
    s.truncate(2);
    s.extend(k.iter().map(|&k| Dim::Known(k)));
    let w = c.reshaped(n, n.tmp("kernel"), w, s)?;
    Ok((k, w))
}

fn check<'m>(c: &Ctx<'m>, x: ValueId, w: ValueId) -> Lowered {
    let (rx, rw) = (c.rank(x), c.rank(w));
    if rx < 3 || rx != rw {
        return Err(format!("needs input and weight of one rank of 3 or more, they have {rx} and {rw}").into());
    }
    Ok(())
}

/// Adds the bias over channels, if any.
fn biased<'m>(c: &mut Ctx<'m>, n: &NodeView<'m>, name: String, y: ValueId, bias: Option<ValueId>) -> Lowered<ValueId> {
    let Some(b) = bias else { return Ok(y) };
    let rank = c.rank(y);
    let b = c.along(n, n.tmp("bias"), b, rank, 1)?;
    c.map(n, name, &[y, b], |e, a| e.add(a[0], a[1]))
}

/// A convolution of two values under the node's attributes.
pub(crate) fn core<'m>(c: &mut Ctx<'m>, n: &NodeView<'m>, name: String, x: ValueId, w: ValueId) -> Lowered<ValueId> {
    check(c, x, w)?;
    let (k, w) = kernel(c, n, w)?;
    let v = window(n, k, &c.shape(x)[2..])?;
    let groups = n.int("group", 1)?;
    let spec = ConvSpec {
        kernel: v.kernel,
        strides: v.strides,
        dilations: v.dilations,
        before: v.before,
        after: v.after,
        groups,
        transposed: false,
        outside: 0,
    };
    c.add1(n, Op::Conv(spec), &[x, w], name)
}

fn conv<'m>(c: &mut Ctx<'m>, n: &NodeView<'m>) -> Lowered {
    n.at_most(3)?;
    let (x, w, b) = (n.input(0)?, n.input(1)?, n.opt(2));
    let name = if b.is_some() { n.tmp("conv") } else { n.name(0) };
    let y = core(c, n, name, x, w)?;
    let y = biased(c, n, n.name(0), y, b)?;
    c.set(n, 0, y);
    Ok(())
}

fn integer<'m>(c: &mut Ctx<'m>, n: &NodeView<'m>) -> Lowered {
    n.at_most(4)?;
    let (x, w) = (n.input(0)?, n.input(1)?);
    let depth = c.shape(w).get(1..).map(Dim::product).and_then(|d| d.known());
    let largest = whole_steps::step(c, x, n.opt(2)) * whole_steps::step(c, w, n.opt(3));
    if depth.and_then(|d| whole_steps::parts(d, largest)) == Some(1) {
        // f32 holds these sums of integers exactly.
        let x = whole_steps::steps(c, n, "x", x, n.opt(2), usize::MAX)?;
        let w = whole_steps::steps(c, n, "w", w, n.opt(3), 0)?;
        let y = core(c, n, n.tmp("sums"), x, w)?;
        let y = c.cast(n, n.name(0), y, DType::I32)?;
        c.set(n, 0, y);
        return Ok(());
    }
    let x = whole_steps::widened(c, n, n.tmp("x"), x, n.opt(2), 0)?;
    let rank = c.rank(w);
    let w = whole_steps::widened(c, n, n.tmp("w"), w, n.opt(3), rank)?;
    let y = core(c, n, n.name(0), x, w)?;
    c.set(n, 0, y);
    Ok(())
}

fn transposed<'m>(c: &mut Ctx<'m>, n: &NodeView<'m>) -> Lowered {
    n.at_most(3)?;
    check(c, n.input(0)?, n.input(1)?)?;
    let y = spread(c, n, n.name(0), n.opt(2), None)?;
    c.set(n, 0, y);
    Ok(())
}

/// A transposed convolution whose pads are an input. They cut the result; where only the data gives them it is
/// computed whole first.
fn padded_by_input<'m>(c: &mut Ctx<'m>, n: &NodeView<'m>) -> Lowered {
    n.at_most(4)?;
    let (x, pads, b) = (n.input(0)?, n.input(2)?, n.opt(3));
    check(c, x, n.input(1)?)?;
    let r = c.rank(x) - 2;
    let pads = c.has_shape(n, n.tmp("pads"), pads, &[Dim::Known(2 * r as i64)])?;
    // Pads that the operator finds itself leave those of the input unread.
    let own = !matches!(n.text("auto_pad", "NOTSET")?.as_str(), "NOTSET" | "");
    if own {
        let y = spread(c, n, n.name(0), b, None)?;
        c.set(n, 0, y);
        return Ok(());
    }
    if let Some(known) = c.sizes(pads)? {
        let y = spread(c, n, n.name(0), b, Some(&known))?;
        c.set(n, 0, y);
        return Ok(());
    }
    let y = spread(c, n, n.tmp("whole"), b, None)?;
    let half = Dim::Known(r as i64);
    let starts = c.slice(n, n.tmp("starts"), pads, 0, Dim::ZERO, half.clone())?;
    let ends = c.slice(n, n.tmp("cut"), pads, 0, half.clone(), half.clone())?;
    let ends = c.map(n, n.tmp("ends"), &[ends], |e, a| {
        // An end of -0 would leave nothing.
        let (zero, far) = (e.int(0, DType::I64), e.int(i64::MAX, DType::I64));
        let (none, back) = (e.compare(Compare::Eq, a[0], zero), e.sub(zero, a[0]));
        e.select(none, far, back)
    })?;
    let axes: Vec<i64> = (2..2 + r as i64).collect();
    let axes = c.constant(&n.tmp("axes"), tensor::Tensor::from_i64(&[r], &axes)?)?;
    standard(c, n, "Slice", ALL.1, |twin| {
        twin.inputs = [y, starts, ends, axes].map(Some).to_vec();
        twin.attrs.clear();
    })
}

/// What the first two inputs give, named `name`; `pads`: those at the beginnings, then those at the ends, where they are
/// no attribute.
fn spread<'m>(c: &mut Ctx<'m>, n: &NodeView<'m>, name: String, b: Option<ValueId>, pads: Option<&[Dim]>) -> Lowered<ValueId> {
    let (x, w) = (n.input(0)?, n.input(1)?);
    let extents = c.shape(x)[2..].to_vec();
    let r = extents.len();
    let (k, w) = kernel(c, n, w)?;
    let auto = n.text("auto_pad", "NOTSET")?;
    let given = n.ints("output_shape")?;
    let extra = n.ints("output_padding")?.unwrap_or_else(|| vec![0; r]);
    if extra.len() != r || given.as_ref().is_some_and(|g| g.len() != r && g.len() != r + 2) {
        return Err("output_padding and output_shape must have one number per spatial dimension".into());
    }
    let mut v = window(n, k, &extents)?;
    if let Some(p) = pads {
        (v.before, v.after) = (p[..r].to_vec(), p[r..].to_vec());
    }
    if given.is_some() || auto.starts_with("SAME") {
        for i in 0..r {
            let full = (extents[i].clone() - Dim::ONE) * Dim::Known(v.strides[i])
                + Dim::Known(extra[i] + (v.kernel[i] - 1) * v.dilations[i] + 1);
            let out = match &given {
                Some(g) => Dim::Known(g[g.len() - r + i]),
                None => extents[i].clone() * Dim::Known(v.strides[i]),
            };
            let total = full - out;
            let half = total.floor_div(&Dim::Known(2));
            let rest = total - half.clone();
            (v.before[i], v.after[i]) = if auto == "SAME_UPPER" { (half, rest) } else { (rest, half) };
        }
    }
    // Output padding is padding taken back at the end.
    for (a, e) in v.after.iter_mut().zip(&extra) {
        *a = a.clone() - Dim::Known(*e);
    }
    let spec = ConvSpec {
        kernel: v.kernel,
        strides: v.strides,
        dilations: v.dilations,
        before: v.before,
        after: v.after,
        groups: n.int("group", 1)?,
        transposed: true,
        outside: 0,
    };
    let product = if b.is_some() { n.tmp("conv") } else { name.clone() };
    let y = c.add1(n, Op::Conv(spec), &[x, w], product)?;
    biased(c, n, name, y, b)
}
