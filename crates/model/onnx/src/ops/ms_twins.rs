//! com.microsoft operators that the standard took up, or that differ from its own in their names alone.
use super::{ALL, OpDef, host, other, pool, standard};
use crate::import::{Ctx, Lowered, NodeView};
use crate::proto::AttributeValue;
use layout::Dim;

const MS: &str = "com.microsoft";
const NEWEST: i64 = ALL.1;

pub(crate) const OPS: &[OpDef] = &[
    other(MS, "CausalConvWithState", same), other(MS, "CropAndResize", crop_and_resize), other(MS, "ExpandDims", expand),
    other(MS, "GatherND", same), other(MS, "GridSample", grid_sample), other(MS, "Inverse", inverse),
    other(MS, "LinearAttention", same), other(MS, "NhwcMaxPool", nhwc_max_pool), other(MS, "Pad", same),
    other(MS, "Range", range), other(MS, "Trilu", same), other(MS, "Unique", unique),
];

fn same<'m>(c: &mut Ctx<'m>, n: &NodeView<'m>) -> Lowered {
    standard(c, n, n.op, NEWEST, |_| {})
}

fn expand<'m>(c: &mut Ctx<'m>, n: &NodeView<'m>) -> Lowered {
    standard(c, n, "Unsqueeze", NEWEST, |_| {})
}

/// Its modes have the names of opset 16.
fn grid_sample<'m>(c: &mut Ctx<'m>, n: &NodeView<'m>) -> Lowered {
    standard(c, n, n.op, 16, |_| {})
}

/// The step may be left out.
fn range<'m>(c: &mut Ctx<'m>, n: &NodeView<'m>) -> Lowered {
    let d = c.dtype(n.input(0)?);
    let step = match n.opt(2) {
        Some(v) => v,
        None => c.fill(n, n.tmp("step"), &[], d, |e| e.constant(1.0, d))?,
    };
    standard(c, n, n.op, NEWEST, |twin| {
        twin.inputs.truncate(2);
        twin.inputs.push(Some(step));
    })
}

/// In the order of the input, and without the first positions.
fn unique<'m>(c: &mut Ctx<'m>, n: &NodeView<'m>) -> Lowered {
    static UNSORTED: AttributeValue = AttributeValue::Int(0);
    standard(c, n, n.op, NEWEST, |twin| {
        twin.attrs.insert("sorted", &UNSORTED);
        twin.outputs.insert(1, "");
        twin.names.insert(1, String::new());
    })
}

fn nhwc_max_pool<'m>(c: &mut Ctx<'m>, n: &NodeView<'m>) -> Lowered {
    n.at_most(1)?;
    let x = pool::turned(c, n, "x", n.input(0)?, false)?;
    let y = pool::of(c, n, n.tmp("pool"), x, "MaxPool")?;
    let y = pool::turned(c, n, "y", y, true)?;
    let y = c.reshape(n, n.name(0), y, c.shape(y))?;
    c.set(n, 0, y);
    Ok(())
}

fn crop_and_resize<'m>(c: &mut Ctx<'m>, n: &NodeView<'m>) -> Lowered {
    n.at_most(4)?;
    let (x, rois, size) = (n.input(0)?, n.input(1)?, n.input(3)?);
    let (s, r) = (c.shape(x), c.shape(rois));
    if s.len() != 4 || r.len() != 2 {
        return Err(format!("its input has rank {} and its rois {}, not 4 and 2", s.len(), r.len()).into());
    }
    let size = match c.sizes(size)?.map(<[Dim; 2]>::try_from) {
        Some(Ok(size)) => size.map(Some),
        _ => [None, None],
    };
    let [h, w] = size;
    c.host(n, &[(c.dtype(x), vec![Some(r[0].clone()), Some(s[1].clone()), h, w])])
}

fn inverse<'m>(c: &mut Ctx<'m>, n: &NodeView<'m>) -> Lowered {
    n.at_most(1)?;
    let x = n.input(0)?;
    c.host(n, &[(c.dtype(x), host::some(&c.shape(x)))])
}
