//! Which tiles are recomputed at each use instead of being stored. Planner, verifier and emitters must agree on
//! it.
use crate::{Kernel, Stmt, TileId};
use expr::{Binary, Expr, Inst, Monoid, Ref};
use layout::DType;

/// Whether `t` can be computed wherever it is read ([`crate::Place::Recompute`]): one map, one load, or
/// one relabelling that carries nothing, makes it, of tiles that have their final values by then.
pub fn recomputable(kernel: &Kernel, t: TileId) -> bool {
    let writers = |t: TileId| {
        let all = kernel.body.iter().enumerate();
        all.filter(move |(_, s)| s.writes().contains(&t))
            .map(|(i, _)| i)
    };
    let mut own = writers(t);
    let (Some(at), None) = (own.next(), own.next()) else {
        return false;
    };
    let made = &kernel.body[at];
    let kind = matches!(
        made,
        Stmt::Map { .. } | Stmt::Load { .. } | Stmt::Relabel { along: None, .. }
    );
    kind && made.reads().iter().all(|&r| writers(r).all(|w| w < at))
}

/// The f32 tile of which `t` is a positive multiple, with the factor, where all that reads `t` are largest elements and
/// powers of what it differs from them by ([`expr::shifted_exp`]): the largest multiple is the multiple of the largest,
/// and a difference takes the factor along. So `t` costs nothing where it is computed anew.
pub fn scaled(kernel: &Kernel, t: TileId) -> Option<(TileId, f64)> {
    if !recomputable(kernel, t) {
        return None;
    }
    let (source, by) = kernel.body.iter().find_map(|s| match s {
        Stmt::Map { dst, expr, args } if *dst == t => match args[..] {
            [source] => Some((source, multiple(expr)?)),
            _ => None,
        },
        _ => None,
    })?;
    let spared = |s: &Stmt| match s {
        Stmt::Fold { monoid, args, .. } => args[..] == [t] && keeps_largest(monoid),
        Stmt::Map { expr, args, .. } => shifts(expr, args, t),
        _ => false,
    };
    let mut readers = kernel.body.iter().filter(|s| s.reads().contains(&t));
    let alone = kernel.body.iter().filter(|s| s.reads().contains(&source));
    // A product reads the sums that it adds to.
    let alone = alone.filter(|s| !s.writes().contains(&source)).count() == 1;
    let f32s = [t, source].map(|t| kernel.tiles[t as usize].dtype) == [DType::F32; 2];
    (f32s && alone && readers.all(spared)).then_some((source, by))
}

/// The positive number by which a program multiplies its argument, where it does nothing else.
fn multiple(e: &Expr) -> Option<f64> {
    let &[out] = &e.outputs[..] else { return None };
    let at = |r: Ref| e.insts.get(r as usize);
    let Inst::Binary(Binary::Mul, x, y) = *at(out)? else {
        return None;
    };
    let by = match (at(x)?, at(y)?) {
        (Inst::Input { .. }, Inst::Float { bits, .. })
        | (Inst::Float { bits, .. }, Inst::Input { .. }) => f64::from_bits(*bits),
        _ => return None,
    };
    (by > 0.0 && by.is_finite()).then_some(by)
}

/// Whether a fold is the largest of its elements as they are.
fn keeps_largest(m: &Monoid) -> bool {
    m.operation() == Some(Binary::Max) && m.lift == Expr::identity(DType::F32)
}

/// Whether a program reads `t` as nothing but what a maximum is taken from.
fn shifts(e: &Expr, args: &[TileId], t: TileId) -> bool {
    let slot = |r: Ref| match e.insts.get(r as usize) {
        Some(Inst::Input { slot, .. }) => args.get(*slot as usize) == Some(&t),
        _ => false,
    };
    let found = e.outputs.iter().map(|&o| expr::shifted_exp(&e.insts, o));
    let once = args.iter().filter(|a| **a == t).count() == 1;
    once && e.outputs.len() == 1
        && found.flatten().any(|(x, m)| slot(x) && !slot(m))
        && e.insts.len() <= SHIFT
}

/// Instructions of a program that does no more than that: two arguments, two constants and four operations on them.
const SHIFT: usize = 8;
