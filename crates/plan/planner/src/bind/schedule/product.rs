//! Contractions of a kernel, and the share of the multiply-add rate that micro-kernels reach on them.

use crate::bind::ctx::{Ctx, Space};
use kernel::{AxisId, Kernel, Mapping, MicroShape, OperandId, Schedule, Stmt, TileId};

/// The contraction of a kernel, with its axes by role.
#[derive(Clone, Debug)]
pub(super) struct Product {
    pub acc: TileId,
    /// The factor that is broadcast.
    pub a: TileId,
    /// The factor that is streamed along lanes.
    pub b: TileId,
    pub over: Vec<AxisId>,
    pub rows: Vec<AxisId>,
    pub columns: Vec<AxisId>,
    pub batch: Vec<AxisId>,
}

impl Product {
    /// Every product of `kernel`, in order.
    pub fn all(kernel: &Kernel) -> Vec<Product> {
        let product = |s: &Stmt| match s {
            Stmt::Contract { acc, a, b, over } => Some(Product::new(kernel, *acc, *a, *b, over)),
            _ => None,
        };
        kernel.body.iter().filter_map(product).collect()
    }

    /// The only contraction of `kernel`.
    pub fn of(kernel: &Kernel) -> Option<Product> {
        let mut found = None;
        for s in &kernel.body {
            if let Stmt::Contract { acc, a, b, over } = s {
                if found.is_some() {
                    return None;
                }
                found = Some(Product::new(kernel, *acc, *a, *b, over));
            }
        }
        found
    }

    pub fn new(kernel: &Kernel, acc: TileId, a: TileId, b: TileId, over: &[AxisId]) -> Product {
        let axes = |t: TileId| kernel.tiles[t as usize].axes.as_slice();
        let pick = |f: &dyn Fn(bool, bool) -> bool| {
            axes(acc)
                .iter()
                .copied()
                .filter(|x| f(axes(a).contains(x), axes(b).contains(x)))
                .collect::<Vec<_>>()
        };
        Product {
            acc,
            a,
            b,
            over: over.to_vec(),
            rows: pick(&|a, b| a && !b),
            columns: pick(&|a, b| b && !a),
            batch: pick(&|a, b| a == b),
        }
    }

    pub fn swapped(&self) -> Product {
        let mut p = self.clone();
        std::mem::swap(&mut p.a, &mut p.b);
        std::mem::swap(&mut p.rows, &mut p.columns);
        p
    }
}

/// Weight of elements read per multiply-add against the share of the multiply-add rate when register
/// shapes are ranked: what is read overlaps arithmetic, but never all of it.
pub(super) const READS_WEIGH: f64 = 0.2;

/// Share of the multiply-add rate that `shape` reaches on `m` rows and `n` columns per task: row
/// blocks are shared out evenly, the last panel takes only the vectors that it needs.
pub(super) fn share(ctx: Ctx, shape: &MicroShape, m: i64, n: i64) -> f64 {
    let lanes = ctx.lanes();
    let (mr, nr) = (i64::from(shape.mr).max(1), i64::from(shape.nr).max(1));
    let blocks = (m + mr - 1) / mr;
    let rows = m as f64 / blocks.max(1) as f64;
    let reached = |rows: f64, nr: i64| {
        // The listed shape of this width that has at least so many rows, scaled down.
        let mut fit: Option<&MicroShape> = None;
        for s in &ctx.target.micro {
            let good = i64::from(s.nr) >= nr && f64::from(s.mr) >= rows;
            if good && fit.is_none_or(|f| (s.nr, s.mr) < (f.nr, f.mr)) {
                fit = Some(s);
            }
        }
        let s = fit.unwrap_or(shape);
        s.efficiency * (rows / f64::from(s.mr)).min(1.0) * (nr as f64 / f64::from(s.nr)).min(1.0)
    };
    let full = n / nr * nr;
    let rest = n - full;
    let vectors = (rest + lanes - 1) / lanes * lanes;
    let time = full as f64 / reached(rows, nr).max(1e-3)
        + if rest > 0 {
            vectors as f64 / reached(rows, vectors).max(1e-3)
        } else {
            0.0
        };
    (n as f64 / time.max(1e-9)).clamp(1e-3, 1.0)
}

/// Bytes of one way of the nearest cache: such caches find their sets by the bits of an address below
/// the page.
const WAY: i64 = 4096;

/// Share of the multiply-add rate left when rows evict one another from the nearest cache.
const CROWDED: f64 = 0.65;

/// Ways that the streamed factor and what is fetched ahead take.
const STREAM_WAYS: i64 = 2;

/// Share of the multiply-add rate left when the streamed factor is read across pages.
const SCATTERED: f64 = 0.8;

/// Vectors at most in a row of a register tile of pairs.
pub(super) const PAIRED: i64 = 4;

/// Rows that share a copy of a streamed factor, from which on making one may pay.
pub(super) const WORTH_PACKING: i64 = 48;

fn gcd(a: i64, b: i64) -> i64 {
    if b == 0 { a } else { gcd(b, a % b) }
}

/// Share of the multiply-add rate that is left by how the factors lie: rows a multiple of a way apart
/// compete for the same few lines, and a row of lanes per page takes a translation each.
pub(super) fn lie(
    space: &Space,
    p: &Product,
    lane: AxisId,
    packed: bool,
    mr: i64,
    depth: i64,
) -> f64 {
    let size = 4;
    let line = space.ctx.machine.caches().next();
    let line = line.map_or(64, |(_, l)| l.line as i64).max(1);
    let mut share = 1.0;
    let inner = |o: OperandId| {
        let long = |x: &&AxisId| space.extent(**x) > 1 && space.stride(o, **x) > 0;
        let strides = p.rows.iter().filter(long).map(|&x| space.stride(o, x));
        strides.min()
    };
    if let Some(step) = space.source(p.a).and_then(inner) {
        let apart = (WAY / gcd(step.saturating_mul(size), WAY).max(line)).max(1);
        let ways = (space.ctx.cache(0) as i64 / WAY).max(1);
        let a = space.source(p.a).unwrap_or(0);
        let along = p.over.iter().any(|&x| space.stride(a, x) == 1);
        if along && (mr + apart - 1) / apart + STREAM_WAYS > ways {
            share *= CROWDED;
        }
    }
    if let (false, Some(b)) = (packed, space.source(p.b)) {
        let step = p.over.iter().map(|&x| space.stride(b, x)).min();
        let far = step.is_some_and(|s| s.saturating_mul(size) >= WAY / 2);
        if far && depth >= WORTH_PACKING && space.stride(b, lane) == 1 {
            share *= SCATTERED;
        }
    }
    share
}

/// Share of the multiply-add rate that the micro-kernel of `schedule` reaches on the pieces that it is
/// given by `stmt`; `None` when that is no product or has no micro-kernel.
pub(crate) fn reach(space: &Space, schedule: &Schedule, stmt: &Stmt) -> Option<f64> {
    let (Mapping::Cpu(c), Stmt::Contract { acc, a, b, over }) = (&schedule.mapping, stmt) else {
        return None;
    };
    let micro = c.micro?;
    let mut all = space.ctx.target.micro.iter();
    let shape = *all.find(|s| s.mr == micro.mr && s.nr == micro.nr)?;
    let p = Product::new(space.kernel, *acc, *a, *b, over);
    let turned = !p.rows.iter().any(|x| c.rows.contains(x));
    let p = if turned { p.swapped() } else { p };
    let mine = |x: &&AxisId| Some(**x) == c.lanes;
    let widest = p.columns.iter().max_by_key(|x| space.len(schedule, **x));
    let lane = *p.columns.iter().find(mine).or(widest)?;
    let len = |x: &AxisId| space.len(schedule, *x);
    let rows: i64 = p.rows.iter().map(len).product();
    let mr = i64::from(shape.mr).min(rows);
    let depth = space.points(&p.over);
    Some(share(space.ctx, &shape, rows, len(&lane)) * lie(space, &p, lane, false, mr, depth))
}
