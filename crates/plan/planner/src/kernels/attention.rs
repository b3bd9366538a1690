//! Attention with online softmax: two contractions and two folds over the keys.
use super::{Body, Builder, Lowering, Result, touched};
use crate::fuse::Group;
use crate::located::Located;
use expr::{Binary, Compare, Expr, ExprBuilder, Monoid, Unary};
use graph::{NodeId, Op, Undefined, ValueId};
use kernel::{AxisId, Family, Rescale};
use layout::{DType, Dim};
use std::collections::BTreeMap;

impl Lowering<'_> {
    pub(crate) fn attention(&mut self, g: &Group, n: NodeId) -> Result<()> {
        let graph = self.graph;
        let node = graph.node(n);
        let Op::Attention(spec) = &node.op else {
            return self.fail(n, "not an attention");
        };
        let dtype = self.dtype(node.outputs[0]);
        // The scores have types of their own: what q and k give, and what the program makes of it.
        let product = graph::product_type(self.dtype(node.inputs[0]), self.dtype(node.inputs[1]));
        let scored = spec
            .score
            .output_types()
            .ok()
            .and_then(|t| t.first().copied());
        let (Ok(product), Some(scored)) = (product, scored) else {
            return self.fail(n, "its scores have no type");
        };
        let (vq, vk, vv, vo) = (
            node.inputs[0],
            node.inputs[1],
            node.inputs[2],
            node.outputs[0],
        );
        let rank = self.shape(vq).len();
        let batch = rank - 2;
        let (q, k, v) = (self.locate(vq)?, self.locate(vk)?, self.locate(vv)?);
        // Batch extents and the number of keys are said by several inputs: the simplest form stands.
        let mut batch_dims: Vec<Option<Dim>> = Vec::new();
        for d in 0..batch {
            let seen: Vec<&Dim> = [vq, vk, vv]
                .iter()
                .map(|&x| &self.shape(x)[d])
                .filter(|e| !e.is_one())
                .collect();
            batch_dims.push(
                seen.iter()
                    .copied()
                    .reduce(|a, b| Dim::simpler(a, b))
                    .cloned(),
            );
        }
        let keys = Dim::simpler(&self.shape(vk)[batch], &self.shape(vv)[batch]).clone();
        let with =
            |last: [Option<Dim>; 2]| batch_dims.iter().cloned().chain(last).collect::<Vec<_>>();
        let depth = self.shape(vk)[batch + 1].clone();
        let q = self.fit(q, &with([None, Some(depth)]), self.dtype(vq), self.name(vq))?;
        let k = self.fit(
            k,
            &with([Some(keys.clone()), None]),
            self.dtype(vk),
            self.name(vk),
        )?;
        let v = self.fit(
            v,
            &with([Some(keys.clone()), None]),
            self.dtype(vv),
            self.name(vv),
        )?;
        // Logical dimensions: batch.., q, t, d, e; each split as finely as one of its readers sees it.
        let (dq, dt, dd, de) = (batch, batch + 1, batch + 2, batch + 3);
        let roles = |last: [usize; 2]| (0..batch).chain(last).collect::<Vec<_>>();
        let (rq, rk, rv) = (roles([dq, dd]), roles([dt, dd]), roles([dt, de]));
        let mut splits: Vec<Vec<Dim>> = vec![vec![Dim::ONE]; batch + 4];
        for (l, role) in [(&q, &rq), (&k, &rk), (&v, &rv)] {
            for (mode, &d) in l.layout.modes.iter().zip(role) {
                let leaves = mode.coalesce().leaves;
                let extents: Vec<Dim> = if leaves.len() > 1 {
                    leaves.into_iter().map(|l| l.extent).collect()
                } else {
                    vec![mode.extent()]
                };
                if (splits[d].len() == 1 && splits[d][0].is_one())
                    || extents.len() > splits[d].len()
                {
                    splits[d] = extents;
                }
            }
        }
        let mut parts: Vec<(Located, ValueId, Vec<usize>)> = Vec::new();
        for (l, v, role) in [(q, vq, rq), (k, vk, rk), (v, vv, rv)] {
            let fits = l
                .layout
                .modes
                .iter()
                .zip(&role)
                .all(|(m, &d)| m.extent().is_one() || m.refine(&splits[d]).is_some());
            let l = if fits {
                l
            } else {
                self.materialise(&l, self.dtype(v), self.name(v), &self.origins(&[n]))?
            };
            parts.push((l, v, role));
        }
        let mut b = Builder::new(&self.group_name(g), Family::Attention);
        let names = |d: usize| match d {
            d if d < batch => format!("b{d}"),
            d if d == dq => "q".into(),
            d if d == dt => "t".into(),
            d if d == dd => "d".into(),
            _ => "e".into(),
        };
        let mut axes: Vec<Vec<AxisId>> = Vec::new();
        for (d, split) in splits.iter().enumerate() {
            let mut ids = Vec::new();
            for (p, e) in split.iter().enumerate().filter(|(_, e)| !e.is_one()) {
                let name = if split.len() > 1 {
                    format!("{}_{p}", names(d))
                } else {
                    names(d)
                };
                ids.push(b.axis(&name, e));
            }
            axes.push(ids);
        }
        let mut tiles = Vec::new();
        for ((l, v, role), name) in parts.iter().zip(["q", "k", "v"]) {
            let dims: Vec<Vec<AxisId>> = role.iter().map(|&d| axes[d].clone()).collect();
            let Some(a) = b.access(&l.layout, &dims) else {
                return self.fail(
                    n,
                    format!(
                        "input '{}' does not fit its axes; bind symbolic dims with --dim",
                        self.name(*v)
                    ),
                );
            };
            tiles.push(b.load(name, self.dtype(*v), a, touched(&l.layout), l.ix));
        }
        let (tq, tk, tv) = (tiles[0], tiles[1], tiles[2]);
        let cat = |ds: &[usize]| {
            ds.iter()
                .flat_map(|&d| axes[d].clone())
                .collect::<Vec<AxisId>>()
        };
        let rows: Vec<AxisId> = cat(&(0..=dq).collect::<Vec<_>>());
        let scores: Vec<AxisId> = cat(&(0..=dt).collect::<Vec<_>>());
        let outs: Vec<AxisId> = rows.iter().copied().chain(axes[de].clone()).collect();
        let wide = [product, scored].contains(&DType::F64);
        let acc = super::contract::accumulator(if wide { DType::F64 } else { dtype });
        let m = b.fill("m", acc, &rows, f64::NEG_INFINITY);
        let l = b.fill("l", acc, &rows, 0.0);
        let o = b.fill("o", acc, &outs, 0.0);
        let s0 = b.fill("s", acc, &scores, 0.0);
        b.contract(s0, tq, tk, &axes[dd]);
        // The score program with its extras.
        let score_dims: Vec<Vec<AxisId>> = (0..=dt).map(|d| axes[d].clone()).collect();
        let mut body = Body {
            builder: b,
            dims: score_dims.clone(),
            tiles: BTreeMap::new(),
            indexed: false,
            folded: Vec::new(),
        };
        let space = g_space(&node.inputs[3..], self, &score_dims);
        let mut args = vec![super::contract::cast(
            &mut body.builder,
            s0,
            product,
            &scores,
        )];
        for (v, mapping) in node.inputs[3..].iter().zip(space) {
            args.push(self.tile_of(&mut body, *v, &mapping, n)?);
        }
        let score = body.localise(&spec.score, &score_dims);
        let s = body.builder.map("score", scored, &scores, score, &args);
        let s = super::contract::cast(&mut body.builder, s, acc, &scores);
        let b = &mut body.builder;
        b.fold(
            Monoid::max(acc, acc),
            m,
            s,
            &axes[dt],
            Some(Rescale {
                tiles: vec![l, o],
                factor: rescale_factor(acc),
            }),
        );
        let p = b.map("p", acc, &scores, weight(acc), &[s, m]);
        b.fold(Monoid::sum(acc, acc), l, p, &axes[dt], None);
        let pv = super::contract::cast(b, p, self.dtype(vv), &scores);
        b.contract(o, pv, tv, &axes[dt]);
        let y = quotient(acc, dtype, spec.undefined, &keys);
        let y = b.map("y", dtype, &outs, y, &[o, l]);
        // Members see the output's dimensions: batch.., q, e.
        body.dims = (0..=dq).chain([de]).map(|d| axes[d].clone()).collect();
        body.tiles = BTreeMap::from([(vo, y)]);
        self.close(body, g, Some(n))
    }
}

/// Mappings of the extras, right-aligned to [batch.., q, t].
fn g_space(
    extras: &[ValueId],
    lowering: &Lowering,
    dims: &[Vec<AxisId>],
) -> Vec<crate::fuse::Mapping> {
    extras
        .iter()
        .map(|&v| {
            let shape = lowering.shape(v);
            let missing = dims.len() - shape.len().min(dims.len());
            shape
                .iter()
                .enumerate()
                .map(|(i, e)| (!e.is_one()).then_some(i + missing))
                .collect()
        })
        .collect()
}

/// exp(old - new), and 1 where nothing changed: both may still be minus infinity.
fn rescale_factor(d: DType) -> Expr {
    let mut b = ExprBuilder::new();
    let (old, new) = (b.input(0, d), b.input(1, d));
    let same = b.compare(Compare::Eq, old, new);
    let diff = b.sub(old, new);
    let f = b.unary(Unary::Exp, diff);
    let one = b.constant(1.0, d);
    let r = b.select(same, one, f);
    b.finish(&[r])
}

/// exp(score - max), and 0 for a masked score: its row may be masked so far, where max is minus
/// infinity too.
fn weight(d: DType) -> Expr {
    let mut b = ExprBuilder::new();
    let (s, m) = (b.input(0, d), b.input(1, d));
    let low = b.constant(f64::NEG_INFINITY, d);
    let masked = b.compare(Compare::Eq, s, low);
    let diff = b.sub(s, m);
    let p = b.unary(Unary::Exp, diff);
    let zero = b.constant(0.0, d);
    let r = b.select(masked, zero, p);
    b.finish(&[r])
}

/// What is summed by its weights' sum, which is 0 where no key is seen, NaN where a score is no
/// number, and at least 1 elsewhere.
fn quotient(acc: DType, out: DType, undefined: Undefined, keys: &Dim) -> Expr {
    let mut b = ExprBuilder::new();
    let (o, l) = (b.input(0, acc), b.input(1, acc));
    let zero = b.constant(0.0, acc);
    let q = b.binary(Binary::Div, o, l);
    let q = match undefined {
        Undefined::Nan if Dim::ZERO.provably_lt(keys) => q,
        Undefined::Nan => {
            let (keys, none) = (b.dim(keys), b.int(0, DType::I64));
            let without = b.compare(Compare::Eq, keys, none);
            b.select(without, zero, q)
        }
        Undefined::ZeroUnseen => {
            let unseen = b.compare(Compare::Eq, l, zero);
            b.select(unseen, zero, q)
        }
        Undefined::Zero => {
            let defined = b.compare(Compare::Gt, l, zero);
            b.select(defined, q, zero)
        }
    };
    let q = if acc == out { q } else { b.cast(q, out) };
    b.finish(&[q])
}
