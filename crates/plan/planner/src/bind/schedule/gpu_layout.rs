//! How axes lie over the threads of a CTA, and which tiles need no memory.
use kernel::{AxisId, Kernel, Spread, Stmt, TileId};

/// Directions of threads given out, innermost first.
pub(super) struct ThreadLayout {
    threads: u32,
    used: u32,
    /// What was given out.
    pub spread: Vec<Spread>,
}

impl ThreadLayout {
    /// None of `threads` given out.
    pub fn new(threads: u32) -> ThreadLayout {
        ThreadLayout {
            threads,
            used: 1,
            spread: vec![],
        }
    }

    /// Threads given out.
    pub fn used(&self) -> u32 {
        self.used
    }

    /// Lays `axis` over up to `count` threads (a power of two), `each` neighbours to a thread.
    pub fn along(&mut self, axis: AxisId, count: u32, each: u32) {
        let left = self.threads / self.used;
        let count = count
            .min(if left == 0 { 1 } else { 1 << left.ilog2() })
            .max(1);
        if count == 1 && each == 1 || self.spread.iter().any(|s| s.axis == axis) {
            return;
        }
        self.spread.push(Spread {
            axis,
            stride: self.used,
            count,
            each,
        });
        self.used *= count;
    }

    /// Lays a group of axes (outermost first, with their positions, powers of two) over exactly
    /// `threads` threads where it has so many positions; up to `run` neighbours along the innermost
    /// stay together.
    pub fn group(&mut self, axes: &[(AxisId, i64)], threads: u32, run: u32) {
        let total = axes.iter().fold(1i64, |p, a| p.saturating_mul(a.1));
        let mut each = u32::try_from(total / i64::from(threads.max(1)))
            .unwrap_or(1)
            .clamp(1, run);
        let mut left = threads;
        for &(a, n) in axes.iter().rev() {
            let n = u32::try_from(n).unwrap_or(1).max(1);
            let own = each.min(n);
            let count = (n / own).min(left).max(1);
            self.along(a, count, own);
            left /= count;
            each = 1;
        }
    }
}

/// Lays axes that a tile's parts are taken along over the threads of the axis that the parts have.
pub(super) fn parts_alike(kernel: &Kernel, spread: &mut Vec<Spread>) {
    for s in &kernel.body {
        let Stmt::Relabel {
            labels,
            along: None,
            ..
        } = s
        else {
            continue;
        };
        for l in labels {
            let reduced = kernel.body.iter().any(|s| s.over().contains(&l.from));
            let known = spread.iter().any(|s| s.axis == l.from);
            let to = spread.iter().find(|s| s.axis == l.to).copied();
            if let (Some(to), false, false) = (to, reduced, known) {
                spread.push(Spread { axis: l.from, ..to });
            }
        }
    }
}

/// Whether threads read elements of `t` that others hold: it is read along another label than it is
/// made along.
pub(super) fn handed_over(kernel: &Kernel, t: TileId, spread: &[Spread]) -> bool {
    let lies = |a: AxisId| {
        let s = spread.iter().find(|s| s.axis == a);
        s.map(|s| (s.stride, s.count, s.each)).filter(|s| s.1 > 1)
    };
    // Sums whose factors are held along an axis that lies over threads are taken across them, unless
    // the sum itself lies along the same threads.
    let contracted = kernel.body.iter().any(|s| match s {
        Stmt::Contract { acc, a, b, over } => {
            let used = *a == t || *b == t;
            let sum = &kernel.tiles[*acc as usize].axes;
            used && over.iter().any(|&x| {
                lies(x).is_some_and(|d| sum.iter().any(|&y| lies(y).is_some_and(|e| d.0 == e.0)))
            })
        }
        _ => false,
    });
    // What every thread holds of several elements has no address: another label, which a loop walks, does not
    // find them.
    let walked = |from: AxisId, to: AxisId| {
        let spread = spread.iter().any(|s| s.axis == from || s.axis == to);
        from != to && !spread && !kernel.axes[from as usize].extent.is_one()
    };
    let relabelled = kernel.body.iter().any(|s| match s {
        Stmt::Relabel {
            src,
            labels,
            along,
            dst,
        } => {
            let moved = labels
                .iter()
                .any(|l| lies(l.from) != lies(l.to) || walked(l.from, l.to) || !l.first.is_zero());
            (*src == t && along.is_none() && moved) || (*dst == t && along.is_some() && moved)
        }
        _ => false,
    });
    contracted || relabelled
}
