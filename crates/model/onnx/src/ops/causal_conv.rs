//! CausalConvWithState: the state before the input, a depthwise convolution, the state after it.
use super::{OpDef, op};
use crate::import::{Ctx, Lowered, NodeView};
use expr::Unary;
use graph::{ConvSpec, Op};
use layout::{DType, Dim};

pub(crate) const OPS: &[OpDef] = &[op("CausalConvWithState", lower)];

fn lower<'m>(c: &mut Ctx<'m>, n: &NodeView<'m>) -> Lowered {
    n.at_most(4)?;
    let (x, w, bias, past) = (n.input(0)?, n.input(1)?, n.opt(2), n.opt(3));
    let (s, ws, d) = (c.shape(x), c.shape(w), c.dtype(x));
    if s.len() != 3 || ws.len() != 3 {
        return Err("needs input and weight of rank 3".into());
    }
    let channels = s[1].known().ok_or("its channels must be known")?;
    let taps = ws[2].known().filter(|k| *k >= 1).ok_or("its kernel's extent must be known")?;
    let silu = match n.text("activation", "none")?.as_str() {
        "none" => false,
        "silu" | "swish" => true,
        a => return Err(format!("attribute 'activation' is '{a}', it must be none, silu or swish").into()),
    };
    // com.microsoft's operator may space its taps.
    let dilation = n.int("dilation", 1)?;
    let reach = (taps - 1).checked_mul(dilation).filter(|_| dilation >= 1);
    let reach = reach.ok_or_else(|| format!("attribute 'dilation' is {dilation}, it must be a small positive number"))?;
    let state = Dim::Known(reach);
    let all = match past {
        Some(p) => c.add1(n, Op::Concat { axis: 2 }, &[p, x], n.tmp("all"))?,
        None => {
            let before = vec![Dim::ZERO, Dim::ZERO, state.clone()];
            c.add1(n, Op::Pad { before, after: vec![Dim::ZERO; 3], mode: graph::PadMode::Constant }, &[x], n.tmp("all"))?
        }
    };
    let spec = ConvSpec {
        kernel: vec![taps],
        strides: vec![1],
        dilations: vec![dilation],
        before: vec![Dim::ZERO],
        after: vec![Dim::ZERO],
        groups: channels,
        transposed: false,
        outside: 0,
    };
    let y = c.add1(n, Op::Conv(spec), &[all, w], n.tmp("conv"))?;
    let mut inputs = vec![y];
    if let Some(b) = bias {
        inputs.push(c.along(n, n.tmp("bias.c"), b, 3, 1)?);
    }
    let y = c.map(n, n.name(0), &inputs, |e, a| {
        let mut y = a[0];
        if let Some(&b) = a.get(1) {
            y = e.add(y, b);
        }
        if !silu {
            return y;
        }
        let wide = d != DType::F64;
        let x = if wide { e.cast(y, DType::F32) } else { y };
        let g = e.unary(Unary::Sigmoid, x);
        let r = e.mul(x, g);
        if wide { e.cast(r, d) } else { r }
    })?;
    c.set(n, 0, y);
    if n.wants(1) {
        let length = c.shape(all)[2].clone();
        let after = match reach {
            0 => c.fill(n, n.name(1), &[s[0].clone(), s[1].clone(), state], d, |e| e.constant(0.0, d))?,
            _ => c.slice(n, n.name(1), all, 2, length - state.clone(), state)?,
        };
        c.set(n, 1, after);
    }
    Ok(())
}
