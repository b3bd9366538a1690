//! The closed set of core ops with their attributes. Shape rules are in `shape`, text in `text::ops`, meaning
//! in the `reference` crate.
use crate::Graph;
use expr::{Expr, Monoid};
use layout::{DType, Dim, Layout};
use serde::{Deserialize, Serialize};
use tensor::Attrs;

/// A core operator. Inputs and outputs are values of the enclosing [`Graph`]; every attribute that
/// import accepts is in the variant, so nothing is ignored later.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Op {
    /// Element-wise: inputs are broadcast to the output's shape by the usual rule (right-aligned,
    /// extents 1 repeat). `Index(d)` in the program is the coordinate along output dimension `d`.
    /// Without inputs it fills a tensor (range, eye, constant of shape). One output per program
    /// output, all of one shape.
    Map(Expr),
    /// The same elements elsewhere: costs nothing when folded into its readers. One input.
    View(View),
    /// Inputs joined along `axis`.
    Concat {
        /// Output dimension.
        axis: usize,
    },
    /// Input 0 with a rim; input 1, if present, is the scalar outside value (otherwise 0).
    Pad {
        /// Elements added (negative: removed) before each dimension.
        before: Vec<Dim>,
        /// Elements added (negative: removed) after each dimension.
        after: Vec<Dim>,
        /// What stands in the rim.
        mode: PadMode,
    },
    /// `data` (0), `indices` (1): slices of `data` along `axis` picked by integer indices, which
    /// may be negative (counted from the end) and are checked when executed. The first `batch`
    /// dimensions are common to both: each of their positions has indices of its own. Output shape:
    /// data[..axis] ++ indices[batch..] ++ data[axis+1..].
    Gather {
        /// Dimension of `data`, at least `batch`.
        axis: usize,
        /// How many dimensions both inputs begin with.
        batch: usize,
    },
    /// `data` (0), `indices` (1), `updates` (2): a copy of `data` with slices replaced or combined;
    /// the ONNX ScatterND rule.
    ScatterNd(ScatterReduce),
    /// Sum of products of inputs 0 and 1 over the labels missing from the output; inputs 2.. none.
    Contract(ContractSpec),
    /// `x` [n, c, spatial..] (0), `w` [oc, c/groups, kernel..] (1) (transposed: [c, oc/groups,
    /// kernel..]); no bias (a Map adds it). Output [n, oc, spatial..].
    Conv(ConvSpec),
    /// Window reduction over the trailing spatial dimensions of [n, c, spatial..].
    Pool(PoolSpec),
    /// Reduction of inputs over `axes`; the output keeps them as extent 1 when `keep`. One output
    /// per result of the monoid.
    Reduce {
        /// What is computed; `Index(0)` in `lift` is the row-major rank over the reduced axes.
        monoid: Monoid,
        /// Reduced dimensions, ascending.
        axes: Vec<usize>,
        /// Whether they stay as extent 1.
        keep: bool,
    },
    /// Running reduction along `axis`.
    Scan {
        /// What is computed.
        monoid: Monoid,
        /// Dimension.
        axis: usize,
        /// The element itself is left out of its own result.
        exclusive: bool,
        /// From the end.
        reverse: bool,
    },
    /// softmax(score(q·kᵀ, extras..)) · v, found by structure by a rewrite.
    Attention(AttentionSpec),
    /// LSTM, GRU or RNN over a sequence, as ONNX defines it.
    Recurrent(RecurrentSpec),
    /// Values (output 0) and I64 indices (output 1) of the `k` first elements along `axis` in
    /// sorted order; ties keep the lower index first.
    Sort {
        /// Dimension.
        axis: usize,
        /// How many are kept.
        k: Dim,
        /// Largest first.
        descending: bool,
    },
    /// Resampling of spatial dimensions.
    Resample(ResampleSpec),
    /// A kernel that the model's user wrote. Shapes of outputs are given when it is built.
    Kernel(KernelSpec),
    /// A rare operator evaluated by `hostops` under this name.
    Host {
        /// Name in the `hostops` table; the ONNX operator type (`ml.` or `ms.` prefixed).
        name: String,
        /// Its attributes.
        attrs: Attrs,
    },
    /// Input 0 is the Bool condition; the others feed both branches' inputs in order.
    If {
        /// Taken when true.
        then_branch: Box<Graph>,
        /// Taken when false.
        else_branch: Box<Graph>,
    },
    /// The ONNX loop. Inputs: trip count (I64 scalar), condition (Bool scalar), `carried` initial
    /// values, then captures. Body inputs: iteration (I64 scalar), condition, carried, captures.
    /// Body outputs: condition, carried, then scanned values, which are stacked along a new
    /// leading dimension. Outputs: carried, then stacked.
    Loop {
        /// Body.
        body: Box<Graph>,
        /// Number of carried values.
        carried: usize,
        /// False: no trip count was given (input 0 is ignored).
        has_trip: bool,
        /// False: no condition was given (input 1 is ignored).
        has_cond: bool,
    },
}

/// Those core ops that run as steps of the host under their own names, read from the text of an [`Op`]. A program that
/// reads any `Op` holds the code for all of them, whole graphs included.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(rename_all = "snake_case")]
#[allow(missing_docs, reason = "as in `Op`")]
pub enum HostSpec {
    /// [`Op::Pad`].
    Pad {
        before: Vec<Dim>,
        after: Vec<Dim>,
        mode: PadMode,
    },
    /// [`Op::ScatterNd`].
    ScatterNd(ScatterReduce),
    /// [`Op::Scan`].
    Scan {
        monoid: Monoid,
        axis: usize,
        exclusive: bool,
        reverse: bool,
    },
    /// [`Op::Sort`].
    Sort {
        axis: usize,
        k: Dim,
        descending: bool,
    },
}

/// A kernel by its text: inputs stand for the operands that it reads, outputs for those that it
/// writes, in its order and dense row-major.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct KernelSpec {
    /// The operator that it stands for, `domain:Name`.
    pub operator: String,
    /// Its text form; sizes in it are the graph's.
    pub text: String,
    /// Symbols in the text.
    pub symbols: Vec<String>,
    /// Extents of inputs that it takes to be equal.
    pub equal: Vec<(Dim, Dim)>,
}

/// A view of one input; each kind is a [`layout::Layout`] of the input.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum View {
    /// Same row-major rank under a new shape.
    Reshape(Vec<Dim>),
    /// Output dimension `i` is input dimension `perm[i]`.
    Permute(Vec<usize>),
    /// `starts[d] + steps[d] * i` along each dimension, `extents[d]` of them; steps may be negative.
    Slice {
        /// First coordinate per dimension.
        starts: Vec<Dim>,
        /// Step per dimension, not 0.
        steps: Vec<i64>,
        /// Extent per dimension.
        extents: Vec<Dim>,
    },
    /// Right-aligned broadcast to this shape.
    Expand(Vec<Dim>),
}

impl View {
    /// The layout of what this view shows of a value that lies in `layout`; `None` when no strides express it.
    pub fn of(&self, layout: &Layout) -> Option<Layout> {
        match self {
            View::Reshape(shape) => layout.reshape(shape),
            View::Permute(perm) => Some(layout.permute(perm)),
            View::Slice {
                starts,
                steps,
                extents,
            } => {
                let mut l = layout.clone();
                for d in 0..starts.len() {
                    let whole =
                        starts[d].is_zero() && steps[d] == 1 && l.modes[d].extent() == extents[d];
                    if !whole {
                        l = l.slice(d, &starts[d], steps[d], &extents[d])?;
                    }
                }
                Some(l)
            }
            View::Expand(shape) => layout.expand(shape),
        }
    }
}

/// What stands in the rim of a padded tensor.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[allow(missing_docs)]
pub enum PadMode {
    Constant,
    Edge,
    Reflect,
    Wrap,
}

/// How ScatterNd combines an update with what is there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[allow(missing_docs)]
pub enum ScatterReduce {
    Replace,
    Add,
    Mul,
    Max,
    Min,
}

/// An einsum of two inputs: one label per dimension. A label in both inputs and the output is a
/// batch label; one in both inputs only is summed over.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ContractSpec {
    /// Labels of input 0.
    pub a: Vec<u8>,
    /// Labels of input 1.
    pub b: Vec<u8>,
    /// Labels of the output.
    pub out: Vec<u8>,
}

/// A convolution over any number of spatial dimensions.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ConvSpec {
    /// Kernel extents.
    pub kernel: Vec<i64>,
    /// Steps between outputs (transposed: between inputs).
    pub strides: Vec<i64>,
    /// Steps between kernel taps.
    pub dilations: Vec<i64>,
    /// Padding before each spatial dimension.
    pub before: Vec<Dim>,
    /// Padding after each spatial dimension.
    pub after: Vec<Dim>,
    /// Channel groups.
    pub groups: i64,
    /// True for the transposed convolution; the output's shape holds any output padding.
    pub transposed: bool,
    /// What stands in the padding: 0, or the zero point of a quantised input. A transposed
    /// convolution has 0.
    #[serde(default)]
    pub outside: i64,
}

/// What a pool computes of its window.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PoolKind {
    /// Largest element; padding never wins.
    Max,
    /// Mean; padding counts when `include_pad`.
    Average {
        /// Whether padding counts in the divisor.
        include_pad: bool,
    },
    /// (sum |x|^p)^(1/p).
    Lp {
        /// Exponent.
        p: i64,
    },
}

/// A pooling window.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PoolSpec {
    /// What is computed.
    pub kind: PoolKind,
    /// Window extents.
    pub kernel: Vec<i64>,
    /// Steps between windows.
    pub strides: Vec<i64>,
    /// Steps inside a window.
    pub dilations: Vec<i64>,
    /// Padding before each spatial dimension.
    pub before: Vec<Dim>,
    /// Padding after each spatial dimension (windows of a ceil-mode pool may reach beyond it; what
    /// lies there never counts).
    pub after: Vec<Dim>,
}

/// Attention over inputs q [batch.., q, d], k [batch.., t, d], v [batch.., t, e] and extras
/// broadcastable to [batch.., q, t]; batch extents equal in q, k and v. Output [batch.., q, e].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct AttentionSpec {
    /// Program of (q·k, extras..) giving the score that enters softmax; `Index` counts the
    /// dimensions of [batch.., q, t].
    pub score: Expr,
    /// What a row is whose softmax has no value.
    #[serde(default)]
    pub undefined: Undefined,
}

impl AttentionSpec {
    /// The score in f32 of a product in f32, where it has 16 bits and nothing is added to it: then it is rounded nowhere
    /// before the softmax, and may leave the range of its type.
    pub fn unrounded(&self) -> Option<Expr> {
        let types = self.score.output_types().ok()?;
        let narrow = matches!(types[..], [DType::F16 | DType::BF16]);
        self.score.unrounded(0).filter(|_| narrow)
    }
}

/// What attention gives for a row whose softmax is NaN. Without any keys (t = 0) the row is 0.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Undefined {
    /// NaN, as softmax defines it.
    #[default]
    Nan,
    /// 0 where every score is -inf (no key is seen), else NaN.
    ZeroUnseen,
    /// 0, whether every score is -inf or one of them is NaN or +inf.
    Zero,
}

/// Kind of recurrent layer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[allow(missing_docs)]
pub enum RecurrentKind {
    Lstm,
    Gru,
    Rnn,
}

/// A recurrent layer, inputs as in ONNX (X, W, R, B, sequence_lens, initial_h, initial_c, P);
/// `present` tells which of them the node's inputs are. Outputs Y, Y_h and (LSTM) Y_c, always all.
///
/// Without W, X holds what W made of it: [sequence, batch, directions * gates * hidden], the gates'
/// input parts with all biases but the one that a reset gate scales. That one, [directions, hidden],
/// is then B, which only a GRU with `linear_before_reset` has.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RecurrentSpec {
    /// Kind.
    pub kind: RecurrentKind,
    /// Units.
    pub hidden: i64,
    /// `forward`, `reverse` or `bidirectional`.
    pub direction: String,
    /// [batch, sequence, ..] instead of [sequence, batch, ..].
    pub batch_first: bool,
    /// Which of the eight ONNX inputs are given, in order.
    pub present: Vec<bool>,
    /// Activation names per direction, ONNX order.
    pub activations: Vec<String>,
    /// Their alphas, one for each; those that take none ignore theirs.
    pub alphas: Vec<f64>,
    /// Their betas, likewise.
    pub betas: Vec<f64>,
    /// Clip of cell inputs.
    pub clip: Option<f64>,
    /// GRU: linear_before_reset.
    pub linear_before_reset: bool,
    /// LSTM: input and forget gates coupled.
    pub input_forget: bool,
}

impl RecurrentSpec {
    /// Directions that the layer runs in.
    pub fn directions(&self) -> usize {
        1 + usize::from(self.direction == "bidirectional")
    }

    /// Gates per unit.
    pub fn gates(&self) -> i64 {
        match self.kind {
            RecurrentKind::Lstm => 4,
            RecurrentKind::Gru => 3,
            RecurrentKind::Rnn => 1,
        }
    }

    /// Place of ONNX input `slot` among the node's inputs, if it is given.
    pub fn input(&self, slot: usize) -> Option<usize> {
        let given = |p: &&bool| **p;
        let there = self.present.get(slot).copied().unwrap_or(false);
        there.then(|| self.present.iter().take(slot).filter(given).count())
    }
}

/// How positions between samples are filled.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[allow(missing_docs)]
pub enum ResampleMode {
    Nearest { rounding: String },
    Linear,
    Cubic { a: f64 },
}

/// Resampling of every dimension to the output's shape.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ResampleSpec {
    /// Interpolation.
    pub mode: ResampleMode,
    /// ONNX coordinate_transformation_mode.
    pub coordinates: String,
    /// Scale per dimension as the model gives it; 0 where it gives sizes, which stands for output
    /// extent over input extent. The nearest neighbour is then exact, and otherwise in f32.
    pub scales: Vec<f64>,
    /// Antialias filter.
    pub antialias: bool,
    /// Samples outside the input weigh nothing; otherwise those at its border stand for them.
    pub exclude_outside: bool,
}

/// Attribute of a host operator of whose result the rank is a guess: it runs also where nobody reads that result, as running
/// checks the guess.
pub const GUESSES_RANK: &str = "guesses_rank";

/// How the first Resize finds the nearest neighbour, which its text leaves open: by the standard's own tests the next one
/// where elements become fewer, and the one before where they become more.
pub const ROUNDED_BY_SCALE: &str = "by_scale";

impl ResampleSpec {
    /// How a position along dimension `d` is rounded to the nearest neighbour, as ONNX names it.
    pub fn rounding<'a>(&self, d: usize, rounding: &'a str) -> &'a str {
        match rounding {
            ROUNDED_BY_SCALE if self.scales.get(d).is_some_and(|&k| k < 1.0) => "ceil",
            ROUNDED_BY_SCALE => "floor",
            other => other,
        }
    }
}
