//! Small graphs as the planner lays them out: every step of their plans, constants packed by the init segment
//! included, at extents beside the edges of the tiles that it picks.
use conformance::edges::{MOST, Programmed, Source};
use conformance::{Limits, Rng};
use device::Device;
use expr::{Binary, ExprBuilder, Monoid, Ref, Unary};
use graph::{ContractSpec, ConvSpec, GraphBuilder, Op, PadMode, PoolKind, PoolSpec, ValueId, View};
use layout::{DType, Dim, DimBox};
use plan::{Allotment, StepWork};
use planner::{PlanOptions, Planner, Sweep};
use shopfloor::{Model, ModelOptions};
use std::sync::Arc;
use tensor::{Tensor, WeightStore};

const F: DType = DType::F32;
const FLOATS: [DType; 3] = [F, DType::F16, DType::BF16];

/// A graph being made by the choices and extents of an [`Rng`] in turn.
struct Build<'a> {
    r: &'a mut Rng,
    b: GraphBuilder,
    /// Values of the symbols.
    sizes: Vec<(String, i64)>,
    names: usize,
}

/// Makes a graph of one kind; gives its outputs.
type Make = fn(&mut Build<'_>) -> Option<Vec<ValueId>>;

/// A graph with the values of its symbols.
struct Made {
    graph: graph::Graph,
    sizes: Vec<(String, i64)>,
    /// It is planned for all sizes that there may be, which has the same schedule for all, not for these alone.
    ranges: bool,
}

/// Graphs of one kind.
struct Graphs(&'static str, Make);

/// The kinds of graphs as sources.
pub(super) fn sources() -> Vec<Box<dyn Source>> {
    let all: [(&'static str, Make); 11] = [
        ("planned-product", product),
        ("planned-quantised-product", quantised_product),
        ("planned-nibbles", nibbles),
        ("planned-conv", conv),
        ("planned-quantised-conv", quantised_conv),
        ("planned-pool", pool),
        ("planned-rows", rows),
        ("planned-attention", attention),
        ("planned-pad", pad),
        ("planned-join", join),
        ("planned-gather", gather),
    ];
    let boxed = |(name, make)| -> Box<dyn Source> { Box::new(Graphs(name, make)) };
    all.into_iter().map(boxed).collect()
}

impl Graphs {
    /// The graph of the choices that `rng` makes in turn.
    fn made(&self, rng: &mut Rng) -> Option<Made> {
        let ranges = rng.once_in(2);
        let mut g = Build {
            r: rng,
            b: GraphBuilder::new(self.0, Arc::new(WeightStore::new())),
            sizes: vec![],
            names: 0,
        };
        let outputs = (self.1)(&mut g)?;
        Some(Made {
            graph: g.b.finish(&outputs),
            sizes: g.sizes,
            ranges,
        })
    }
}

impl Source for Graphs {
    fn name(&self) -> &str {
        self.0
    }

    fn choose(&self, rng: &mut Rng) {
        self.made(rng);
    }

    fn programs(
        &self,
        rng: &mut Rng,
        device: &dyn Device,
        seed: u64,
    ) -> Result<Vec<(usize, Programmed)>, String> {
        let Some(made) = self.made(rng) else {
            return Ok(vec![]);
        };
        let Made {
            graph,
            sizes,
            ranges,
        } = made;
        let mut dims = DimBox::new();
        for (name, value) in &sizes {
            let (lo, hi) = if ranges { (0, MOST) } else { (*value, *value) };
            dims.insert(name.as_str(), lo, hi);
        }
        steps(self.0, &graph, &sizes, &dims, device, &mut Rng::new(seed))
    }
}

/// The steps of a graph's plan, those of the init segment first; each kernel has the schedule that the planner picks
/// for it and another one of its candidates.
fn steps(
    name: &str,
    graph: &graph::Graph,
    sizes: &[(String, i64)],
    dims: &DimBox,
    device: &dyn Device,
    draw: &mut Rng,
) -> Result<Vec<(usize, Programmed)>, String> {
    let text = |e: &dyn std::fmt::Display| e.to_string();
    let options = ModelOptions {
        dims: dims.clone(),
        ..Default::default()
    };
    let model = Model::from_graph(name, graph, &options).map_err(|e| text(&e))?;
    let planner = Planner::new(
        vec![(device.machine().clone(), device.target().clone())],
        PlanOptions::default(),
    );
    let allotment = Allotment {
        workers: vec![1],
        memory: None,
        goal: plan::Goal::default(),
    };
    let bind = |s: &Sweep| planner.bind_sweeping(model.program(), dims, &allotment, s);
    let mut out = vec![];
    let mut take = |plan: plan::Plan| -> Result<Vec<String>, String> {
        let verified = plan.verify().map_err(|e| text(&e))?;
        let mut kernels = vec![];
        for (i, block) in verified.plan().blocks().enumerate() {
            for s in &block.steps {
                if let StepWork::Kernel { kernel, .. } = &s.work {
                    kernels.push(kernel.name.clone());
                }
            }
            let programs = verified.init_programs(i).iter();
            for p in programs.chain(verified.step_programs(i)).flatten() {
                let types = p.kernel().operands.iter().map(|o| tolerance(o.dtype));
                out.push((
                    out.len(),
                    Programmed {
                        program: p.clone(),
                        symbols: sizes.to_vec(),
                        limits: Limits {
                            top: 3,
                            ..Limits::within(types.fold(2e-4, f64::max))
                        },
                    },
                ));
            }
        }
        Ok(kernels)
    };
    let kernels = take(bind(&Sweep::default()).map_err(|e| text(&e))?)?;
    let mut sweep = Sweep::of(kernels.iter().cloned());
    if bind(&sweep).is_ok() {
        for k in &kernels {
            let all = sweep.candidates(k).len();
            sweep.pick(k, draw.below(all));
        }
        if let Ok(plan) = bind(&sweep) {
            take(plan)?;
        }
    }
    Ok(out)
}

/// One rounding more or less of a value of the type, through a few operations.
fn tolerance(d: DType) -> f64 {
    match d {
        DType::F16 => 1e-2,
        DType::BF16 => 6e-2,
        _ => 2e-4,
    }
}

impl Build<'_> {
    /// A dimension of the request.
    fn size(&mut self) -> Dim {
        let value = self.r.extent(MOST);
        let name = format!("d{}", self.sizes.len());
        self.sizes.push((name.clone(), value));
        Dim::sym(&name)
    }

    /// A dimension of the model.
    fn fixed(&mut self) -> i64 {
        self.r.extent(MOST)
    }

    fn given(&mut self, dtype: DType, shape: Vec<Dim>) -> ValueId {
        self.names += 1;
        self.b.input(&format!("x{}", self.names), dtype, shape)
    }

    fn constant(&mut self, dtype: DType, shape: &[i64]) -> Option<ValueId> {
        self.names += 1;
        let shape: Vec<usize> = shape.iter().map(|&n| n as usize).collect();
        let bytes = dtype.bytes_for(shape.iter().product())?;
        let t = match dtype.is_float() {
            true => crate::handwritten::values(dtype, &shape, self.names as u64),
            false => {
                let all = (0..bytes).map(|i| (i * 7 % 5) as u8).collect();
                Tensor::from_bytes(dtype, &shape, all).ok()?
            }
        };
        self.b.constant(&format!("w{}", self.names), t).ok()
    }

    /// A factor of fixed dimensions: a constant, or given with every request.
    fn factor(&mut self, dtype: DType, shape: &[i64]) -> Option<ValueId> {
        match self.r.once_in(2) {
            true => self.constant(dtype, shape),
            false => Some(self.given(dtype, shape.iter().map(|&n| Dim::Known(n)).collect())),
        }
    }

    fn node(&mut self, op: Op, of: &[ValueId]) -> Option<ValueId> {
        self.names += 1;
        let name = format!("v{}", self.names);
        let made = self
            .b
            .node(op, of, &[&name], &crate::handwritten::origin(&name));
        made.ok().map(|v| v[0])
    }

    fn map(
        &mut self,
        of: &[ValueId],
        f: impl FnOnce(&mut ExprBuilder, &[Ref]) -> Ref,
    ) -> Option<ValueId> {
        let mut e = ExprBuilder::new();
        let types = of.iter().map(|v| self.b.value(*v).dtype).enumerate();
        let args: Vec<Ref> = types.map(|(i, d)| e.input(i as u32, d)).collect();
        let r = f(&mut e, &args);
        self.node(Op::Map(e.finish(&[r])), of)
    }

    /// Perhaps a bias along the shape's only long dimension, and a bound.
    fn finished(&mut self, y: ValueId, shape: &[i64]) -> Option<Vec<ValueId>> {
        let d = self.b.value(y).dtype;
        if !d.is_float() || self.r.once_in(2) {
            return Some(vec![y]);
        }
        let bias = self.constant(d, shape)?;
        let y = self.map(&[y, bias], |e, a| {
            let (s, zero) = (e.add(a[0], a[1]), e.constant(0.0, d));
            e.binary(Binary::Max, s, zero)
        })?;
        Some(vec![y])
    }
}

fn product(g: &mut Build<'_>) -> Option<Vec<ValueId>> {
    let d = g.r.of(&[
        F,
        DType::F16,
        DType::BF16,
        DType::F64,
        DType::I32,
        DType::I64,
    ]);
    let (m, k, n) = (g.size(), g.fixed(), g.fixed());
    // Perhaps of a batch, the second factor with one or without.
    let batch = g.r.below(3);
    let batched = (batch > 0).then(|| g.size());
    let swapped = g.r.once_in(2);
    let x = batched.iter().cloned().chain([m, Dim::Known(k)]).collect();
    let x = g.given(d, x);
    let (w, own) = match swapped {
        true => ([n, k], [3, 2]),
        false => ([k, n], [2, 3]),
    };
    let w = match (&batched, batch) {
        (Some(b), 2) => {
            let shape = [b.clone()].into_iter().chain(w.map(Dim::Known));
            g.given(d, shape.collect())
        }
        _ => g.factor(d, &w)?,
    };
    let lead: &[u8] = if batch > 0 { &[0] } else { &[] };
    let theirs: &[u8] = if batch == 2 { &[0] } else { &[] };
    let spec = ContractSpec {
        a: [lead, &[1, 2]].concat(),
        b: [theirs, &own].concat(),
        out: [lead, &[1, 3]].concat(),
    };
    let y = g.node(Op::Contract(spec), &[x, w])?;
    g.finished(y, &[n])
}

/// `(x - zero) * scale` of 8-bit numbers.
fn steps_of(g: &mut Build<'_>, x: ValueId, shape: &[i64], zero: i64) -> Option<ValueId> {
    let scale = g.constant(F, shape)?;
    g.map(&[x, scale], |e, a| {
        let (v, z) = (e.cast(a[0], DType::I32), e.int(zero, DType::I32));
        let v = e.sub(v, z);
        let v = e.cast(v, F);
        e.mul(v, a[1])
    })
}

fn quantised_product(g: &mut Build<'_>) -> Option<Vec<ValueId>> {
    let (dx, dw) = g.r.of(&[
        (DType::U8, DType::I8),
        (DType::I8, DType::I8),
        (DType::U8, DType::U8),
    ]);
    let (m, k, n) = (g.size(), g.fixed(), g.fixed());
    let zero = g.r.of(&[0, 3]);
    let x = g.given(dx, vec![m, Dim::Known(k)]);
    let w = g.factor(dw, &[k, n])?;
    let (x, w) = (steps_of(g, x, &[], zero)?, steps_of(g, w, &[n], 0)?);
    let spec = ContractSpec {
        a: vec![0, 1],
        b: vec![1, 2],
        out: vec![0, 2],
    };
    let y = g.node(Op::Contract(spec), &[x, w])?;
    g.finished(y, &[n])
}

/// A product with weights of 4 bits in blocks.
fn nibbles(g: &mut Build<'_>) -> Option<Vec<ValueId>> {
    let d = g.r.of(&[DType::U4, DType::I4]);
    let block = g.r.of(&[8, 16, 32]);
    let (m, blocks, n) = (g.size(), g.fixed(), g.fixed());
    let k = blocks * block;
    let x = g.given(F, vec![m, Dim::Known(k)]);
    let w = g.constant(d, &[n, blocks, block])?;
    let mut of = vec![w, g.constant(F, &[n, blocks, 1])?];
    if g.r.once_in(2) {
        of.push(g.constant(DType::U8, &[n, blocks, 1])?);
    }
    let w = g.map(&of, |e, a| {
        let w = e.cast(a[0], F);
        let z = match a.get(2) {
            Some(&z) => e.cast(z, F),
            None => e.constant(8.0, F),
        };
        let w = e.sub(w, z);
        e.mul(w, a[1])
    })?;
    let shape = vec![Dim::Known(n), Dim::Known(k)];
    let w = g.node(Op::View(View::Reshape(shape)), &[w])?;
    let spec = ContractSpec {
        a: vec![0, 1],
        b: vec![2, 1],
        out: vec![0, 2],
    };
    let y = g.node(Op::Contract(spec), &[x, w])?;
    g.finished(y, &[n])
}

/// A square window over two dimensions, its padding such that sizes stay for a stride of 1.
fn window(g: &mut Build<'_>, groups: i64) -> ConvSpec {
    let (size, stride) = g.r.of(&[(1, 1), (3, 1), (3, 2)]);
    let rim = vec![Dim::Known(size / 2); 2];
    ConvSpec {
        strides: vec![stride; 2],
        dilations: vec![1; 2],
        before: rim.clone(),
        after: rim,
        kernel: vec![size; 2],
        groups,
        transposed: false,
        outside: 0,
    }
}

/// How channels are shared: (groups, channels in, channels out).
fn channels(g: &mut Build<'_>) -> (i64, i64, i64) {
    match g.r.below(3) {
        0 => (1, g.fixed(), g.fixed()),
        // Every channel by itself.
        1 => {
            let c = g.fixed();
            (c, c, c)
        }
        _ => {
            let (c, each) = (g.fixed(), g.r.of(&[2, 4]));
            (c, c * each, c * each)
        }
    }
}

fn conv(g: &mut Build<'_>) -> Option<Vec<ValueId>> {
    let d = g.r.of(&FLOATS);
    let (groups, c, oc) = channels(g);
    if groups == 0 {
        return None;
    }
    let spec = window(g, groups);
    let (b, h, w) = (g.size(), g.size(), g.size());
    let x = g.given(d, vec![b, Dim::Known(c), h, w]);
    let shape = [oc, c / groups, spec.kernel[0], spec.kernel[1]];
    let w = g.constant(d, &shape)?;
    let y = g.node(Op::Conv(spec), &[x, w])?;
    g.finished(y, &[oc, 1, 1])
}

fn quantised_conv(g: &mut Build<'_>) -> Option<Vec<ValueId>> {
    let d = g.r.of(&[DType::U8, DType::I8]);
    let (groups, c, oc) = channels(g);
    if groups == 0 {
        return None;
    }
    let spec = window(g, groups);
    let (h, w) = (g.size(), g.size());
    let zero = g.r.of(&[0, 3]);
    let x = g.given(d, vec![Dim::ONE, Dim::Known(c), h, w]);
    let shape = [oc, c / groups, spec.kernel[0], spec.kernel[1]];
    let w = g.constant(DType::I8, &shape)?;
    let (x, w) = (
        steps_of(g, x, &[], zero)?,
        steps_of(g, w, &[oc, 1, 1, 1], 0)?,
    );
    let y = g.node(Op::Conv(spec), &[x, w])?;
    g.finished(y, &[oc, 1, 1])
}

fn pool(g: &mut Build<'_>) -> Option<Vec<ValueId>> {
    let d = g.r.of(&FLOATS);
    let kind = match g.r.below(2) {
        0 => PoolKind::Max,
        _ => PoolKind::Average { include_pad: true },
    };
    let (size, stride) = g.r.of(&[(2, 2), (3, 2), (3, 1)]);
    let rim = vec![Dim::Known(size / 2); 2];
    let spec = PoolSpec {
        kind,
        strides: vec![stride; 2],
        dilations: vec![1; 2],
        before: rim.clone(),
        after: rim,
        kernel: vec![size; 2],
    };
    let (c, h, w) = (g.size(), g.size(), g.size());
    let x = g.given(d, vec![Dim::ONE, c, h, w]);
    Some(vec![g.node(Op::Pool(spec), &[x])?])
}

fn along(g: &mut Build<'_>, x: ValueId, monoid: Monoid, axis: usize) -> Option<ValueId> {
    let op = Op::Reduce {
        monoid,
        axes: vec![axis],
        keep: true,
    };
    g.node(op, &[x])
}

fn softmax(g: &mut Build<'_>, x: ValueId, axis: usize) -> Option<ValueId> {
    let d = g.b.value(x).dtype;
    let m = along(g, x, Monoid::max(d, F), axis)?;
    let e = g.map(&[x, m], |e, a| {
        let (x, m) = (e.cast(a[0], F), e.cast(a[1], F));
        let d = e.sub(x, m);
        e.unary(Unary::Exp, d)
    })?;
    let t = along(g, e, Monoid::sum(F, F), axis)?;
    g.map(&[e, t], |e, a| {
        let q = e.div(a[0], a[1]);
        e.cast(q, d)
    })
}

/// Softmax, a sum or a norm along the inner axis or the outer one.
fn rows(g: &mut Build<'_>) -> Option<Vec<ValueId>> {
    let d = g.r.of(&FLOATS);
    let axis = g.r.below(2);
    let (m, n) = (g.size(), g.size());
    let x = g.given(d, vec![m.clone(), n.clone()]);
    let y = match g.r.below(3) {
        0 => softmax(g, x, axis)?,
        1 => along(g, x, Monoid::sum(d, F), axis)?,
        _ => {
            let wide = g.map(&[x], |e, a| e.cast(a[0], F))?;
            let count = [&m, &n][axis];
            let mean = along(g, wide, Monoid::mean(F, F, count), axis)?;
            let c = g.map(&[wide, mean], |e, a| e.sub(a[0], a[1]))?;
            let q = g.map(&[c], |e, a| e.mul(a[0], a[0]))?;
            let v = along(g, q, Monoid::mean(F, F, count), axis)?;
            g.map(&[c, v], |e, a| {
                let eps = e.constant(0.1, F);
                let v = e.add(a[1], eps);
                let r = e.unary(Unary::Rsqrt, v);
                let y = e.mul(a[0], r);
                e.cast(y, d)
            })?
        }
    };
    Some(vec![y])
}

fn attention(g: &mut Build<'_>) -> Option<Vec<ValueId>> {
    let d = g.r.of(&FLOATS);
    let (h, s, t, k) = (g.r.of(&[1, 2]), g.size(), g.size(), g.fixed());
    let rows = |n: Dim| vec![Dim::Known(h), n, Dim::Known(k)];
    let (q, keys) = (g.given(d, rows(s)), g.given(d, rows(t.clone())));
    let v = g.given(d, rows(t));
    let spec = |a: [u8; 3], b: [u8; 3], out: [u8; 3]| {
        Op::Contract(ContractSpec {
            a: a.to_vec(),
            b: b.to_vec(),
            out: out.to_vec(),
        })
    };
    let p = g.node(spec([0, 1, 3], [0, 2, 3], [0, 1, 2]), &[q, keys])?;
    let p = softmax(g, p, 2)?;
    Some(vec![
        g.node(spec([0, 1, 2], [0, 2, 3], [0, 1, 3]), &[p, v])?,
    ])
}

/// One type of each width.
const WIDTHS: [DType; 4] = [DType::U8, DType::F16, F, DType::I64];

fn pad(g: &mut Build<'_>) -> Option<Vec<ValueId>> {
    let d = g.r.of(&WIDTHS);
    let (before, after) = g.r.of(&[(0, 1), (2, 0), (1, -1)]);
    let mode = g.r.below(2);
    let mode = [PadMode::Constant, PadMode::Edge].into_iter().nth(mode)?;
    let (m, n) = (g.size(), g.size());
    let x = g.given(d, vec![m, n]);
    let op = Op::Pad {
        before: vec![Dim::Known(before); 2],
        after: vec![Dim::Known(after); 2],
        mode,
    };
    Some(vec![g.node(op, &[x])?])
}

fn join(g: &mut Build<'_>) -> Option<Vec<ValueId>> {
    let d = g.r.of(&WIDTHS);
    let axis = g.r.below(2);
    let (own, other, shared) = (g.size(), g.size(), g.size());
    let shape = |n: Dim| match axis {
        0 => vec![n, shared.clone()],
        _ => vec![shared.clone(), n],
    };
    let (x, y) = (g.given(d, shape(own)), g.given(d, shape(other)));
    let z = g.node(Op::Concat { axis }, &[x, y])?;
    let t = g.node(Op::View(View::Permute(vec![1, 0])), &[z])?;
    let t = g.map(&[t], |_, a| a[0])?;
    Some(vec![z, t])
}

fn gather(g: &mut Build<'_>) -> Option<Vec<ValueId>> {
    let (d, by) = (g.r.of(&WIDTHS), g.r.of(&[DType::I32, DType::I64]));
    let axis = g.r.below(2);
    let (m, n, count) = (g.size(), g.size(), g.size());
    let (x, i) = (g.given(d, vec![m, n]), g.given(by, vec![count]));
    Some(vec![g.node(Op::Gather { axis, batch: 0 }, &[x, i])?])
}
