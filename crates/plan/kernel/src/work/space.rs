//! Extents and addresses of a tile program as numbers, at given dims. The other files of `work` count with
//! them.
use crate::{AxisId, AxisTile, Kernel, Node, Operand, Seen, Stmt, TileId, TileProgram};
use layout::Arrange;

/// Pieces of an axis that are looked at to find out how many positions of another one their rows see.
const SAMPLES: f64 = 64.0;

/// Address part of an operand with numbers: coordinates along `axis` by `leaves` of (extent,
/// stride), outermost first.
pub(crate) struct NumTerm {
    pub axis: usize,
    pub leaves: Vec<(f64, f64)>,
}

/// A tile program's extents and addresses as numbers.
pub(crate) struct Space {
    /// Extent per axis.
    pub extent: Vec<f64>,
    /// Piece per axis: the tile of a cut axis, else the extent.
    pub piece: Vec<f64>,
    /// Whether the axis is in the grid.
    pub grid: Vec<bool>,
    /// Whether the axis is in a loop.
    pub looped: Vec<bool>,
    /// Address terms per operand.
    pub terms: Vec<Vec<NumTerm>>,
    /// Axes that an operand depends on (bit per axis), gathered ones included.
    pub depends: Vec<Vec<bool>>,
    /// Positions of each axis that a task goes over in the middle: all, but where a loop leaves some out.
    pub gone: Vec<f64>,
    /// How many times the middle the task with the most of them goes over.
    pub most: f64,
    /// Distinct elements per operand.
    pub elements: Vec<f64>,
    /// Leaves that move an operand's address, per operand: numbers of term and leaf, the smallest stride
    /// first.
    order: Vec<Vec<(usize, usize)>>,
    /// Axes per operand that matter through its indices alone.
    gathered: Vec<Vec<usize>>,
    grid_pieces: Vec<f64>,
}

impl Space {
    pub fn new(p: &TileProgram, lookup: &dyn Fn(&str) -> Option<i64>) -> Option<Space> {
        let k = p.kernel();
        let extent: Vec<f64> = k
            .axes
            .iter()
            .map(|a| a.extent.eval(lookup).map(|e| e.max(0) as f64))
            .collect::<Option<_>>()?;
        let n = extent.len();
        let mut s = Space {
            piece: extent.clone(),
            gone: extent.clone(),
            most: 1.0,
            grid: vec![false; n],
            looped: vec![false; n],
            terms: Vec::new(),
            depends: Vec::new(),
            elements: Vec::new(),
            order: Vec::new(),
            gathered: Vec::new(),
            grid_pieces: Vec::new(),
            extent,
        };
        for (list, grid) in [(&p.schedule().grid, true), (&p.schedule().loops, false)] {
            for t in list {
                let a = t.axis as usize;
                s.piece[a] = s.extent[a].min(t.tile.max(1) as f64);
                if grid {
                    s.grid[a] = true;
                    s.grid_pieces
                        .push((s.extent[a] / t.tile.max(1) as f64).ceil());
                } else {
                    s.looped[a] = true;
                }
            }
        }
        for o in &k.operands {
            s.operand(k, o, lookup)?;
        }
        s.leave_out(p.body(), lookup)?;
        Some(s)
    }

    /// Takes out what the loops in `nodes` leave out.
    fn leave_out(&mut self, nodes: &[Node], lookup: &dyn Fn(&str) -> Option<i64>) -> Option<()> {
        for n in nodes {
            let Node::Loop { axis, seen, body } = n else {
                continue;
            };
            let a = axis.axis as usize;
            // Another loop over the axis leaves out the same.
            if !seen.is_all() && self.gone[a] == self.extent[a] && self.extent[a] > 0.0 {
                let (middle, most) = self.share(axis, seen, lookup)?;
                self.gone[a] *= middle;
                self.most *= if middle > 0.0 { most / middle } else { 1.0 };
            }
            self.leave_out(body, lookup)?;
        }
        Some(())
    }

    /// Which part of a loop's pieces tasks go over, in the middle and at most.
    fn share(
        &self,
        cut: &AxisTile,
        seen: &Seen,
        lookup: &dyn Fn(&str) -> Option<i64>,
    ) -> Option<(f64, f64)> {
        let mut axes: Vec<AxisId> = Vec::new();
        let edges = seen.from.iter().chain(&seen.to);
        for (a, _) in edges.flat_map(|e| &e.terms) {
            if !axes.contains(a) {
                axes.push(*a);
            }
        }
        let size = |a: AxisId| {
            (
                self.extent[a as usize] as i64,
                self.piece[a as usize] as i64,
            )
        };
        let count = |a: &AxisId| {
            let (extent, piece) = size(*a);
            let all = (extent as f64 / piece.max(1) as f64).ceil().max(1.0);
            (all, all.min(SAMPLES))
        };
        let counts: Vec<(f64, f64)> = axes.iter().map(count).collect();
        let samples: f64 = counts.iter().map(|c| c.1).product();
        let extent = self.extent[cut.axis as usize] as i64;
        let (_, all) = seen.pieces(cut.tile, (0, extent));
        let (mut sum, mut most) = (0.0, 0.0f64);
        for n in 0..samples as u64 {
            // Samples lie evenly among the pieces.
            let mut rest = n as f64;
            let mut spans: Vec<(i64, i64)> = Vec::with_capacity(axes.len());
            for (a, (pieces, samples)) in axes.iter().zip(&counts) {
                let own = ((rest % samples + 0.5) * pieces / samples).floor();
                rest = (rest / samples).floor();
                let (extent, piece) = size(*a);
                let first = own as i64 * piece;
                spans.push((first, (first + piece).min(extent) - 1));
            }
            let span = |a: AxisId| {
                let at = axes.iter().position(|x| *x == a);
                at.map_or((0, 0), |at| spans[at])
            };
            let (_, gone) = seen.pieces(cut.tile, seen.range(extent, lookup, &span)?);
            let share = gone as f64 / all.max(1) as f64;
            sum += share / samples;
            most = most.max(share);
        }
        Some((sum, most))
    }

    fn operand(
        &mut self,
        k: &Kernel,
        o: &Operand,
        lookup: &dyn Fn(&str) -> Option<i64>,
    ) -> Option<()> {
        let mut depends = vec![false; self.extent.len()];
        let mut terms = Vec::new();
        for t in &o.access.terms {
            let mut leaves = Vec::new();
            for l in &t.leaves {
                leaves.push((
                    l.extent.eval(lookup)?.max(1) as f64,
                    l.stride.eval(lookup)?.unsigned_abs() as f64,
                ));
            }
            // A plain stride reaches as far as its axis.
            if let [l] = leaves.as_mut_slice() {
                l.0 = l.0.max(self.extent[t.axis as usize]);
            }
            depends[t.axis as usize] |= leaves.iter().any(|l| l.1 != 0.0);
            terms.push(NumTerm {
                axis: t.axis as usize,
                leaves,
            });
        }
        for i in &o.access.indexed {
            let by = &k.operands[i.by as usize].access;
            by.terms
                .iter()
                .for_each(|t| depends[t.axis as usize] = true);
        }
        let mut order: Vec<(usize, usize)> = terms
            .iter()
            .enumerate()
            .flat_map(|(t, term)| (0..term.leaves.len()).rev().map(move |l| (t, l)))
            .filter(|&(t, l)| terms[t].leaves[l].1 != 0.0)
            .collect();
        let stride = |&(t, l): &(usize, usize)| terms[t].leaves[l].1;
        order.arrange_by(|a, b| stride(a).total_cmp(&stride(b)));
        let through_indices = |a: &usize| depends[*a] && !terms.iter().any(|t| t.axis == *a);
        let gathered = (0..depends.len()).filter(through_indices).collect();
        self.order.push(order);
        self.gathered.push(gathered);
        self.terms.push(terms);
        self.depends.push(depends);
        self.elements.push(o.elements.eval(lookup)?.max(0) as f64);
        Some(())
    }

    /// Tasks of the grid.
    pub fn tasks(&self) -> u64 {
        self.grid_pieces.iter().product::<f64>() as u64
    }

    /// Share of the whole that the largest task is.
    pub fn largest_task(&self) -> f64 {
        let share = |a: usize| match self.grid[a] && self.extent[a] > 0.0 {
            true => self.piece[a] / self.extent[a],
            false => 1.0,
        };
        (0..self.extent.len()).map(share).product::<f64>() * self.most
    }

    /// Pieces of `axis` when it is looped, else 1.
    pub fn loop_pieces(&self, axis: AxisId) -> f64 {
        let a = axis as usize;
        if self.looped[a] && self.extent[a] > 0.0 {
            (self.extent[a] / self.piece[a]).ceil() * self.gone[a] / self.extent[a]
        } else {
            1.0
        }
    }

    /// Positions of `axes`, times the tasks that repeat them.
    pub fn positions(&self, axes: &[AxisId]) -> f64 {
        self.positions_where(&|a| axes.contains(&a))
    }

    fn positions_where(&self, among: &dyn Fn(AxisId) -> bool) -> f64 {
        (0..self.extent.len())
            .map(|a| match (among(a as AxisId), self.grid[a]) {
                (true, _) => self.gone[a],
                (false, true) if self.extent[a] > 0.0 => (self.extent[a] / self.piece[a]).ceil(),
                (false, true) => 0.0,
                (false, false) => 1.0,
            })
            .product()
    }

    /// How often the program of `stmt` runs, all tasks together.
    pub fn times(&self, k: &Kernel, stmt: &Stmt) -> f64 {
        self.positions_where(&|a| runs_over(k, stmt, a))
    }

    /// Distinct elements of operand `o` that the model has: one for every position of the axes that it depends on,
    /// at most. What packing fills up is none of them.
    pub fn touched(&self, o: usize) -> f64 {
        let own = self.extent.iter().zip(&self.depends[o]);
        let positions: f64 = own.filter(|(_, has)| **has).map(|(n, _)| n).product();
        positions.min(self.distinct(o, &self.extent))
    }

    /// Distinct elements of operand `o` when every axis has `len` positions.
    pub fn distinct(&self, o: usize, len: &[f64]) -> f64 {
        // `span` is the reach of what is covered so far, `count` the elements in it; a stride below
        // the reach overlaps (windows).
        let (mut count, mut span) = (1.0f64, 1.0f64);
        for &(t, leaf) in &self.order[o] {
            let term = &self.terms[o][t];
            let (extent, stride) = term.leaves[leaf];
            let inner = term.leaves[leaf + 1..].iter().rev();
            let left = inner.fold(len[term.axis], |left, l| (left / l.0).ceil());
            let n = left.min(extent);
            if n == 1.0 {
                continue;
            }
            let overlaps = stride < span;
            span += stride * (n - 1.0).max(0.0);
            count *= n;
            if overlaps {
                count = count.min(span);
            }
        }
        // Gathered slices add what their indices differ in.
        for &a in &self.gathered[o] {
            count *= len[a];
        }
        if self.elements[o] > 0.0 {
            count.min(self.elements[o])
        } else {
            0.0
        }
    }
}

/// Whether `stmt` runs over axis `a`.
pub(crate) fn runs_over(k: &Kernel, stmt: &Stmt, a: AxisId) -> bool {
    let has = |t: &TileId| k.tiles[*t as usize].axes.contains(&a);
    match stmt {
        Stmt::Load { dst, .. } | Stmt::Map { dst, .. } => has(dst),
        Stmt::Store { src, .. } => has(src),
        Stmt::Contract { acc, over, .. } => has(acc) || over.contains(&a),
        Stmt::Relabel { dst, along, .. } => has(dst) || *along == Some(a),
        Stmt::Fold { args, over, .. } => args.iter().any(has) || over.contains(&a),
    }
}
