//! What is made of the two kernels for one: tensors between them, coordinates of parts, and what of the body is left for
//! the second.
use crate::bind::ctx::Space;
use crate::bind::schedule::candidate::Arg;
use expr::{Expr, Inst};
use kernel::{Access, Axis, AxisId, Kernel, Operand, OperandId, Role, Stmt, Term, Tile, TileId};
use layout::{Arrange, DType, Dim, Inserted};
use std::collections::BTreeSet;

/// Two kernels for one.
pub(super) struct Two {
    pub kernels: [Kernel; 2],
    pub args: [Vec<Arg>; 2],
    /// Elements and type of each tensor between them.
    pub between: Vec<(Dim, DType)>,
    pub cut: (AxisId, i64),
}

/// What is left of the body of `k` for the second kernel: statements `replaced`, which fold along `axis`, and what
/// follows from them, each with its place in the body; `None` where something of that touches the axis.
pub(super) fn after<'k>(
    k: &'k Kernel,
    axis: AxisId,
    replaced: &[usize],
) -> Option<Vec<(usize, &'k Stmt)>> {
    let mut live: BTreeSet<TileId> = BTreeSet::new();
    let mut rest: Vec<(usize, &Stmt)> = vec![];
    for (i, s) in k.body.iter().enumerate().rev() {
        let wanted = matches!(s, Stmt::Store { .. }) || s.writes().iter().any(|t| live.contains(t));
        if replaced.contains(&i) {
            live.extend(s.writes());
            rest.push((i, s));
            continue;
        }
        if !wanted {
            continue;
        }
        let has = |&t: &TileId| k.tiles[t as usize].axes.contains(&axis);
        let touches = s.reads().iter().chain(&s.writes()).any(has)
            || s.over().contains(&axis)
            || matches!(s, Stmt::Map { expr, .. } if counts(expr, axis))
            || matches!(s, Stmt::Relabel { .. });
        if touches {
            return None;
        }
        live.extend(s.reads());
        rest.push((i, s));
    }
    rest.reverse();
    Some(rest)
}

/// A tensor between the two kernels: a tile of the first one by part, parts outermost, then as the output lies.
pub(super) struct Workspace {
    pub tile: TileId,
    name: String,
    dtype: DType,
    terms: Vec<Term>,
    /// Elements of one part.
    elements: Dim,
    pub parts: i64,
}

impl Workspace {
    pub fn of(space: &Space, tile: TileId, name: String, parts: i64) -> Option<Workspace> {
        let k = space.kernel;
        let mut terms = vec![];
        let mut elements = Dim::ONE;
        let out = space.main_output()?;
        let Tile { axes, dtype, .. } = &k.tiles[tile as usize];
        for a in space.inner_first(out, axes) {
            let extent = k.axes[a as usize].extent.clone();
            terms.push(Term::flat(a, extent.clone(), elements.clone()));
            elements = elements * extent;
        }
        Some(Workspace {
            tile,
            name,
            dtype: *dtype,
            terms,
            elements,
            parts,
        })
    }

    /// Elements and type.
    pub fn between(&self) -> (Dim, DType) {
        (self.elements.clone() * Dim::Known(self.parts), self.dtype)
    }

    /// As an operand beside those of `k`, whose parts are along axis `part`.
    pub fn operand(&self, k: &Kernel, part: AxisId, role: Role) -> Operand {
        let (elements, parts) = (&self.elements, Dim::Known(self.parts));
        let mut terms = self.terms.clone();
        terms.push(Term::flat(part, parts.clone(), elements.clone()));
        terms.arrange_by_key(|t| t.axis);
        Operand {
            name: unique(&self.name, k.operands.iter().map(|o| o.name.as_str())),
            dtype: self.dtype,
            role,
            access: Access::strided(Dim::ZERO, terms),
            elements: elements.clone() * parts,
        }
    }

    /// As a tile beside those of `k`, whose parts are along axis `part`.
    pub fn tile(&self, k: &Kernel, part: AxisId) -> Tile {
        let own = &k.tiles[self.tile as usize];
        let mut axes = own.axes.clone();
        axes.push(part);
        axes.arrange();
        Tile {
            name: unique(&self.name, k.tiles.iter().map(|t| t.name.as_str())),
            dtype: self.dtype,
            axes,
        }
    }

    /// The axis of the parts, beside those of `k`.
    pub fn axis(&self, k: &Kernel) -> Axis {
        Axis {
            name: unique("part", k.axes.iter().map(|a| a.name.as_str())),
            extent: Dim::Known(self.parts),
        }
    }
}

/// `k` in the parts of `workspaces` along `axis`, of `piece` positions each, without statements: what it reads is cut, and
/// tiles along the axis, and those of the workspaces, have the axis of the parts, which is the last one.
pub(super) fn in_parts(
    k: &Kernel,
    (axis, piece): (AxisId, &Dim),
    workspaces: &[Workspace],
) -> Option<(Kernel, AxisId)> {
    let (part, first) = (k.axes.len() as AxisId, workspaces.first()?);
    let mut out = Kernel {
        name: format!("{} in parts", k.name),
        body: vec![],
        ..k.clone()
    };
    out.axes[axis as usize].extent = piece.clone();
    out.axes.push(first.axis(k));
    for (t, tile) in (0..).zip(&mut out.tiles) {
        if tile.axes.contains(&axis) || workspaces.iter().any(|w| w.tile == t) {
            tile.axes.push(part);
        }
    }
    for o in out.operands.iter_mut().filter(|o| o.role == Role::Read) {
        cut(&mut o.access, (axis, piece), (part, first.parts))?;
    }
    Some((out, part))
}

/// Ends a kernel in parts: what its workspaces are for is stored in them.
pub(super) fn store_parts(k: &mut Kernel, part: AxisId, workspaces: &[Workspace]) {
    for w in workspaces {
        let operand = k.operands.len() as OperandId;
        let made = w.operand(k, part, Role::Write);
        k.operands.push(made);
        k.body.push(Stmt::Store {
            operand,
            src: w.tile,
        });
    }
}

/// Two kernels made of `k`, with the tensors between them as operands behind those of `k`.
pub(super) fn two_of(
    k: &Kernel,
    kernels: [Kernel; 2],
    between: Vec<(Dim, DType)>,
    cut: (AxisId, i64),
) -> Two {
    let whole = k.operands.len();
    let arg = |o: OperandId| match (o as usize).checked_sub(whole) {
        None => Arg::Whole(o),
        Some(n) => Arg::Between(n),
    };
    let [(first, a), (second, b)] = kernels.map(used);
    Two {
        kernels: [first, second],
        args: [a, b].map(|list| list.into_iter().map(arg).collect()),
        between,
        cut,
    }
}

/// The number that a program gives, where it is one.
pub(super) fn constant(e: &Expr) -> Option<f64> {
    let out = e.outputs.first().and_then(|&o| e.insts.get(o as usize));
    match out? {
        Inst::Float { bits, .. } => Some(f64::from_bits(*bits)),
        Inst::Int { value, .. } => Some(*value as f64),
        _ => None,
    }
}

/// Whether a program reads the coordinate along `axis`.
pub(super) fn counts(e: &Expr, axis: AxisId) -> bool {
    let index = |i: &Inst| matches!(i, Inst::Index { axis: a } if *a == u32::from(axis));
    e.insts.iter().any(index)
}

pub(super) fn unique<'n>(name: &str, taken: impl Iterator<Item = &'n str>) -> String {
    let taken: BTreeSet<&str> = taken.inserted();
    let mut out = name.to_string();
    while taken.contains(out.as_str()) {
        out.push('_');
    }
    out
}

/// Coordinate `c` along `axis` becomes `piece * part + c`.
pub(super) fn cut(
    a: &mut Access,
    (axis, piece): (AxisId, &Dim),
    (part, parts): (AxisId, i64),
) -> Option<()> {
    if let Some(t) = a.terms.iter_mut().find(|t| t.axis == axis) {
        let (leaf, size) = match t.leaves.as_mut_slice() {
            [one] => (one, piece.clone()),
            [outer, inner] => {
                let (n, piece) = (inner.extent.known()?, piece.known()?);
                (n > 0 && piece % n == 0).then_some(())?;
                (outer, Dim::Known(piece / n))
            }
            _ => return None,
        };
        let step = leaf.stride.clone() * size.clone();
        leaf.extent = size;
        a.terms.push(Term::flat(part, Dim::Known(parts), step));
    }
    for b in &mut a.bounds {
        if let Some((_, c)) = b.terms.iter().find(|t| t.0 == axis) {
            let c = c.clone() * piece.clone();
            b.terms.push((part, c));
        }
    }
    Some(())
}

/// The kernel without operands and tiles that no statement uses, and the numbers of those kept.
pub(super) fn used(k: Kernel) -> (Kernel, Vec<OperandId>) {
    let mut operands: BTreeSet<OperandId> = BTreeSet::new();
    let mut tiles: BTreeSet<TileId> = BTreeSet::new();
    for s in &k.body {
        if let Stmt::Load { operand, .. } | Stmt::Store { operand, .. } = s {
            operands.insert(*operand);
            let by = &k.operands[*operand as usize].access.indexed;
            operands.extend(by.iter().map(|i| i.by));
        }
        tiles.extend(s.reads());
        tiles.extend(s.writes());
    }
    let (operands, tiles) = (Vec::from_iter(operands), Vec::from_iter(tiles));
    let o = |x: OperandId| operands.binary_search(&x).unwrap_or(0) as OperandId;
    let t = |x: TileId| tiles.binary_search(&x).unwrap_or(0) as TileId;
    let all = |v: &mut Vec<TileId>| v.iter_mut().for_each(|x| *x = t(*x));
    let mut out = Kernel {
        operands: operands
            .iter()
            .map(|&x| k.operands[x as usize].clone())
            .collect(),
        tiles: tiles.iter().map(|&x| k.tiles[x as usize].clone()).collect(),
        ..k
    };
    for x in &mut out.operands {
        x.access.indexed.iter_mut().for_each(|i| i.by = o(i.by));
    }
    for s in &mut out.body {
        match s {
            Stmt::Load { dst, operand } => (*dst, *operand) = (t(*dst), o(*operand)),
            Stmt::Store { operand, src } => (*src, *operand) = (t(*src), o(*operand)),
            Stmt::Map { dst, args, .. } => {
                *dst = t(*dst);
                all(args);
            }
            Stmt::Contract { acc, a, b, .. } => (*acc, *a, *b) = (t(*acc), t(*a), t(*b)),
            Stmt::Fold {
                state,
                args,
                rescale,
                ..
            } => {
                all(state);
                all(args);
                rescale.iter_mut().for_each(|r| all(&mut r.tiles));
            }
            Stmt::Relabel { dst, src, .. } => (*dst, *src) = (t(*dst), t(*src)),
        }
    }
    (out, operands)
}
