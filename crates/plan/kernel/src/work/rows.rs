//! Rows that a CPU's statements go through, and elements that they take one by one.
//!
//! A statement runs along the innermost axis of its tile; axes further out join it where every tile
//! that it touches continues there. Every instruction of its program goes through the row. Short rows
//! are taken many at a time, those that do not continue one another being copied together first. What
//! neither continues nor is the same along a row is taken element by element.
use super::space::Space;
use crate::{AxisId, Family, Mapping, OperandId, Place, Role, Stmt, TileId, TileProgram};
use expr::{Class, Expr};
use layout::DType;
use machine::{NumType, UnitClass, Work};

/// Elements of the rows that short ones are put together to, and up to which a row is short.
const LONG: f64 = 512.0;
const SHORT: f64 = LONG / 4.0;
/// Elements of a row that is reduced by itself rather than with its neighbours.
const ALONE: f64 = 48.0;
/// Moves of an element that is reduced in a short row, in those of an element on its own.
const REDUCED: f64 = 0.3;
/// Moves of an element of 16 bits that is widened.
const WIDENED: f64 = 0.2;
/// Moves of an element whose address is looked up, offsets being made in vectors: what two threads of a Zen 4 took
/// lies between a half (neighbours that follow each other) and 1.1 times (any order) of what this predicts.
const LOOKED_UP: f64 = 0.6;
/// Rows that the end of a reduced row counts as: sums of lanes, then the state.
const ENDS: f64 = 4.0;
/// Squares turned in registers: moves of an element.
const TURNED: f64 = 0.3;

fn instructions(e: &Expr) -> f64 {
    let all = e.counts().into_iter();
    let n: u64 = all.filter(|c| c.0 != Class::Free).map(|c| c.1).sum();
    n.max(1) as f64
}

/// Distances between neighbours along each axis, in elements of a tile's memory, and how far an axis
/// goes before it begins anew elsewhere.
struct TileStrides {
    step: Vec<f64>,
    until: Vec<f64>,
    /// Addresses are looked up along these axes.
    gathered: Vec<bool>,
}

impl TileStrides {
    fn of(p: &TileProgram, s: &Space, tile: TileId) -> TileStrides {
        let place = p.schedule().place(tile).alone();
        let body = &p.kernel().body;
        let operand = body.iter().find_map(|x| match x {
            Stmt::Load { dst, operand } if *dst == tile => Some(*operand),
            Stmt::Store { src, operand } if *src == tile => Some(*operand),
            _ => None,
        });
        match operand.filter(|_| place == Place::InPlace) {
            Some(o) => TileStrides::operand(p, s, o as usize),
            None => TileStrides::dense(p, s, tile),
        }
    }

    fn operand(p: &TileProgram, s: &Space, o: usize) -> TileStrides {
        let n = s.extent.len();
        let mut l = TileStrides {
            step: vec![0.0; n],
            until: vec![f64::INFINITY; n],
            gathered: vec![false; n],
        };
        for t in &s.terms[o] {
            if let Some(&(extent, stride)) = t.leaves.last() {
                l.step[t.axis] = stride;
                if t.leaves.len() > 1 {
                    l.until[t.axis] = extent;
                }
            }
        }
        for i in &p.kernel().operands[o].access.indexed {
            for t in &s.terms[i.by as usize] {
                l.gathered[t.axis] = true;
            }
        }
        l
    }

    fn dense(p: &TileProgram, s: &Space, tile: TileId) -> TileStrides {
        let n = s.extent.len();
        let mut l = TileStrides {
            step: vec![0.0; n],
            until: vec![f64::INFINITY; n],
            gathered: vec![false; n],
        };
        let mut step = 1.0;
        for &a in p.kernel().tiles[tile as usize].axes.iter().rev() {
            l.step[a as usize] = step;
            step *= s.piece[a as usize];
        }
        l
    }
}

/// The row of a statement over `axes` (innermost last): its length, and whether it is there at all.
fn run(s: &Space, axes: &[AxisId], lies: &[&TileStrides]) -> (f64, Option<usize>) {
    let long: Vec<usize> = axes
        .iter()
        .map(|&a| a as usize)
        .filter(|&a| s.piece[a] > 1.0)
        .collect();
    let Some((&lane, outer)) = long.split_last() else {
        return (1.0, None);
    };
    let whole = s.piece[lane];
    let until = lies.iter().map(|l| l.until[lane]).fold(whole, f64::min);
    let mut n = until;
    if until < whole || lies.iter().any(|l| l.gathered[lane]) {
        return (n, Some(lane));
    }
    for &a in outer.iter().rev() {
        let joins = |l: &&TileStrides| {
            l.step[a] == l.step[lane] * n && l.until[a].is_infinite() && !l.gathered[a]
        };
        if !lies.iter().all(joins) {
            break;
        }
        n *= s.piece[a];
    }
    (n, Some(lane))
}

/// Whether rows along `lane` lie one behind the other over `axes`, or are the same everywhere.
fn together(s: &Space, axes: &[AxisId], l: &TileStrides, lane: Option<usize>) -> bool {
    let Some(lane) = lane else { return true };
    let mut outer = axes.iter().rev().map(|&a| a as usize);
    let long = |a: &usize| *a != lane && s.piece[*a] > 1.0;
    let mut n = s.piece[lane];
    let same = outer.clone().filter(long).all(|a| l.step[a] == 0.0);
    same || outer.all(|a| {
        let joins = !long(&a) || l.step[a] == l.step[lane] * n && l.until[a].is_infinite();
        if long(&a) {
            n *= s.piece[a];
        }
        joins
    })
}

/// Whether a map makes a factor from numbers and their scales: a CPU does that on the way into the
/// registers.
pub(super) fn expanded(p: &TileProgram, stmt: &Stmt) -> bool {
    let Stmt::Map { dst, expr, .. } = stmt else {
        return false;
    };
    let factor = |s: &Stmt| match s {
        Stmt::Contract { acc, a, b, .. } => acc != dst && (a == dst || b == dst),
        _ => false,
    };
    let mut readers = p.kernel().body.iter().filter(|s| s.reads().contains(dst));
    let cpu = matches!(p.schedule().mapping, Mapping::Cpu(_));
    cpu && expr.as_dequantise().is_some() && readers.all(factor)
}

/// A statement that is counted.
struct Counted<'a> {
    p: &'a TileProgram,
    s: &'a Space,
    /// Elements that it goes through.
    times: f64,
}

/// Whether neighbours along `lane` lie side by side.
fn side_by_side(l: &TileStrides, lane: Option<usize>) -> bool {
    lane.is_none_or(|a| l.step[a] <= 1.0)
}

/// How many of `all` have neighbours along `lane` apart.
fn apart(all: &[&TileStrides], lane: Option<usize>) -> f64 {
    all.iter().filter(|l| !side_by_side(l, lane)).count() as f64
}

/// Adds the rows of `stmt` and what it moves element by element to `w`.
pub(super) fn rows(p: &TileProgram, s: &Space, stmt: &Stmt, w: &mut Work) {
    if !matches!(p.schedule().mapping, Mapping::Cpu(_)) {
        return;
    }
    let times = s.times(p.kernel(), stmt);
    if times == 0.0 {
        return;
    }
    let c = Counted { p, s, times };
    let elements = match stmt {
        Stmt::Load { dst: t, operand } | Stmt::Store { operand, src: t } => {
            c.moved(*t, *operand, w)
        }
        Stmt::Map { args, .. } if args.is_empty() => 0.0,
        Stmt::Map { .. } if expanded(p, stmt) => 0.0,
        Stmt::Map { dst, args, expr } => c.mapped(*dst, args, expr, w),
        Stmt::Fold { args, over, .. } => c.folded(args, over, w),
        Stmt::Relabel { dst, .. } => {
            let to = TileStrides::of(p, s, *dst);
            let (n, _) = run(s, c.axes(*dst), &[&to]);
            w.rows += times / n;
            0.0
        }
        Stmt::Contract { acc, a, b, over } => c.contracted(*acc, [*a, *b], over, w),
    };
    if elements > 0.0 {
        w.add_ops(UnitClass::Element, NumType::F32, elements);
    }
}

impl Counted<'_> {
    fn axes(&self, t: TileId) -> &[AxisId] {
        &self.p.kernel().tiles[t as usize].axes
    }

    /// Adds the rows of a load or store; elements that it moves one by one.
    fn moved(&self, t: TileId, operand: OperandId, w: &mut Work) -> f64 {
        let (p, s, times) = (self.p, self.s, self.times);
        let k = p.kernel();
        let folded = |x: &Stmt| matches!(x, Stmt::Fold { .. }) || !x.reads().contains(&t);
        // Windows are reduced where they lie.
        let window = k.family == Family::Pool && k.body.iter().all(folded);
        if p.schedule().place(t).alone() == Place::InPlace || window {
            return 0.0;
        }
        let tile = TileStrides::dense(p, s, t);
        let mem = TileStrides::operand(p, s, operand as usize);
        let (n, lane) = run(s, self.axes(t), &[&tile, &mem]);
        let gathered = lane.is_some_and(|a| mem.gathered[a]);
        let four = k.operands[operand as usize].dtype.bits() == 32;
        // Neighbours in memory along another axis: squares are turned in registers.
        let beside = |&a: &AxisId| mem.step[a as usize] == 1.0 && s.piece[a as usize] > 1.0;
        let across = self.axes(t).iter().any(beside);
        let load = k.operands[operand as usize].role == Role::Read;
        match (gathered, side_by_side(&mem, lane)) {
            (true, _) => times * LOOKED_UP,
            (_, true) => {
                w.rows += times / n;
                0.0
            }
            _ if four && across && load => times * TURNED,
            _ => times,
        }
    }

    /// Adds the rows of a map; elements that it takes one by one.
    fn mapped(&self, dst: TileId, args: &[TileId], expr: &Expr, w: &mut Work) -> f64 {
        let (p, s, times) = (self.p, self.s, self.times);
        let axes = self.axes(dst);
        let to = TileStrides::of(p, s, dst);
        let from: Vec<TileStrides> = args.iter().map(|&t| TileStrides::of(p, s, t)).collect();
        let mut all: Vec<&TileStrides> = from.iter().collect();
        all.push(&to);
        let (n, lane) = run(s, axes, &all);
        let points: f64 = axes.iter().map(|&a| s.piece[a as usize]).product();
        let insts = instructions(expr);
        if n > 1.0 && n <= SHORT && points > n {
            w.rows += times / LONG * insts;
            let broken = all.iter().filter(|l| !together(s, axes, l, lane));
            let broken = broken.count() as f64;
            w.rows += times / n * broken;
            // Each copy finds its addresses and calls a loop of its own.
            w.statements += (times / points * broken) as u64;
            return 0.0;
        }
        w.rows += times / n * insts;
        times * apart(&all, lane)
    }

    /// Adds the rows of a fold; elements that it takes one by one.
    fn folded(&self, args: &[TileId], over: &[AxisId], w: &mut Work) -> f64 {
        let (p, s, times) = (self.p, self.s, self.times);
        let Some(&widest) = args.iter().max_by_key(|&&t| self.axes(t).len()) else {
            return 0.0;
        };
        let axes = self.axes(widest);
        let from: Vec<TileStrides> = args.iter().map(|&t| TileStrides::of(p, s, t)).collect();
        let all: Vec<&TileStrides> = from.iter().collect();
        // Kept and reduced axes do not join.
        let lane = axes.iter().rev().find(|&&a| s.piece[a as usize] > 1.0);
        let reduced = lane.is_some_and(|a| over.contains(a));
        let same = axes.iter().copied();
        let same: Vec<AxisId> = same.filter(|a| over.contains(a) == reduced).collect();
        let (n, lane) = run(s, &same, &all);
        let elements = times * apart(&all, lane);
        match reduced {
            true if n < ALONE => return elements + times * REDUCED,
            true => w.rows += times / n * ENDS,
            false => w.rows += times / n,
        }
        elements
    }

    /// Adds the rows of a contraction and what it widens; elements that it takes one by one.
    fn contracted(&self, acc: TileId, factors: [TileId; 2], over: &[AxisId], w: &mut Work) -> f64 {
        let (p, s, times) = (self.p, self.s, self.times);
        let k = p.kernel();
        let Mapping::Cpu(c) = &p.schedule().mapping else {
            return 0.0;
        };
        if c.micro.is_some() {
            // Factors of 16 bits are widened into memory of the worker's own first.
            let widened = |t: TileId| {
                let short = matches!(k.tiles[t as usize].dtype, DType::F16 | DType::BF16);
                let load = |x: &Stmt| match x {
                    Stmt::Load { dst, operand } if *dst == t => Some(*operand as usize),
                    _ => None,
                };
                let o = k.body.iter().find_map(load).filter(|_| short);
                o.map_or(0.0, |o| s.elements[o])
            };
            let n = widened(factors[0]) + widened(factors[1]);
            if n > 0.0 {
                w.add_ops(UnitClass::Element, NumType::F32, n * WIDENED);
            }
            return 0.0;
        }
        // Without a micro-kernel of rows and columns: a row of lanes at a time.
        let [x, y] = factors.map(|t| TileStrides::of(p, s, t));
        let to = TileStrides::of(p, s, acc);
        let (n, lane) = run(s, self.axes(acc), &[&x, &y, &to]);
        let taps: f64 = over.iter().map(|&a| s.gone[a as usize]).product();
        w.rows += times / taps.max(1.0) / n;
        times * apart(&[&x, &y], lane)
    }
}
