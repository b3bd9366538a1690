//! Rules of kernels by themselves.
use super::blame::{Blame, strictly_rising, unique};
use super::relabel;
use crate::{Access, AxisId, Kernel, KernelError, Rescale, Role, Stmt, TileId};
use expr::{Expr, Inst, Monoid};
use layout::DType;
use layout::Inserted;
use std::collections::BTreeSet;

const MAX_AXES: usize = 64;
const MAX_LIST: usize = 4096;
const MAX_LEAVES: usize = 16;

type Checked = Result<(), KernelError>;
/// A program of a monoid: what it is, its slots' types, the coordinates it may use.
type Part<'a> = (&'a str, &'a Expr, &'a [DType], &'a dyn Fn(u32) -> bool);

pub(super) fn check(k: &Kernel) -> Checked {
    let b = Blame::of(k);
    sizes(k, &b)?;
    names(k, &b)?;
    for (i, t) in k.tiles.iter().enumerate() {
        b.need(
            t.axes.iter().all(|&a| (a as usize) < k.axes.len()),
            "ids",
            || format!("tile '{}' has an axis that is not there", t.name),
        )?;
        b.need(strictly_rising(&t.axes), "axes", || {
            format!(
                "the axes of tile {i} '{}' are not sorted and unique",
                t.name
            )
        })?;
    }
    for at in 0..k.operands.len() {
        operand(k, &b, at)?;
    }
    statements(k, &b)?;
    stores(k, &b)
}

fn sizes(k: &Kernel, b: &Blame) -> Checked {
    b.need(k.axes.len() <= MAX_AXES, "size", || {
        format!("{} axes; at most {MAX_AXES}", k.axes.len())
    })?;
    for (what, n) in [
        ("operands", k.operands.len()),
        ("tiles", k.tiles.len()),
        ("statements", k.body.len()),
    ] {
        b.need(n <= MAX_LIST, "size", || {
            format!("{n} {what}; at most {MAX_LIST}")
        })?;
    }
    Ok(())
}

fn names(k: &Kernel, b: &Blame) -> Checked {
    b.need(!k.name.is_empty(), "names", || {
        "the kernel has no name".into()
    })?;
    let lists: [(&str, Vec<&str>); 3] = [
        ("axis", k.axes.iter().map(|a| a.name.as_str()).collect()),
        (
            "operand",
            k.operands.iter().map(|o| o.name.as_str()).collect(),
        ),
        ("tile", k.tiles.iter().map(|t| t.name.as_str()).collect()),
    ];
    for (what, list) in lists {
        let mut seen = BTreeSet::new();
        for n in list {
            b.need(!n.is_empty(), "names", || format!("an {what} has no name"))?;
            b.need(seen.insert(n), "names", || {
                format!("two {what}s are named '{n}'")
            })?;
        }
    }
    Ok(())
}

fn operand(k: &Kernel, b: &Blame, at: usize) -> Checked {
    let o = &k.operands[at];
    let axis = |a: AxisId| (a as usize) < k.axes.len();
    let a = &o.access;
    b.need(!o.dtype.is_held(), "types", || {
        format!("operand '{}' is {}, which no kernel reads", o.name, o.dtype)
    })?;
    b.need(
        a.terms.len() <= MAX_AXES && a.bounds.len() <= MAX_LIST && a.indexed.len() <= MAX_AXES,
        "size",
        || {
            format!(
                "operand '{}' has too many terms, bounds or gathered parts",
                o.name
            )
        },
    )?;
    for t in &a.terms {
        b.need(axis(t.axis), "ids", || {
            format!("operand '{}' has an axis that is not there", o.name)
        })?;
        b.need(!t.leaves.is_empty(), "access", || {
            format!("a term of operand '{}' has no leaf", o.name)
        })?;
        b.need(t.leaves.len() <= MAX_LEAVES, "size", || {
            format!(
                "a term of operand '{}' has {} leaves",
                o.name,
                t.leaves.len()
            )
        })?;
    }
    let axes: Vec<AxisId> = a.terms.iter().map(|t| t.axis).collect();
    b.need(unique(&axes), "access", || {
        format!("operand '{}' has two terms of one axis", o.name)
    })?;
    for bound in &a.bounds {
        b.need(bound.terms.iter().all(|t| axis(t.0)), "ids", || {
            format!(
                "a bound of operand '{}' has an axis that is not there",
                o.name
            )
        })?;
        let axes: Vec<AxisId> = bound.terms.iter().map(|t| t.0).collect();
        b.need(unique(&axes), "access", || {
            format!("a bound of operand '{}' names an axis twice", o.name)
        })?;
    }
    b.need(!a.outside.is_nan(), "access", || {
        format!("operand '{}' is NaN outside its bounds", o.name)
    })?;
    for i in &a.indexed {
        b.need((i.by as usize) < k.operands.len(), "ids", || {
            format!(
                "operand '{}' is indexed by an operand that is not there",
                o.name
            )
        })?;
        b.need(o.role == Role::Read, "indexed", || {
            format!("operand '{}' is written at gathered places", o.name)
        })?;
        let by = &k.operands[i.by as usize];
        let fits = (i.by as usize) < at
            && by.role == Role::Read
            && by.dtype.is_int()
            && by.access.indexed.is_empty();
        b.need(fits, "indexed", || {
            format!("operand '{}' is indexed by '{}', which is no earlier plain read operand of integers", o.name, by.name)
        })?;
    }
    Ok(())
}

/// Axes that an access depends on, sorted: those of its terms, its bounds and its indices.
pub(super) fn access_axes(k: &Kernel, a: &Access) -> Vec<AxisId> {
    let mut axes: BTreeSet<AxisId> = a.terms.iter().map(|t| t.axis).inserted();
    axes.extend(a.bounds.iter().flat_map(|b| b.terms.iter().map(|t| t.0)));
    for i in &a.indexed {
        let by = &k.operands[i.by as usize].access;
        axes.extend(by.terms.iter().map(|t| t.axis));
        axes.extend(by.bounds.iter().flat_map(|b| b.terms.iter().map(|t| t.0)));
    }
    axes.into_iter().collect()
}

#[derive(Clone, Copy, PartialEq)]
enum State {
    Undefined,
    Defined,
    /// Filled, or accumulated into since.
    Summing,
}

fn statements(k: &Kernel, b: &Blame) -> Checked {
    let mut state = vec![State::Undefined; k.tiles.len()];
    for (at, s) in k.body.iter().enumerate() {
        let named = s.reads().into_iter().chain(s.writes());
        b.need(
            named.into_iter().all(|t| (t as usize) < k.tiles.len()),
            "ids",
            || format!("statement {at} names a tile that is not there"),
        )?;
        b.need(
            s.over().iter().all(|&a| (a as usize) < k.axes.len()),
            "ids",
            || format!("statement {at} goes over an axis that is not there"),
        )?;
        b.need(unique(s.over()), "axes", || {
            format!("statement {at} goes over an axis twice")
        })?;
        let sums = matches!(s, Stmt::Contract { .. } | Stmt::Fold { .. });
        let written = s.writes();
        for t in s.reads() {
            let ok = match state[t as usize] {
                State::Undefined => false,
                State::Summing => true,
                State::Defined => !(sums && written.contains(&t)),
            };
            b.need(ok, "defined", || {
                format!(
                    "statement {at} uses tile '{}' before it is {}",
                    k.tiles[t as usize].name,
                    match sums && written.contains(&t) {
                        true => "filled",
                        false => "defined",
                    }
                )
            })?;
        }
        match s {
            Stmt::Load { dst, operand } => {
                load(k, b, *dst, *operand)?;
                state[*dst as usize] = State::Defined;
            }
            Stmt::Store { operand, src } => store(k, b, *operand, *src)?,
            Stmt::Map { dst, expr, args } => {
                map(k, b, *dst, expr, args)?;
                state[*dst as usize] = if args.is_empty() {
                    State::Summing
                } else {
                    State::Defined
                };
            }
            Stmt::Contract {
                acc,
                a,
                b: right,
                over,
            } => contract(k, b, *acc, [*a, *right], over)?,
            Stmt::Fold {
                monoid,
                state,
                args,
                over,
                rescale,
            } => {
                fold(k, b, monoid, state, args, over)?;
                if let Some(r) = rescale {
                    rescaled(k, b, r, state, args)?;
                }
            }
            Stmt::Relabel {
                dst,
                src,
                labels,
                along,
            } => {
                let before = state[*dst as usize] != State::Undefined;
                b.need(before || along.is_none(), "defined", || {
                    let t = &k.tiles[*dst as usize].name;
                    format!("tile '{t}' is carried, but nothing defines it for the first position")
                })?;
                relabel::check(k, b, at, (*dst, *src), labels, *along)?;
                state[*dst as usize] = State::Defined;
            }
        }
    }
    Ok(())
}

fn load(k: &Kernel, b: &Blame, dst: TileId, operand: u16) -> Checked {
    let Some(o) = k.operands.get(operand as usize) else {
        return Err(b.error("ids", "an operand that is not there is loaded"));
    };
    let t = &k.tiles[dst as usize];
    b.need(o.role == Role::Read, "load", || {
        format!("operand '{}' is loaded but is no read operand", o.name)
    })?;
    b.need(t.dtype == o.dtype, "load", || {
        format!(
            "{} tile '{}' is loaded from {} operand '{}'",
            t.dtype, t.name, o.dtype, o.name
        )
    })?;
    b.need(t.axes == access_axes(k, &o.access), "load", || {
        format!(
            "tile '{}' has not exactly the axes of operand '{}'",
            t.name, o.name
        )
    })
}

fn store(k: &Kernel, b: &Blame, operand: u16, src: TileId) -> Checked {
    let Some(o) = k.operands.get(operand as usize) else {
        return Err(b.error("ids", "an operand that is not there is stored"));
    };
    let t = &k.tiles[src as usize];
    b.need(o.role == Role::Write, "store", || {
        format!("operand '{}' is stored but is no write operand", o.name)
    })?;
    b.need(t.dtype == o.dtype, "store", || {
        format!(
            "{} tile '{}' is stored to {} operand '{}'",
            t.dtype, t.name, o.dtype, o.name
        )
    })?;
    b.need(t.axes == access_axes(k, &o.access), "store", || {
        format!(
            "tile '{}' has not exactly the axes of operand '{}'",
            t.name, o.name
        )
    })
}

/// Every Write operand is stored by exactly one statement.
fn stores(k: &Kernel, b: &Blame) -> Checked {
    let mut count = vec![0usize; k.operands.len()];
    for s in &k.body {
        if let Stmt::Store { operand, .. } = s {
            count[*operand as usize] += 1;
        }
    }
    for (o, n) in k.operands.iter().zip(count) {
        b.need(o.role == Role::Read || n == 1, "store", || {
            format!(
                "operand '{}' is stored by {n} statements instead of 1",
                o.name
            )
        })?;
    }
    Ok(())
}

/// Types of the results of a program whose slots have the types `slots` and whose coordinates
/// satisfy `index`.
fn program(
    b: &Blame,
    what: &str,
    e: &Expr,
    slots: &[DType],
    index: &dyn Fn(u32) -> bool,
) -> Result<Vec<DType>, KernelError> {
    let types = e
        .types()
        .map_err(|x| b.error("program", format!("{what}: {x}")))?;
    for i in &e.insts {
        match i {
            Inst::Input { slot, dtype } => {
                let given = slots.get(*slot as usize);
                b.need(given == Some(dtype), "program", || {
                    let got = given.map_or("nothing".into(), |d| d.to_string());
                    format!("{what}: slot {slot} is {dtype} and gets {got}")
                })?;
            }
            Inst::Index { axis } => {
                b.need(index(*axis), "program", || {
                    format!("{what}: there is no coordinate along axis {axis} here")
                })?;
            }
            _ => {}
        }
    }
    Ok(e.outputs.iter().map(|&o| types[o as usize]).collect())
}

fn map(k: &Kernel, b: &Blame, dst: TileId, e: &Expr, args: &[TileId]) -> Checked {
    let t = &k.tiles[dst as usize];
    let slots: Vec<DType> = args.iter().map(|&a| k.tiles[a as usize].dtype).collect();
    let index = |a: u32| u16::try_from(a).is_ok_and(|a| t.axes.binary_search(&a).is_ok());
    let out = program(
        b,
        &format!("the program of tile '{}'", t.name),
        e,
        &slots,
        &index,
    )?;
    b.need(out == [t.dtype], "program", || {
        format!(
            "the program of {} tile '{}' does not give one such value",
            t.dtype, t.name
        )
    })?;
    for &a in args {
        let arg = &k.tiles[a as usize];
        b.need(
            arg.axes.iter().all(|x| t.axes.binary_search(x).is_ok()),
            "map",
            || {
                format!(
                    "tile '{}' lacks an axis of its argument '{}'",
                    t.name, arg.name
                )
            },
        )?;
    }
    Ok(())
}

/// Whether `result` and `over` are apart and have all of `axes` between them.
fn covers(result: &[AxisId], over: &[AxisId], axes: &[AxisId]) -> bool {
    over.iter().all(|a| result.binary_search(a).is_err())
        && axes
            .iter()
            .all(|a| over.contains(a) || result.binary_search(a).is_ok())
}

fn contract(k: &Kernel, b: &Blame, acc: TileId, factors: [TileId; 2], over: &[AxisId]) -> Checked {
    let t = &k.tiles[acc as usize];
    b.need(!factors.contains(&acc), "contract", || {
        format!("tile '{}' is its own factor", t.name)
    })?;
    for f in factors {
        let axes = &k.tiles[f as usize].axes;
        b.need(covers(&t.axes, over, axes), "contract", || {
            format!(
                "accumulator '{}' has not the axes of '{}' that are not summed",
                t.name, k.tiles[f as usize].name
            )
        })?;
    }
    Ok(())
}

fn fold(
    k: &Kernel,
    b: &Blame,
    m: &Monoid,
    state: &[TileId],
    args: &[TileId],
    over: &[AxisId],
) -> Checked {
    let types = |list: &[TileId]| {
        list.iter()
            .map(|&t| k.tiles[t as usize].dtype)
            .collect::<Vec<_>>()
    };
    let Some(&first) = state.first() else {
        return Err(b.error("fold", "a fold has no state"));
    };
    b.need(
        unique(state) && !args.iter().any(|a| state.contains(a)),
        "fold",
        || "a fold's states are not apart from each other and its arguments".into(),
    )?;
    let axes = &k.tiles[first as usize].axes;
    for &s in state {
        b.need(k.tiles[s as usize].axes == *axes, "fold", || {
            format!(
                "state '{}' has other axes than the first",
                k.tiles[s as usize].name
            )
        })?;
    }
    for &a in args {
        let t = &k.tiles[a as usize];
        b.need(covers(axes, over, &t.axes), "fold", || {
            format!(
                "the state has not the axes of '{}' that are not folded",
                t.name
            )
        })?;
    }
    b.need(covers(axes, over, &[]), "fold", || {
        "the state has a folded axis".into()
    })?;
    let (of_state, of_args) = (types(state), types(args));
    let twice = [of_state.clone(), of_state.clone()].concat();
    let none = |_: u32| false;
    let parts: [Part; 3] = [
        ("identity", &m.identity, &[], &none),
        ("lift", &m.lift, &of_args, &|a| a == 0),
        ("combine", &m.combine, &twice, &none),
    ];
    for (what, e, slots, index) in parts {
        let what = format!("the {what} of monoid '{}'", m.name);
        let out = program(b, &what, e, slots, index)?;
        b.need(out == of_state, "program", || {
            format!("{what} does not give the types of the state")
        })?;
    }
    program(
        b,
        &format!("the finish of monoid '{}'", m.name),
        &m.finish,
        &of_state,
        &none,
    )?;
    Ok(())
}

fn rescaled(k: &Kernel, b: &Blame, r: &Rescale, state: &[TileId], args: &[TileId]) -> Checked {
    let of_state: Vec<DType> = state.iter().map(|&t| k.tiles[t as usize].dtype).collect();
    let twice = [of_state.clone(), of_state].concat();
    let out = program(b, "the factor of a rescale", &r.factor, &twice, &|_| false)?;
    b.need(unique(&r.tiles), "rescale", || {
        "a tile is rescaled twice".into()
    })?;
    let axes = &k.tiles[state[0] as usize].axes;
    for &t in &r.tiles {
        let tile = &k.tiles[t as usize];
        b.need(!state.contains(&t) && !args.contains(&t), "rescale", || {
            format!(
                "tile '{}' is rescaled by the fold that it belongs to",
                tile.name
            )
        })?;
        b.need(
            axes.iter().all(|a| tile.axes.binary_search(a).is_ok()),
            "rescale",
            || format!("rescaled tile '{}' lacks an axis of the state", tile.name),
        )?;
        b.need(out == [tile.dtype], "rescale", || {
            format!(
                "the factor has not the type of rescaled tile '{}'",
                tile.name
            )
        })?;
    }
    b.need(out.len() == 1, "rescale", || {
        "the factor is not one value".into()
    })
}
