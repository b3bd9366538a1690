//! One file per operator or tight family; the list below is the table.
//!
//! Adding an operator: its file with a `const OPS`, and the file's name in the list.
use crate::import::{Ctx, Lowered, NodeView};

/// How one operator is lowered.
pub(crate) struct OpDef {
    /// Domain; empty for ONNX's own.
    pub domain: &'static str,
    /// Operator type.
    pub name: &'static str,
    /// First and last version of the domain's operator set that the lowering knows.
    pub opsets: (i64, i64),
    /// Adds the node's core ops and binds its outputs.
    pub lower: for<'m> fn(&mut Ctx<'m>, &NodeView<'m>) -> Lowered,
}

/// Oldest and newest version of ONNX's own operator set that lowerings know unless they say less.
pub(crate) const ALL: (i64, i64) = (7, 26);

/// An operator of ONNX's own domain known in all versions from 7 on.
pub(crate) const fn op(
    name: &'static str,
    lower: for<'m> fn(&mut Ctx<'m>, &NodeView<'m>) -> Lowered,
) -> OpDef {
    OpDef {
        domain: "",
        name,
        opsets: ALL,
        lower,
    }
}

/// An operator of another domain.
pub(crate) const fn other(
    domain: &'static str,
    name: &'static str,
    lower: for<'m> fn(&mut Ctx<'m>, &NodeView<'m>) -> Lowered,
) -> OpDef {
    OpDef {
        domain,
        name,
        opsets: (1, 100),
        lower,
    }
}

macro_rules! operators {
    ($($file:ident),* $(,)?) => {
        $(mod $file;)*
        const FILES: &[&[OpDef]] = &[$($file::OPS),*];
    };
}

operators![
    activation,
    arg,
    attention,
    batch_norm,
    binary,
    bit,
    cast,
    clip,
    compare,
    concat,
    constant,
    control,
    contrib,
    conv,
    cumsum,
    depth_space,
    einsum,
    expand,
    gather,
    gemm,
    generate,
    global_pool,
    hardmax,
    host,
    identity,
    layer_norm,
    lp_norm,
    lrn,
    matmul,
    ms_attention,
    ms_fused,
    ms_gqa,
    ms_integer,
    ms_nbits,
    one_hot,
    optional,
    pad,
    pool,
    qlinear,
    quantize,
    range,
    recurrent,
    reduce,
    reshape,
    resize,
    rotary,
    scan,
    scatter,
    select,
    sequence,
    shape,
    slice,
    softmax,
    split,
    text,
    tile,
    topk,
    transpose,
    trilu,
    unary,
    variadic,
];

pub(crate) use text::{move_text, moves_text};

/// The lowering for a node; else what to do about it.
pub(crate) fn find(domain: &str, name: &str, opset: i64) -> Result<&'static OpDef, String> {
    let mut versions = None;
    for d in FILES
        .iter()
        .flat_map(|f| f.iter())
        .filter(|d| d.domain == domain && d.name == name)
    {
        if (d.opsets.0..=d.opsets.1).contains(&opset) {
            return Ok(d);
        }
        versions = Some(d.opsets);
    }
    Err(match versions {
        Some((a, b)) => format!("known for opsets {a} to {b}; convert the model to one of them"),
        None => {
            "this operator is not covered; replace it by covered ones or export another way".into()
        }
    })
}

/// Every operator known, as (domain, name), sorted.
pub fn covered() -> Vec<(&'static str, &'static str)> {
    let mut all: Vec<_> = FILES
        .iter()
        .flat_map(|f| f.iter())
        .map(|d| (d.domain, d.name))
        .collect();
    all.sort_unstable();
    all.dedup();
    all
}
