//! `Contract`: products summed along axes, on micro-kernels where operands are f32 and lie right.
//!
//! The accumulator's innermost axis runs along lanes. Where only one factor has it, that factor is B of a
//! matrix product and the other is A; where both have it, the product is depthwise. Axes of the accumulator
//! and A only are rows, axes in all three are batch axes, summed axes are one contiguous block (`kin`) and taps.

mod blocks;
mod depthwise;
mod gemm;
mod generic;
mod job;
pub(crate) mod post;
pub(crate) mod wide;

pub(super) use generic::run as by_elements;
use job::Job;
pub(crate) use job::TABLE;
pub(super) use job::clip;

use super::calls::Sources;
use super::{CContract, CNest, Ctx, Fault, MAX_AXES, Op, View};
use crate::ukr::Post;
use layout::DType;

impl Sources {
    const NONE: Sources = Sources {
        bias: View::SCRATCH,
        added: View::SCRATCH,
    };
}

/// Runs a contraction on the current piece.
pub(crate) fn run(ctx: &mut Ctx, c: &CContract) {
    if let Some(p) = &c.post {
        let mut dst = View::EMPTY;
        if let Some((post, sources)) = p.resolve(ctx, c, &mut dst) {
            let job = Job {
                a: &ctx.views[c.a],
                b: &ctx.views[c.b],
                c: &dst,
                bounds: None,
                outside: ctx.zeros,
                accumulate: false,
                post,
                sources,
            };
            // Empty sums are the map's business.
            if c.over.iter().all(|&a| ctx.len[a] > 0) && fast(ctx, c, &job) {
                ctx.views[p.dst] = dst;
                if let Some(rest) = &p.rest {
                    super::map::run(ctx, rest);
                }
                return;
            }
        }
        sums(ctx, c);
        super::map::run(ctx, &p.map);
        return;
    }
    sums(ctx, c);
}

/// The product alone.
fn sums(ctx: &mut Ctx, c: &CContract) {
    if c.zero.is_some() {
        ctx.lay_with(|ctx, v| ctx.lay_out(c.acc, &mut v[c.acc]));
    }
    if !fast(ctx, c, &plain(ctx, c)) {
        if let Some(z) = &c.zero {
            super::map::run(ctx, z);
        }
        generic::run(ctx, c, &plain(ctx, c));
    }
}

/// The product of the tiles as they lie, and nothing else.
fn plain<'a>(ctx: &'a Ctx, c: &CContract) -> Job<'a> {
    Job {
        a: &ctx.views[c.a],
        b: &ctx.views[c.b],
        c: &ctx.views[c.acc],
        bounds: None,
        outside: ctx.zeros,
        accumulate: c.zero.is_none(),
        post: Post::NONE,
        sources: Sources::NONE,
    }
}

fn fast(ctx: &Ctx, c: &CContract, job: &Job) -> bool {
    if c.dtype != DType::F32 && !c.grouped && !c.bytes {
        return false;
    }
    let done = match c.depthwise {
        true => depthwise::run(ctx, c, job),
        false => gemm::run(ctx, c, job),
    };
    if let (true, Some(t)) = (done, ctx.trace) {
        t.piece();
    }
    done
}

/// Runs a nest: pieces of loops that the schedule cuts one after the other, all others whole. By `ops` where it
/// lies otherwise than the short way needs.
pub(crate) fn nest(
    ctx: &mut Ctx,
    n: &CNest,
    ops: impl Copy + Fn(&mut Ctx, &[Op]) -> Result<(), Fault>,
) -> Result<(), Fault> {
    let Some(trace) = ctx.trace else {
        return run_nest(ctx, n, ops);
    };
    let before = trace.calls();
    run_nest(ctx, n, ops)?;
    let copied = n.grouped.is_some() || n.wide.iter().any(Option::is_some);
    let more = n.post.as_ref().is_some_and(|p| p.rest.is_some());
    if copied || more || trace.calls() != before + 1 {
        trace.spoil();
    }
    Ok(())
}

fn run_nest(
    ctx: &mut Ctx,
    n: &CNest,
    ops: impl Copy + Fn(&mut Ctx, &[Op]) -> Result<(), Fault>,
) -> Result<(), Fault> {
    let (org, len) = (ctx.org, ctx.len);
    let mut dst = View::EMPTY;
    if let Some(p) = &n.post
        && let Some((post, sources)) = p.resolve(ctx, &n.contract, &mut dst)
    {
        let done = fast_nest(ctx, n, Some((&dst, post, sources)), ops)?;
        (ctx.org, ctx.len) = (org, len);
        if done {
            ctx.views[p.dst] = dst;
            if let Some(rest) = &p.rest {
                super::map::run(ctx, rest);
            }
            return Ok(());
        }
    }
    let done = fast_nest(ctx, n, None, ops)?;
    (ctx.org, ctx.len) = (org, len);
    if !done {
        if let Some(z) = &n.zero {
            super::map::run(ctx, z);
        }
        ops(ctx, &n.body)?;
    }
    if let Some(p) = &n.post {
        super::map::run(ctx, &p.map);
    }
    Ok(())
}

/// Copies the rows' factor, so that it is contiguous along the axis of its groups: how the groups of `by`
/// elements along `x` lie. `None` where loops cut the copy, or groups lie apart in it.
fn copied_rows(ctx: &Ctx, n: &CNest, (x, by): (usize, i64)) -> Option<View> {
    let tile = n.contract.a;
    // The copy has room for one piece of the axes that the loops cut.
    if n.loops.iter().any(|&(a, t)| {
        let t = if a == x { t * by } else { t };
        t < ctx.len[a]
    }) {
        return None;
    }
    let mut v = View::EMPTY;
    ctx.lay_scratch(tile, &mut v);
    // Accesses of a nest gather nothing, so that loading cannot fail.
    let _ = super::transfer::load(ctx, n.a, tile, &v);
    let others = || ctx.kernel.tiles[tile].axes.iter().filter(|a| **a != x);
    let odd = others().any(|&a| v.st[a] % by != 0);
    if odd || v.st[x] != 1 {
        return None;
    }
    others().for_each(|&a| v.st[a] /= by);
    Some(v)
}

/// The axes that a nest's loops cut, each with the length of its pieces and its own, and how many they are.
fn cuts(ctx: &Ctx, n: &CNest) -> ([(usize, i64, i64); MAX_AXES], usize) {
    let (mut cut, mut cuts) = ([(0usize, 0i64, 0i64); MAX_AXES], 0);
    for &(a, t) in &n.loops {
        if t > 1 && t < ctx.len[a] {
            cut[cuts] = (a, t, ctx.len[a]);
            cuts += 1;
        }
    }
    (cut, cuts)
}

/// The factors that are no f32, widened; `None` where one cannot be.
fn widened(ctx: &Ctx, n: &CNest) -> Option<[Option<wide::Widened>; 2]> {
    let (k, c) = (ctx.kernel, &n.contract);
    let mut widened = [None; 2];
    let factors = [(n.a, c.a), (n.b, c.b)];
    for (w, (wide, (o, t))) in widened.iter_mut().zip(n.wide.iter().zip(factors)) {
        if let Some(wide) = wide {
            *w = Some(wide.fill(ctx, &k.operands[o], k.tiles[t].mask)?);
        }
    }
    Some(widened)
}

/// What rows outside the tensor are read from.
fn outside(ctx: &Ctx, n: &CNest, bounded: bool) -> *const u8 {
    match n.outside {
        Some((at, bytes)) if bounded => {
            let p = ctx.scratch.wrapping_add(at);
            let byte = ctx.kernel.operands[n.a].outside[0];
            // SAFETY: the scratch has room for them.
            unsafe { std::ptr::write_bytes(p, byte, bytes) };
            p
        }
        _ => ctx.zeros,
    }
}

/// `post`: where finished sums go and what is done to them on the way. False when nothing was computed.
fn fast_nest(
    ctx: &mut Ctx,
    n: &CNest,
    post: Option<(&View, Post, Sources)>,
    ops: impl Copy + Fn(&mut Ctx, &[Op]) -> Result<(), Fault>,
) -> Result<bool, Fault> {
    let c = &n.contract;
    let k = ctx.kernel;
    let mut copy = None;
    if let Some(group) = n.grouped {
        if n.copied {
            copy = copied_rows(ctx, n, group);
            if copy.is_none() {
                return Ok(false);
            }
        }
        let (x, by) = group;
        ctx.org[x] /= by;
        ctx.len[x] /= by;
    }
    if (c.dtype != DType::F32 && !c.grouped && !c.bytes) || c.over.iter().any(|&a| ctx.len[a] <= 0)
    {
        return Ok(false);
    }
    let (cut, cuts) = cuts(ctx, n);
    // A later piece that lies otherwise is run statement by statement, which knows no groups.
    if n.grouped.is_some() && cuts > 0 {
        return Ok(false);
    }
    let mut own = ctx.views[c.acc];
    let acc = match (&n.zero, post) {
        (Some(_), Some((dst, ..))) => dst,
        (None, _) => &own,
        (Some(_), None) => {
            ctx.lay_out(c.acc, &mut own);
            &own
        }
    };
    if post.is_some() && (cuts > 0 || n.zero.is_none()) {
        return Ok(false);
    }
    let (ta, tb) = (&k.tiles[c.a], &k.tiles[c.b]);
    let (oa, ob) = (&k.operands[n.a], &k.operands[n.b]);
    // Whether everything lies right is the same for every piece but for bounds, which are looked at whole.
    let bounded = copy.is_none() && !oa.access.bounds_hold(ctx, ta.mask);
    if bounded && oa.access.outside != 0.0 && n.outside.is_none()
        || !ob.access.bounds_hold(ctx, tb.mask)
    {
        return Ok(false);
    }
    let Some(widened) = widened(ctx, n) else {
        return Ok(false);
    };
    let outside = outside(ctx, n, bounded);
    let mut started = false;
    let mut at = [0i64; MAX_AXES];
    let org = ctx.org;
    let (mut a, mut b) = (copy.unwrap_or(View::EMPTY), View::EMPTY);
    loop {
        for (i, &(a, t, whole)) in cut[..cuts].iter().enumerate() {
            ctx.org[a] = org[a] + at[i];
            ctx.len[a] = t.min(whole - at[i]);
        }
        // Where every lane has its own sum, groups of lanes may share what they read.
        let lies = (copy.is_some() || oa.access.lay(ctx, ta.mask, oa, c.depthwise, &mut a))
            && ob.access.lay(ctx, tb.mask, ob, true, &mut b);
        let done = if lies {
            for (w, v) in widened.iter().zip([&mut a, &mut b]) {
                w.iter().for_each(|w: &wide::Widened| w.turn(v));
            }
            let job = Job {
                a: &a,
                b: &b,
                c: acc,
                bounds: bounded.then_some(&oa.access),
                outside,
                accumulate: started || n.zero.is_none(),
                post: post.map_or(Post::NONE, |p| p.1),
                sources: post.map_or(Sources::NONE, |p| p.2),
            };
            fast(ctx, c, &job)
        } else {
            false
        };
        match (done, started) {
            (true, _) => {}
            (false, false) => return Ok(false),
            // A later piece may be shorter and lie otherwise.
            (false, true) => by_statements(ctx, n, *acc, ops)?,
        }
        started = true;
        if !advance(&cut[..cuts], &mut at) {
            break;
        }
    }
    ctx.views[c.acc] = *acc;
    Ok(true)
}

/// Adds the current piece to `acc` statement by statement: of a loop that was cut this is one round, and all
/// rounds of one that was not.
fn by_statements(
    ctx: &mut Ctx,
    n: &CNest,
    acc: View,
    ops: impl Fn(&mut Ctx, &[Op]) -> Result<(), Fault>,
) -> Result<(), Fault> {
    let kept = (ctx.org, ctx.len);
    ctx.views[n.contract.acc] = acc;
    ops(ctx, &n.body)?;
    (ctx.org, ctx.len) = kept;
    Ok(())
}

fn advance(cut: &[(usize, i64, i64)], at: &mut [i64; MAX_AXES]) -> bool {
    for (i, &(_, t, whole)) in cut.iter().enumerate().rev() {
        at[i] += t;
        if at[i] < whole {
            return true;
        }
        at[i] = 0;
    }
    false
}
