//! Why an operator is in the table: what keeps it from being a tile program.

/// Results whose extents only the elements tell.
const EXTENT: &str = "the elements decide the result's extents";
/// A parameter that is an input.
const LATE: &str = "only where sizes, axes or positions are computed from data";
const PLACES: &str = "each element reads places that data gives, in floating point";
const HELD: &str = "texts, sequences and optional values lie in no buffer";
const CODES: &str = "only from or to element types that kernels do not store";

/// Why [`crate::run`] has the operator `name`; empty for one it does not have.
pub fn reason(name: &str) -> &'static str {
    match name {
        "Compress"
        | "NonZero"
        | "NonMaxSuppression"
        | "Unique"
        | "ms.BifurcationDetector"
        | "ms.DynamicTimeWarping" => EXTENT,
        "ms.MurmurHash3" => "texts, or the bits of floats",
        "AffineGrid" | "CenterCropPad" | "ConstantOfShape" | "CumProd" | "CumSum" | "Expand"
        | "EyeLike" | "GatherElements" | "GatherND" | "OneHot" | "Pad" | "Range" | "ReduceL1"
        | "ReduceL2" | "ReduceLogSum" | "ReduceLogSumExp" | "ReduceMax" | "ReduceMean"
        | "ReduceMin" | "ReduceProd" | "ReduceSum" | "ReduceSumSquare" | "Reshape"
        | "ReverseSequence" | "ScatterElements" | "Slice" | "Split" | "Squeeze" | "Tile"
        | "TopK" | "Unsqueeze" | "Upsample" | "BlackmanWindow" | "HammingWindow" | "HannWindow" => {
            LATE
        }
        "Resize" => "only where sizes or scales are computed from data, or it crops by regions",
        "DFT" | "STFT" => "only for lengths above 512 or computed from data",
        "GridSample" => "only for more than 16 corners, or other types than f32",
        "RoiAlign" => {
            "only where the region says how many samples a bin has, for the largest sample, or other types than f32"
        }
        "DeformConv" | "MaxRoiPool" | "ms.CropAndResize" => PLACES,
        "Col2Im" => "it adds elements at places that are not its own",
        "MaxUnpool" => LATE,
        "MaxPool" => {
            "only where the positions of the maxima in windows of more than 27 elements are asked for"
        }
        "ImageDecoder" => "files of pictures, decoded by a library (feature `pictures`)",
        "Lengths" => "only where lengths come from data: those beyond the sequence are refused",
        "Cast" => CODES,
        "BitCast" => "no scalar program sees the bits of a float",
        "Det" | "ms.Inverse" => "elimination with pivots, which data picks",
        "MelWeightMatrix" => "a small table, made once",
        "LinearAttention" => "a recurrence over tokens with a matrix as state",
        "Identity" | "Refuse" => HELD,
        _ if name.starts_with("Optional")
            || name.contains("Sequence")
            || name.starts_with("String")
            || name.starts_with("text.")
            || matches!(name, "RegexFullMatch" | "TfIdfVectorizer" | "ms.Tokenizer") =>
        {
            HELD
        }
        _ if name.starts_with("ml.") => "a classical model, evaluated sample by sample",
        _ if crate::host_names().contains(&name) => "rare",
        _ => "",
    }
}
