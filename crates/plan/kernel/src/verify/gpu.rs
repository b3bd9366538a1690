//! Rules of tiles in shared memory, and of how axes lie over threads.
use super::blame::{Blame, unique};
use crate::{
    AxisId, AxisTile, GpuMapping, Kernel, KernelError, OperandId, Place, Schedule, Stmt, Swizzle,
    TensorView, TileId,
};
use layout::{Dim, Inserted};
use std::collections::BTreeSet;

/// Neighbours that one thread may have together.
const MAX_EACH: u32 = 64;

pub(super) fn check(
    k: &Kernel,
    s: &Schedule,
    g: &GpuMapping,
    b: &Blame,
) -> Result<(), KernelError> {
    staged(k, s, g, b)?;
    clusters(k, s, g, b)?;
    super::parts::check(k, s, b)?;
    let axes: Vec<AxisId> = g.spread.iter().map(|s| s.axis).collect();
    b.need(
        unique(&axes) && axes.iter().all(|&a| (a as usize) < k.axes.len()),
        "spread",
        || "an axis that is not there, or the same twice, lies over threads".into(),
    )?;
    for s in &g.spread {
        b.need(
            s.stride >= 1 && s.count >= 1 && (1..=MAX_EACH).contains(&s.each),
            "spread",
            || {
                format!(
                    "axis '{}' lies over {} threads {} apart with {} positions each; counts are at least 1, positions at most {MAX_EACH}",
                    k.axes[s.axis as usize].name, s.count, s.stride, s.each
                )
            },
        )?;
    }
    let mut next = 1u32;
    for (stride, count) in g.directions() {
        b.need(stride == next, "spread", || {
            format!("threads {stride} apart do not begin where the {next} before them end")
        })?;
        next = next.saturating_mul(count);
    }
    b.need(next <= g.threads, "spread", || {
        format!("{next} threads are needed, the CTA has {}", g.threads)
    })?;
    for (at, stmt) in k.body.iter().enumerate() {
        together(k, s, g, b, at, stmt)?;
    }
    Ok(())
}

/// No two axes that a statement goes over lie over the same threads: each thread would see a part of
/// their positions only.
fn together(
    k: &Kernel,
    s: &Schedule,
    g: &GpuMapping,
    blame: &Blame,
    at: usize,
    stmt: &Stmt,
) -> Result<(), KernelError> {
    // All threads share in a copy to shared memory, whatever lies over them.
    let copied = |t: TileId| s.place(t).stages().is_some() || s.place(t).alone() == Place::InPlace;
    if matches!(stmt, Stmt::Load { dst, .. } if copied(*dst)) {
        return Ok(());
    }
    let mut axes: BTreeSet<AxisId> = stmt.over().iter().copied().inserted();
    if let Stmt::Contract { acc, a, b, .. } = stmt {
        let (whole, apart) = axes.iter().partition(|x| s.sums_whole(k, *acc, **x));
        axes = apart;
        // Every thread goes over all of it: nothing of that may be held by others.
        let all: BTreeSet<AxisId> = whole;
        let held = |t: &&TileId| {
            let has = k.tiles[**t as usize].axes.iter().any(|x| all.contains(x));
            has && s.place(**t).stages().is_none() && s.place(**t).alone() != Place::InPlace
        };
        let wrong = [a, b].into_iter().find(held);
        blame.need(wrong.is_none(), "spread", || {
            let name = wrong.map_or("", |t| &k.tiles[*t as usize].name);
            format!("statement {at} sums what lies over the threads of its result, and not all threads see '{name}': place it in shared memory")
        })?;
    }
    let made = match stmt {
        Stmt::Store { .. } => stmt.reads(),
        s => s.writes(),
    };
    for &t in &made {
        axes.extend(&k.tiles[t as usize].axes);
    }
    let mut used: Vec<((u32, u32), AxisId)> = vec![];
    for a in axes {
        let own = g.spread(a);
        if own.count == 1 {
            continue;
        }
        let other = used.iter().find(|u| u.0 == (own.stride, own.count));
        let name = |a: AxisId| &k.axes[a as usize].name;
        if let Some((_, o)) = other {
            // Tiles that a fold rescales have axes of their own.
            let rescales = matches!(
                stmt,
                Stmt::Fold {
                    rescale: Some(_),
                    ..
                }
            );
            blame.need(rescales, "spread", || {
                format!(
                    "statement {at} goes over '{}' and '{}', which lie over the same threads",
                    name(*o),
                    name(a)
                )
            })?;
        }
        used.push(((own.stride, own.count), a));
    }
    Ok(())
}

/// The operand that a tile is loaded from which products alone read, or what is made of it and of another part where it
/// is read, with the axes that they sum over.
fn multiplied(k: &Kernel, s: &Schedule, t: TileId) -> Option<(OperandId, BTreeSet<AxisId>)> {
    let (mut operands, mut over) = (vec![], BTreeSet::<AxisId>::new());
    let made = k.made_of_part(t);
    if made != t && s.place(made) != Place::Recompute {
        return None;
    }
    for x in &k.body {
        match x {
            Stmt::Load { dst, operand } if *dst == t => operands.push(*operand),
            Stmt::Contract { a, b, over: o, .. } if *a == made || *b == made => over.extend(o),
            Stmt::Map { dst, .. } if *dst == made && made != t => {}
            x if x.reads().contains(&t) || x.reads().contains(&made) => return None,
            _ => {}
        }
    }
    match operands[..] {
        [operand] => Some((operand, over)),
        _ => None,
    }
}

/// A tile's axes with the positions of a piece; 0 where a schedule does not say how many.
fn piece(k: &Kernel, s: &Schedule, t: TileId) -> Vec<(AxisId, i64)> {
    let axes = k.tiles[t as usize].axes.iter();
    axes.map(|&a| (a, s.positions(k, a).unwrap_or(0))).collect()
}

/// Whether products alone read a tile each of whose pieces is a run of the operand that it is loaded from.
fn image(k: &Kernel, s: &Schedule, t: TileId) -> bool {
    let Some((operand, over)) = multiplied(k, s, t) else {
        return false;
    };
    let sized = piece(k, s, t).into_iter().filter(|p| p.1 != 1);
    let (deep, own): (Vec<_>, Vec<_>) = sized.partition(|p| over.contains(&p.0));
    let (&[lines], &[depth]) = (&own[..], &deep[..]) else {
        return false;
    };
    let operand = &k.operands[operand as usize];
    let bits = operand.dtype.bits();
    operand.access.image(&k.axes, lines, depth, bits)
}

/// The operand that a tile is loaded from which products alone read, as a tensor of which its pieces are boxes, in lines
/// of this swizzle.
fn boxes(k: &Kernel, s: &Schedule, t: TileId, swizzle: Swizzle) -> Option<TensorView> {
    let dtype = k.tiles[t as usize].dtype;
    let own = &k.operands[multiplied(k, s, t)?.0 as usize];
    let line = swizzle.line(dtype.bits())?;
    let view = (own.access).tensor(&k.axes, &piece(k, s, t), line, dtype.bits());
    view.filter(|_| own.dtype == dtype)
}

/// CTAs of a cluster at most.
const MAX_CLUSTER: u32 = 8;
/// Bits that copies are a multiple of.
const COPIED: i64 = 128;

/// CTAs of a cluster have neighbouring tasks, all of them at once, and go through as many pieces; of what they copy together
/// each has a whole share.
fn clusters(k: &Kernel, s: &Schedule, g: &GpuMapping, b: &Blame) -> Result<(), KernelError> {
    let n = g.cluster;
    if n == 1 {
        return Ok(());
    }
    let rule = "cluster";
    b.need(n.is_power_of_two() && n <= MAX_CLUSTER, rule, || {
        format!("clusters of {n} CTAs; 1, 2, 4 or {MAX_CLUSTER}")
    })?;
    if s.gives_parts() || s.adds_parts() {
        return Ok(());
    }
    b.need(g.copiers > 0 && k.has_alike_tasks(&s.loops), rule, || {
        "CTAs copy for each other where some of their warps only copy, and no mask hides pieces of some tasks: use 1".into()
    })?;
    let whole = |c: AxisTile| {
        let pieces = k.axes[c.axis as usize].extent.ceil_div(&Dim::Known(c.tile));
        pieces.known().is_some_and(|p| p % i64::from(n) == 0)
    };
    let bands = s.raster == 1 || s.grid.len() == 1 || s.raster % i64::from(n) == 0;
    b.need(s.neighbours().is_some_and(whole) && bands, rule, || {
        let axis = s.neighbours().map_or("none", |c| &k.axes[c.axis as usize].name);
        format!("{n} neighbouring tasks lie along axis '{axis}', whose pieces, or bands of them, are no known multiple of that: use 1")
    })?;
    b.need(g.walkers.is_multiple_of(n), rule, || {
        format!("{} CTAs that walk are no clusters of {n}", g.walkers)
    })?;
    let mut together = 0;
    for st in &k.body {
        let Stmt::Load { dst, operand } = st else {
            continue;
        };
        if !s.is_multicast(k, *dst, *operand) {
            continue;
        }
        together += 1;
        b.need(shares(k, s, *dst, n), rule, || {
            let name = &k.tiles[*dst as usize].name;
            format!(
                "a piece of tile '{name}' has no {n} shares that are copies of their own: use 1"
            )
        })?;
    }
    b.need(together > 0, rule, || {
        format!("{n} neighbouring tasks have no factor in common that copies bring as it lies or as boxes: use 1")
    })
}

/// Whether a piece of a tile that one copy brings is `n` copies of equal size.
fn shares(k: &Kernel, s: &Schedule, t: TileId, n: u32) -> bool {
    match s.place(t) {
        Place::Image { .. } => {
            let bits = i64::from(k.tiles[t as usize].dtype.bits());
            let size = piece(k, s, t)
                .iter()
                .fold(bits, |p, x| p.saturating_mul(x.1));
            size > 0 && size % (i64::from(n) * COPIED) == 0
        }
        Place::Tensor { swizzle, .. } => {
            boxes(k, s, t, swizzle).is_some_and(|view| view.share(n).is_some())
        }
        _ => false,
    }
}

/// Several stages are copies that run ahead of the loop that reads them: whoever reads such a tile
/// must do so in the loop that copies it, at the same pace as everything copied there. A swizzle must
/// be undone by itself and keep elements inside their tile.
fn staged(k: &Kernel, s: &Schedule, g: &GpuMapping, b: &Blame) -> Result<(), KernelError> {
    let mut depth: Option<(u32, &str)> = None;
    let mut inner: Option<(usize, &str)> = None;
    for (t, place) in s.places.iter().enumerate() {
        let Some(stages) = place.stages() else {
            continue;
        };
        let tile = &k.tiles[t];
        let loaded = |x: &Stmt| matches!(x, Stmt::Load { dst, .. } if *dst == t as TileId);
        if let Place::Image { .. } = place {
            let fits = stages > 1 && g.copiers > 0 && image(k, s, t as TileId);
            b.need(fits, "image", || {
                format!(
                    "tile '{}' is shared as it lies; that is for the factor of a product alone, in whose operand every piece is one run, copied ahead by a warp",
                    tile.name
                )
            })?;
        }
        if let Place::Tensor { swizzle, .. } = place {
            let group = g.fragment.is_some_and(|f| f.warps() > 1);
            let fits = stages > 1 && g.copiers > 0 && group;
            let fits = fits && boxes(k, s, t as TileId, *swizzle).is_some();
            b.need(fits, "tensor copies", || {
                format!(
                    "tile '{}' is brought by tensor copies; that is for the factor of a warpgroup's product alone whose pieces are boxes of its operand, in lines of 32, 64 or 128 bytes, copied ahead by a warp",
                    tile.name
                )
            })?;
        }
        if stages > 1 {
            let made = |x: &&Stmt| x.writes().contains(&(t as TileId));
            let once = k.body.iter().filter(made).count() == 1 && k.body.iter().any(loaded);
            let looped = s.loops.iter().any(|l| tile.axes.contains(&l.axis));
            b.need(once && looped, "stages", || {
                format!(
                    "tile '{}' has {stages} stages; only a tile that one load in a loop makes is copied ahead: use 1 stage",
                    tile.name
                )
            })?;
            let own = s.loops.iter().rposition(|l| tile.axes.contains(&l.axis));
            let own = own.unwrap_or_default();
            let (first, other) = *inner.get_or_insert((own, &tile.name));
            b.need(first == own, "stages", || {
                format!(
                    "tiles '{other}' and '{}' are copied ahead by different loops; one loop copies all of them",
                    tile.name
                )
            })?;
            let (first, other) = *depth.get_or_insert((stages, &tile.name));
            b.need(first == stages, "stages", || {
                format!(
                    "tiles '{other}' and '{}' are copied ahead by different numbers of stages; a loop has one",
                    tile.name
                )
            })?;
        }
        let Place::Shared { swizzle, .. } = place else {
            continue;
        };
        if swizzle.bits == 0 {
            continue;
        }
        let size = tile
            .axes
            .iter()
            .try_fold(1i64, |n, &a| n.checked_mul(s.positions(k, a)?));
        let unit = 1i64 << (swizzle.base + swizzle.bits);
        b.need(
            swizzle.shift >= swizzle.bits && size.is_none_or(|n| n % unit == 0),
            "swizzle",
            || {
                format!(
                    "({}, {}, {}) moves elements of tile '{}' out of it or onto each other",
                    swizzle.bits, swizzle.base, swizzle.shift, tile.name
                )
            },
        )?;
    }
    Ok(())
}
