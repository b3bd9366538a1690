//! Axes that together are the rows, columns or depth of a tile.
use super::text::{Reg, Text};
use kernel::AxisId;

/// Axes with their positions per tile, outermost first; a position in the group is the row-major
/// rank of the axes' parts.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Group {
    pub axes: Vec<(AxisId, u32)>,
}

impl Group {
    /// Number of positions.
    pub fn size(&self) -> u32 {
        self.axes.iter().fold(1u32, |a, x| a.saturating_mul(x.1))
    }

    /// Whether `axis` is one of them.
    pub fn has(&self, axis: AxisId) -> bool {
        self.axes.iter().any(|a| a.0 == axis)
    }

    /// Each axis' part of position `at`, in the group's order.
    pub fn split(&self, t: &mut Text, at: Reg) -> Vec<Reg> {
        let mut rest = at;
        let mut out = Vec::with_capacity(self.axes.len());
        for (i, &(_, n)) in self.axes.iter().enumerate().rev() {
            if i == 0 {
                out.push(rest);
                break;
            }
            if n.is_power_of_two() {
                out.push(t.r("and.b32", format_args!("{rest}, {}", n - 1)));
                rest = t.r("shr.u32", format_args!("{rest}, {}", n.trailing_zeros()));
            } else {
                out.push(t.r("rem.u32", format_args!("{rest}, {n}")));
                rest = t.r("div.u32", format_args!("{rest}, {n}"));
            }
        }
        out.reverse();
        out
    }
}
