//! The table of operators by ONNX type, one file each.
use crate::args::Args;
use crate::error::R;
use tensor::Tensor;

mod affine_grid;
mod array_feature_extractor;
mod bit_cast;
mod cast;
mod center_crop_pad;
mod col2im;
mod compress;
mod constant_of_shape;
mod cum_sum;
mod deform_conv;
mod det;
mod expand;
mod eye_like;
#[cfg_attr(not(feature = "fft"), path = "no_fourier.rs")]
mod fourier;
mod gather_elements;
mod gather_nd;
mod grid_sample;
mod image_decoder;
mod lengths;
mod linear_attention;
mod max_pool;
mod max_unpool;
mod mel_weight_matrix;
mod ml_encode;
mod ml_ensemble;
mod ml_scores;
mod ml_tree;
mod non_max_suppression;
mod non_zero;
mod one_hot;
mod pad;
mod range;
mod reduce;
pub(crate) mod regex;
mod reshape;
mod resize;
mod reverse_sequence;
mod roi_align;
mod scatter_elements;
mod sequence;
mod slice;
mod split;
mod squeeze;
mod text;
mod tile;
mod tokenizer;
mod top_k;
mod unique;
mod window;

pub(crate) use ml_scores::{labels as tree_labels, largest, logistic, transform_as};
pub(crate) use ml_tree::{Branch, Mode, ensemble};
pub(crate) use roi_align::{MAX_SAMPLES, corners as roi_corners};

/// Evaluates an operator.
type Run = fn(&Args) -> R<Vec<Tensor>>;

/// Operators by name, in alphabetical order.
pub(crate) const TABLE: &[(&str, Run)] = &[
    ("AffineGrid", affine_grid::run),
    ("BitCast", bit_cast::run),
    ("BlackmanWindow", window::blackman),
    ("Cast", cast::run),
    ("CenterCropPad", center_crop_pad::run),
    ("Col2Im", col2im::run),
    ("Compress", compress::run),
    ("ConcatFromSequence", sequence::concat),
    ("ConstantOfShape", constant_of_shape::run),
    ("CumProd", cum_sum::product),
    ("CumSum", cum_sum::run),
    ("DFT", fourier::dft),
    ("DeformConv", deform_conv::run),
    ("Det", det::run),
    ("Expand", expand::run),
    ("EyeLike", eye_like::run),
    ("GatherElements", gather_elements::run),
    ("GatherND", gather_nd::run),
    ("GridSample", grid_sample::run),
    ("HammingWindow", window::hamming),
    ("HannWindow", window::hann),
    ("Identity", sequence::identity),
    ("ImageDecoder", image_decoder::run),
    ("Lengths", lengths::run),
    ("LinearAttention", linear_attention::run),
    ("MaxPool", max_pool::run),
    ("MaxUnpool", max_unpool::run),
    ("MelWeightMatrix", mel_weight_matrix::run),
    ("NonMaxSuppression", non_max_suppression::run),
    ("NonZero", non_zero::run),
    ("OneHot", one_hot::run),
    ("Optional", sequence::optional),
    ("OptionalGetElement", sequence::get),
    ("OptionalHasElement", sequence::has),
    ("Pad", pad::run),
    ("Range", range::run),
    ("ReduceL1", reduce::l1),
    ("ReduceL2", reduce::l2),
    ("ReduceLogSum", reduce::log_sum),
    ("ReduceLogSumExp", reduce::log_sum_exp),
    ("ReduceMax", reduce::max),
    ("ReduceMean", reduce::mean),
    ("ReduceMin", reduce::min),
    ("ReduceProd", reduce::prod),
    ("ReduceSum", reduce::sum),
    ("ReduceSumSquare", reduce::sum_square),
    ("Refuse", sequence::refuse),
    ("RegexFullMatch", regex::full_match),
    ("Reshape", reshape::run),
    ("Resize", resize::run),
    ("ReverseSequence", reverse_sequence::run),
    ("RoiAlign", roi_align::run),
    ("STFT", fourier::stft),
    ("ScatterElements", scatter_elements::run),
    ("SequenceAt", sequence::at),
    ("SequenceConstruct", sequence::construct),
    ("SequenceEmpty", sequence::empty),
    ("SequenceErase", sequence::erase),
    ("SequenceInsert", sequence::insert),
    ("SequenceLength", sequence::length),
    ("Slice", slice::run),
    ("Split", split::run),
    ("SplitToSequence", sequence::split),
    ("Squeeze", squeeze::squeeze),
    ("StringConcat", text::concat),
    ("StringNormalizer", text::normalize),
    ("StringSplit", text::split),
    ("TfIdfVectorizer", text::tf_idf),
    ("Tile", tile::run),
    ("TopK", top_k::run),
    ("Unique", unique::run),
    ("Unsqueeze", squeeze::unsqueeze),
    ("Upsample", resize::run),
    ("ml.ArrayFeatureExtractor", array_feature_extractor::run),
    ("ml.CategoryMapper", ml_encode::look_up),
    ("ml.DictVectorizer", ml_encode::dict_vectorizer),
    ("ml.LabelEncoder", ml_encode::look_up),
    ("ml.OneHotEncoder", ml_encode::one_hot),
    ("ml.TreeEnsemble", ml_ensemble::run),
    ("ml.TreeEnsembleClassifier", ml_tree::classifier),
    ("ml.TreeEnsembleRegressor", ml_tree::regressor),
    ("ml.ZipMap", ml_encode::zip_map),
    ("ml.svm_probabilities", ml_encode::svm_probabilities),
    ("ms.Tokenizer", tokenizer::run),
    ("text.cast", text::cast),
    ("text.choose", ml_encode::choose),
    ("text.constant", text::constant),
    ("text.ids", text::ids),
    ("text.pick", text::pick),
];
