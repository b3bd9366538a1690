//! STFT: a convolution whose filters are the window times the roots of unity, its stride the step
//! from frame to frame.
use super::dft::{LONGEST, root};
use super::{OpDef, op};
use crate::import::{Ctx, Lowered, NodeView};
use expr::{Compare, Unary};
use graph::{ConvSpec, Op};
use layout::{DType, Dim};

pub(crate) const OPS: &[OpDef] = &[op("STFT", lower)];

fn lower<'m>(c: &mut Ctx<'m>, n: &NodeView<'m>) -> Lowered {
    n.at_most(4)?;
    let (x, step, window, length) = (n.input(0)?, n.input(1)?, n.opt(2), n.opt(3));
    let (s, d) = (c.shape(x), c.dtype(x));
    let onesided = n.flag("onesided", true)?;
    let parts = match s.len() {
        2 => 1,
        3 => s[2].known().filter(|k| (1..=2).contains(k)).ok_or("needs a last dimension of 1 or 2")?,
        r => return Err(format!("needs a signal of rank 2 or 3, it has {r}").into()),
    };
    let one = |c: &mut Ctx<'m>, v| c.const_ints(v).and_then(|k| k.first().copied());
    let step = one(c, step);
    let frame = match (length, window) {
        (Some(l), _) => one(c, l),
        (None, Some(w)) => c.shape(w).first().and_then(Dim::known),
        (None, None) => s[1].known(),
    };
    let (Some(step), Some(frame)) = (step, frame.filter(|f| *f <= LONGEST)) else {
        let out = vec![Some(s[0].clone()), None, None, Some(Dim::Known(2))];
        return c.host(n, &[(d, out)]);
    };
    if step < 1 || frame < 1 {
        return Err(format!("has frames of {frame} at steps of {step}").into());
    }
    let wide = if d == DType::F64 { d } else { DType::F32 };
    let bins = if onesided { frame / 2 + 1 } else { frame };
    // Filters: for each bin its real and its imaginary part.
    let shape = [Dim::Known(2 * bins), Dim::Known(parts), Dim::Known(frame)];
    let mut filters = c.fill(n, n.tmp("roots"), &shape, wide, |e| {
        let (f, t) = (e.index(0), e.index(2));
        let (size, two, one) = (e.int(frame, DType::I64), e.int(2, DType::I64), e.int(1, DType::I64));
        let bin = e.div(f, two);
        let (cos, sin) = root(e, bin, t, size);
        let minus = e.unary(Unary::Neg, sin);
        let part = e.binary(expr::Binary::Mod, f, two);
        let to_im = e.compare(Compare::Eq, part, one);
        let channel = e.index(1);
        let from_im = e.compare(Compare::Eq, channel, one);
        let re = e.select(to_im, minus, cos);
        let im = e.select(to_im, cos, sin);
        let v = e.select(from_im, im, re);
        if wide == DType::F64 { v } else { e.cast(v, wide) }
    })?;
    if let Some(w) = window {
        let size = c.shape(w).first().cloned().unwrap_or(Dim::ONE);
        let mut w = c.cast(n, n.tmp("window.wide"), w, wide)?;
        if size.known().is_some_and(|k| k != frame) {
            // A window that is not as long as the frame lies at its start.
            let after = vec![Dim::Known(frame) - size];
            w = c.add1(n, Op::Pad { before: vec![Dim::ZERO], after, mode: graph::PadMode::Constant }, &[w], n.tmp("window.fit"))?;
        }
        filters = c.map(n, n.tmp("filters"), &[filters, w], |e, a| e.mul(a[0], a[1]))?;
    }
    let x = c.cast(n, n.tmp("wide"), x, wide)?;
    let x = c.reshape(n, n.tmp("signal"), x, vec![s[0].clone(), s[1].clone(), Dim::Known(parts)])?;
    let x = c.permute(n, n.tmp("channels"), x, vec![0, 2, 1])?;
    let spec = ConvSpec {
        kernel: vec![frame],
        strides: vec![step],
        dilations: vec![1],
        before: vec![Dim::ZERO],
        after: vec![Dim::ZERO],
        groups: 1,
        transposed: false,
        outside: 0,
    };
    let y = c.add1(n, Op::Conv(spec), &[x, filters], n.tmp("conv"))?;
    let frames = c.shape(y)[2].clone();
    let y = c.reshape(n, n.tmp("parts"), y, vec![s[0].clone(), Dim::Known(bins), Dim::Known(2), frames])?;
    let name = if d == wide { n.name(0) } else { n.tmp("frames") };
    let y = c.permute(n, name, y, vec![0, 3, 1, 2])?;
    let y = c.cast(n, n.name(0), y, d)?;
    c.set(n, 0, y);
    Ok(())
}
