//! What the calculators of `machine::calc` find, as tables with the reasons beside them and as JSON.

mod access;
mod compare;
mod hierarchy;
mod occupancy;
mod roofline;
mod tensorcore;
mod transfer;

pub use access::{AccessInput, AccessView, Refused};
pub use compare::machine_comparison;
pub use hierarchy::hierarchy;
pub use occupancy::OccupancyView;
pub use roofline::{
    CeilingView, IdealOp, LevelPointView, PointView, RoofView, RooflineSummary, RooflineView,
    ideal_of_plan, ideal_op,
};
pub use tensorcore::TensorView;
pub use transfer::TransferView;

use crate::table::Style;
use crate::units;

/// Sentences as lines, each begun with a dash.
pub(crate) fn because(lines: &[String], style: Style) -> String {
    let mut out = String::new();
    for l in lines {
        for (i, part) in units::wrapped(l, style.width.saturating_sub(4))
            .iter()
            .enumerate()
        {
            out.push_str(if i == 0 { "  - " } else { "    " });
            out.push_str(part);
            out.push('\n');
        }
    }
    out
}
