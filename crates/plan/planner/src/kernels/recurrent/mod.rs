//! Recurrent layers: one kernel per direction, with the sequence as an ordered axis.
//!
//! The gates' input parts are there for all positions (the product that made them is a kernel of its
//! own). A position takes them, adds what the recurrence's product makes of the hidden state, and the
//! cell's programs make the next state, which is carried on: along the product's summed axis for the
//! next product, along the units for the next cell.
mod cell;

use super::{Builder, Lowering, Result, touched};
use crate::located::Located;
use graph::{NodeId, RecurrentKind, RecurrentSpec, View};
use kernel::{Access, AxisId, Family, Label, Term, TileId};
use layout::Arrange;
use layout::{DType, Dim, Layout};
use plan::ValueIx;

/// ONNX inputs by their places.
const X: usize = 0;
const W: usize = 1;
const R: usize = 2;
const B: usize = 3;
const LENS: usize = 4;
const H0: usize = 5;
const C0: usize = 6;
const P: usize = 7;

/// Axes of the kernel; those of a single position are left out.
#[derive(Clone, Copy)]
struct Axes {
    /// The sequence.
    t: Option<AxisId>,
    /// The batch.
    b: Option<AxisId>,
    /// Units that the recurrence's product sums over.
    k: AxisId,
    /// Units.
    n: AxisId,
    /// Units of all gates that one product makes, gate by gate.
    g: AxisId,
}

/// What one direction's kernel is made of.
struct Layer<'a> {
    spec: &'a RecurrentSpec,
    builder: Builder,
    axes: Axes,
    dtype: DType,
    dir: usize,
    /// Positions of the sequence, and whether they are taken from the end.
    seq: Dim,
    reverse: bool,
    /// Operands in memory, their dimensions time, batch, units (as far as they have them).
    x: Located,
    r: Located,
    bias: Option<Located>,
    peepholes: Option<Located>,
    /// Which sequences have not ended: a tile of positions and batch.
    alive: Option<TileId>,
}

/// A layer's values in memory, with what all its directions share.
struct Whole<'a> {
    n: NodeId,
    spec: &'a RecurrentSpec,
    seq: Dim,
    batch: Dim,
    /// ONNX's inputs by their places, and the outputs.
    found: Vec<Option<Located>>,
    outs: Vec<Located>,
}

/// What one direction reads.
struct Operands {
    x: Located,
    r: Located,
    bias: Option<Located>,
    peepholes: Option<Located>,
    initial: [Option<Located>; 2],
}

impl Whole<'_> {
    /// The operands of a direction; `None` where they cannot be taken apart.
    fn operands(&self, dir: usize, reverse: bool) -> Option<Operands> {
        let (spec, found) = (self.spec, &self.found);
        let d = Dim::from(dir);
        let rows = spec.gates() * spec.hidden;
        let x = found[X].as_ref()?;
        let x = match spec.batch_first {
            true => seen(x, &View::Permute(vec![1, 0, 2]))?,
            false => x.clone(),
        };
        let x = cut(&x, 2, dir as i64 * rows, rows)?;
        // What is given must be there: the outer option says whether it could be taken apart.
        let all = |f: &Option<Located>, dim: usize| match f {
            Some(l) => pick(l, dim, &d).map(Some),
            None => Some(None),
        };
        let states = usize::from(spec.batch_first);
        let [r, bias, peepholes] = [all(&found[R], 0)?, all(&found[B], 0)?, all(&found[P], 0)?];
        let initial = [all(&found[H0], states)?, all(&found[C0], states)?];
        Some(Operands {
            x: flip(x, reverse, &self.seq)?,
            r: r?,
            bias,
            peepholes,
            initial,
        })
    }

    /// The direction's part of the output at every position.
    fn every_position(&self, dir: usize, reverse: bool) -> Option<Located> {
        let y = match self.spec.batch_first {
            true => seen(&self.outs[0], &View::Permute(vec![1, 2, 0, 3]))?,
            false => self.outs[0].clone(),
        };
        flip(pick(&y, 1, &Dim::from(dir))?, reverse, &self.seq)
    }

    fn axes(&self, builder: &mut Builder) -> Axes {
        let hidden = self.spec.hidden;
        let rows = self.spec.gates() * hidden;
        let units = Dim::Known(hidden);
        let gate_rows = match self.spec.kind {
            RecurrentKind::Gru if !self.spec.linear_before_reset => rows - hidden,
            _ => rows,
        };
        let t = (!self.seq.is_one()).then(|| builder.axis("t", &self.seq));
        let b = (!self.batch.is_one()).then(|| builder.axis("b", &self.batch));
        let (k, n) = (builder.axis("k", &units), builder.axis("n", &units));
        let g = match self.spec.kind {
            RecurrentKind::Rnn => n,
            _ => builder.axis("g", &Dim::Known(gate_rows)),
        };
        Axes { t, b, k, n, g }
    }
}

impl Lowering<'_> {
    pub(crate) fn recurrent(&mut self, n: NodeId, spec: &RecurrentSpec) -> Result<()> {
        if let Err(why) = self.lowers(n, spec) {
            return self.recurrent_host(n, spec, &why);
        }
        let graph = self.graph;
        let node = graph.node(n);
        let shape = self.shape(node.inputs[0]);
        let (s, b) = match spec.batch_first {
            false => (0, 1),
            true => (1, 0),
        };
        let (seq, batch) = (shape[s].clone(), shape[b].clone());
        let found = self.recurrent_inputs(n, spec, &batch)?;
        let mut outs = Vec::new();
        for &o in &node.outputs {
            let rank = self.shape(o).len();
            let order: Vec<usize> = (0..rank).collect();
            let l = self.new_value(self.name(o), self.dtype(o), self.shape(o), &order);
            self.located[o.0 as usize] = Some(l.clone());
            outs.push(l);
        }
        let whole = Whole {
            n,
            spec,
            seq,
            batch,
            found,
            outs,
        };
        for dir in 0..spec.directions() {
            self.direction(&whole, dir)?;
        }
        Ok(())
    }

    /// Every operand with its batch, so that extents agree.
    fn recurrent_inputs(
        &mut self,
        n: NodeId,
        spec: &RecurrentSpec,
        batch: &Dim,
    ) -> Result<Vec<Option<Located>>> {
        let graph = self.graph;
        let mut found: Vec<Option<Located>> = vec![None; spec.present.len()];
        for (slot, f) in found.iter_mut().enumerate() {
            let Some(at) = spec.input(slot) else { continue };
            let v = graph.node(n).inputs[at];
            let rank = self.shape(v).len();
            let mut want = vec![None; rank];
            match slot {
                LENS => want[0] = Some(batch.clone()),
                H0 | C0 => want[usize::from(!spec.batch_first)] = Some(batch.clone()),
                _ => {}
            }
            let mut l = self.locate(v)?;
            if l.layout.modes.iter().any(|m| m.coalesce().leaves.len() > 1) {
                l = self.materialise(&l, self.dtype(v), self.name(v), &self.origins(&[n]))?;
            }
            *f = Some(self.fit(l, &want, self.dtype(v), self.name(v))?);
        }
        Ok(found)
    }

    /// The kernel of one direction, where somebody reads what it gives.
    fn direction(&mut self, whole: &Whole<'_>, dir: usize) -> Result<()> {
        let (n, spec) = (whole.n, whole.spec);
        let graph = self.graph;
        let node = graph.node(n);
        let reverse = spec.direction == "reverse" || dir == 1;
        let Some(operands) = whole.operands(dir, reverse) else {
            return self.fail(
                n,
                "its inputs cannot be taken apart; give its symbolic dimensions sizes with --dim",
            );
        };
        let name = self.recurrent_name(n, spec.directions(), dir);
        let mut builder = Builder::new(&name, Family::Recurrent);
        let axes = whole.axes(&mut builder);
        let mut layer = Layer {
            spec,
            builder,
            axes,
            dtype: self.dtype(node.inputs[0]),
            dir,
            seq: whole.seq.clone(),
            reverse,
            x: operands.x,
            r: operands.r,
            bias: operands.bias,
            peepholes: operands.peepholes,
            alive: None,
        };
        let used = |i: usize| {
            let v = node.outputs[i];
            self.is_output[v.0 as usize] || !self.readers[v.0 as usize].is_empty()
        };
        let y = whole.every_position(dir, reverse).filter(|_| used(0));
        let states = usize::from(spec.batch_first);
        let state = |i: usize| pick(&whole.outs[i], states, &Dim::from(dir)).filter(|_| used(i));
        let last: Vec<Option<Located>> = (1..whole.outs.len()).map(state).collect();
        if y.is_none() && last.iter().all(Option::is_none) {
            return Ok(());
        }
        let lens = spec
            .input(LENS)
            .map_or(DType::I32, |at| self.dtype(node.inputs[at]));
        let lengths = whole.found[LENS].as_ref().map(|l| (l.clone(), lens));
        if layer.build(lengths, operands.initial, y, &last).is_none() {
            return self.fail(
                n,
                "its operands do not fit its axes; give its symbolic dimensions sizes with --dim",
            );
        }
        let (kernel, args) = layer.builder.finish();
        let nodes = self.origins(&[n]);
        self.emit(kernel, args, nodes);
        Ok(())
    }

    fn recurrent_name(&self, n: NodeId, dirs: usize, dir: usize) -> String {
        let name = self.origins(&[n]).join(" ");
        match (dirs, dir) {
            (1, _) => name,
            (_, 0) => format!("{name} forward"),
            _ => format!("{name} reverse"),
        }
    }

    /// Whether the layer has a kernel; else why not.
    fn lowers(&self, n: NodeId, spec: &RecurrentSpec) -> std::result::Result<(), String> {
        let node = self.graph.node(n);
        let value = |slot: usize| {
            let at = spec.input(slot)?;
            node.inputs.get(at).copied()
        };
        let rank =
            |slot: usize, want: usize| value(slot).is_none_or(|v| self.shape(v).len() == want);
        let (Some(x), Some(r)) = (value(X), value(R)) else {
            return Err("X or R is not given".into());
        };
        if value(W).is_some() {
            return Err("W and X have not the shapes that the standard says".into());
        }
        let dtype = self.dtype(x);
        if !matches!(dtype, DType::F32 | DType::F64) {
            return Err(format!("layers of {dtype} have no kernel"));
        }
        let (hidden, rows) = (
            Dim::Known(spec.hidden),
            Dim::Known(spec.gates() * spec.hidden),
        );
        let dirs = Dim::from(spec.directions());
        let fits = |slot: usize, want: &[Dim]| {
            value(slot).is_none_or(|v| self.shape(v) == want && self.dtype(v) == dtype)
        };
        let state = |slot: usize| {
            value(slot).is_none_or(|v| {
                let s = self.shape(v);
                let d = usize::from(spec.batch_first);
                self.dtype(v) == dtype && s.len() == 3 && s[d] == dirs && s[2] == hidden
            })
        };
        let peepholes = Dim::Known(3 * spec.hidden);
        let good = rank(X, 3)
            && rank(LENS, 1)
            && self.shape(r) == [dirs.clone(), rows, hidden.clone()]
            && self.dtype(r) == dtype
            && fits(B, &[dirs.clone(), hidden.clone()])
            && fits(P, &[dirs.clone(), peepholes])
            && state(H0)
            && state(C0)
            && value(LENS).is_none_or(|v| matches!(self.dtype(v), DType::I32 | DType::I64));
        if !good {
            return Err("its inputs have not the shapes that the standard says".into());
        }
        cell::known(spec)
    }
}

/// `l` under a view.
fn seen(l: &Located, view: &View) -> Option<Located> {
    l.view(view)
}

/// `l` at position `at` of dimension `dim`, without it.
fn pick(l: &Located, dim: usize, at: &Dim) -> Option<Located> {
    let mut layout: Layout = l.layout.slice(dim, at, 1, &Dim::ONE)?;
    layout.modes.remove(dim);
    Some(Located { ix: l.ix, layout })
}

/// Positions `from..from + n` of dimension `dim`.
fn cut(l: &Located, dim: usize, from: i64, n: i64) -> Option<Located> {
    let layout = l.layout.slice(dim, &Dim::Known(from), 1, &Dim::Known(n))?;
    Some(Located { ix: l.ix, layout })
}

/// Dimension 0 from its end, when `reverse`.
fn flip(l: Located, reverse: bool, extent: &Dim) -> Option<Located> {
    if !reverse || extent.is_one() {
        return Some(l);
    }
    let last = extent.clone() - Dim::ONE;
    let layout = l.layout.slice(0, &last, -1, extent)?;
    Some(Located { ix: l.ix, layout })
}

impl Layer<'_> {
    /// Addresses of `l`, whose dimensions run along `dims`; unlike other kernels' operands this one
    /// keeps axes of one position, so that tiles have the axes that the cell expects.
    fn access(&self, l: &Located, dims: &[Option<AxisId>]) -> Option<Access> {
        let mut terms = Vec::new();
        for (mode, axis) in l.layout.modes.iter().zip(dims) {
            let Some(axis) = *axis else { continue };
            let extent = self.builder.extent(axis);
            let mode = match mode.extent().is_one() {
                // One position: of an axis of one, or of one that it is the same along.
                true if extent.is_one() => layout::Mode::flat(Dim::ONE, Dim::ONE),
                true => layout::Mode::flat(extent.clone(), Dim::ZERO),
                false => mode.refine(std::slice::from_ref(extent))?,
            };
            let leaf = mode.leaves.into_iter().next()?;
            terms.push(Term {
                axis,
                leaves: vec![leaf],
            });
        }
        terms.arrange_by_key(|t| t.axis);
        Some(Access::strided(l.layout.offset.clone(), terms))
    }

    fn load(&mut self, name: &str, l: &Located, dims: &[Option<AxisId>]) -> Option<TileId> {
        let access = self.access(l, dims)?;
        Some(
            self.builder
                .load(name, self.dtype, access, touched(&l.layout), l.ix),
        )
    }

    fn store(
        &mut self,
        name: &str,
        l: &Located,
        dims: &[Option<AxisId>],
        src: TileId,
    ) -> Option<()> {
        let access = self.access(l, dims)?;
        let ix: ValueIx = l.ix;
        self.builder
            .store(name, access, touched(&l.layout), ix, src);
        Some(())
    }

    /// Axes of a tile: those of `list` that there are.
    fn over(&self, list: &[Option<AxisId>]) -> Vec<AxisId> {
        list.iter().flatten().copied().collect()
    }

    /// The part of `src` that is gate `gate`, over units.
    fn gate(&mut self, name: &str, src: TileId, gate: i64) -> TileId {
        let axes = self.over(&[self.axes.t, self.axes.b, Some(self.axes.n)]);
        let dst = self.builder.tile(name, self.dtype, &axes);
        let label = Label {
            from: self.axes.g,
            to: self.axes.n,
            first: Dim::Known(gate * self.spec.hidden),
        };
        self.builder.relabel(dst, src, vec![label], None);
        dst
    }

    /// `src`, over units, along the product's summed axis.
    fn turned(&mut self, dst: TileId, src: TileId, along: Option<AxisId>) {
        let label = Label {
            from: self.axes.n,
            to: self.axes.k,
            first: Dim::ZERO,
        };
        self.builder.relabel(dst, src, vec![label], along);
    }
}
