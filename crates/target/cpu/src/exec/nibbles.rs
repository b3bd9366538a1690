//! Products of f32 rows with a factor of 4 bits that a map scales: one micro-kernel for loads, map and
//! product.
use super::access::{Piece, piece};
use super::{CNibbles, CTerm, Ctx, Fault, Op};
use crate::ukr::Nibbles;
use layout::DType;

/// Runs it on the current piece, by `ops` where it lies otherwise than the short way needs.
pub(crate) fn run(
    ctx: &mut Ctx,
    n: &CNibbles,
    ops: impl Fn(&mut Ctx, &[Op]) -> Result<(), Fault>,
) -> Result<(), Fault> {
    if fast(ctx, n).is_none() {
        if let Some(z) = &n.fill {
            super::map::run(ctx, z);
        }
        ops(ctx, &n.body)?;
    }
    Ok(())
}

/// Whether a packed operand's lanes lie side by side, `step` elements apart, in panels of `panel`: whole ones, also where
/// there are fewer columns, as a vector reads all lanes.
fn panels(ctx: &Ctx, t: &CTerm, lanes: i64, step: i64, panel: i64) -> bool {
    let leaf = |&(extent, stride): &(_, _)| (ctx.p[extent as usize], ctx.p[stride as usize]);
    let lies = match t.leaves.as_slice() {
        [own] => leaf(own) == (lanes, step),
        [outer, own] => leaf(own) == (lanes, step) && leaf(outer).1 == panel,
        _ => false,
    };
    lies && ctx.org[t.axis] % lanes == 0
}

/// Whether the present piece of operand `o` along `axis` lies with one stride of `step`, in groups of `size` that are
/// `group` apart where it is longer.
fn strided(ctx: &Ctx, o: usize, axis: usize, step: i64, (size, group): (i64, i64)) -> bool {
    let len = ctx.len[axis];
    let terms = &ctx.kernel.operands[o].access.terms;
    let Some(t) = terms.iter().find(|t| t.axis == axis) else {
        return len <= 1;
    };
    match piece(t, ctx.p, ctx.org[axis], len) {
        Piece::Affine(s) => len <= 1 || s == step && len <= size,
        Piece::Blocks {
            size: own,
            inner,
            outer,
        } => own == size && inner == step && outer == group,
        Piece::First(_) => false,
    }
}

fn fast(ctx: &mut Ctx, n: &CNibbles) -> Option<()> {
    let k = ctx.kernel;
    let len = ctx.len;
    let (blocks, block) = (len[n.outer], len[n.inner]);
    let empty = n.rows.iter().chain([&n.lane]).any(|&x| len[x] <= 0);
    if blocks <= 0 || block <= 0 || empty {
        return None;
    }
    let oa = &k.operands[n.oa];
    let a = oa.access.view(ctx, k.tiles[n.a].mask, oa, false)?;
    let mut acc = ctx.views[n.acc];
    if n.fill.is_some() {
        ctx.lay_out(n.acc, &mut acc);
    }
    // Rows with one stride in both.
    let (mut m, mut lda, mut ldc) = (1, 0, 0);
    for &x in n.rows.iter().rev().filter(|&&x| len[x] > 1) {
        if m == 1 {
            (lda, ldc) = (a.st[x], acc.st[x]);
        } else if a.st[x] != lda * m || acc.st[x] != ldc * m {
            return None;
        }
        m *= len[x];
    }
    let lies = (block == 1 || a.st[n.inner] == 1) && (blocks == 1 || a.st[n.outer] == block);
    let unit = len[n.lane] == 1 || acc.st[n.lane] == 1;
    if !lies || !unit || lda < 0 || ldc < 0 || (m * blocks) as usize > n.room {
        return None;
    }
    let lanes = k.kernels.isa.lanes() as i64;
    let term = |o: usize| {
        let a = &k.operands[o].access;
        a.terms.iter().find(|t| t.axis == n.lane)
    };
    let depth = blocks * block;
    let group = crate::ukr::nibbles::GROUP as i64;
    let whole = (i64::MAX, 0);
    let deep = block % group == 0
        && strided(ctx, n.numbers, n.inner, 1, (group, group * lanes))
        && strided(ctx, n.numbers, n.outer, block * lanes, whole);
    if !deep || !panels(ctx, term(n.numbers)?, lanes, group, depth * lanes) {
        return None;
    }
    for &o in [n.scales].iter().chain(&n.zeros) {
        let deep = strided(ctx, o, n.outer, lanes, whole);
        if !deep || !panels(ctx, term(o)?, lanes, 1, blocks * lanes) {
            return None;
        }
    }
    let at = |o: usize| k.operands[o].access.address(ctx.p, &ctx.org);
    let row = |o: usize| {
        let p = ctx.bufs[k.operands[o].buffer];
        p.wrapping_offset((at(o) * 4) as isize)
            .cast_const()
            .cast::<f32>()
    };
    let w = at(n.numbers);
    if w % 2 != 0 {
        return None;
    }
    let totals = ctx.scratch.wrapping_add(n.totals).cast::<f32>();
    for i in 0..m {
        for b in 0..blocks {
            let p = a.ptr.wrapping_offset(((i * lda + b * block) * 4) as isize);
            // SAFETY: a block of a row of the factor; the scratch has room for every sum.
            unsafe {
                *totals.add((i * blocks + b) as usize) =
                    (k.kernels.row_sum)(p.cast(), block as usize);
            }
        }
    }
    let d = Nibbles {
        m: m as usize,
        n: len[n.lane] as usize,
        blocks: blocks as usize,
        block: block as usize,
        a: a.ptr.cast(),
        lda: lda as usize,
        totals,
        w: ctx.bufs[k.operands[n.numbers].buffer].wrapping_offset((w / 2) as isize),
        signed: k.operands[n.numbers].dtype == DType::I4,
        scales: row(n.scales),
        zeros: n.zeros.map_or(std::ptr::null(), row),
        zero: n.zero,
        c: acc.ptr.cast(),
        ldc: ldc as usize,
        accumulate: n.fill.is_none(),
    };
    // SAFETY: rows of the factor and of the accumulator as their views say; panels as the accesses do.
    unsafe { (k.kernels.nibbles)(&d) };
    ctx.views[n.acc] = acc;
    Some(())
}
