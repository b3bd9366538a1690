//! The table of operators by ONNX type, one file each.
use crate::args::Args;
use crate::error::R;
use tensor::Tensor;

mod array_feature_extractor;
mod compress;
mod constant_of_shape;
mod cum_sum;
mod det;
mod expand;
mod eye_like;
mod gather_elements;
mod gather_nd;
mod grid_sample;
mod max_pool;
mod ml_binarizer;
mod ml_imputer;
mod ml_linear;
mod ml_normalizer;
mod ml_scaler;
mod ml_scores;
mod ml_tree;
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
mod split;
mod tile;
mod top_k;
mod unique;
mod window;

/// Evaluates an operator.
type Run = fn(&Args) -> R<Vec<Tensor>>;

/// Operators by name, in alphabetical order.
pub(crate) const TABLE: &[(&str, Run)] = &[
    ("BlackmanWindow", window::blackman),
    ("Compress", compress::run),
    ("ConstantOfShape", constant_of_shape::run),
    ("CumSum", cum_sum::run),
    ("Det", det::run),
    ("Expand", expand::run),
    ("EyeLike", eye_like::run),
    ("GatherElements", gather_elements::run),
    ("GatherND", gather_nd::run),
    ("GridSample", grid_sample::run),
    ("HammingWindow", window::hamming),
    ("HannWindow", window::hann),
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
    ("Split", split::run),
    ("Tile", tile::run),
    ("TopK", top_k::run),
    ("Unique", unique::run),
    ("Upsample", resize::run),
    ("ml.ArrayFeatureExtractor", array_feature_extractor::run),
    ("ml.Binarizer", ml_binarizer::run),
    ("ml.Imputer", ml_imputer::run),
    ("ml.LinearClassifier", ml_linear::classifier),
    ("ml.LinearRegressor", ml_linear::regressor),
    ("ml.Normalizer", ml_normalizer::run),
    ("ml.Scaler", ml_scaler::run),
    ("ml.TreeEnsembleClassifier", ml_tree::classifier),
    ("ml.TreeEnsembleRegressor", ml_tree::regressor),
];
