//! A roofline as data.

use machine::NumType;
use machine::calc::Ideal;
use serde::Serialize;

/// A horizontal roof: what a unit does at most.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct CeilingView {
    /// Unit name.
    pub unit: String,
    /// Format of its inputs.
    pub dtype: String,
    /// Operations per second of all workers.
    pub rate: f64,
}

/// A slanted roof: what a level delivers at most.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct RoofView {
    /// Level name.
    pub level: String,
    /// Peak bandwidth, bytes per second.
    pub peak: f64,
    /// Operations per byte at which it meets each ceiling, in their order.
    pub ridge_points: Vec<f64>,
    /// Whether it takes part in the bound: what lies beyond the main memory does not.
    pub counts: bool,
}

/// A computation at one level.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct LevelPointView {
    /// Level name.
    pub level: String,
    /// Bytes that cross it.
    pub bytes: f64,
    /// Operations for each; `None` when none crosses.
    pub intensity: Option<f64>,
    /// Where level and arithmetic take equally long, operations per byte.
    pub ridge: f64,
    /// Operations per second at the roof.
    pub roof: f64,
    /// Seconds that the bytes take at peak.
    pub bytes_s: f64,
    /// Seconds at this level's roof: the longer of bytes and arithmetic.
    pub time_s: f64,
    /// `memory` or `compute`.
    pub bound: String,
    /// Whether it takes part in the bound of the whole.
    pub counts: bool,
}

/// A computation, or a step of a plan, under the roofs.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct PointView {
    /// What stands for it in the plot; a blank when it has no place there.
    pub mark: char,
    /// Its name.
    pub name: String,
    /// Kernel family; empty for what no kernel does.
    pub family: String,
    /// Arithmetic operations, a multiply-add counting as two.
    pub ops: f64,
    /// The unit most of them run on, with its format.
    pub unit: String,
    /// Seconds of arithmetic at full rate.
    pub compute_s: f64,
    /// From near to far.
    pub levels: Vec<LevelPointView>,
    /// Seconds at the roof.
    pub roof_s: f64,
    /// What the roof is made of.
    pub bound: String,
    /// Seconds that the cost model predicts, fixed costs and efficiencies included.
    pub predicted_s: Option<f64>,
    /// What that prediction is bound by.
    pub predicted_bound: Option<String>,
}

/// What a textbook says of an operator, or of all steps of a model together.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct RooflineSummary {
    /// Operations.
    pub ops: f64,
    /// Bytes across the main memory.
    pub bytes: f64,
    /// Operations for each.
    pub intensity: Option<f64>,
    /// Ridge point of the main memory.
    pub ridge: f64,
    /// What bounds it.
    pub bound: String,
    /// Seconds at the roof.
    pub time_s: f64,
    /// Seconds of arithmetic at full rate.
    pub compute_s: f64,
    /// Seconds of the main memory at peak.
    pub memory_s: f64,
}

/// A computation under a machine's roofs.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct RooflineView {
    /// Machine name.
    pub machine: String,
    /// What is looked at: an operator, or a model.
    pub subject: String,
    /// Dims of a model, empty without.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub dims: String,
    /// Whose kernels are looked at: `ours` or `vendor`.
    pub kernels: String,
    /// Whether nothing was ever compared with their predictions.
    pub unvalidated: bool,
    /// How its steps reach the device, and how exactly they multiply; nothing where nothing was planned.
    #[serde(flatten)]
    pub how: crate::HowRun,
    /// The target that they are of; empty when none are looked at.
    pub target: String,
    /// The whole.
    #[serde(flatten)]
    pub summary: RooflineSummary,
    /// Horizontal roofs.
    pub ceilings: Vec<CeilingView>,
    /// Slanted roofs, from near to far.
    pub roofs: Vec<RoofView>,
    /// What lies under them.
    pub points: Vec<PointView>,
    /// Steps that run elsewhere (copies between devices, host operators), how many.
    pub elsewhere: usize,
    /// Their predicted seconds.
    pub elsewhere_s: f64,
    /// Predicted seconds of all, `None` where nothing was planned.
    pub predicted_s: Option<f64>,
    /// Whether the points are steps of a model.
    pub is_model: bool,
    /// The reasons, a sentence each.
    pub explanation: Vec<String>,
}

/// An operator as textbooks count it: operations, and every operand moved once.
#[derive(Clone, Debug, PartialEq)]
pub struct IdealOp {
    /// How it was written.
    pub text: String,
    /// Operations and bytes.
    pub ideal: Ideal,
    /// Format.
    pub dtype: NumType,
    /// Whether it is made of multiply-adds that matrix units could do.
    pub contracts: bool,
}
