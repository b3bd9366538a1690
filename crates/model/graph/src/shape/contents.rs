//! Contents of small integer tensors as dimension expressions: shape arithmetic, done while the
//! graph is built. A tensor's contents are known as a whole or not at all.
use super::Type;
use crate::{Graph, Op, PadMode, ScatterReduce, Value, ValueId, View};
use expr::{Expr, Monoid};
use layout::Dim;

/// Known contents of `op`'s outputs, whose dtypes and shapes are `types`.
pub(crate) fn contents(
    graph: &Graph,
    op: &Op,
    inputs: &[ValueId],
    types: &[Type],
) -> Vec<Option<Vec<Dim>>> {
    let none = || vec![None; types.len()];
    let followed = |t: &Type| !t.0.is_float() && Grid::new(&t.1).is_some();
    if !types.iter().any(followed) {
        return none();
    }
    let mut v = Vec::new();
    for i in inputs {
        match graph.values.get(i.0 as usize) {
            Some(x) => v.push(Operand::new(x)),
            None => return none(),
        }
    }
    // An op whose arguments are all unknown gives nothing worth the look.
    if !v.is_empty() && v.iter().all(|x| x.ints.is_none()) {
        return none();
    }
    let out = evaluate(op, &v, types).unwrap_or_else(none);
    out.into_iter()
        .zip(types)
        .map(|(ints, t)| {
            ints.filter(|ints| {
                followed(t) && Grid::new(&t.1).is_some_and(|g| g.len() == ints.len())
            })
        })
        .collect()
}

/// A shape of numbers with at most [`Value::MAX_INTS`] elements.
#[derive(Clone)]
struct Grid(Vec<usize>);

impl Grid {
    fn new(shape: &[Dim]) -> Option<Grid> {
        let mut s = Vec::with_capacity(shape.len());
        let mut n = 1usize;
        for d in shape {
            let d = usize::try_from(d.known()?).ok()?;
            n = n.checked_mul(d.max(1))?;
            s.push(d);
        }
        (n <= Value::MAX_INTS).then_some(Grid(s))
    }

    fn len(&self) -> usize {
        self.0.iter().product()
    }

    /// Coordinates of row-major rank `at`.
    fn coords(&self, mut at: usize) -> Vec<usize> {
        let mut c = vec![0; self.0.len()];
        for d in (0..self.0.len()).rev() {
            c[d] = at % self.0[d];
            at /= self.0[d];
        }
        c
    }

    /// Row-major rank of coordinates inside.
    fn rank(&self, c: &[usize]) -> usize {
        self.0.iter().zip(c).fold(0, |r, (n, c)| r * n + c)
    }

    /// Rank of the element that broadcasting puts at coordinates `c` of a larger shape.
    fn broadcast_rank(&self, c: &[usize]) -> Option<usize> {
        let skip = c.len().checked_sub(self.0.len())?;
        let mut r = 0;
        for (n, c) in self.0.iter().zip(&c[skip..]) {
            let c = if *n == 1 { 0 } else { *c };
            if c >= *n {
                return None;
            }
            r = r * n + c;
        }
        Some(r)
    }
}

struct Operand<'a> {
    grid: Option<Grid>,
    ints: Option<&'a [Dim]>,
}

impl<'a> Operand<'a> {
    fn new(x: &'a Value) -> Operand<'a> {
        let grid = Grid::new(&x.shape);
        let ints = x
            .ints
            .as_deref()
            .filter(|i| grid.as_ref().is_some_and(|g| g.len() == i.len()));
        Operand { grid, ints }
    }

    fn known(&self) -> Option<(&Grid, &'a [Dim])> {
        Some((self.grid.as_ref()?, self.ints?))
    }

    fn numbers(&self) -> Option<(&Grid, Vec<i64>)> {
        let (g, ints) = self.known()?;
        Some((g, ints.iter().map(Dim::known).collect::<Option<_>>()?))
    }
}

type Contents = Vec<Option<Vec<Dim>>>;

/// The elements of one output, each found by its coordinates.
fn one(out: &Grid, f: &mut dyn FnMut(&[usize]) -> Option<Dim>) -> Option<Contents> {
    let all: Option<Vec<Dim>> = (0..out.len()).map(|i| f(&out.coords(i))).collect();
    Some(vec![all])
}

fn evaluate(op: &Op, v: &[Operand], types: &[Type]) -> Option<Contents> {
    let out = &Grid::new(&types.first()?.1)?;
    match op {
        Op::Map(e) => map(e, v, out),
        Op::View(view) => seen(view, v, out),
        Op::Concat { axis } => one(out, &mut |c| {
            let mut c = c.to_vec();
            for x in v {
                let g = x.grid.as_ref()?;
                let n = *g.0.get(*axis)?;
                if c[*axis] < n {
                    return x.ints?.get(g.rank(&c)).cloned();
                }
                c[*axis] -= n;
            }
            None
        }),
        Op::Pad { before, mode, .. } => pad(before, *mode, v, out),
        Op::Gather { axis, batch } => gather(*axis, *batch, v, out),
        Op::ScatterNd(how) => scatter(*how, v),
        Op::Reduce { monoid, axes, .. } => reduce(monoid, axes, v, out),
        Op::Scan {
            monoid,
            axis,
            exclusive,
            reverse,
        } => scan(monoid, *axis, *exclusive, *reverse, v, out),
        _ => None,
    }
}

fn map(e: &Expr, v: &[Operand], out: &Grid) -> Option<Contents> {
    let mut all: Contents = vec![Some(Vec::new()); e.outputs.len()];
    for i in 0..out.len() {
        let c = out.coords(i);
        let element = |x: &Operand| {
            let (g, ints) = x.known()?;
            ints.get(g.broadcast_rank(&c)?).cloned()
        };
        let args: Vec<Option<Dim>> = v.iter().map(element).collect();
        let index: Vec<i64> = c.iter().map(|&x| x as i64).collect();
        for (list, r) in all.iter_mut().zip(e.eval_dims(&args, &index)) {
            match (list.as_mut(), r) {
                (Some(l), Some(r)) => l.push(r),
                _ => *list = None,
            }
        }
        if all.iter().all(Option::is_none) {
            return None;
        }
    }
    Some(all)
}

fn seen(view: &View, v: &[Operand], out: &Grid) -> Option<Contents> {
    let (g, x) = v.first()?.known()?;
    match view {
        View::Reshape(_) => Some(vec![Some(x.to_vec())]),
        View::Permute(perm) => one(out, &mut |c| {
            let mut from = vec![0; c.len()];
            for (o, &p) in perm.iter().enumerate() {
                *from.get_mut(p)? = c[o];
            }
            x.get(g.rank(&from)).cloned()
        }),
        View::Slice { starts, steps, .. } => one(out, &mut |c| {
            let mut from = Vec::with_capacity(c.len());
            for (d, &at) in c.iter().enumerate() {
                let s = starts.get(d)?.known()?;
                let at = steps.get(d)?.checked_mul(at as i64)?.checked_add(s)?;
                from.push(usize::try_from(at).ok().filter(|at| *at < g.0[d])?);
            }
            x.get(g.rank(&from)).cloned()
        }),
        View::Expand(_) => one(out, &mut |c| x.get(g.broadcast_rank(c)?).cloned()),
    }
}

fn pad(before: &[Dim], mode: PadMode, v: &[Operand], out: &Grid) -> Option<Contents> {
    let (g, x) = v.first()?.known()?;
    let outside = match v.get(1) {
        Some(o) => o.ints?.first()?.clone(),
        None => Dim::ZERO,
    };
    one(out, &mut |c| {
        let mut from = Vec::with_capacity(c.len());
        for (d, &at) in c.iter().enumerate() {
            let at = (at as i64).checked_sub(before.get(d)?.known()?)?;
            match usize::try_from(at).ok().filter(|at| *at < g.0[d]) {
                Some(at) => from.push(at),
                None if mode == PadMode::Constant => return Some(outside.clone()),
                None if mode == PadMode::Edge && g.0[d] > 0 => {
                    from.push(at.clamp(0, g.0[d] as i64 - 1) as usize);
                }
                None => return None,
            }
        }
        x.get(g.rank(&from)).cloned()
    })
}

fn gather(axis: usize, batch: usize, v: &[Operand], out: &Grid) -> Option<Contents> {
    let (g, x) = v.first()?.known()?;
    let (ig, indices) = v.get(1)?.numbers()?;
    let n = *g.0.get(axis)? as i64;
    one(out, &mut |c| {
        let behind = axis + ig.0.len() - batch;
        let by = [&c[..batch], &c[axis..behind]].concat();
        let i = *indices.get(ig.rank(&by))?;
        let i = if i < 0 { i + n } else { i };
        let mut from = c[..axis].to_vec();
        from.push(usize::try_from(i).ok().filter(|i| (*i as i64) < n)?);
        from.extend_from_slice(&c[behind..]);
        x.get(g.rank(&from)).cloned()
    })
}

fn scatter(how: ScatterReduce, v: &[Operand]) -> Option<Contents> {
    let [data, indices, updates] = v else {
        return None;
    };
    let (g, x) = data.known()?;
    let (ig, at) = indices.numbers()?;
    let (_, u) = updates.known()?;
    let k = *ig.0.last()?;
    let block: usize = g.0.get(k..)?.iter().product();
    let mut out = x.to_vec();
    for (row, at) in at.chunks_exact(k.max(1)).enumerate() {
        let mut base = 0usize;
        for (d, &i) in at.iter().enumerate() {
            let n = g.0[d] as i64;
            let i = if i < 0 { i + n } else { i };
            base = base * g.0[d] + usize::try_from(i).ok().filter(|i| (*i as i64) < n)?;
        }
        for e in 0..block {
            let new = u.get(row * block + e)?.clone();
            let old = out.get_mut(base * block + e)?;
            *old = match how {
                ScatterReduce::Replace => new,
                ScatterReduce::Add => old.clone() + new,
                ScatterReduce::Mul => old.clone() * new,
                ScatterReduce::Max => old.max_with(&new),
                ScatterReduce::Min => old.min_with(&new),
            };
        }
    }
    Some(vec![Some(out)])
}

/// The program's results, when all are known.
fn all_known(r: Vec<Option<Dim>>) -> Option<Vec<Option<Dim>>> {
    r.iter().all(Option::is_some).then_some(r)
}

fn lifted(m: &Monoid, v: &[Operand], c: &[usize], rank: usize) -> Option<Vec<Option<Dim>>> {
    let args: Vec<Option<Dim>> = v
        .iter()
        .map(|x| {
            let (g, ints) = x.known()?;
            ints.get(g.broadcast_rank(c)?).cloned()
        })
        .collect();
    all_known(m.lift.eval_dims(&args, &[rank as i64]))
}

fn combined(m: &Monoid, mut a: Vec<Option<Dim>>, b: Vec<Option<Dim>>) -> Option<Vec<Option<Dim>>> {
    a.extend(b);
    all_known(m.combine.eval_dims(&a, &[]))
}

fn common(v: &[Operand]) -> Option<Grid> {
    let mut shape: Vec<Dim> = Vec::new();
    for x in v {
        let s: Vec<Dim> = x.grid.as_ref()?.0.iter().map(|&n| Dim::from(n)).collect();
        shape = super::ReliedEqualities::default()
            .broadcast(&shape, &s)
            .ok()?;
    }
    Grid::new(&shape)
}

fn reduce(m: &Monoid, axes: &[usize], v: &[Operand], out: &Grid) -> Option<Contents> {
    let g = common(v)?;
    let identity = all_known(m.identity.eval_dims(&[], &[]))?;
    let mut states = vec![identity; out.len()];
    let reduced = Grid(
        axes.iter()
            .map(|&a| g.0.get(a).copied())
            .collect::<Option<_>>()?,
    );
    let kept: Vec<usize> = (0..g.0.len()).filter(|d| !axes.contains(d)).collect();
    let kept_grid = Grid(kept.iter().map(|&d| g.0[d]).collect());
    for i in 0..g.len() {
        let c = g.coords(i);
        let pick = |axes: &[usize]| -> Vec<usize> { axes.iter().map(|&a| c[a]).collect() };
        let e = lifted(m, v, &c, reduced.rank(&pick(axes)))?;
        let s = states.get_mut(kept_grid.rank(&pick(&kept)))?;
        *s = combined(m, std::mem::take(s), e)?;
    }
    finished(m, states)
}

fn scan(
    m: &Monoid,
    axis: usize,
    exclusive: bool,
    reverse: bool,
    v: &[Operand],
    out: &Grid,
) -> Option<Contents> {
    let n = *out.0.get(axis)?;
    let mut states = vec![Vec::new(); out.len()];
    let identity = all_known(m.identity.eval_dims(&[], &[]))?;
    for i in 0..out.len() {
        let mut c = out.coords(i);
        if c[axis] != 0 {
            continue;
        }
        let mut s = identity.clone();
        for step in 0..n {
            c[axis] = if reverse { n - 1 - step } else { step };
            let e = lifted(m, v, &c, c[axis])?;
            let next = match reverse {
                false => combined(m, s.clone(), e)?,
                true => combined(m, e, s.clone())?,
            };
            *states.get_mut(out.rank(&c))? = if exclusive { s } else { next.clone() };
            s = next;
        }
    }
    finished(m, states)
}

fn finished(m: &Monoid, states: Vec<Vec<Option<Dim>>>) -> Option<Contents> {
    let mut all: Vec<Vec<Dim>> = vec![Vec::new(); m.result_len()];
    for s in states {
        for (list, r) in all.iter_mut().zip(m.finish.eval_dims(&s, &[])) {
            list.push(r?);
        }
    }
    Some(all.into_iter().map(Some).collect())
}
