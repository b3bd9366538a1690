//! Convolutions: implicit matrix products over channels-last memory, depthwise and grouped forms,
//! and transposed convolutions taken apart into one plain convolution per output phase.
use super::builder::Window;
use super::contract::{accumulator, cast};
use super::{Body, Builder, Lowering, Result, touched};
use crate::fuse::Group;
use crate::located::Located;
use graph::{ConvSpec, NodeId, Op};
use kernel::{Access, AxisId, Family, Role, Term};
use layout::{DType, Dim, Layout, Leaf};
use std::collections::BTreeMap;

/// Inputs per group, as many as outputs, that lanes of channels read one after the other.
const FEW: [i64; 3] = [2, 4, 8];

/// A group's share of `channels`, which are so many equal groups: shape rules rely on that.
fn each(channels: &Dim, groups: &Dim) -> Dim {
    let exact = channels.exact_div(groups);
    exact.unwrap_or_else(|| channels.floor_div(groups))
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
        let spatial = spec.kernel.len();
        let groups = Dim::Known(spec.groups);
        let x = self.channels_last(n, vx, spec, true)?;
        let mut w = self.flat(n, vw)?;
        // Few channels: with weights in the input's own order the last tap and the channels become
        // one axis, a longer run along memory.
        let run = self.shape(vw)[1].clone() * Dim::Known(spec.kernel.last().copied().unwrap_or(1));
        if spec.groups == 1 && run.known().is_some_and(|r| r <= 64) && !self.shape(vw)[1].is_one() {
            let rank = self.shape(vw).len();
            let order: Vec<usize> = [0].into_iter().chain(2..rank).chain([1]).collect();
            w = self.copy_to(
                &w,
                self.dtype(vw),
                self.name(vw),
                &order,
                &self.origins(&[n]),
            )?;
        }
        // One channel per group is a sum of its own, without pairs.
        let (mut x, mut types) = (x, [self.dtype(vx), self.dtype(vw)]);
        if !self.shape(vw)[1].is_one() {
            let both = self.rounded(n, [(vx, x), (vw, w)])?;
            types = both.each_ref().map(|f| f.1);
            [x, w] = both.map(|f| f.0);
        }
        let (ws, os) = (self.shape(vw).to_vec(), self.shape(vo).to_vec());
        let shared = self.shares_inputs(n) && types == [DType::F32; 2];
        let (cg, og) = (ws[1].clone(), each(&ws[0], &groups));
        let mut b = Builder::new(&self.group_name(g), Family::Conv);
        // Axes in the order of channels-last memory: batch, spatial, group, channel; then taps.
        let mut dims: Vec<Vec<AxisId>> = vec![vec![]; os.len()];
        let axis = |b: &mut Builder, name: &str, e: &Dim| (!e.is_one()).then(|| b.axis(name, e));
        let ab = axis(&mut b, "b", &os[0]);
        dims[0].extend(ab);
        let names = ["oh", "ow", "od"];
        for d in 0..spatial {
            let name = if spatial == 1 {
                "ow"
            } else {
                names.get(d).copied().unwrap_or("o")
            };
            dims[2 + d].extend(axis(&mut b, name, &os[2 + d]));
        }
        // All output channels in a row where a few of them read the same inputs, else group by group.
        let (ag, ao) = match shared {
            true => (None, axis(&mut b, "oc", &ws[0])),
            false => {
                let g = axis(&mut b, "g", &groups);
                (g, axis(&mut b, "oc", &og))
            }
        };
        dims[1].extend(ag.into_iter().chain(ao));
        let taps: Vec<Option<AxisId>> = (0..spatial)
            .map(|d| {
                axis(
                    &mut b,
                    ["r", "s", "u"].get(d).copied().unwrap_or("t"),
                    &Dim::Known(spec.kernel[d]),
                )
            })
            .collect();
        let ac = axis(&mut b, "c", &cg);
        // x[b, g*cg + c, o*stride + tap*dilation - before]
        let mut access = Access::strided(x.layout.offset.clone(), vec![]);
        access.outside = spec.outside as f64;
        let step = |l: &Layout, d: usize| {
            l.modes[d]
                .coalesce()
                .leaves
                .first()
                .map_or(Dim::ZERO, |l| l.stride.clone())
        };
        let plain = |access: &mut Access, b: &Builder, axis: Option<AxisId>, stride: Dim| {
            if let Some(a) = axis {
                access.terms.push(Term {
                    axis: a,
                    leaves: vec![Leaf {
                        extent: b.extent(a).clone(),
                        stride,
                    }],
                });
            }
        };
        let sc = step(&x.layout, 1);
        plain(&mut access, &b, ab, step(&x.layout, 0));
        plain(&mut access, &b, ag, sc.clone() * cg.clone());
        if let Some(a) = ao.filter(|_| shared) {
            let leaf = |extent: &Dim, stride| Leaf {
                extent: extent.clone(),
                stride,
            };
            let leaves = vec![leaf(&groups, sc.clone() * cg.clone()), leaf(&og, Dim::ZERO)];
            access.terms.push(Term { axis: a, leaves });
        }
        plain(&mut access, &b, ac, sc);
        let xs = x.layout.shape();
        for d in 0..spatial {
            // A padded copy was made by `channels_last` when its extent is the padded one.
            let padded = xs[2 + d] != self.shape(vx)[2 + d];
            let before = if padded {
                Dim::ZERO
            } else {
                spec.before[d].clone()
            };
            let last = (os[2 + d].clone() - Dim::ONE) * Dim::Known(spec.strides[d])
                + Dim::Known((spec.kernel[d] - 1) * spec.dilations[d])
                - before.clone();
            let inside =
                before.is_zero() && (last.provably_lt(&xs[2 + d]) || fits_by_formula(spec, d));
            Window {
                out: dims[2 + d].first().copied(),
                tap: taps[d],
                stride: spec.strides[d],
                dilation: spec.dilations[d],
                base: -before,
                extent: &xs[2 + d],
                inside: padded || inside,
            }
            .apply(&b, &mut access, &step(&x.layout, 2 + d));
        }
        access.terms.sort_by_key(|t| t.axis);
        // w[g*og + oc, c, taps]
        let mut wa = Access::strided(w.layout.offset.clone(), vec![]);
        let so = step(&w.layout, 0);
        plain(&mut wa, &b, ag, so.clone() * og);
        plain(&mut wa, &b, ao, so);
        plain(&mut wa, &b, ac, step(&w.layout, 1));
        for (d, tap) in taps.iter().enumerate() {
            plain(&mut wa, &b, *tap, step(&w.layout, 2 + d));
        }
        wa.terms.sort_by_key(|t| t.axis);
        let out_axes: Vec<AxisId> = dims.concat();
        let over: Vec<AxisId> = taps.iter().flatten().copied().chain(ac).collect();
        let tx = b.load("x", types[0], access, touched(&x.layout), x.ix);
        let tw = b.load("w", types[1], wa, touched(&w.layout), w.ix);
        let acc = b.fill("acc", accumulator(self.dtype(vo)), &out_axes, 0.0);
        b.contract(acc, tx, tw, &over);
        let result = cast(&mut b, acc, self.dtype(vo), &out_axes);
        let body = Body {
            builder: b,
            dims,
            tiles: BTreeMap::from([(vo, result)]),
            indexed: false,
            folded: Vec::new(),
        };
        self.close(body, g, Some(n))
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
            let stride = l.layout.modes[d]
                .coalesce()
                .leaves
                .first()
                .map_or(Dim::ZERO, |l| l.stride.clone());
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
            .apply(&b, &mut access, &stride);
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
        let spatial = spec.kernel.len();
        let groups = Dim::Known(spec.groups);
        let x = self.channels_last(n, vx, spec, false)?;
        let w = self.flat(n, vw)?;
        let (ws, os, xs) = (
            self.shape(vw).to_vec(),
            self.shape(vo).to_vec(),
            self.shape(vx).to_vec(),
        );
        // The channels stand in both shapes, which are equal: the one that is known to divide says more.
        let known = xs[1].exact_div(&groups);
        let (cg, og) = (
            known.unwrap_or_else(|| each(&ws[0], &groups)),
            ws[1].clone(),
        );
        let Some(before): Option<Vec<i64>> = spec.before.iter().map(Dim::known).collect() else {
            return self.fail(
                n,
                "its padding depends on symbolic dims; bind them with --dim",
            );
        };
        let order: Vec<usize> = [0].into_iter().chain(2..os.len()).chain([1]).collect();
        let direct = self.is_output[vo.0 as usize] && g.nodes.len() == 1;
        let to = match direct {
            true => self.new_value(
                self.name(vo),
                self.dtype(vo),
                &os,
                &super::row_major(os.len()),
            ),
            false => self.new_value(self.name(vo), self.dtype(vo), &os, &order),
        };
        // A phase without taps reads nothing, but fills a part of what the others fill per request.
        self.per_request = [&x, &w].iter().any(|l| {
            !matches!(
                self.program.value(l.ix).origin,
                plan::ValueOrigin::Weight(_) | plan::ValueOrigin::Init
            )
        });
        let phases: i64 = spec.strides.iter().product();
        for p in 0..phases {
            let mut rest = p;
            let mut phase = vec![0; spatial];
            for d in (0..spatial).rev() {
                phase[d] = rest % spec.strides[d];
                rest /= spec.strides[d];
            }
            let mut b = Builder::new(
                &format!("{} phase {p}", self.origins(&[n]).join(" ")),
                Family::Conv,
            );
            let axis =
                |b: &mut Builder, name: &str, e: &Dim| (!e.is_one()).then(|| b.axis(name, e));
            let step = |l: &Layout, d: usize| {
                l.modes[d]
                    .coalesce()
                    .leaves
                    .first()
                    .map_or(Dim::ZERO, |l| l.stride.clone())
            };
            let plain = |access: &mut Access, b: &Builder, axis: Option<AxisId>, stride: Dim| {
                if let Some(a) = axis {
                    access.terms.push(Term {
                        axis: a,
                        leaves: vec![Leaf {
                            extent: b.extent(a).clone(),
                            stride,
                        }],
                    });
                }
            };
            let ab = axis(&mut b, "b", &os[0]);
            let mut outs = Vec::new();
            for d in 0..spatial {
                let s = Dim::Known(spec.strides[d]);
                let count = (os[2 + d].clone() - Dim::Known(phase[d])).ceil_div(&s);
                outs.push(axis(
                    &mut b,
                    ["oh", "ow", "od"].get(d).copied().unwrap_or("o"),
                    &count,
                ));
            }
            let ag = axis(&mut b, "g", &groups);
            let ao = axis(&mut b, "oc", &og);
            let mut xa = Access::strided(x.layout.offset.clone(), vec![]);
            let mut wa = Access::strided(w.layout.offset.clone(), vec![]);
            let mut ya = Access::strided(to.layout.offset.clone(), vec![]);
            plain(&mut xa, &b, ab, step(&x.layout, 0));
            plain(&mut ya, &b, ab, step(&to.layout, 0));
            let mut over = Vec::new();
            let mut empty = false;
            for d in 0..spatial {
                let (s, dil, k) = (spec.strides[d], spec.dilations[d], spec.kernel[d]);
                // Taps with (phase + before - tap * dilation) divisible by the stride: the first, and
                // then every `every`-th.
                let at = phase[d] + before[d];
                let every = s / gcd(s, dil);
                let first = (0..every.min(k)).find(|r| (at - r * dil).rem_euclid(s) == 0);
                let r0 = first.unwrap_or(0);
                let count = first.map_or(0, |r0| (k - r0 + every - 1) / every);
                empty |= count == 0;
                let tap = axis(
                    &mut b,
                    ["r", "s", "u"].get(d).copied().unwrap_or("t"),
                    &Dim::Known(count.max(1)),
                );
                over.extend(tap);
                let sx = step(&x.layout, 2 + d);
                let sw = step(&w.layout, 2 + d);
                Window {
                    out: outs[d],
                    tap,
                    stride: 1,
                    dilation: -(dil * every / s),
                    base: Dim::Known((at - r0 * dil).div_euclid(s)),
                    extent: &xs[2 + d],
                    inside: false,
                }
                .apply(&b, &mut xa, &sx);
                wa.offset = wa.offset + Dim::Known(r0) * sw.clone();
                plain(&mut wa, &b, tap, sw * Dim::Known(every));
                let sy = step(&to.layout, 2 + d);
                ya.offset = ya.offset + Dim::Known(phase[d]) * sy.clone();
                plain(&mut ya, &b, outs[d], sy * Dim::Known(s));
            }
            let ac = axis(&mut b, "c", &cg);
            over.extend(ac);
            let sc = step(&x.layout, 1);
            plain(&mut xa, &b, ag, sc.clone() * cg.clone());
            plain(&mut xa, &b, ac, sc);
            // w is [c, og, taps]: the group is in the first dimension.
            plain(&mut wa, &b, ag, step(&w.layout, 0) * cg.clone());
            plain(&mut wa, &b, ac, step(&w.layout, 0));
            plain(&mut wa, &b, ao, step(&w.layout, 1));
            let sy = step(&to.layout, 1);
            plain(&mut ya, &b, ag, sy.clone() * og.clone());
            plain(&mut ya, &b, ao, sy);
            for a in [&mut xa, &mut wa, &mut ya] {
                a.terms.sort_by_key(|t| t.axis);
            }
            let out_axes: Vec<AxisId> = ab
                .into_iter()
                .chain(outs.iter().flatten().copied())
                .chain(ag)
                .chain(ao)
                .collect();
            let acc = b.fill("acc", accumulator(self.dtype(vo)), &out_axes, 0.0);
            if !empty {
                let tx = b.load("x", self.dtype(vx), xa, touched(&x.layout), x.ix);
                let tw = b.load("w", self.dtype(vw), wa, touched(&w.layout), w.ix);
                b.contract(acc, tx, tw, &over);
            }
            let result = cast(&mut b, acc, self.dtype(vo), &out_axes);
            let o = b.operand(
                "y",
                self.dtype(vo),
                Role::Write,
                ya,
                Dim::product(&os),
                to.ix,
            );
            b.store_to(o, result);
            let (k, args) = b.finish();
            self.emit(k, args, self.origins(&[n]));
        }
        self.per_request = false;
        self.located[vo.0 as usize] = Some(to);
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
}

fn gcd(a: i64, b: i64) -> i64 {
    if b == 0 { a } else { gcd(b, a % b) }
}

/// The output formula itself keeps windows inside when nothing is padded and no ceil mode added to it.
fn fits_by_formula(spec: &ConvSpec, d: usize) -> bool {
    spec.before[d].is_zero() && spec.after[d].is_zero()
}
