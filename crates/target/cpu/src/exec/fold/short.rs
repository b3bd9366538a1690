//! Rows of a few elements, reduced many at a time: lifted values are computed for a block of rows, the block
//! is transposed, and its columns are combined by whole vectors.
use super::walk::{Walk, next};
use crate::exec::copy::strided_copy;
use crate::exec::vm::{CH, Coords, Lane, MAX_ARGS, Run};
use crate::exec::{Lift, MAX_AXES, View};

/// Elements of a row that is reduced so.
const SHORT: i64 = 32;
/// Rows that it is done for.
const ROWS: i64 = 16;

impl Walk<'_> {
    /// False where rows are longer, or there is more to it.
    pub(super) fn short(&self) -> bool {
        let (f, ctx) = (self.f, self.ctx);
        let (Some(simple), Some(l), Some((&a, outer))) = (f.simple, f.lane, f.kept.split_last())
        else {
            return false;
        };
        let n = self.n as i64;
        let s = &ctx.views[f.state[0]];
        let rows = ctx.len[a];
        // What follows takes the lane axis as it is: neighbours that joined it make rows long.
        let plain = n == ctx.len[l] && self.reduced.iter().all(|&r| ctx.len[r] == 1);
        if !plain || !(2..=SHORT).contains(&n) || rows < ROWS || s.st[a] != 1 {
            return false;
        }
        let flat = match (&f.flat, simple.lift) {
            (_, Lift::Identity) => None,
            (Some(flat), _) => Some(flat),
            (None, _) => return false,
        };
        let k = ctx.kernel.kernels;
        let run = flat.map(|p| Run::new(&p.program, k, ctx.area(p.at), ctx.p));
        let per = CH as i64 / n;
        let (block, columns) = (self.temp(0, 0), self.temp(1, 0));
        let zero = [0; MAX_AXES];
        let mut c = [0i64; MAX_AXES];
        loop {
            let start = |v: &View, elem: usize| {
                let off: i64 = outer.iter().map(|&x| c[x] * v.st[x]).sum();
                v.ptr.wrapping_offset((off * elem as i64) as isize)
            };
            let mut first = 0;
            while first < rows {
                let count = per.min(rows - first);
                let total = (count * n) as usize;
                // Argument `i` of these rows as one row, spread out into `to` where it is none.
                let dense = |i: usize, to: *mut u8| {
                    let t = f.args[i];
                    let (v, elem) = (&ctx.views[t], ctx.kernel.tiles[t].elem);
                    let from =
                        start(v, elem).wrapping_offset((first * v.st[a] * elem as i64) as isize);
                    if v.st[l] == 1 && v.st[a] == n {
                        return Lane { ptr: from, st: 1 };
                    }
                    // SAFETY: `total` elements of the argument, into a row of CH.
                    unsafe {
                        strided_copy(k, elem, to, &[n, 1], from, &[v.st[a], v.st[l]], &[count, n])
                    };
                    Lane { ptr: to, st: 1 }
                };
                let values = match (&run, flat) {
                    (Some(run), Some(flat)) => {
                        let mut args = [Lane::NONE; MAX_ARGS];
                        for (i, arg) in args.iter_mut().enumerate().take(f.args.len()) {
                            *arg = dense(i, ctx.area(flat.rows + i * CH * 8));
                        }
                        let at = Coords {
                            at: &zero,
                            step: &zero,
                        };
                        run.row(&args[..f.args.len()], &at, &[block], total, true);
                        block.ptr
                    }
                    _ => dense(0, block.ptr).ptr,
                };
                let (rows, to) = (count as usize, columns.ptr.cast::<f32>());
                // SAFETY: a block of `count` rows, its transpose in a row of CH, states one behind the other.
                unsafe {
                    (k.transpose32)(rows, self.n, values.cast(), self.n, to.cast(), rows);
                    for j in 1..self.n {
                        (simple.combine)(to, to.add(j * rows), to, rows);
                    }
                    let p = start(s, 4).cast::<f32>().wrapping_offset(first as isize);
                    (simple.combine)(p, to, p, rows);
                }
                first += count;
            }
            if !next(outer, &mut c, ctx) {
                return true;
            }
        }
    }
}
