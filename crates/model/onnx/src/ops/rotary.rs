//! RotaryEmbedding, the standard's and com.microsoft's.
use super::{OpDef, op, op_of};
use crate::import::{Ctx, Lowered, NodeView};
use expr::{Binary, Compare, ExprBuilder};
use graph::{Op, ValueId, View};
use layout::{DType, Dim};

const MS: &str = "com.microsoft";

pub(crate) const OPS: &[OpDef] =
    &[op("RotaryEmbedding", standard), op_of(MS, "RotaryEmbedding", contrib), op_of(MS, "MRotaryEmbedding", three_way)];

fn standard<'m>(c: &mut Ctx<'m>, n: &NodeView<'m>) -> Lowered {
    n.at_most(4)?;
    let (x, cos, sin) = (n.input(0)?, n.input(1)?, n.input(2)?);
    rotate(c, n, x, cos, sin, n.opt(3))
}

fn contrib<'m>(c: &mut Ctx<'m>, n: &NodeView<'m>) -> Lowered {
    n.at_most(4)?;
    let (x, at, cos, sin) = (n.input(0)?, n.input(1)?, n.input(2)?, n.input(3)?);
    // onnxruntime's CPU kernel turns by the cache's angles, whatever these say.
    n.flag("is_packed_batching", false)?;
    n.float("scale", 1.0)?;
    rotate(c, n, x, cos, sin, Some(at))
}

/// Angles at three positions of every token (time, height, width), each of which has a part of the pairs.
fn three_way<'m>(c: &mut Ctx<'m>, n: &NodeView<'m>) -> Lowered {
    n.at_most(4)?;
    let (x, at, cos, sin) = (n.input(0)?, n.input(1)?, n.input(2)?, n.input(3)?);
    n.flag("is_packed_batching", false)?;
    n.float("scale", 1.0)?;
    let sections = n.ints("mrope_section")?.unwrap_or_default();
    let woven = n.flag("mrope_layout", false)?;
    let s = c.shape(at);
    let [time, height, width] = sections[..] else {
        return Err("attribute 'mrope_section' must have three entries".into());
    };
    if s.len() != 3 || sections.iter().any(|k| !(0..1 << 30).contains(k)) {
        return Err(format!("its positions have rank {} and its sections are {sections:?}", s.len()).into());
    }
    c.assume(n, &s[0], &Dim::Known(3));
    let mut tables = Vec::new();
    for (what, table) in [("cos", cos), ("sin", sin)] {
        let mut each = Vec::new();
        for way in 0..3usize {
            let one = c.slice(n, n.tmp(&format!("at{way}")), at, 0, Dim::from(way), Dim::ONE)?;
            let one = c.reshape(n, n.tmp(&format!("at{way}.rows")), one, s[1..].to_vec())?;
            each.push(c.add1(n, Op::Gather { axis: 0, batch: 0 }, &[table, one], n.tmp(&format!("{what}{way}")))?);
        }
        tables.push(c.map(n, n.tmp(&format!("{what}.woven")), &each, |e, a| {
            let j = e.index(2);
            let below = |e: &mut ExprBuilder, end: i64| {
                let end = e.int(end, DType::I64);
                e.compare(Compare::Lt, j, end)
            };
            let (second, third) = match woven {
                false => {
                    let (first, both) = (below(e, time), below(e, time + height));
                    let y = e.select(both, a[1], a[2]);
                    return e.select(first, a[0], y);
                }
                true => {
                    let three = e.int(3, DType::I64);
                    let turn = e.binary(Binary::Mod, j, three);
                    let [one, two] = [1, 2].map(|k| {
                        let k = e.int(k, DType::I64);
                        e.compare(Compare::Eq, turn, k)
                    });
                    let (h, w) = (below(e, 3 * height), below(e, 3 * width));
                    (e.binary(Binary::And, one, h), e.binary(Binary::And, two, w))
                }
            };
            let y = e.select(second, a[1], a[0]);
            e.select(third, a[2], y)
        })?);
    }
    rotate(c, n, x, tables[0], tables[1], None)
}

/// Every `step`-th element of the last dimension from `start` on, `extent` of them.
fn part<'m>(c: &mut Ctx<'m>, n: &NodeView<'m>, what: &str, x: ValueId, start: i64, step: i64, extent: &Dim) -> Lowered<ValueId> {
    let mut extents = c.shape(x);
    let last = extents.len() - 1;
    extents[last] = extent.clone();
    let mut starts = vec![Dim::ZERO; last + 1];
    let mut steps = vec![1; last + 1];
    starts[last] = Dim::Known(start);
    steps[last] = step;
    c.add1(n, Op::View(View::Slice { starts, steps, extents }), &[x], n.tmp(what))
}

fn rotate<'m>(c: &mut Ctx<'m>, n: &NodeView<'m>, x: ValueId, cos: ValueId, sin: ValueId, at: Option<ValueId>) -> Lowered {
    let s = c.shape(x);
    let interleaved = n.flag("interleaved", false)?;
    let (heads, rotary) = (n.int("num_heads", 0)?, n.int("rotary_embedding_dim", 0)?);
    let half_of_cache = c.shape(cos).last().and_then(Dim::known).ok_or("its cosines must have a known last dimension")?;
    // [b, h, s, d], or [b, s, h*d] seen as [b, s, h, d].
    let flat = s.len() == 3;
    let (x4, sequence) = match s.len() {
        4 => (x, s[2].clone()),
        3 => {
            let whole = s[2].known().ok_or("its last dimension must be known")?;
            let each = if heads > 0 { whole / heads } else { half_of_cache.saturating_mul(2) };
            if each < 1 || whole % each != 0 {
                return Err(format!("{whole} elements are not heads of {each}").into());
            }
            let four = vec![s[0].clone(), s[1].clone(), Dim::Known(whole / each), Dim::Known(each)];
            (c.reshape(n, n.tmp("heads"), x, four)?, s[1].clone())
        }
        r => return Err(format!("needs rank 3 or 4, its input has {r}").into()),
    };
    let full = c.shape(x4);
    let width = full[3].known().ok_or("its head size must be known")?;
    let turned = if rotary > 0 { rotary } else { width };
    if turned > width || turned % 2 != 0 || half_of_cache < turned / 2 {
        return Err(format!("turns {turned} of {width} elements by {half_of_cache} angles").into());
    }
    let half = Dim::Known(turned / 2);
    let mut angles = Vec::new();
    for (what, table) in [("cos", cos), ("sin", sin)] {
        let picked = match at {
            Some(at) => {
                let mut at = at;
                if c.rank(at) == 1 {
                    // One number: the position of the first element.
                    let wide = c.expand(n, n.tmp(&format!("{what}.first")), at, vec![sequence.clone()])?;
                    let d = c.dtype(at);
                    at = c.map(n, n.tmp(&format!("{what}.at")), &[wide], |e, a| {
                        let i = e.index(0);
                        let i = if d == DType::I64 { i } else { e.cast(i, d) };
                        e.add(a[0], i)
                    })?;
                }
                c.add1(n, Op::Gather { axis: 0, batch: 0 }, &[table, at], n.tmp(what))?
            }
            None => table,
        };
        let t = part(c, n, &format!("{what}.half"), picked, 0, 1, &half)?;
        let ts = c.shape(t);
        let batch = if ts.len() == 3 { ts[0].clone() } else { Dim::ONE };
        let rows = if flat { [sequence.clone(), Dim::ONE] } else { [Dim::ONE, sequence.clone()] };
        let [a, b] = rows;
        angles.push(c.reshape(n, n.tmp(&format!("{what}.rows")), t, vec![batch, a, b, half.clone()])?);
    }
    let (step, second) = if interleaved { (2, 1) } else { (1, turned / 2) };
    let x1 = part(c, n, "first", x4, 0, step, &half)?;
    let x2 = part(c, n, "second", x4, second, step, &half)?;
    let inputs = [x1, x2, angles[0], angles[1]];
    let real = c.map(n, n.tmp("real"), &inputs, |e, a| {
        let (p, q) = (e.mul(a[2], a[0]), e.mul(a[3], a[1]));
        e.sub(p, q)
    })?;
    let imaginary = c.map(n, n.tmp("imaginary"), &inputs, |e, a| {
        let (p, q) = (e.mul(a[3], a[0]), e.mul(a[2], a[1]));
        e.add(p, q)
    })?;
    let mut parts = vec![real, imaginary];
    if interleaved {
        let mut thin = c.shape(real);
        thin.push(Dim::ONE);
        let a = c.reshape(n, n.tmp("real.thin"), real, thin.clone())?;
        let b = c.reshape(n, n.tmp("imaginary.thin"), imaginary, thin.clone())?;
        let pairs = c.add1(n, Op::Concat { axis: 4 }, &[a, b], n.tmp("pairs"))?;
        let mut joined = c.shape(real);
        joined[3] = Dim::Known(turned);
        parts = vec![c.reshape(n, n.tmp("turned"), pairs, joined)?];
    }
    if turned < width {
        parts.push(part(c, n, "rest", x4, turned, 1, &Dim::Known(width - turned))?);
    }
    let y = match parts.as_slice() {
        [one] => *one,
        all => c.add1(n, Op::Concat { axis: 3 }, all, if flat { n.tmp("all") } else { n.name(0) })?,
    };
    let y = if flat || parts.len() == 1 { c.reshape(n, n.name(0), y, s)? } else { y };
    c.set(n, 0, y);
    Ok(())
}
