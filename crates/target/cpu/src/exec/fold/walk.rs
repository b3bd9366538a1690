//! Going through the pieces of a fold.

use crate::exec::vm::Run;
use crate::exec::{CFold, Ctx, MAX_AXES};

/// Steps the coordinates of `axes`; false when they are back at the start.
pub(crate) fn next(axes: &[usize], c: &mut [i64; MAX_AXES], ctx: &Ctx) -> bool {
    for &a in axes.iter().rev() {
        c[a] += 1;
        if c[a] < ctx.len[a] {
            return true;
        }
        c[a] = 0;
    }
    false
}

pub(super) struct Walk<'a> {
    pub(super) ctx: &'a Ctx<'a>,
    pub(super) f: &'a CFold,
    /// Coordinates within the piece.
    pub(super) c: [i64; MAX_AXES],
    /// Elements per row.
    pub(super) n: usize,
    pub(super) reduced: &'a [usize],
    pub(super) lift: Run<'a>,
    pub(super) combine: Run<'a>,
}
