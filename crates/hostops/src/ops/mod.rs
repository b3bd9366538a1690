//! The table of operators by ONNX type, one file each.
use crate::args::Args;
use crate::error::R;
use tensor::Tensor;

mod array_feature_extractor;
mod compress;
mod constant_of_shape;
mod cum_sum;
mod expand;
mod eye_like;
mod gather_elements;
mod gather_nd;
mod grid_sample;
mod max_pool;
mod non_max_suppression;
mod non_zero;
mod one_hot;
mod pad;
mod range;
mod reshape;
mod resize;
mod reverse_sequence;
mod roi_align;
mod scatter_elements;
mod slice;
mod tile;
mod top_k;
mod unique;

/// Evaluates an operator.
type Run = fn(&Args) -> R<Vec<Tensor>>;

/// Operators by name, in alphabetical order.
pub(crate) const TABLE: &[(&str, Run)] = &[
    ("Compress", compress::run),
    ("ConstantOfShape", constant_of_shape::run),
    ("CumSum", cum_sum::run),
    ("Expand", expand::run),
    ("EyeLike", eye_like::run),
    ("GatherElements", gather_elements::run),
    ("GatherND", gather_nd::run),
    ("GridSample", grid_sample::run),
    ("MaxPool", max_pool::run),
    ("NonMaxSuppression", non_max_suppression::run),
    ("NonZero", non_zero::run),
    ("OneHot", one_hot::run),
    ("Pad", pad::run),
    ("Range", range::run),
    ("Reshape", reshape::run),
    ("Resize", resize::run),
    ("ReverseSequence", reverse_sequence::run),
    ("RoiAlign", roi_align::run),
    ("ScatterElements", scatter_elements::run),
    ("Slice", slice::run),
    ("Tile", tile::run),
    ("TopK", top_k::run),
    ("Unique", unique::run),
    ("ml.ArrayFeatureExtractor", array_feature_extractor::run),
];
