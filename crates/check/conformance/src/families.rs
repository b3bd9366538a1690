//! Random kernels of every family.
mod attention;
mod case;
mod chain;
mod dense;
mod moves;
mod recurrent;
mod rows;
mod select;

use crate::Rng;
pub use case::Case;
pub use chain::{Link, chain};

/// Makes a case by what an [`Rng`] draws, or takes in turn.
pub type Make = fn(&mut Rng) -> Case;

/// What makes the cases, with names.
pub const FAMILIES: [(&str, Make); 17] = [
    ("product", dense::product),
    ("conv", dense::conv),
    ("depthwise", dense::depthwise),
    ("grouped", dense::grouped),
    ("map", moves::map),
    ("unary", moves::unary),
    ("mover", moves::mover),
    ("pad", moves::pad),
    ("gather", moves::gather),
    ("softmax", rows::softmax),
    ("reduction", rows::reduction),
    ("pool", rows::pool),
    ("select", select::select),
    ("attention", attention::attention),
    ("recurrent", recurrent::recurrent),
    ("places", select::places),
    ("sorted", select::sorted),
];

/// One case of every family, or a few.
pub fn cases(rng: &mut Rng) -> Vec<Case> {
    FAMILIES.iter().map(|(_, make)| make(rng)).collect()
}
