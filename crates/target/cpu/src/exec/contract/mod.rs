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
    if c.depthwise {
        depthwise::run(ctx, c, job)
    } else {
        gemm::run(ctx, c, job)
    }
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
    if let Some((x, by)) = n.grouped {
        if n.copied {
            // The copy has room for one piece of the axes that the loops cut.
            if n.loops.iter().any(|&(a, t)| {
                let t = if a == x { t * by } else { t };
                t < ctx.len[a]
            }) {
                return Ok(false);
            }
            let mut v = View::EMPTY;
            ctx.lay_scratch(c.a, &mut v);
            // Accesses of a nest gather nothing, so that loading cannot fail.
            let _ = super::transfer::load(ctx, n.a, c.a, &v);
            let odd = k.tiles[c.a]
                .axes
                .iter()
                .any(|&a| a != x && v.st[a] % by != 0);
            if odd || v.st[x] != 1 {
                return Ok(false);
            }
            let others = k.tiles[c.a].axes.iter().filter(|a| **a != x);
            others.for_each(|&a| v.st[a] /= by);
            copy = Some(v);
        }
        ctx.org[x] /= by;
        ctx.len[x] /= by;
    }
    if (c.dtype != DType::F32 && !c.grouped && !c.bytes) || c.over.iter().any(|&a| ctx.len[a] <= 0)
    {
        return Ok(false);
    }
    let (mut cut, mut cuts) = ([(0usize, 0i64, 0i64); MAX_AXES], 0);
    for &(a, t) in &n.loops {
        if t > 1 && t < ctx.len[a] {
            cut[cuts] = (a, t, ctx.len[a]);
            cuts += 1;
        }
    }
    // A later piece that lies otherwise is run statement by statement, which knows no groups.
    if n.grouped.is_some() && cuts > 0 {
        return Ok(false);
    }
    let mut own = View::EMPTY;
    let acc = match (&n.zero, post) {
        (Some(_), Some((dst, ..))) => dst,
        (Some(_), None) => {
            ctx.lay_out(c.acc, &mut own);
            &own
        }
        (None, _) => {
            own = ctx.views[c.acc];
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
    let mut widened = [None; 2];
    for (w, (wide, (o, t))) in widened
        .iter_mut()
        .zip(n.wide.iter().zip([(oa, ta), (ob, tb)]))
    {
        if let Some(wide) = wide {
            *w = wide.fill(ctx, o, t.mask);
            if w.is_none() {
                return Ok(false);
            }
        }
    }
    let mut outside = ctx.zeros;
    if let (Some((at, bytes)), true) = (n.outside, bounded) {
        let p = ctx.scratch.wrapping_add(at);
        // SAFETY: the scratch has room for them.
        unsafe { std::ptr::write_bytes(p, oa.outside[0], bytes) };
        outside = p;
    }
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
