//! CausalConvWithState: the state before the input, a depthwise convolution, the state after it.
use super::{OpDef, op};
use crate::import::{Ctx, LowerError, Lowered, NodeView};
use expr::Unary;
use graph::{ConvSpec, Op, ValueId};
use layout::{DType, Dim};

pub(crate) const OPS: &[OpDef] = &[op("CausalConvWithState", lower)];

/// Attributes of com.microsoft's operator that only its kernels for GPUs take, with what leaves them out.
const ELSEWHERE: [(&str, i64); 7] = [
    ("ndim", 1), ("state_update_capacity", 0), ("state_channels_last", -1), ("state_window", 0), ("state_length", 0),
    ("input_channel_offset", 0), ("input_channels", 0),
];

/// [b, length, d1, ..] as [b, channels, length].
fn channels_first<'m>(c: &mut Ctx<'m>, n: &NodeView<'m>, what: &str, v: ValueId) -> Lowered<ValueId> {
    let s = c.shape(v);
    let rest = s.get(2..).filter(|r| !r.is_empty()).ok_or_else(|| format!("its {what} has rank {}, not 3 or more", s.len()))?;
    let flat = vec![s[0].clone(), s[1].clone(), Dim::product(rest)];
    let v = c.reshaped(n, n.tmp(&format!("{what}.flat")), v, flat)?;
    c.permute(n, n.tmp(&format!("{what}.first")), v, vec![0, 2, 1])
}

/// The way back for output `i`; `rest`: its trailing dimensions.
fn channels_last<'m>(c: &mut Ctx<'m>, n: &NodeView<'m>, i: usize, v: ValueId, rest: &[Dim]) -> Lowered<ValueId> {
    let v = c.permute(n, n.tmp(&format!("out{i}.last")), v, vec![0, 2, 1])?;
    let s = c.shape(v);
    let shape = s[..2].iter().chain(rest).cloned().collect();
    c.reshape(n, n.name(i), v, shape)
}

fn lower<'m>(c: &mut Ctx<'m>, n: &NodeView<'m>) -> Lowered {
    n.at_most(4)?;
    for (name, usual) in ELSEWHERE {
        if n.int(name, usual)? != usual {
            return Err(LowerError::Unsupported(format!("has '{name}', which its kernels for GPUs alone take; export it without")));
        }
    }
    // com.microsoft's operator may have channels last, and space its taps.
    let last = n.flag("channels_last", false)?;
    let dilation = n.int("dilation", 1)?;
    let (mut x, w, bias, mut past) = (n.input(0)?, n.input(1)?, n.opt(2), n.opt(3));
    let rest = if last { c.shape(x).get(2..).unwrap_or_default().to_vec() } else { vec![] };
    if last {
        x = channels_first(c, n, "input", x)?;
        past = past.map(|p| channels_first(c, n, "state", p)).transpose()?;
    }
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
    let y = c.map(n, if last { n.tmp("first") } else { n.name(0) }, &inputs, |e, a| {
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
    let mut outs = vec![y];
    if n.wants(1) {
        let name = if last { n.tmp("after") } else { n.name(1) };
        let length = c.shape(all)[2].clone();
        outs.push(match reach {
            0 => c.fill(n, name, &[s[0].clone(), s[1].clone(), state], d, |e| e.constant(0.0, d))?,
            _ => c.slice(n, name, all, 2, length - state.clone(), state)?,
        });
    }
    for (i, mut v) in outs.into_iter().enumerate() {
        if last {
            v = channels_last(c, n, i, v, &rest)?;
        }
        c.set(n, i, v);
    }
    Ok(())
}
