//! Random kernels of every family.
mod attention;
mod case;
mod chain;
mod dense;
mod moves;
mod narrow;
mod recurrent;
mod rows;
mod select;

use crate::Rng;
pub use attention::matrix_attention;
pub use case::{Case, Limits};
pub use chain::{Link, chain};
pub use dense::panels_of as panels;
pub use dense::{clustered_product, warpgroup_conv, warpgroup_product};

/// Makes a case by what an [`Rng`] draws, or takes in turn.
pub type Make = fn(&mut Rng) -> Case;

/// What makes the cases, with names.
pub const FAMILIES: [(&str, Make); 21] = [
    ("product", dense::product),
    ("panels", dense::panels),
    ("conv", dense::conv),
    ("backwards", dense::backwards),
    ("depthwise", dense::depthwise),
    ("grouped", dense::grouped),
    ("map", moves::map),
    ("unary", moves::unary),
    ("mover", moves::mover),
    ("pad", moves::pad),
    ("gather", moves::gather),
    ("softmax", rows::softmax),
    ("layernorm", rows::layer_norm),
    ("reduction", rows::reduction),
    ("pool", rows::pool),
    ("select", select::select),
    ("attention", attention::attention),
    ("recurrent", recurrent::recurrent),
    ("places", select::places),
    ("sorted", select::sorted),
    ("narrow-product", narrow::product),
];

/// What is for CPUs alone: types that no GPU has, and outputs that are written in part, which a GPU begins with nothing.
pub const CPU_FAMILIES: [(&str, Make); 3] = [
    ("wide-product", dense::wide_product),
    ("wide-map", moves::wide_map),
    ("piece", moves::piece),
];

/// What matrix instructions compute.
pub const MATRIX_FAMILIES: [(&str, Make); 4] = [
    ("matrix-product", dense::matrix_product),
    ("matrix-narrow-product", narrow::matrix_product),
    ("matrix-conv", dense::matrix_conv),
    ("matrix-attention", matrix_attention),
];

/// One case of every family, or a few.
pub fn cases(rng: &mut Rng) -> Vec<Case> {
    FAMILIES.iter().map(|(_, make)| make(rng)).collect()
}
