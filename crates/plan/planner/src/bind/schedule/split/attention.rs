//! Attention of few queries to many keys: the maximum, the sum and the weighted values of each part of the keys, and
//! what they come to together.
use super::pieces::{Two, Workspace, after, constant, in_parts, store_parts, two_of};
use crate::bind::ctx::Space;
use crate::bind::schedule::renumber::with_last_first;
use expr::{Binary, Compare, Expr, ExprBuilder, Monoid};
use kernel::{
    AxisId, Bound, Family, Kernel, Operand, OperandId, Rescale, Role, Stmt, Tile, TileId,
};
use layout::{DType, Dim};
use std::collections::BTreeSet;

/// The statements that fold along the keys.
struct Online<'k> {
    keys: AxisId,
    /// Scores, and where their maximum is folded.
    scores: TileId,
    maximum: (usize, TileId),
    /// Where the weights are summed.
    sum: (usize, TileId),
    /// Where the weighted values are summed.
    values: (usize, TileId),
    /// What a sum is multiplied by when the maximum changes.
    rescale: &'k Rescale,
}

impl<'k> Online<'k> {
    fn of(k: &'k Kernel) -> Option<Online<'k>> {
        let fold = |(at, s): (usize, &'k Stmt)| match s {
            Stmt::Fold {
                monoid,
                state,
                args,
                over,
                rescale: Some(r),
            } => match (&state[..], &args[..], &over[..]) {
                (&[m], &[s], &[keys]) => Some((at, monoid, m, s, keys, r)),
                _ => None,
            },
            _ => None,
        };
        let mut folds = k.body.iter().enumerate().filter_map(fold);
        let (at, monoid, m, scores, keys, rescale) = folds.next()?;
        let sums = |(at, s): (usize, &Stmt)| match s {
            Stmt::Fold {
                monoid,
                state,
                over,
                rescale: None,
                ..
            } if over[..] == [keys] && *monoid == Monoid::sum(DType::F32, DType::F32) => {
                Some((at, *state.first()?))
            }
            _ => None,
        };
        let products = |(at, s): (usize, &Stmt)| match s {
            Stmt::Contract { acc, over, .. } if over[..] == [keys] => Some((at, *acc)),
            _ => None,
        };
        let each = || k.body.iter().enumerate().skip(at + 1);
        let (sum, values) = (each().find_map(sums)?, each().find_map(products)?);
        let online = Online {
            keys,
            scores,
            maximum: (at, m),
            sum,
            values,
            rescale,
        };
        let f32 = |t: TileId| k.tiles[t as usize].dtype == DType::F32;
        let own = online.states();
        let all = own.iter().all(|t| f32(*t)) && own[1..].iter().all(|t| rescale.tiles.contains(t));
        let max = *monoid == Monoid::max(DType::F32, DType::F32);
        // A part begins as the whole does, with nothing.
        let begins = own.map(|t| {
            let fills = k.body.iter().filter_map(Stmt::as_fill);
            let mut fills = fills.filter(|f| f.0 == t).map(|f| constant(f.1));
            fills.next().flatten().filter(|_| fills.next().is_none())
        });
        let nothing = begins == [Some(f64::NEG_INFINITY), Some(0.0), Some(0.0)];
        let scored = k.body.iter().filter(|s| s.writes().contains(&scores));
        let once = scored.count() == 1;
        (max && all && nothing && once && rescale.tiles.len() == 2 && folds.next().is_none())
            .then_some(online)
    }

    fn states(&self) -> [TileId; 3] {
        [self.maximum.1, self.sum.1, self.values.1]
    }

    fn statements(&self) -> [usize; 3] {
        [self.maximum.0, self.sum.0, self.values.0]
    }
}

/// The axis of the keys of an attention, and how many they are at most.
pub(super) fn keys(space: &Space) -> Option<(AxisId, i64)> {
    let keys = Online::of(space.kernel)?.keys;
    Some((keys, space.extent(keys)))
}

/// The attention in `parts` of its keys, and what the parts come to with what follows; `None` where the kernel has
/// another form.
pub(super) fn two(space: &Space, axis: AxisId, parts: i64) -> Option<Two> {
    let k = space.kernel;
    let online = Online::of(k).filter(|o| o.keys == axis)?;
    let workspaces = online.states().map(|t| {
        let name = format!("{} parts", k.tiles[t as usize].name);
        Workspace::of(space, t, name, parts)
    });
    let [Some(m), Some(l), Some(o)] = workspaces else {
        return None;
    };
    let workspaces = [m, l, o];
    let first = of_each_part(k, &online, &workspaces)?;
    let second = of_all(k, &online, &workspaces)?;
    let between = workspaces.iter().map(Workspace::between).collect();
    Some(two_of(k, [first, second], between, (axis, parts)))
}

/// Keys of a part, and whether the last parts may have fewer.
fn piece(keys: &Dim, parts: i64) -> (Dim, bool) {
    match keys.exact_div(&Dim::Known(parts)) {
        Some(piece) => (piece, false),
        None => (keys.ceil_div(&Dim::Known(parts)), true),
    }
}

/// The number of a key by its coordinates along `axis` and `part`.
fn key(b: &mut ExprBuilder, (axis, piece): (AxisId, &Dim), part: AxisId) -> expr::Ref {
    let (part, piece) = (b.index(part.into()), b.dim(piece));
    let first = b.binary(Binary::Mul, part, piece);
    let own = b.index(axis.into());
    b.add(first, own)
}

/// The first kernel: one axis more, that of the parts, which the keys and all that is made of them have.
fn of_each_part(k: &Kernel, online: &Online, workspaces: &[Workspace; 3]) -> Option<Kernel> {
    let axis = online.keys;
    let keys = &k.axes[axis as usize].extent;
    let parts = workspaces[0].parts;
    let (piece, uneven) = piece(keys, parts);
    // What is read of a key that is not there counts nothing, whatever an index says of it.
    let finite = |o: &Operand| o.access.outside.is_finite() && o.access.indexed.is_empty();
    if uneven
        && !k
            .operands
            .iter()
            .filter(|o| o.role == Role::Read)
            .all(finite)
    {
        return None;
    }
    let (mut first, part) = in_parts(k, (axis, &piece), workspaces)?;
    for o in first.operands.iter_mut().filter(|o| o.role == Role::Read) {
        if uneven && o.access.terms.iter().any(|t| t.axis == axis) {
            o.access.bounds.push(Bound {
                terms: vec![(axis, Dim::ONE), (part, piece.clone())],
                base: Dim::ZERO,
                extent: keys.clone(),
            });
        }
    }
    let last = online.statements().into_iter().max()?;
    let mut live = BTreeSet::from(online.states());
    let mut body: Vec<Stmt> = vec![];
    let mut scored = !uneven;
    for s in k.body[..=last].iter().rev() {
        if !s.writes().iter().any(|t| live.contains(t)) {
            continue;
        }
        live.extend(s.reads());
        let mut own = s.clone();
        if let Stmt::Map { dst, expr, .. } = &mut own {
            // A key that is not there has no weight.
            let masked = !scored && *dst == online.scores;
            let limit = masked.then_some(keys);
            *expr = by_part(expr, (axis, &piece), part, limit);
            scored |= masked;
        }
        body.push(own);
    }
    body.reverse();
    first.body = body;
    store_parts(&mut first, part, workspaces);
    scored.then(|| with_last_first(first))
}

/// A program of the whole for a part: of a key its number, and minus infinity for one that is not below `limit`.
fn by_part(e: &Expr, along: (AxisId, &Dim), part: AxisId, limit: Option<&Dim>) -> Expr {
    let mut b = ExprBuilder::new();
    let index = |b: &mut ExprBuilder, a: u32| match a == u32::from(along.0) {
        true => key(b, along, part),
        false => b.index(a),
    };
    let mut outs = b.append(e, Some(&index));
    if let (Some(limit), [out]) = (limit, &mut outs[..]) {
        let (key, limit) = (key(&mut b, along, part), b.dim(limit));
        let there = b.compare(Compare::Lt, key, limit);
        let none = b.constant(f64::NEG_INFINITY, DType::F32);
        *out = b.select(there, *out, none);
    }
    b.finish(&outs)
}

/// The second kernel: the keys are the parts, whose sums count as much as their maximum is of the maximum of all.
fn of_all(k: &Kernel, online: &Online, workspaces: &[Workspace; 3]) -> Option<Kernel> {
    let axis = online.keys;
    let mut second = k.clone();
    second.family = Family::Row;
    second.axes[axis as usize] = workspaces[0].axis(k);
    for w in workspaces {
        let made = w.operand(&second, axis, Role::Read);
        second.operands.push(made);
    }
    let rest = after(k, axis, &online.statements())?;
    let mut body = vec![];
    let mut factor = None;
    for (i, s) in rest {
        let Some(n) = online.statements().iter().position(|at| *at == i) else {
            body.push(s.clone());
            continue;
        };
        let w = &workspaces[n];
        let mut new = |tile: Tile| {
            second.tiles.push(tile);
            (second.tiles.len() - 1) as TileId
        };
        let of_part = w.tile(k, axis);
        let named = |name: &str| Tile {
            name: name.into(),
            ..of_part.clone()
        };
        let loaded = new(of_part.clone());
        let operand = (k.operands.len() + n) as OperandId;
        body.push(Stmt::Load {
            dst: loaded,
            operand,
        });
        let args = match factor {
            None => vec![loaded],
            Some(factor) => {
                let weighted = new(named(&format!("weighted {}", of_part.name)));
                body.push(Stmt::Map {
                    dst: weighted,
                    expr: product(),
                    args: vec![loaded, factor],
                });
                vec![weighted]
            }
        };
        let max = n == 0;
        let monoid = match max {
            true => Monoid::max(DType::F32, DType::F32),
            false => Monoid::sum(DType::F32, DType::F32),
        };
        body.push(Stmt::Fold {
            monoid,
            state: vec![w.tile],
            args,
            over: vec![axis],
            rescale: None,
        });
        if max {
            let dst = new(named("weights of parts"));
            body.push(Stmt::Map {
                dst,
                expr: online.rescale.factor.clone(),
                args: vec![loaded, w.tile],
            });
            factor = Some(dst);
        }
    }
    second.body = body;
    factor.is_some().then_some(second)
}

fn product() -> Expr {
    let mut b = ExprBuilder::new();
    let (x, y) = (b.input(0, DType::F32), b.input(1, DType::F32));
    let product = b.binary(Binary::Mul, x, y);
    b.finish(&[product])
}
