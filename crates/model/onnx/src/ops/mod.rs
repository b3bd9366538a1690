//! One file per operator or tight family; the list below is the table.
//!
//! Adding an operator: its file with a `const OPS`, and the file's name in the list.
use crate::import::{Ctx, Lowered, NodeView};
use layout::Arrange;

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
pub(crate) const ALL: (i64, i64) = (1, 28);

/// An operator of ONNX's own domain known in all versions.
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
pub(crate) const fn op_of(
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

mod indexed;
mod ms_gqa_cache;
mod standard;
mod whole_steps;

macro_rules! operators {
    ($($file:ident),* $(,)?) => {
        $(mod $file;)*
        const FILES: &[&[OpDef]] = &[$($file::OPS),*];
    };
}

operators![
    activation,
    affine_grid,
    arg,
    attention,
    batch_norm,
    binary,
    bit,
    bitcast,
    cast,
    causal_conv,
    center_crop_pad,
    clip,
    compare,
    concat,
    constant,
    contrib,
    control,
    conv,
    cumsum,
    depth_space,
    dft,
    dropout,
    einsum,
    expand,
    experimental,
    flex_attention,
    gather,
    gemm,
    generate,
    global_pool,
    grid_sample,
    hardmax,
    host,
    identity,
    layer_norm,
    linear_attention,
    loops,
    lp_norm,
    lrn,
    matmul,
    ml_encode,
    ml_linear,
    ml_numbers,
    ml_svm,
    ml_tree,
    ms_attention,
    ms_decode,
    ms_delta,
    ms_fused,
    ms_gqa,
    ms_integer,
    ms_lstm,
    ms_moe,
    ms_nbits,
    ms_short,
    ms_streams,
    ms_twins,
    nll_loss,
    one_hot,
    optional,
    pad,
    pool,
    qlinear,
    quantize,
    random,
    range,
    recurrent,
    reduce,
    reshape,
    resize,
    reverse_sequence,
    roi_align,
    rotary,
    sampling,
    scan,
    scatter,
    select,
    sequence,
    shape,
    slice,
    softmax,
    split,
    stft,
    tensor_scatter,
    text,
    tile,
    topk,
    transpose,
    trilu,
    unary,
    variadic,
    window,
];

pub(crate) use standard::standard;
pub(crate) use text::{move_text, moves_text};

/// The lowering for a node; else what to do about it.
pub(crate) fn find(domain: &str, name: &str, opset: i64) -> Result<&'static OpDef, String> {
    // Looked up for every node of a model: sorted once.
    static SORTED: std::sync::OnceLock<Vec<&OpDef>> = std::sync::OnceLock::new();
    let key = |d: &&OpDef| (d.name, d.domain);
    let all = SORTED.get_or_init(|| {
        let mut all: Vec<&OpDef> = FILES.iter().flat_map(|f| f.iter()).collect();
        all.arrange_by_key(key);
        all
    });
    let from = all.partition_point(|d| key(d) < (name, domain));
    let mut versions = None;
    for d in all[from..].iter().take_while(|d| key(d) == (name, domain)) {
        if (d.opsets.0..=d.opsets.1).contains(&opset) {
            return Ok(d);
        }
        versions = Some(d.opsets);
    }
    Err(match versions {
        Some((a, b)) => format!("known for opsets {a} to {b}; convert the model to one of them"),
        None => {
            let domain = if domain.is_empty() { "ai.onnx" } else { domain };
            format!(
                "this operator is not covered; replace it by covered ones, export another way, or bind a kernel of your own to it (--kernel {domain}:{name}=FILE, ModelOptions::with_kernel)"
            )
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
    all.arrange();
    all.dedup();
    all
}

/// Every operator known, as (domain, name, first version, last version), sorted by domain and name;
/// one row per range of versions.
pub fn covered_versions() -> Vec<(&'static str, &'static str, i64, i64)> {
    let mut all: Vec<_> = FILES
        .iter()
        .flat_map(|f| f.iter())
        .map(|d| (d.domain, d.name, d.opsets.0, d.opsets.1))
        .collect();
    all.arrange();
    all.dedup();
    all
}
