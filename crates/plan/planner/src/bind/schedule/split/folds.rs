//! Reductions of few long rows, with what follows from them: the states of the parts of each row side by side, then what
//! they come to, by whoever goes on with it.
use super::pieces::{Two, Workspace, constant, counts, in_parts, store_parts, two_of};
use crate::bind::ctx::Space;
use expr::{Binary, Expr, ExprBuilder, Inst, Monoid, Ref};
use kernel::{AxisId, Kernel, OperandId, Role, Stmt, Tile, TileId};
use layout::Inserted;
use layout::{DType, Dim};
use std::collections::BTreeSet;

/// One reduction, into one number of f32 for each row.
struct Fold<'k> {
    /// Where it is in the body.
    at: usize,
    monoid: &'k Monoid,
    state: TileId,
    args: &'k [TileId],
    /// For the sum of squared distances from a middle that is known only when rows have been gone through.
    about: Option<Middle>,
}

/// What distances are taken from.
struct Middle {
    tile: TileId,
    /// The reduction that sums what the distances are of.
    sum: usize,
}

/// The reductions of a kernel, which all go over the same axes.
struct Folds<'k> {
    over: &'k [AxisId],
    all: Vec<Fold<'k>>,
    /// Tiles that follow from a reduction.
    follow: BTreeSet<TileId>,
}

impl<'k> Folds<'k> {
    /// `None` where something of the kernel has another form.
    fn of(k: &'k Kernel) -> Option<Folds<'k>> {
        let first = k.body.iter().find(|s| matches!(s, Stmt::Fold { .. }))?;
        let mut found = Folds {
            over: first.over(),
            all: vec![],
            follow: BTreeSet::new(),
        };
        for (at, s) in k.body.iter().enumerate() {
            match s {
                Stmt::Load { .. } | Stmt::Store { .. } => {}
                Stmt::Map { dst, args, .. } => {
                    if args.iter().any(|t| found.follow.contains(t)) {
                        found.follow.insert(*dst);
                    }
                }
                Stmt::Fold { .. } => {
                    let fold = found.fold(k, at, s)?;
                    found.follow.insert(fold.state);
                    found.all.push(fold);
                }
                Stmt::Contract { .. } | Stmt::Relabel { .. } => return None,
            }
        }
        Some(found)
    }

    fn fold(&self, k: &'k Kernel, at: usize, s: &'k Stmt) -> Option<Fold<'k>> {
        let Stmt::Fold {
            monoid,
            state,
            args,
            over,
            rescale: None,
        } = s
        else {
            return None;
        };
        let &[state] = state.as_slice() else {
            return None;
        };
        // It begins as one of no positions does, and its positions have no numbers.
        let mut fills = k.body.iter().filter_map(Stmt::as_fill);
        let fill = fills.find(|f| f.0 == state)?;
        let begins = constant(fill.1) == Some(constant(&monoid.identity)?);
        let once = k
            .body
            .iter()
            .filter(|s| s.writes().contains(&state))
            .count()
            == 2;
        let mut insts = monoid.lift.insts.iter();
        let numbered = insts.any(|i| matches!(i, Inst::Index { .. }));
        let f32s = k.tiles[state as usize].dtype == DType::F32;
        let operation = monoid.operation()?;
        if over[..] != *self.over || !begins || !once || numbered || !f32s {
            return None;
        }
        let follows = args.iter().any(|t| self.follow.contains(t));
        let about = match follows {
            true if operation == Binary::Add => Some(self.middle(&monoid.lift, args)?),
            true => return None,
            false => None,
        };
        Some(Fold {
            at,
            monoid,
            state,
            args,
            about,
        })
    }

    /// What the squared distances that `lift` gives are taken from.
    fn middle(&self, lift: &Expr, args: &[TileId]) -> Option<Middle> {
        let &[x, tile] = args else { return None };
        if !squared_distance(lift)? || self.follow.contains(&x) {
            return None;
        }
        let sums = |f: &Fold| {
            let own = f.monoid.lift.outputs.first();
            let plain = own.and_then(|&r| input(&f.monoid.lift, r)) == Some(0);
            plain && f.args == [x] && f.monoid.operation() == Some(Binary::Add)
        };
        let sum = self.all.iter().position(sums)?;
        Some(Middle { tile, sum })
    }
}

/// The slot that a value is, widened or not.
fn input(e: &Expr, r: Ref) -> Option<u32> {
    match e.insts.get(r as usize)? {
        Inst::Input { slot, .. } => Some(*slot),
        Inst::Cast(x, DType::F32) => input(e, *x),
        _ => None,
    }
}

/// Whether a program gives the square of its first argument less its second.
fn squared_distance(e: &Expr) -> Option<bool> {
    let &[out] = e.outputs.as_slice() else {
        return None;
    };
    let Inst::Binary(Binary::Mul, x, y) = e.insts.get(out as usize)? else {
        return None;
    };
    let Inst::Binary(Binary::Sub, a, b) = e.insts.get(*x as usize)? else {
        return None;
    };
    Some(x == y && input(e, *a) == Some(0) && input(e, *b) == Some(1))
}

/// The longest axis that a kernel's reductions go over, and the positions of a row; `None` where it has another form.
pub(super) fn longest(k: &Kernel) -> Option<(AxisId, i64)> {
    let folds = Folds::of(k)?;
    let known = |a: &AxisId| k.axes[*a as usize].extent.known();
    let axis = folds.over.iter().copied().max_by_key(|a| (known(a), *a))?;
    let all = folds.over.iter().map(known);
    Some((axis, all.product::<Option<i64>>()?))
}

/// The reductions in `parts` along `axis`, whose extent is a multiple of them, and what the parts come to with what
/// follows; `None` where the kernel has another form.
pub(super) fn two(space: &Space, axis: AxisId, parts: i64) -> Option<Two> {
    let k = space.kernel;
    let folds = Folds::of(k).filter(|f| f.over.contains(&axis))?;
    let points = longest(k)?.1 / parts;
    let workspace = |f: &Fold| {
        let name = format!("{} parts", k.tiles[f.state as usize].name);
        Workspace::of(space, f.state, name, parts)
    };
    let workspaces: Vec<Workspace> = folds.all.iter().map(workspace).collect::<Option<_>>()?;
    let first = of_each_part(k, axis, (&folds, &workspaces), points)?;
    let second = of_all(k, &folds, &workspaces, points)?;
    let between = workspaces.iter().map(Workspace::between).collect();
    Some(two_of(k, [first, second], between, (axis, parts)))
}

/// Adds a tile.
fn new_tile(k: &mut Kernel, tile: Tile) -> TileId {
    k.tiles.push(tile);
    (k.tiles.len() - 1) as TileId
}

/// The first kernel: the states of each part, which has so many `points`. Distances are taken from the part's own mean.
fn of_each_part(
    k: &Kernel,
    axis: AxisId,
    (folds, workspaces): (&Folds, &[Workspace]),
    points: i64,
) -> Option<Kernel> {
    let parts = workspaces.first()?.parts;
    let length = k.axes[axis as usize].extent.known()?;
    (length % parts == 0).then_some(())?;
    let piece = Dim::Known(length / parts);
    let (mut first, part) = in_parts(k, (axis, &piece), workspaces)?;
    let needed = needed(k, axis, folds)?;
    for (at, s) in k.body.iter().enumerate() {
        if !needed.contains(&at) {
            continue;
        }
        let about = folds.all.iter().find(|f| f.at == at);
        let Some((f, m)) = about.and_then(|f| Some((f, f.about.as_ref()?))) else {
            first.body.push(s.clone());
            continue;
        };
        let sum = folds.all[m.sum].state;
        let own = first.tiles[sum as usize].clone();
        let mean = new_tile(
            &mut first,
            Tile {
                name: format!("{} of a part", own.name),
                ..own
            },
        );
        first.body.push(Stmt::Map {
            dst: mean,
            expr: scaled(1.0 / points as f64),
            args: vec![sum],
        });
        let mut own = s.clone();
        if let Stmt::Fold { args, .. } = &mut own {
            *args = vec![f.args[0], mean];
        }
        first.body.push(own);
    }
    store_parts(&mut first, part, workspaces);
    Some(first)
}

/// Places of the statements that make the states of a part, without what distances are taken from; `None` where one
/// asks for a position's number along `axis`.
fn needed(k: &Kernel, axis: AxisId, folds: &Folds) -> Option<BTreeSet<usize>> {
    let mut live: BTreeSet<TileId> = folds.all.iter().map(|f| f.state).inserted();
    let mut places = BTreeSet::new();
    for (at, s) in k.body.iter().enumerate().rev() {
        if matches!(s, Stmt::Store { .. }) || !s.writes().iter().any(|t| live.contains(t)) {
            continue;
        }
        if matches!(s, Stmt::Map { expr, .. } if counts(expr, axis)) {
            return None;
        }
        let middle = |t: &TileId| folds.follow.contains(t);
        live.extend(s.reads().into_iter().filter(|t| !middle(t)));
        places.insert(at);
    }
    Some(places)
}

/// The second kernel: as the whole, but for its states, which those of the parts come to.
fn of_all(k: &Kernel, folds: &Folds, workspaces: &[Workspace], points: i64) -> Option<Kernel> {
    let part = k.axes.len() as AxisId;
    let mut second = k.clone();
    second.axes.push(workspaces.first()?.axis(k));
    let mut loaded = vec![];
    for w in workspaces {
        let made = w.operand(&second, part, Role::Read);
        second.operands.push(made);
        let tile = w.tile(&second, part);
        loaded.push(new_tile(&mut second, tile));
    }
    let mut body = vec![];
    for (at, s) in k.body.iter().enumerate() {
        let Some(n) = folds.all.iter().position(|f| f.at == at) else {
            body.push(s.clone());
            continue;
        };
        let f = &folds.all[n];
        body.push(Stmt::Load {
            dst: loaded[n],
            operand: (k.operands.len() + n) as OperandId,
        });
        let mut args = vec![loaded[n]];
        if let Some(m) = &f.about {
            let own = second.tiles[loaded[n] as usize].clone();
            let name = format!("{} about the whole", own.name);
            let dst = new_tile(&mut second, Tile { name, ..own });
            body.push(Stmt::Map {
                dst,
                expr: about_another(points as f64),
                args: vec![loaded[n], loaded[m.sum], m.tile],
            });
            args = vec![dst];
        }
        body.push(Stmt::Fold {
            monoid: Monoid {
                lift: scaled(1.0),
                ..f.monoid.clone()
            },
            state: vec![f.state],
            args,
            over: vec![part],
            rescale: None,
        });
    }
    second.body = live(body);
    Some(second)
}

/// The statements that what is stored follows from.
fn live(body: Vec<Stmt>) -> Vec<Stmt> {
    let mut live: BTreeSet<TileId> = BTreeSet::new();
    let mut kept: Vec<Stmt> = vec![];
    for s in body.into_iter().rev() {
        let store = matches!(s, Stmt::Store { .. });
        if store || s.writes().iter().any(|t| live.contains(t)) {
            live.extend(s.reads());
            kept.push(s);
        }
    }
    kept.reverse();
    kept
}

/// Its argument, times `by`.
fn scaled(by: f64) -> Expr {
    let mut b = ExprBuilder::new();
    let x = b.input(0, DType::F32);
    let out = match by {
        1.0 => x,
        _ => {
            let by = b.constant(by, DType::F32);
            b.mul(x, by)
        }
    };
    b.finish(&[out])
}

/// Squared distances of so many points from another middle, of those from their mean, their sum, and the middle:
/// `squares + points * (sum / points - middle)^2` (Chan, Golub and LeVeque, 1979).
fn about_another(points: f64) -> Expr {
    let mut b = ExprBuilder::new();
    let [squares, sum, middle] = [0, 1, 2].map(|s| b.input(s, DType::F32));
    let each = b.constant(1.0 / points, DType::F32);
    let mean = b.mul(sum, each);
    let off = b.sub(mean, middle);
    let off = b.mul(off, off);
    let points = b.constant(points, DType::F32);
    let off = b.mul(off, points);
    let out = b.add(squares, off);
    b.finish(&[out])
}
