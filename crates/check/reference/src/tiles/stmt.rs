//! Statements that compute.
use super::{MAX_TILE, Machine, Value};
use crate::error::R;
use crate::graph::Fold;
use crate::graph::contract::{Factor, einsum};
use crate::graph::scalars::{next, strides};
use expr::{CompiledExpr, EvalContext, Expr, Inst, Monoid, Scalar};
use kernel::{AxisId, Kernel, Label, Rescale, Stmt, Tile, TileId};

/// A statement for messages.
pub(crate) fn describe(k: &Kernel, s: &Stmt) -> String {
    let tile = |t: &TileId| k.tiles.get(usize::from(*t)).map_or("?", |t| &t.name);
    let operand = |o: &u16| k.operands.get(usize::from(*o)).map_or("?", |o| &o.name);
    match s {
        Stmt::Load { dst, operand: o } => format!("load of '{}' from '{}'", tile(dst), operand(o)),
        Stmt::Store { operand: o, src } => format!("store of '{}' to '{}'", tile(src), operand(o)),
        Stmt::Map { dst, .. } => format!("map to '{}'", tile(dst)),
        Stmt::Contract { acc, .. } => format!("contraction into '{}'", tile(acc)),
        Stmt::Fold { monoid, .. } => format!("fold '{}'", monoid.name),
        Stmt::Relabel { dst, .. } => format!("relabelling to '{}'", tile(dst)),
    }
}

/// Strides that read a tile over `from` at positions of a tile over `to`; 0 where it has no such
/// axis.
fn through(from: &[AxisId], shape: &[usize], to: &[AxisId]) -> R<Vec<usize>> {
    if from.iter().any(|a| !to.contains(a)) {
        return Err("an argument has an axis that the statement lacks".into());
    }
    let own = strides(shape);
    Ok(to
        .iter()
        .map(|a| from.iter().position(|x| x == a).map_or(0, |i| own[i]))
        .collect())
}

fn address(position: &[usize], by: &[usize]) -> usize {
    position.iter().zip(by).map(|(p, s)| p * s).sum()
}

impl Machine<'_> {
    /// Declaration of a tile.
    pub(super) fn tile(&self, t: TileId) -> R<&Tile> {
        self.kernel
            .tiles
            .get(usize::from(t))
            .ok_or_else(|| format!("tile {t} does not exist").into())
    }

    /// Current extents along `axes`.
    pub(super) fn shape(&self, axes: &[AxisId]) -> R<Vec<usize>> {
        let mut n = 1i64;
        axes.iter()
            .map(|a| {
                let span = self
                    .spans
                    .get(usize::from(*a))
                    .ok_or_else(|| format!("axis {a} does not exist"))?;
                n = n.saturating_mul(span.1.max(1));
                if n > MAX_TILE {
                    return Err(format!("a tile has more than {MAX_TILE} elements").into());
                }
                Ok(span.1.max(0) as usize)
            })
            .collect()
    }

    fn current(&self, t: &Tile) -> Vec<(i64, i64)> {
        t.axes.iter().map(|a| self.spans[usize::from(*a)]).collect()
    }

    /// Defines a tile for the current coordinates.
    pub(super) fn define(&mut self, t: TileId, data: Vec<Scalar>) {
        let spans = self.current(&self.kernel.tiles[usize::from(t)]);
        self.tiles[usize::from(t)] = Some(Value { spans, data });
    }

    /// A tile that must hold the current coordinates.
    pub(super) fn value(&self, t: TileId) -> R<&Value> {
        let decl = self.tile(t)?;
        let v = self.tiles[usize::from(t)].as_ref().ok_or_else(|| {
            format!(
                "tile '{}' is read before it is defined in its task",
                decl.name
            )
        })?;
        let want = self.current(decl);
        if v.spans != want {
            return Err(format!(
                "tile '{}' holds (start, length) {:?}, but is read at {want:?}",
                decl.name, v.spans
            )
            .into());
        }
        Ok(v)
    }

    /// Evaluates a statement other than a load or store.
    pub(super) fn compute(&mut self, s: &Stmt) -> R<()> {
        match s {
            Stmt::Map { dst, expr, args } => self.map(*dst, expr, args),
            Stmt::Contract { acc, a, b, over } => self.contract(*acc, *a, *b, over),
            Stmt::Fold {
                monoid,
                state,
                args,
                over,
                rescale,
            } => self.fold(monoid, state, args, over, rescale.as_ref()),
            Stmt::Relabel {
                dst,
                src,
                labels,
                along,
            } => self.relabel(*dst, *src, labels, *along),
            Stmt::Load { .. } | Stmt::Store { .. } => Ok(()),
        }
    }

    fn relabel(
        &mut self,
        dst: TileId,
        src: TileId,
        labels: &[Label],
        along: Option<AxisId>,
    ) -> R<()> {
        let (to, from) = (self.tile(dst)?, self.tile(src)?);
        if to.dtype != from.dtype {
            return Err("source and result have different types".into());
        }
        let whole = |a: AxisId| {
            let a = usize::from(a);
            self.spans.get(a) == self.extents.get(a).map(|e| (0, *e)).as_ref()
        };
        if labels.iter().any(|l| !whole(l.from) || !whole(l.to)) {
            return Err("an axis that gets another label is cut".into());
        }
        let shape = self.shape(&to.axes)?;
        let sizes = self.shape(&from.axes)?;
        let own = strides(&sizes);
        // For every axis of the source: its stride, and where its coordinate comes from.
        let mut base = 0;
        let mut by = vec![0; shape.len()];
        for (i, a) in from.axes.iter().enumerate() {
            let label = labels.iter().find(|l| l.from == *a);
            let at = |x: AxisId| to.axes.iter().position(|t| *t == x);
            match (label, at(*a)) {
                (Some(l), _) => {
                    let first = super::access::number(&l.first, self.lookup)?;
                    let d = at(l.to).ok_or("the result lacks a new label")?;
                    let end = first.saturating_add(shape[d] as i64);
                    if first < 0 || end > sizes[i] as i64 {
                        return Err(format!("it reads {first}..{end} of {}", sizes[i]).into());
                    }
                    base += first as usize * own[i];
                    by[d] = own[i];
                }
                (None, Some(d)) => by[d] = own[i],
                (None, None) if along == Some(*a) && sizes[i] <= 1 => {}
                (None, None) => return Err("the result lacks an axis of the source".into()),
            }
        }
        let data = &self.value(src)?.data;
        let n: usize = shape.iter().product();
        let mut position = vec![0; shape.len()];
        let mut out = Vec::with_capacity(n);
        for _ in 0..n {
            let at = base + address(&position, &by);
            out.push(*data.get(at).ok_or("it reads beyond its source")?);
            next(&mut position, &shape);
        }
        self.define(dst, out);
        Ok(())
    }

    fn map(&mut self, dst: TileId, e: &Expr, args: &[TileId]) -> R<()> {
        let t = self.tile(dst)?;
        let program = CompiledExpr::new(e)?.bound(self.lookup)?;
        if program.output_types() != [t.dtype] {
            return Err(format!(
                "the program gives {:?}, the tile holds {}",
                program.output_types(),
                t.dtype
            )
            .into());
        }
        for i in &e.insts {
            if let Inst::Index { axis } = i {
                let known = t.axes.iter().any(|a| u32::from(*a) == *axis)
                    || self.extents.get(*axis as usize).is_some_and(|n| *n <= 1);
                if !known {
                    return Err(format!(
                        "the program reads the coordinate along axis {axis}, which the tile lacks"
                    )
                    .into());
                }
            }
        }
        let axes = t.axes.clone();
        let shape = self.shape(&axes)?;
        let mut given = Vec::new();
        for a in args {
            let (v, decl) = (self.value(*a)?, self.tile(*a)?);
            given.push((
                &v.data,
                through(&decl.axes, &self.shape(&decl.axes)?, &axes)?,
            ));
        }
        let n: usize = shape.iter().product();
        let mut out = Vec::with_capacity(n);
        let mut position = vec![0; shape.len()];
        let mut index: Vec<i64> = self.spans.iter().map(|s| s.0).collect();
        let mut inputs = vec![Scalar::Int(0); args.len()];
        let mut scratch = Vec::new();
        for _ in 0..n {
            self.locate(&mut index, &axes, &position);
            for (i, (data, by)) in inputs.iter_mut().zip(&given) {
                *i = data[address(&position, by)];
            }
            let ctx = EvalContext {
                inputs: &inputs,
                index: &index,
                symbols: self.lookup,
            };
            out.push(program.eval_one(&ctx, &mut scratch)?);
            next(&mut position, &shape);
        }
        self.define(dst, out);
        Ok(())
    }

    fn contract(&mut self, acc: TileId, a: TileId, b: TileId, over: &[AxisId]) -> R<()> {
        let (ta, tb, tc) = (self.tile(a)?, self.tile(b)?, self.tile(acc)?);
        let known = |x: &AxisId| tc.axes.contains(x) != over.contains(x);
        let fits = ta.axes.iter().chain(&tb.axes).all(known)
            && over
                .iter()
                .all(|x| ta.axes.contains(x) || tb.axes.contains(x));
        if !fits {
            return Err(
                "every axis of the factors must be either summed or the accumulator's".into(),
            );
        }
        let d = tc.dtype;
        let (mut sa, sb) = (self.shape(&ta.axes)?, self.shape(&tb.axes)?);
        // The sum is the same along axes that neither factor has: the first one is repeated there.
        let mut la = ta.axes.clone();
        let neither = |x: &&AxisId| !ta.axes.contains(x) && !tb.axes.contains(x);
        la.extend(tc.axes.iter().filter(neither));
        sa.extend(self.shape(&la[ta.axes.len()..])?);
        let times: usize = sa[ta.axes.len()..].iter().product();
        let (va, vb, vc) = (self.value(a)?, self.value(b)?, self.value(acc)?);
        let sum: Vec<Scalar> = if d.is_float() {
            // Wide inside a statement, rounded to the accumulator's type at its end.
            let wide = |v: &Value, times: usize| -> Vec<f64> {
                let each = |s: &Scalar| std::iter::repeat_n(s.as_f64(), times);
                v.data.iter().flat_map(each).collect()
            };
            let (xa, xb) = (wide(va, times), wide(vb, 1));
            let c = einsum(
                &Factor {
                    labels: &la,
                    shape: &sa,
                    values: &xa,
                },
                &Factor {
                    labels: &tb.axes,
                    shape: &sb,
                    values: &xb,
                },
                &tc.axes,
            )?;
            vc.data
                .iter()
                .zip(c)
                .map(|(o, x)| Scalar::Float(o.as_f64() + x).of(d))
                .collect()
        } else {
            let wide = |v: &Value, times: usize| -> Vec<i64> {
                let each = |s: &Scalar| std::iter::repeat_n(s.as_i64(), times);
                v.data.iter().flat_map(each).collect()
            };
            let (xa, xb) = (wide(va, times), wide(vb, 1));
            let c = einsum(
                &Factor {
                    labels: &la,
                    shape: &sa,
                    values: &xa,
                },
                &Factor {
                    labels: &tb.axes,
                    shape: &sb,
                    values: &xb,
                },
                &tc.axes,
            )?;
            vc.data
                .iter()
                .zip(c)
                .map(|(o, x)| Scalar::Int(o.as_i64().wrapping_add(x)).of(d))
                .collect()
        };
        self.define(acc, sum);
        Ok(())
    }

    fn fold(
        &mut self,
        m: &Monoid,
        state: &[TileId],
        args: &[TileId],
        over: &[AxisId],
        rescale: Option<&Rescale>,
    ) -> R<()> {
        let first = state.first().ok_or("a fold needs a state")?;
        let axes = self.tile(*first)?.axes.clone();
        for s in state {
            if self.tile(*s)?.axes != axes {
                return Err("the state's tiles have different axes".into());
            }
        }
        if state.len() != m.state_len() || over.iter().any(|a| axes.contains(a)) {
            return Err("the state does not fit the monoid or has a folded axis".into());
        }
        let (outer, inner) = (self.shape(&axes)?, self.shape(over)?);
        let all = [&axes[..], over].concat();
        let mut given = Vec::new();
        for a in args {
            let (v, decl) = (self.value(*a)?, self.tile(*a)?);
            given.push((
                &v.data,
                through(&decl.axes, &self.shape(&decl.axes)?, &all)?,
            ));
        }
        let mut old = Vec::new();
        for s in state {
            old.push(&self.value(*s)?.data);
        }
        // Rank of a coordinate along the folded axes, counted over their whole extents.
        let whole: Vec<i64> = over.iter().map(|a| self.extents[usize::from(*a)]).collect();
        let start: Vec<i64> = over.iter().map(|a| self.spans[usize::from(*a)].0).collect();
        let count: usize = inner.iter().product();
        let ranks = strides(&inner);
        let lookup = self.lookup;
        let mut f = Fold::new(m, lookup)?;
        let n: usize = outer.iter().product();
        let mut new: Vec<Vec<Scalar>> = vec![Vec::with_capacity(n); state.len()];
        let mut position = vec![0; all.len()];
        let mut at = vec![0; outer.len()];
        for o in 0..n {
            position[..outer.len()].copy_from_slice(&at);
            let before: Vec<Scalar> = old.iter().map(|v| v[o]).collect();
            let after = f.range(0, count, &mut |i, args| {
                let mut rank = 0;
                for q in 0..over.len() {
                    let c = i / ranks[q] % inner[q];
                    position[outer.len() + q] = c;
                    rank = rank * whole[q] + start[q] + c as i64;
                }
                args.extend(given.iter().map(|(data, by)| data[address(&position, by)]));
                rank
            })?;
            let merged = if count == 0 {
                before
            } else {
                f.combine(&before, &after)?
            };
            for (v, s) in new.iter_mut().zip(merged) {
                v.push(s);
            }
            next(&mut at, &outer);
        }
        let scaled = match rescale {
            Some(r) => self.rescaled(r, &axes, &old, &new)?,
            None => Vec::new(),
        };
        for (t, data) in scaled {
            self.define(t, data);
        }
        for (t, data) in state.iter().zip(new) {
            let d = self.tile(*t)?.dtype;
            self.define(*t, data.into_iter().map(|s| s.of(d)).collect());
        }
        Ok(())
    }

    /// The tiles of a rescale times its factor.
    fn rescaled(
        &self,
        r: &Rescale,
        axes: &[AxisId],
        old: &[&Vec<Scalar>],
        new: &[Vec<Scalar>],
    ) -> R<Vec<(TileId, Vec<Scalar>)>> {
        let factor = CompiledExpr::new(&r.factor)?.bound(self.lookup)?;
        let state_shape = self.shape(axes)?;
        let mut out = Vec::new();
        let mut scratch = Vec::new();
        for t in &r.tiles {
            let (v, decl) = (self.value(*t)?, self.tile(*t)?);
            let by = through(axes, &state_shape, &decl.axes)?;
            let shape = self.shape(&decl.axes)?;
            let mut position = vec![0; shape.len()];
            let mut data = Vec::with_capacity(v.data.len());
            for x in &v.data {
                let s = address(&position, &by);
                let inputs: Vec<Scalar> = old
                    .iter()
                    .map(|o| o[s])
                    .chain(new.iter().map(|n| n[s]))
                    .collect();
                let ctx = EvalContext {
                    inputs: &inputs,
                    index: &[],
                    symbols: self.lookup,
                };
                let k = factor.eval_one(&ctx, &mut scratch)?;
                data.push(x.binary(expr::Binary::Mul, k.of(decl.dtype), decl.dtype));
                next(&mut position, &shape);
            }
            out.push((*t, data));
        }
        Ok(out)
    }
}
