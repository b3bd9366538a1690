//! Rules about loops: where values exist and when sums are complete.
use super::blame::Blame;
use crate::{AxisId, AxisTile, Kernel, KernelError, Node, Stmt, TileId};
use expr::Inst;
use layout::Inserted;
use std::collections::{BTreeMap, BTreeSet};

type Checked = Result<(), KernelError>;

/// A statement with the loops around it: (axis, number of that loop), outermost first.
struct Placed<'a> {
    stmt: &'a Stmt,
    loops: Vec<(AxisId, usize)>,
}

impl Placed<'_> {
    fn instance(&self, axis: AxisId) -> Option<usize> {
        self.loops.iter().find(|l| l.0 == axis).map(|l| l.1)
    }
}

pub(super) fn check(k: &Kernel, loops: &[AxisTile], body: &[Node]) -> Checked {
    if loops.is_empty() {
        return Ok(());
    }
    let mut all = Vec::new();
    let mut next = 0;
    collect(body, &mut Vec::new(), &mut next, &mut all);
    let looped: Vec<AxisId> = loops.iter().map(|l| l.axis).collect();
    inside(k, &all, &looped)?;
    partial(k, &all)?;
    once(k, &all)?;
    ordered(k, &all, &looped)
}

/// An ordered axis has one loop: a second would begin with what the first one left.
fn once(k: &Kernel, all: &[Placed]) -> Checked {
    let b = Blame::of(k);
    for a in k.ordered() {
        let loops: BTreeSet<usize> = all.iter().filter_map(|s| s.instance(a)).inserted();
        b.need(loops.len() <= 1, "ordered", || {
            format!(
                "a statement apart from axis '{}' stands between two that belong into its loop",
                k.axes[a as usize].name
            )
        })?;
    }
    Ok(())
}

/// Loops nest as deep as the schedule has loops, which are axes of the kernel.
fn collect<'a>(
    nodes: &'a [Node],
    loops: &mut Vec<(AxisId, usize)>,
    next: &mut usize,
    out: &mut Vec<Placed<'a>>,
) {
    for n in nodes {
        match n {
            Node::Stmt(stmt) => out.push(Placed {
                stmt,
                loops: loops.clone(),
            }),
            Node::Loop { axis, body, .. } => {
                loops.push((axis.axis, *next));
                *next += 1;
                collect(body, loops, next, out);
                loops.pop();
            }
        }
    }
}

/// A tile with a looped axis lives in one loop.
fn inside(k: &Kernel, all: &[Placed], looped: &[AxisId]) -> Checked {
    let b = Blame::of(k);
    let mut home: BTreeMap<(TileId, AxisId), Option<usize>> = BTreeMap::new();
    for s in all {
        for t in s.stmt.reads().into_iter().chain(s.stmt.writes()) {
            let tile = &k.tiles[t as usize];
            for &a in tile.axes.iter().filter(|a| looped.contains(a)) {
                let here = s.instance(a);
                let first = *home.entry((t, a)).or_insert(here);
                b.need(here.is_some() && here == first, "loop", || {
                    format!(
                        "tile '{}' is used outside the loop over '{}' that defines it",
                        tile.name, k.axes[a as usize].name
                    )
                })?;
            }
        }
    }
    Ok(())
}

/// What a loop accumulates is read inside it only through the rescaling fold that makes it.
fn partial(k: &Kernel, all: &[Placed]) -> Checked {
    let b = Blame::of(k);
    let name = |t: TileId| &k.tiles[t as usize].name;
    let instances: BTreeSet<(AxisId, usize)> =
        all.iter().flat_map(|s| s.loops.iter().copied()).inserted();
    for l in instances {
        let body: Vec<&Stmt> = all
            .iter()
            .filter(|s| s.loops.contains(&l))
            .map(|s| s.stmt)
            .collect();
        // What is carried from position to position is whole at each.
        let sums: BTreeSet<TileId> = body
            .iter()
            .filter(|s| !matches!(s, Stmt::Relabel { along: Some(a), .. } if *a == l.0))
            .flat_map(|s| s.writes())
            .filter(|&t| !k.tiles[t as usize].axes.contains(&l.0))
            .inserted();
        // The statement (by position) whose rescaling covers a tile's partial value.
        let mut made: BTreeMap<TileId, usize> = BTreeMap::new();
        // Tiles computed from partial values, with the folds that stand behind them.
        let mut taint: BTreeMap<TileId, BTreeSet<usize>> = BTreeMap::new();
        for (at, s) in body.iter().enumerate() {
            let own = s.writes();
            let mut behind: BTreeSet<usize> = BTreeSet::new();
            for t in s.reads() {
                if let Some(f) = taint.get(&t) {
                    behind.extend(f);
                }
                // An accumulation reads its own sum.
                let accumulates =
                    own.contains(&t) && matches!(s, Stmt::Contract { .. } | Stmt::Fold { .. });
                if sums.contains(&t) && !accumulates {
                    let Some(&f) = made.get(&t) else {
                        return Err(b.error(
                            "loop",
                            format!(
                                "'{}' is read inside the loop over '{}' before it is complete",
                                name(t),
                                k.axes[l.0 as usize].name
                            ),
                        ));
                    };
                    behind.insert(f);
                }
            }
            let covered = |t: TileId, f: usize| match body[f] {
                Stmt::Fold {
                    rescale: Some(r), ..
                } => r.tiles.contains(&t),
                _ => false,
            };
            match s {
                Stmt::Store { src, .. } if !behind.is_empty() => {
                    return Err(b.error(
                        "loop",
                        format!(
                            "'{}' is stored while what it is made from still changes",
                            name(*src)
                        ),
                    ));
                }
                Stmt::Map { dst, .. } | Stmt::Load { dst, .. } | Stmt::Relabel { dst, .. } => {
                    taint.insert(*dst, behind);
                }
                Stmt::Contract { .. } | Stmt::Fold { .. } => {
                    for &t in &own {
                        for &f in &behind {
                            b.need(sums.contains(&t) && covered(t, f), "loop", || {
                                format!("'{}' accumulates from a value that still changes and is not rescaled with it", name(t))
                            })?;
                        }
                    }
                    if let Stmt::Fold {
                        state,
                        rescale: Some(_),
                        ..
                    } = s
                    {
                        state.iter().for_each(|&t| {
                            made.insert(t, at);
                        });
                    }
                }
                Stmt::Store { .. } => {}
            }
        }
    }
    Ok(())
}

/// A fold that counts positions visits them in order: its looped axes come first, as the loops nest.
fn ordered(k: &Kernel, all: &[Placed], looped: &[AxisId]) -> Checked {
    let b = Blame::of(k);
    for s in all {
        let Stmt::Fold { monoid, over, .. } = s.stmt else {
            continue;
        };
        if !monoid
            .lift
            .insts
            .iter()
            .any(|i| matches!(i, Inst::Index { .. }))
        {
            continue;
        }
        let cut: Vec<AxisId> = looped
            .iter()
            .copied()
            .filter(|a| over.contains(a))
            .collect();
        b.need(over.starts_with(&cut), "loop", || {
            format!(
                "monoid '{}' counts positions, so the looped axes must come first in what it folds",
                monoid.name
            )
        })?;
    }
    Ok(())
}
