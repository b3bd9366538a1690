//! Convolutions: implicit matrix products over channels-last memory, depthwise and grouped forms,
//! and transposed convolutions taken apart into one plain convolution per output phase.
use super::builder::Window;
use super::contract::{accumulator, cast};
use super::{Body, Builder, Lowering, Result, touched};
use crate::fuse::Group;
use crate::located::Located;
use graph::{ConvSpec, NodeId, Op};
use kernel::{Access, AxisId, Family, Role, Term};
use layout::Arrange;
use layout::{DType, Dim, Layout, Leaf};
use std::collections::BTreeMap;

/// Inputs per group, as many as outputs, that lanes of channels read one after the other.
const FEW: [i64; 3] = [2, 4, 8];

/// A group's share of `channels`, which are so many equal groups: shape rules rely on that.
fn each(channels: &Dim, groups: &Dim) -> Dim {
    let exact = channels.exact_div(groups);
    exact.unwrap_or_else(|| channels.floor_div(groups))
}

/// The axis of an extent; none for 1.
fn axis(b: &mut Builder, name: &str, extent: &Dim) -> Option<AxisId> {
    (!extent.is_one()).then(|| b.axis(name, extent))
}

/// The name of spatial axis `d` of a window.
fn tap_name(d: usize) -> &'static str {
    ["r", "s", "u"].get(d).copied().unwrap_or("t")
}

/// The name of spatial axis `d` of an output.
fn out_name(d: usize) -> &'static str {
    ["oh", "ow", "od"].get(d).copied().unwrap_or("o")
}

/// The stride of dimension `d`, which has one.
fn stride(l: &Layout, d: usize) -> Dim {
    let leaves = l.modes[d].coalesce().leaves;
    leaves.first().map_or(Dim::ZERO, |l| l.stride.clone())
}

/// Adds the term of an axis that runs along one stride.
fn add_term(access: &mut Access, b: &Builder, axis: Option<AxisId>, stride: Dim) {
    if let Some(a) = axis {
        access.terms.push(Term {
            axis: a,
            leaves: vec![Leaf {
                extent: b.extent(a).clone(),
                stride,
            }],
        });
    }
}

/// A convolution's shapes.
struct ConvShape<'a> {
    spec: &'a ConvSpec,
    /// Of the input as the model has it, the weight, and the output.
    input: Vec<Dim>,
    weight: Vec<Dim>,
    output: Vec<Dim>,
    groups: Dim,
    /// Output channels of a group.
    group_outputs: Dim,
    /// All output channels are one axis: a few of them read the same inputs.
    shared: bool,
}

/// A convolution's axes by role; none where an extent is 1.
struct ConvAxes {
    /// By the output's dimensions.
    dims: Vec<Vec<AxisId>>,
    batch: Option<AxisId>,
    group: Option<AxisId>,
    output: Option<AxisId>,
    taps: Vec<Option<AxisId>>,
    channel: Option<AxisId>,
}

impl ConvAxes {
    /// In the order of channels-last memory: batch, spatial, group, channel; then taps.
    fn new(b: &mut Builder, c: &ConvShape<'_>) -> ConvAxes {
        let spatial = c.spec.kernel.len();
        let mut dims: Vec<Vec<AxisId>> = vec![vec![]; c.output.len()];
        let batch = axis(b, "b", &c.output[0]);
        dims[0].extend(batch);
        for d in 0..spatial {
            let name = if spatial == 1 { "ow" } else { out_name(d) };
            dims[2 + d].extend(axis(b, name, &c.output[2 + d]));
        }
        let (group, output) = match c.shared {
            true => (None, axis(b, "oc", &c.weight[0])),
            false => {
                let g = axis(b, "g", &c.groups);
                (g, axis(b, "oc", &c.group_outputs))
            }
        };
        dims[1].extend(group.into_iter().chain(output));
        let tap = |d: usize| axis(b, tap_name(d), &Dim::Known(c.spec.kernel[d]));
        let taps = (0..spatial).map(tap).collect();
        ConvAxes {
            dims,
            batch,
            group,
            output,
            taps,
            channel: axis(b, "c", &c.weight[1]),
        }
    }

    /// Addresses of the input: x[b, g*cg + c, o*stride + tap*dilation - before].
    fn input(&self, b: &Builder, c: &ConvShape<'_>, x: &Layout) -> Access {
        let spec = c.spec;
        let channels = &c.weight[1];
        let mut access = Access::strided(x.offset.clone(), vec![]);
        access.outside = spec.outside as f64;
        let sc = stride(x, 1);
        add_term(&mut access, b, self.batch, stride(x, 0));
        add_term(&mut access, b, self.group, sc.clone() * channels.clone());
        if let Some(a) = self.output.filter(|_| c.shared) {
            let leaf = |extent: &Dim, stride| Leaf {
                extent: extent.clone(),
                stride,
            };
            let leaves = vec![
                leaf(&c.groups, sc.clone() * channels.clone()),
                leaf(&c.group_outputs, Dim::ZERO),
            ];
            access.terms.push(Term { axis: a, leaves });
        }
        add_term(&mut access, b, self.channel, sc);
        let xs = x.shape();
        for d in 0..spec.kernel.len() {
            // A padded copy was made by `channels_last` when its extent is the padded one.
            let padded = xs[2 + d] != c.input[2 + d];
            let before = match padded {
                true => Dim::ZERO,
                false => spec.before[d].clone(),
            };
            let last = (c.output[2 + d].clone() - Dim::ONE) * Dim::Known(spec.strides[d])
                + Dim::Known((spec.kernel[d] - 1) * spec.dilations[d])
                - before.clone();
            let inside =
                before.is_zero() && (last.provably_lt(&xs[2 + d]) || fits_by_formula(spec, d));
            Window {
                out: self.dims[2 + d].first().copied(),
                tap: self.taps[d],
                stride: spec.strides[d],
                dilation: spec.dilations[d],
                base: -before,
                extent: &xs[2 + d],
                inside: padded || inside,
            }
            .apply(b, &mut access, &stride(x, 2 + d));
        }
        access.terms.arrange_by_key(|t| t.axis);
        access
    }

    /// Addresses of the weight: w[g*og + oc, c, taps].
    fn weight(&self, b: &Builder, c: &ConvShape<'_>, w: &Layout) -> Access {
        let mut access = Access::strided(w.offset.clone(), vec![]);
        let so = stride(w, 0);
        add_term(
            &mut access,
            b,
            self.group,
            so.clone() * c.group_outputs.clone(),
        );
        add_term(&mut access, b, self.output, so);
        add_term(&mut access, b, self.channel, stride(w, 1));
        for (d, tap) in self.taps.iter().enumerate() {
            add_term(&mut access, b, *tap, stride(w, 2 + d));
        }
        access.terms.arrange_by_key(|t| t.axis);
        access
    }
}

impl Lowering<'_> {
    pub(crate) fn conv(&mut self, g: &Group, n: NodeId) -> Result<()> {
        let graph = self.graph;
        let node = graph.node(n);
        let Op::Conv(spec) = &node.op else {
            return self.fail(n, "not a convolution");
        };
        if spec.transposed {
            return self.conv_transposed(g, n, spec);
        }
        let (vx, vw, vo) = (node.inputs[0], node.inputs[1], node.outputs[0]);
        let [x, w] = self.conv_factors(n, spec, vx, vw)?;
        let types = [vx, vw].map(|v| self.dtype(v));
        let groups = Dim::Known(spec.groups);
        let weight = self.shape(vw).to_vec();
        let c = ConvShape {
            spec,
            input: self.shape(vx).to_vec(),
            output: self.shape(vo).to_vec(),
            group_outputs: each(&weight[0], &groups),
            weight,
            groups,
            shared: self.shares_inputs(n) && types == [DType::F32; 2],
        };
        let mut b = Builder::new(&self.group_name(g), Family::Conv);
        let axes = ConvAxes::new(&mut b, &c);
        let input = axes.input(&b, &c, &x.layout);
        let weight = axes.weight(&b, &c, &w.layout);
        let out_axes: Vec<AxisId> = axes.dims.concat();
        let over = axes.taps.iter().flatten().copied().chain(axes.channel);
        let over: Vec<AxisId> = over.collect();
        let tx = b.load("x", types[0], input, touched(&x.layout), x.ix);
        let tw = b.load("w", types[1], weight, touched(&w.layout), w.ix);
        let acc = b.fill("acc", accumulator(self.dtype(vo)), &out_axes, 0.0);
        b.contract(acc, tx, tw, &over);
        let result = cast(&mut b, acc, self.dtype(vo), &out_axes);
        let body = Body {
            builder: b,
            dims: axes.dims,
            tiles: BTreeMap::from([(vo, result)]),
            loads: BTreeMap::new(),
            indexed: false,
            folded: Vec::new(),
        };
        self.close(body, g, Some(n))
    }

    /// Input and weight as a convolution reads them.
    fn conv_factors(
        &mut self,
        n: NodeId,
        spec: &ConvSpec,
        vx: graph::ValueId,
        vw: graph::ValueId,
    ) -> Result<[Located; 2]> {
        let x = self.channels_last(n, vx, spec, true)?;
        let mut w = self.flat(n, vw)?;
        // Few channels: with weights in the input's own order the last tap and the channels become
        // one axis, a longer run along memory.
        let channels = self.shape(vw)[1].clone();
        let run = channels.clone() * Dim::Known(spec.kernel.last().copied().unwrap_or(1));
        if spec.groups == 1 && run.known().is_some_and(|r| r <= 64) && !channels.is_one() {
            let rank = self.shape(vw).len();
            let order: Vec<usize> = [0].into_iter().chain(2..rank).chain([1]).collect();
            let nodes = self.origins(&[n]);
            w = self.copy_to(&w, self.dtype(vw), self.name(vw), &order, &nodes)?;
        }
        Ok([x, w])
    }

    /// Whether the output channels of convolution `n` are lanes that read their group's few inputs one after the
    /// other, rather than columns of a product per group, which so few would hardly fill.
    pub(crate) fn shares_inputs(&self, n: NodeId) -> bool {
        let node = self.graph.node(n);
        let Op::Conv(spec) = &node.op else {
            return false;
        };
        let (vx, vw, vo) = (node.inputs[0], node.inputs[1], node.outputs[0]);
        let w = self.shape(vw);
        let few = w[1].known().filter(|c| FEW.contains(c));
        let alike = few.is_some_and(|c| w[0].known() == Some(c * spec.groups));
        let floats = [vx, vw, vo].iter().all(|&v| self.dtype(v) == DType::F32);
        // Weights are packed for it when the model is loaded.
        let known = crate::fuse::constant(self.graph, vw, 0);
        !spec.transposed && spec.groups > 1 && alike && floats && known
    }

    /// A tensor whose dimensions all have plain strides.
    fn flat(&mut self, n: NodeId, v: graph::ValueId) -> Result<Located> {
        let l = self.locate(v)?;
        if l.layout
            .modes
            .iter()
            .all(|m| m.coalesce().leaves.len() <= 1)
        {
            return Ok(l);
        }
        self.materialise(&l, self.dtype(v), self.name(v), &self.origins(&[n]))
    }

    /// The input with its channels side by side. When it has to be moved for that anyway and has
    /// few channels, the copy gets the padding too, so that taps and channels join into longer runs.
    fn channels_last(
        &mut self,
        n: NodeId,
        v: graph::ValueId,
        spec: &ConvSpec,
        may_pad: bool,
    ) -> Result<Located> {
        let l = self.flat(n, v)?;
        let shape = self.shape(v).to_vec();
        let unit = l.layout.modes[1]
            .coalesce()
            .leaves
            .first()
            .is_none_or(|c| c.stride.is_one());
        if unit {
            return Ok(l);
        }
        let rank = shape.len();
        let order: Vec<usize> = [0].into_iter().chain(2..rank).chain([1]).collect();
        let pads = (0..rank - 2).any(|d| !spec.before[d].is_zero() || !spec.after[d].is_zero());
        let few = shape[1]
            .known()
            .is_some_and(|c| c * spec.kernel.last().copied().unwrap_or(1) <= 64);
        if !(may_pad && pads && few) {
            let nodes = self.origins(&[n]);
            return self.copy_to(&l, self.dtype(v), self.name(v), &order, &nodes);
        }
        let mut padded = shape.clone();
        for d in 0..rank - 2 {
            padded[2 + d] = padded[2 + d].clone() + spec.before[d].clone() + spec.after[d].clone();
        }
        let to = self.new_value(
            &format!("{}.padded", self.name(v)),
            self.dtype(v),
            &padded,
            &order,
        );
        let mut b = Builder::new(&format!("pad {}", self.name(v)), Family::Move);
        let mut dims: Vec<Vec<AxisId>> = vec![vec![]; rank];
        for &d in &order {
            if !padded[d].is_one() {
                dims[d].push(b.axis(&format!("d{d}"), &padded[d]));
            }
        }
        let mut access = Access::strided(l.layout.offset.clone(), vec![]);
        access.outside = spec.outside as f64;
        for d in 0..rank {
            let before = if d < 2 {
                Dim::ZERO
            } else {
                spec.before[d - 2].clone()
            };
            let inside = padded[d] == shape[d] && before.is_zero();
            Window {
                out: dims[d].first().copied(),
                tap: None,
                stride: 1,
                dilation: 1,
                base: -before,
                extent: &shape[d],
                inside,
            }
            .apply(&b, &mut access, &stride(&l.layout, d));
        }
        let t = b.load("x", self.dtype(v), access, touched(&l.layout), l.ix);
        let Some(write) = b.access(&to.layout, &dims) else {
            return self.fail(n, "the padded input does not fit its axes");
        };
        b.store("y", write, Dim::product(&padded), to.ix, t);
        let (k, args) = b.finish();
        self.emit(k, args, self.origins(&[n]));
        Ok(to)
    }

    /// Output position `phase + stride * j` takes every `stride / gcd(stride, dilation)`-th tap only:
    /// a plain convolution per phase, each writing its own positions.
    fn conv_transposed(&mut self, g: &Group, n: NodeId, spec: &ConvSpec) -> Result<()> {
        let node = self.graph.node(n);
        let (vx, vw, vo) = (node.inputs[0], node.inputs[1], node.outputs[0]);
        let x = self.channels_last(n, vx, spec, false)?;
        let w = self.flat(n, vw)?;
        let (weight, output, input) = (
            self.shape(vw).to_vec(),
            self.shape(vo).to_vec(),
            self.shape(vx).to_vec(),
        );
        let Some(before): Option<Vec<i64>> = spec.before.iter().map(Dim::known).collect() else {
            return self.fail(
                n,
                "its padding depends on symbolic dimensions; give them sizes with --dim",
            );
        };
        let rank = output.len();
        let order: Vec<usize> = [0].into_iter().chain(2..rank).chain([1]).collect();
        let direct = self.is_output[vo.0 as usize] && g.nodes.len() == 1;
        let (name, dtype) = (self.name(vo), self.dtype(vo));
        let to = match direct {
            true => self.new_value(name, dtype, &output, &super::row_major(rank)),
            false => self.new_value(name, dtype, &output, &order),
        };
        // A phase without taps reads nothing, but fills a part of what the others fill per request.
        self.per_request = [&x, &w].iter().any(|l| {
            !matches!(
                self.program.value(l.ix).origin,
                plan::ValueOrigin::Weight(_) | plan::ValueOrigin::Init
            )
        });
        let groups = Dim::Known(spec.groups);
        // The channels stand in both shapes, which are equal: the one that is known to divide says more.
        let known = input[1].exact_div(&groups);
        let t = Transposed {
            n,
            spec,
            types: [vx, vw, vo].map(|v| self.dtype(v)),
            group_inputs: known.unwrap_or_else(|| each(&weight[0], &groups)),
            group_outputs: weight[1].clone(),
            groups,
            before,
            input,
            output,
            x,
            w,
            to,
        };
        for p in 0..spec.strides.iter().product() {
            self.transposed_phase(&t, p);
        }
        self.per_request = false;
        self.located[vo.0 as usize] = Some(t.to);
        if direct || g.nodes.len() == 1 {
            return Ok(());
        }
        // The epilogue reads the joined phases as a kernel of its own.
        let mut rest = g.clone();
        rest.anchor = crate::fuse::Anchor::Map;
        rest.nodes.retain(|&m| m != n);
        rest.mapping.remove(&vo);
        self.pointwise(&rest)
    }

    /// The kernel of one phase.
    fn transposed_phase(&mut self, t: &Transposed<'_>, p: i64) {
        let (spec, x, w) = (t.spec, &t.x, &t.w);
        let phase = t.positions(p);
        let name = format!("{} phase {p}", self.origins(&[t.n]).join(" "));
        let mut b = Builder::new(&name, Family::Conv);
        let ab = axis(&mut b, "b", &t.output[0]);
        let mut outs = Vec::new();
        for (d, at) in phase.iter().enumerate() {
            let s = Dim::Known(spec.strides[d]);
            let count = (t.output[2 + d].clone() - Dim::Known(*at)).ceil_div(&s);
            outs.push(axis(&mut b, out_name(d), &count));
        }
        let ag = axis(&mut b, "g", &t.groups);
        let ao = axis(&mut b, "oc", &t.group_outputs);
        let start = |l: &Located| Access::strided(l.layout.offset.clone(), vec![]);
        let mut a = PhaseAccess {
            x: start(x),
            w: start(w),
            y: start(&t.to),
        };
        add_term(&mut a.x, &b, ab, stride(&x.layout, 0));
        add_term(&mut a.y, &b, ab, stride(&t.to.layout, 0));
        let mut over = Vec::new();
        let mut empty = false;
        for (d, at) in phase.iter().enumerate() {
            let taps = t.taps(d, *at);
            empty |= taps.count == 0;
            let tap = axis(&mut b, tap_name(d), &Dim::Known(taps.count.max(1)));
            over.extend(tap);
            t.add_spatial(&b, &mut a, d, (*at, &taps), (outs[d], tap));
        }
        let ac = axis(&mut b, "c", &t.group_inputs);
        over.extend(ac);
        let sc = stride(&x.layout, 1);
        add_term(&mut a.x, &b, ag, sc.clone() * t.group_inputs.clone());
        add_term(&mut a.x, &b, ac, sc);
        // w is [c, og, taps]: the group is in the first dimension.
        let sw = stride(&w.layout, 0);
        add_term(&mut a.w, &b, ag, sw.clone() * t.group_inputs.clone());
        add_term(&mut a.w, &b, ac, sw);
        add_term(&mut a.w, &b, ao, stride(&w.layout, 1));
        let sy = stride(&t.to.layout, 1);
        add_term(&mut a.y, &b, ag, sy.clone() * t.group_outputs.clone());
        add_term(&mut a.y, &b, ao, sy);
        for a in [&mut a.x, &mut a.w, &mut a.y] {
            a.terms.arrange_by_key(|t| t.axis);
        }
        let out_axes = ab.into_iter().chain(outs.into_iter().flatten());
        let out_axes: Vec<AxisId> = out_axes.chain(ag).chain(ao).collect();
        let acc = b.fill("acc", accumulator(t.types[2]), &out_axes, 0.0);
        if !empty {
            let tx = b.load("x", t.types[0], a.x, touched(&x.layout), x.ix);
            let tw = b.load("w", t.types[1], a.w, touched(&w.layout), w.ix);
            b.contract(acc, tx, tw, &over);
        }
        let result = cast(&mut b, acc, t.types[2], &out_axes);
        let elements = Dim::product(&t.output);
        let o = b.operand("y", t.types[2], Role::Write, a.y, elements, t.to.ix);
        b.store_to(o, result);
        let (k, args) = b.finish();
        self.emit(k, args, self.origins(&[t.n]));
    }
}

/// A transposed convolution: its shapes, and where its values lie.
struct Transposed<'a> {
    n: NodeId,
    spec: &'a ConvSpec,
    /// Of input, weight and output.
    types: [DType; 3],
    groups: Dim,
    group_inputs: Dim,
    group_outputs: Dim,
    before: Vec<i64>,
    input: Vec<Dim>,
    output: Vec<Dim>,
    x: Located,
    w: Located,
    to: Located,
}

/// The taps of one dimension that a phase takes: `first`, then every `every`-th, `count` of them.
struct Taps {
    first: i64,
    every: i64,
    count: i64,
}

/// Addresses of one phase.
struct PhaseAccess {
    x: Access,
    w: Access,
    y: Access,
}

impl Transposed<'_> {
    /// The first output position of phase `p`, by dimension.
    fn positions(&self, p: i64) -> Vec<i64> {
        let mut rest = p;
        let mut phase = vec![0; self.spec.kernel.len()];
        for (at, s) in phase.iter_mut().zip(&self.spec.strides).rev() {
            *at = rest % s;
            rest /= s;
        }
        phase
    }

    /// Taps for which `phase + before - tap * dilation` is divisible by the stride.
    fn taps(&self, d: usize, phase: i64) -> Taps {
        let spec = self.spec;
        let (s, dilation, k) = (spec.strides[d], spec.dilations[d], spec.kernel[d]);
        let at = phase + self.before[d];
        let every = s / gcd(s, dilation);
        let divides = |r: &i64| (at - r * dilation).rem_euclid(s) == 0;
        let first = (0..every.min(k)).find(divides);
        Taps {
            first: first.unwrap_or(0),
            every,
            count: first.map_or(0, |r| (k - r + every - 1) / every),
        }
    }

    /// Adds what spatial dimension `d` adds to the addresses, for output positions from `phase` on.
    fn add_spatial(
        &self,
        b: &Builder,
        a: &mut PhaseAccess,
        d: usize,
        (phase, taps): (i64, &Taps),
        (out, tap): (Option<AxisId>, Option<AxisId>),
    ) {
        let (s, dilation) = (self.spec.strides[d], self.spec.dilations[d]);
        let at = phase + self.before[d];
        Window {
            out,
            tap,
            stride: 1,
            dilation: -(dilation * taps.every / s),
            base: Dim::Known((at - taps.first * dilation).div_euclid(s)),
            extent: &self.input[2 + d],
            inside: false,
        }
        .apply(b, &mut a.x, &stride(&self.x.layout, 2 + d));
        let sw = stride(&self.w.layout, 2 + d);
        a.w.offset = a.w.offset.clone() + Dim::Known(taps.first) * sw.clone();
        add_term(&mut a.w, b, tap, sw * Dim::Known(taps.every));
        let sy = stride(&self.to.layout, 2 + d);
        a.y.offset = a.y.offset.clone() + Dim::Known(phase) * sy.clone();
        add_term(&mut a.y, b, out, sy * Dim::Known(s));
    }
}

fn gcd(a: i64, b: i64) -> i64 {
    if b == 0 { a } else { gcd(b, a % b) }
}

/// The output formula itself keeps windows inside when nothing is padded and no ceil mode added to it.
fn fits_by_formula(spec: &ConvSpec, d: usize) -> bool {
    spec.before[d].is_zero() && spec.after[d].is_zero()
}
