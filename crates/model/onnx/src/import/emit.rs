//! Adding core ops.
use super::types::dtype_of;
use super::{Ctx, LowerError, Lowered, NodeView};
use expr::{Binary, Compare, Expr, ExprBuilder, Monoid, Ref};
use graph::{ContractSpec, Op, ValueId, View};
use layout::{Arrange, DType, Dim};
use tensor::{Attr, Attrs};

/// `axis` of a tensor of `rank` as an index.
pub(crate) fn axis_of(axis: i64, rank: usize) -> Lowered<usize> {
    let r = rank as i64;
    match axis {
        a if a >= -r && a < r => Ok(a.rem_euclid(r) as usize),
        a => Err(format!("axis {a} is not within a tensor of rank {rank}").into()),
    }
}

/// Element type for ONNX's code as an attribute gives it.
pub(crate) fn to_dtype(code: i64) -> Lowered<DType> {
    let code = i32::try_from(code).map_err(|_| format!("element type {code} is unknown"))?;
    dtype_of(code).map_err(LowerError::Unsupported)
}

impl<'m> Ctx<'m> {
    /// The common shape by the usual rule. Of two extents that cannot be told apart one stands, and
    /// that they are equal is an assumption.
    pub fn broadcast(&mut self, n: &NodeView<'m>, a: &[Dim], b: &[Dim]) -> Lowered<Vec<Dim>> {
        Ok(self.b().broadcast(&n.origin.name, a, b)?)
    }

    /// The inputs of a node that broadcasts them, where it is known to meet extents that change from round to round of a
    /// loop, so that no choice holds for all: each is repeated to the common extents, whichever of them are 1, but for
    /// the last `skip` dimensions.
    pub fn compared(
        &mut self,
        n: &NodeView<'m>,
        name: &str,
        inputs: &[ValueId],
        skip: usize,
    ) -> Lowered<Vec<ValueId>> {
        let mut all = inputs.to_vec();
        if !self.compares(n) {
            return Ok(all);
        }
        let rank = all.iter().map(|&v| self.rank(v)).max().unwrap_or(0);
        for back in skip + 1..=rank {
            let at = |c: &Self, v| {
                c.rank(v)
                    .checked_sub(back)
                    .map(|axis| (axis, c.shape(v)[axis].clone()))
            };
            let mut extents: Vec<Dim> = all
                .iter()
                .filter_map(|&v| at(self, v))
                .map(|(_, d)| d)
                .collect();
            extents.retain(|d| !d.is_one());
            extents.dedup();
            let Some((first, others)) = extents.split_first() else {
                continue;
            };
            if others.is_empty() || !extents.iter().any(|d| self.changes_by_round(d)) {
                continue;
            }
            let common = others
                .iter()
                .fold(first.clone(), |a, b| self.common(n, a, b));
            for (i, v) in all.iter_mut().enumerate() {
                let Some((axis, d)) = at(self, *v).filter(|(_, d)| *d != common) else {
                    continue;
                };
                *v = self.repeated(
                    n,
                    format!("{name}.{i}.d{back}"),
                    *v,
                    axis,
                    &d,
                    common.clone(),
                )?;
            }
        }
        Ok(all)
    }

    /// Inputs that are broadcast against each other, those whose extent is never the others' with the extent 1 that it is
    /// then.
    fn thinned(
        &mut self,
        n: &NodeView<'m>,
        name: &str,
        inputs: &[ValueId],
    ) -> Lowered<Vec<ValueId>> {
        let mut out = inputs.to_vec();
        for v in &mut out {
            let own = self.shape(*v);
            let mut thin = own.clone();
            for (back, d) in own.iter().rev().enumerate() {
                let beside = inputs.iter().map(|&o| self.shape(o));
                let mut beside = beside.filter_map(|s| s.iter().rev().nth(back).cloned());
                let never = |o: &Dim| o.known().is_some_and(|k| k > 1) && d.provably_lt(o);
                if d.known().is_none() && beside.any(|o| never(&o)) {
                    thin[own.len() - 1 - back] = Dim::ONE;
                    self.assume(n, d, &Dim::ONE);
                }
            }
            *v = self.reshaped(n, format!("{name}.thin"), *v, thin)?;
        }
        Ok(out)
    }

    /// Whether the node was told to compare extents that change from round to round.
    pub fn compares(&self, n: &NodeView<'m>) -> bool {
        self.frames.len() > 1 && self.taken.contains_key(&n.origin.name)
    }

    /// What two extents are broadcast to, as the standard has it: they are equal, or one of them is 1.
    pub fn common(&mut self, n: &NodeView<'m>, a: Dim, b: &Dim) -> Dim {
        let one = |d: &Dim| d.clone() - Dim::ONE;
        let wrong = (a.clone() - b.clone()) * one(&a) * one(b);
        self.assume(n, &wrong, &Dim::ZERO);
        // 0 beside 1 is 0.
        let some = |d: &Dim| d.min_with(&Dim::ONE);
        a.max_with(b) * some(&a) * some(b)
    }

    /// `v`, whose extent `d` along `axis` is `to` or 1, with extent `to`.
    pub fn repeated(
        &mut self,
        n: &NodeView<'m>,
        name: String,
        v: ValueId,
        axis: usize,
        d: &Dim,
        to: Dim,
    ) -> Lowered<ValueId> {
        let at = self.fill(n, format!("{name}.at"), &[to], DType::I64, |e| {
            let (i, last) = (e.index(0), e.dim(&(d.clone() - Dim::ONE)));
            e.binary(Binary::Min, i, last)
        })?;
        self.add1(n, Op::Gather { axis, batch: 0 }, &[v, at], name)
    }

    /// Adds a core op with several outputs.
    pub fn add(
        &mut self,
        n: &NodeView<'m>,
        op: Op,
        inputs: &[ValueId],
        names: &[String],
    ) -> Lowered<Vec<ValueId>> {
        if let Some(&held) = inputs.iter().find(|&&v| self.dtype(v).is_held()) {
            let d = self.dtype(held);
            return Err(LowerError::Unsupported(format!(
                "does not take elements of type {d}; convert them before it"
            )));
        }
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        let outs = self.b().node(op, inputs, &names, &n.origin)?;
        self.fold(&outs);
        Ok(outs)
    }

    /// Adds a core op with one output.
    pub fn add1(
        &mut self,
        n: &NodeView<'m>,
        op: Op,
        inputs: &[ValueId],
        name: String,
    ) -> Lowered<ValueId> {
        let outs = self.add(n, op, inputs, &[name])?;
        outs.first()
            .copied()
            .ok_or_else(|| "a core op has no output".into())
    }

    /// Element-wise program of the inputs.
    pub fn map(
        &mut self,
        n: &NodeView<'m>,
        name: String,
        inputs: &[ValueId],
        f: impl FnOnce(&mut ExprBuilder, &[Ref]) -> Ref,
    ) -> Lowered<ValueId> {
        let (mut e, inputs, args) = self.arguments(n, &name, inputs)?;
        let out = f(&mut e, &args);
        self.mapped(n, name, &inputs, e, out)
    }

    /// What [`Ctx::map`] does before it calls `f`, apart from it: there are some 200 of these.
    fn arguments(
        &mut self,
        n: &NodeView<'m>,
        name: &str,
        inputs: &[ValueId],
    ) -> Lowered<(ExprBuilder, Vec<ValueId>, Vec<Ref>)> {
        let inputs = self.compared(n, name, inputs, 0)?;
        let inputs = self.thinned(n, name, &inputs)?;
        let mut e = ExprBuilder::new();
        let args = inputs
            .iter()
            .enumerate()
            .map(|(i, &v)| e.input(i as u32, self.dtype(v)))
            .collect();
        Ok((e, inputs, args))
    }

    /// What [`Ctx::map`] does after it called `f`.
    fn mapped(
        &mut self,
        n: &NodeView<'m>,
        name: String,
        inputs: &[ValueId],
        e: ExprBuilder,
        out: Ref,
    ) -> Lowered<ValueId> {
        self.add1(n, Op::Map(e.finish(&[out])), inputs, name)
    }

    /// The same for inputs of one type, in a type that loses nothing between the program's steps, which `f` is told;
    /// the result is rounded once.
    pub fn map_wide(
        &mut self,
        n: &NodeView<'m>,
        name: String,
        inputs: &[ValueId],
        f: impl FnOnce(&mut ExprBuilder, &[Ref], DType) -> Ref,
    ) -> Lowered<ValueId> {
        let own = self.dtype(*inputs.first().ok_or("needs at least one input")?);
        let d = super::monoids::accumulator(own);
        self.map(n, name, inputs, |e, a| {
            let wide = |e: &mut ExprBuilder, x, to| if d == own { x } else { e.cast(x, to) };
            let a: Vec<Ref> = a.iter().map(|&x| wide(e, x, d)).collect();
            let y = f(e, &a, d);
            wide(e, y, own)
        })
    }

    /// A tensor of `shape` filled by a program of the coordinates.
    pub fn fill(
        &mut self,
        n: &NodeView<'m>,
        name: String,
        shape: &[Dim],
        dtype: DType,
        f: impl FnOnce(&mut ExprBuilder) -> Ref,
    ) -> Lowered<ValueId> {
        let mut e = ExprBuilder::new();
        let out = f(&mut e);
        self.filled(n, name, shape, dtype, e.finish(&[out]))
    }

    /// What [`Ctx::fill`] does with its program.
    fn filled(
        &mut self,
        n: &NodeView<'m>,
        name: String,
        shape: &[Dim],
        dtype: DType,
        program: Expr,
    ) -> Lowered<ValueId> {
        let shape = shape.iter().cloned().map(Some).collect();
        let outs =
            self.b()
                .node_with_shapes(Op::Map(program), &[], &[(&name, dtype, shape)], &n.origin);
        self.fold(&outs);
        outs.first()
            .copied()
            .ok_or_else(|| "a fill has no output".into())
    }

    /// A tensor with the known contents `values`.
    pub fn fill_dims(
        &mut self,
        n: &NodeView<'m>,
        name: String,
        shape: &[Dim],
        dtype: DType,
        values: &[Dim],
    ) -> Lowered<ValueId> {
        let rank = shape.len();
        if rank > 1 {
            let flat = self.fill_dims(
                n,
                format!("{name}.flat"),
                &[Dim::from(values.len())],
                dtype,
                values,
            )?;
            return self.reshape(n, name, flat, shape.to_vec());
        }
        let v = self.fill(n, name, shape, dtype, |e| {
            let first = values.first().cloned().unwrap_or(Dim::ZERO);
            let mut out = e.dim(&first);
            if rank == 1 {
                let i = e.index(0);
                for (k, d) in values.iter().enumerate().skip(1) {
                    let (at, d) = (e.int(k as i64, DType::I64), e.dim(d));
                    let here = e.compare(Compare::Eq, i, at);
                    out = e.select(here, d, out);
                }
            }
            if dtype == DType::I64 {
                out
            } else {
                e.cast(out, dtype)
            }
        })?;
        if self.ints(v).is_none() {
            self.b().set_ints(v, values.to_vec());
        }
        Ok(v)
    }

    /// Conversion, where needed.
    pub fn cast(
        &mut self,
        n: &NodeView<'m>,
        name: String,
        v: ValueId,
        to: DType,
    ) -> Lowered<ValueId> {
        match self.dtype(v) == to {
            true => Ok(v),
            false => self.map(n, name, &[v], |e, x| e.cast(x[0], to)),
        }
    }

    /// New shape, same elements.
    pub fn reshape(
        &mut self,
        n: &NodeView<'m>,
        name: String,
        v: ValueId,
        shape: Vec<Dim>,
    ) -> Lowered<ValueId> {
        self.add1(n, Op::View(View::Reshape(shape)), &[v], name)
    }

    /// As [`Ctx::reshape`] unless the shape is that already.
    pub fn reshaped(
        &mut self,
        n: &NodeView<'m>,
        name: String,
        v: ValueId,
        shape: Vec<Dim>,
    ) -> Lowered<ValueId> {
        if self.shape(v) == shape {
            Ok(v)
        } else {
            self.reshape(n, name, v, shape)
        }
    }

    /// `v` where the standard says that it has `shape`: what its extents as symbols must be is assumed.
    pub fn has_shape(
        &mut self,
        n: &NodeView<'m>,
        name: String,
        v: ValueId,
        shape: &[Dim],
    ) -> Lowered<ValueId> {
        let own = self.shape(v);
        let differ = |(a, b): (&Dim, &Dim)| a.known().is_some() && b.known().is_some() && a != b;
        if own.len() != shape.len() || own.iter().zip(shape).any(differ) {
            let text = |s: &[Dim]| s.iter().map(Dim::to_string).collect::<Vec<_>>().join(", ");
            let (is, must, v) = (text(&own), text(shape), self.value_name(v));
            return Err(format!("'{v}' has shape [{is}], it must have [{must}]").into());
        }
        for (is, must) in own.iter().zip(shape).filter(|(is, must)| is != must) {
            self.assume(n, is, must);
        }
        self.reshaped(n, name, v, shape.to_vec())
    }

    /// Dimensions in another order.
    pub fn permute(
        &mut self,
        n: &NodeView<'m>,
        name: String,
        v: ValueId,
        perm: Vec<usize>,
    ) -> Lowered<ValueId> {
        self.add1(n, Op::View(View::Permute(perm)), &[v], name)
    }

    /// Broadcast view.
    pub fn expand(
        &mut self,
        n: &NodeView<'m>,
        name: String,
        v: ValueId,
        shape: Vec<Dim>,
    ) -> Lowered<ValueId> {
        self.add1(n, Op::View(View::Expand(shape)), &[v], name)
    }

    /// Part along one dimension.
    pub fn slice(
        &mut self,
        n: &NodeView<'m>,
        name: String,
        v: ValueId,
        axis: usize,
        start: Dim,
        extent: Dim,
    ) -> Lowered<ValueId> {
        let mut extents = self.shape(v);
        let mut starts = vec![Dim::ZERO; extents.len()];
        let steps = vec![1; extents.len()];
        starts[axis] = start;
        extents[axis] = extent;
        self.add1(
            n,
            Op::View(View::Slice {
                starts,
                steps,
                extents,
            }),
            &[v],
            name,
        )
    }

    /// Reduction.
    pub fn reduce(
        &mut self,
        n: &NodeView<'m>,
        name: String,
        v: ValueId,
        monoid: Monoid,
        axes: &[usize],
        keep: bool,
    ) -> Lowered<ValueId> {
        let mut axes = axes.to_vec();
        axes.arrange();
        self.add1(n, Op::Reduce { monoid, axes, keep }, &[v], name)
    }

    /// Product of the extents along `axes`.
    pub fn count(&self, v: ValueId, axes: &[usize]) -> Dim {
        let s = self.shape(v);
        Dim::product(axes.iter().map(|&a| &s[a]))
    }

    /// Einsum with single-letter labels.
    pub fn contract(
        &mut self,
        n: &NodeView<'m>,
        name: String,
        a: (ValueId, &[u8]),
        b: (ValueId, &[u8]),
        out: &[u8],
    ) -> Lowered<ValueId> {
        let spec = ContractSpec {
            a: a.1.to_vec(),
            b: b.1.to_vec(),
            out: out.to_vec(),
        };
        self.add1(n, Op::Contract(spec), &[a.0, b.0], name)
    }

    /// A vector over channels, as [1.., C, 1..] against a tensor of `rank` whose channels are
    /// dimension `axis`.
    pub fn along(
        &mut self,
        n: &NodeView<'m>,
        name: String,
        v: ValueId,
        rank: usize,
        axis: usize,
    ) -> Lowered<ValueId> {
        let s = self.shape(v);
        if s.len() != 1 {
            return Err(format!(
                "'{}' must have rank 1, it has {}",
                self.value_name(v),
                s.len()
            )
            .into());
        }
        let mut shape = vec![Dim::ONE; rank - axis];
        shape[0] = s[0].clone();
        self.reshaped(n, name, v, shape)
    }

    /// `v`, whose elements are lengths of 0 to `most`: others are refused, here or when they come.
    pub fn lengths(&mut self, n: &NodeView<'m>, v: ValueId, most: &Dim) -> Lowered<ValueId> {
        if let (Some(all), Some(most)) = (self.const_ints(v), most.known()) {
            return match all.iter().find(|n| !(0..=most).contains(*n)) {
                None => Ok(v),
                Some(n) => Err(format!("length {n} is outside 0 to {most}").into()),
            };
        }
        let limit = self.fill(n, n.tmp("longest"), &[], DType::I64, |e| e.dim(most))?;
        let shape = self.shape(v).into_iter().map(Some).collect();
        let (name, dtype) = (n.tmp("within"), self.dtype(v));
        let op = Op::Host {
            name: "Lengths".into(),
            attrs: Attrs::new(),
        };
        let outs = [(name.as_str(), dtype, shape)];
        let vs = self.b().node_with_shapes(op, &[v, limit], &outs, &n.origin);
        vs.first()
            .copied()
            .ok_or_else(|| "a check has no output".into())
    }

    /// The node as a host operator with the given output types.
    pub fn host(&mut self, n: &NodeView<'m>, outputs: &[(DType, Vec<Option<Dim>>)]) -> Lowered {
        let attrs = n.host_attrs()?;
        self.host_with(n, attrs, outputs)
    }

    /// As [`Ctx::host`] with given attributes.
    pub fn host_with(
        &mut self,
        n: &NodeView<'m>,
        mut attrs: Attrs,
        outputs: &[(DType, Vec<Option<Dim>>)],
    ) -> Lowered {
        attrs.insert("opset".into(), Attr::Int(n.opset));
        if n.inputs.iter().any(Option::is_none) {
            let present = n.inputs.iter().map(|i| i.is_some() as i64).collect();
            attrs.insert("present".into(), Attr::Ints(present));
        }
        let prefix = match n.domain {
            "ai.onnx.ml" => "ml.",
            "com.microsoft" => "ms.",
            _ => "",
        };
        let own = if n.op == "Scatter" {
            "ScatterElements"
        } else {
            n.op
        };
        let name = format!("{prefix}{own}");
        let inputs: Vec<ValueId> = n.inputs.iter().copied().flatten().collect();
        let names: Vec<String> = (0..outputs.len()).map(|i| n.name(i)).collect();
        let outs: Vec<(&str, DType, Vec<Option<Dim>>)> = outputs
            .iter()
            .zip(&names)
            .map(|((d, s), name)| (name.as_str(), *d, s.clone()))
            .collect();
        let vs = self
            .b()
            .node_with_shapes(Op::Host { name, attrs }, &inputs, &outs, &n.origin);
        for (i, v) in vs.into_iter().enumerate() {
            self.set(n, i, v);
        }
        Ok(())
    }

    /// Axes from input `i` (or, up to opset `attr_until`, the attribute `axes`); `None` where not
    /// given. Must be known.
    pub fn axes(
        &mut self,
        n: &NodeView<'m>,
        i: usize,
        attr_until: i64,
    ) -> Lowered<Option<Vec<i64>>> {
        if n.opset <= attr_until {
            return n.ints("axes");
        }
        match n.opt(i) {
            None => Ok(None),
            Some(v) => match self.const_ints(v) {
                Some(a) => Ok(Some(a)),
                None => Err(LowerError::Unsupported(
                    "its axes are computed from data; make them constant".into(),
                )),
            },
        }
    }
}

/// Distinct axes as ascending indices.
pub(crate) fn axes_of(axes: &[i64], rank: usize) -> Lowered<Vec<usize>> {
    let mut out = axes
        .iter()
        .map(|&a| axis_of(a, rank))
        .collect::<Lowered<Vec<_>>>()?;
    out.arrange();
    let n = out.len();
    out.dedup();
    if out.len() != n {
        return Err(format!("axes {axes:?} name a dimension twice").into());
    }
    Ok(out)
}
