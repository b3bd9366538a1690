//! Attention with online softmax: two contractions and two folds over the keys.
use super::{Body, Builder, Lowering, Result, touched};
use crate::fuse::Group;
use crate::located::Located;
use expr::{Binary, Compare, Expr, ExprBuilder, Monoid, Unary};
use graph::{Node, NodeId, Op, Undefined, ValueId};
use kernel::{AxisId, Family, Rescale, TileId};
use layout::{DType, Dim};
use std::collections::BTreeMap;

/// A factor of an attention: where it lies, and its dimensions among the logical ones, which are batch..,
/// then queries, keys, depth and value depth.
struct Factor {
    located: Located,
    value: ValueId,
    dims: Vec<usize>,
}

impl Factor {
    /// Whether its dimensions can be split so.
    fn follows(&self, splits: &[Vec<Dim>]) -> bool {
        let mut each = self.located.layout.modes.iter().zip(&self.dims);
        each.all(|(m, &d)| m.extent().is_one() || m.refine(&splits[d]).is_some())
    }
}

/// The types of a score program's argument and result.
struct ScoreTypes {
    product: DType,
    scored: DType,
}

impl Lowering<'_> {
    pub(crate) fn attention(&mut self, g: &Group, n: NodeId) -> Result<()> {
        let graph = self.graph;
        let node = graph.node(n);
        let Op::Attention(spec) = &node.op else {
            return self.fail(n, "not an attention");
        };
        // The scores have types of their own: what q and k give, and what the program makes of it.
        let product = graph::product_type(self.dtype(node.inputs[0]), self.dtype(node.inputs[1]));
        let scored = spec.score.output_types();
        let scored = scored.ok().and_then(|t| t.first().copied());
        let (Ok(product), Some(scored)) = (product, scored) else {
            return self.fail(n, "its scores have no type");
        };
        let batch = self.shape(node.inputs[0]).len() - 2;
        let keys = self.number_of_keys(node, batch);
        let mut factors = self.attention_factors(node, batch, &keys)?;
        let splits = finest_splits(&factors, batch + 4);
        for f in factors.iter_mut().filter(|f| !f.follows(&splits)) {
            let (dtype, name) = (self.dtype(f.value), self.name(f.value));
            f.located = self.materialise(&f.located, dtype, name, &self.origins(&[n]))?;
        }
        let mut b = Builder::new(&self.group_name(g), Family::Attention);
        let axes = attention_axes(&mut b, &splits, batch);
        let tiles = self.load_factors(&mut b, n, &factors, &axes)?;
        let types = ScoreTypes { product, scored };
        let body = self.online_softmax(n, b, &axes, tiles, (types, &keys))?;
        self.close(body, g, Some(n))
    }

    /// How many keys there are: several inputs say it, and the simplest form stands.
    fn number_of_keys(&self, node: &Node, batch: usize) -> Dim {
        let [_, k, v, ..] = node.inputs[..] else {
            return Dim::ONE;
        };
        Dim::simpler(&self.shape(k)[batch], &self.shape(v)[batch]).clone()
    }

    /// Queries, keys and values, each broadcast to the batch that all of them have.
    fn attention_factors(&mut self, node: &Node, batch: usize, keys: &Dim) -> Result<Vec<Factor>> {
        let (vq, vk, vv) = (node.inputs[0], node.inputs[1], node.inputs[2]);
        let mut batch_dims: Vec<Option<Dim>> = Vec::new();
        for d in 0..batch {
            let extents = [vq, vk, vv].map(|x| &self.shape(x)[d]);
            let seen = extents.into_iter().filter(|e| !e.is_one());
            batch_dims.push(seen.reduce(|a, b| Dim::simpler(a, b)).cloned());
        }
        let depth = self.shape(vk)[batch + 1].clone();
        let (dq, dt, dd, de) = (batch, batch + 1, batch + 2, batch + 3);
        let each = [
            (vq, [None, Some(depth)], [dq, dd]),
            (vk, [Some(keys.clone()), None], [dt, dd]),
            (vv, [Some(keys.clone()), None], [dt, de]),
        ];
        let mut located = Vec::new();
        for (v, _, _) in &each {
            located.push(self.locate(*v)?);
        }
        let mut factors = Vec::new();
        for (l, (value, last, own)) in located.into_iter().zip(each) {
            let want: Vec<Option<Dim>> = batch_dims.iter().cloned().chain(last).collect();
            factors.push(Factor {
                located: self.fit(l, &want, self.dtype(value), self.name(value))?,
                value,
                dims: (0..batch).chain(own).collect(),
            });
        }
        Ok(factors)
    }

    /// Loads the factors, whose dimensions run along `axes`.
    fn load_factors(
        &mut self,
        b: &mut Builder,
        n: NodeId,
        factors: &[Factor],
        axes: &[Vec<AxisId>],
    ) -> Result<[TileId; 3]> {
        let mut tiles = [0; 3];
        for ((f, name), tile) in factors.iter().zip(["q", "k", "v"]).zip(&mut tiles) {
            let dims: Vec<Vec<AxisId>> = f.dims.iter().map(|&d| axes[d].clone()).collect();
            let Some(a) = b.access(&f.located.layout, &dims) else {
                return self.fail(
                    n,
                    format!(
                        "input '{}' does not fit its axes; give its symbolic dimensions sizes with --dim",
                        self.name(f.value)
                    ),
                );
            };
            let seen = touched(&f.located.layout);
            *tile = b.load(name, self.dtype(f.value), a, seen, f.located.ix);
        }
        Ok(tiles)
    }

    /// The statements: scores, their maximum and sum so far, and the weighted values, over the keys.
    fn online_softmax(
        &mut self,
        n: NodeId,
        mut b: Builder,
        axes: &[Vec<AxisId>],
        [tq, tk, tv]: [TileId; 3],
        (ScoreTypes { product, scored }, keys): (ScoreTypes, &Dim),
    ) -> Result<Body> {
        let graph = self.graph;
        let node = graph.node(n);
        let Op::Attention(spec) = &node.op else {
            return self.fail(n, "not an attention");
        };
        let (vv, vo) = (node.inputs[2], node.outputs[0]);
        let dtype = self.dtype(vo);
        let batch = axes.len() - 4;
        let (dq, dt, dd, de) = (batch, batch + 1, batch + 2, batch + 3);
        let rows: Vec<AxisId> = axes[..=dq].concat();
        let scores: Vec<AxisId> = axes[..=dt].concat();
        let outs: Vec<AxisId> = rows.iter().chain(&axes[de]).copied().collect();
        let wide = [product, scored].contains(&DType::F64);
        let acc = super::contract::accumulator(if wide { DType::F64 } else { dtype });
        let m = b.fill("m", acc, &rows, f64::NEG_INFINITY);
        let l = b.fill("l", acc, &rows, 0.0);
        let o = b.fill("o", acc, &outs, 0.0);
        let s0 = b.fill("s", acc, &scores, 0.0);
        b.contract(s0, tq, tk, &axes[dd]);
        // The score program with its extras.
        let score_dims: Vec<Vec<AxisId>> = axes[..=dt].to_vec();
        let mut body = Body {
            builder: b,
            dims: score_dims.clone(),
            tiles: BTreeMap::new(),
            loads: BTreeMap::new(),
            indexed: false,
            folded: Vec::new(),
        };
        let space = g_space(&node.inputs[3..], self, &score_dims);
        let unrounded = spec.unrounded().filter(|_| acc == DType::F32);
        let (product, scored) = match unrounded {
            Some(_) => (acc, acc),
            None => (product, scored),
        };
        let score = unrounded.unwrap_or_else(|| spec.score.clone());
        let raw = super::contract::cast(&mut body.builder, s0, product, &scores);
        let mut args = vec![raw];
        for (v, mapping) in node.inputs[3..].iter().zip(space) {
            args.push(self.tile_of(&mut body, *v, &mapping, n)?);
        }
        let score = body.localise(&score, &score_dims);
        let b = &mut body.builder;
        let s = b.map("score", scored, &scores, score, &args);
        let s = super::contract::cast(b, s, acc, &scores);
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
        let y = quotient(acc, dtype, spec.undefined, keys);
        let y = b.map("y", dtype, &outs, y, &[o, l]);
        // Members see the output's dimensions: batch.., q, e.
        body.dims = (0..=dq).chain([de]).map(|d| axes[d].clone()).collect();
        body.tiles = BTreeMap::from([(vo, y)]);
        body.loads.clear();
        Ok(body)
    }
}

/// Every logical dimension split as finely as one of the factors sees it.
fn finest_splits(factors: &[Factor], count: usize) -> Vec<Vec<Dim>> {
    let mut splits: Vec<Vec<Dim>> = vec![vec![Dim::ONE]; count];
    for f in factors {
        for (mode, &d) in f.located.layout.modes.iter().zip(&f.dims) {
            let leaves = mode.coalesce().leaves;
            let extents: Vec<Dim> = match leaves.len() > 1 {
                true => leaves.into_iter().map(|l| l.extent).collect(),
                false => vec![mode.extent()],
            };
            let unseen = splits[d].len() == 1 && splits[d][0].is_one();
            if unseen || extents.len() > splits[d].len() {
                splits[d] = extents;
            }
        }
    }
    splits
}

/// Axes of every logical dimension, one per part of it that is not 1.
fn attention_axes(b: &mut Builder, splits: &[Vec<Dim>], batch: usize) -> Vec<Vec<AxisId>> {
    let names = |d: usize| match d.checked_sub(batch) {
        None => format!("b{d}"),
        Some(own) => ["q", "t", "d", "e"][own.min(3)].into(),
    };
    let mut axes: Vec<Vec<AxisId>> = Vec::new();
    for (d, split) in splits.iter().enumerate() {
        let mut ids = Vec::new();
        for (p, e) in split.iter().enumerate().filter(|(_, e)| !e.is_one()) {
            let name = match split.len() > 1 {
                true => format!("{}_{p}", names(d)),
                false => names(d),
            };
            ids.push(b.axis(&name, e));
        }
        axes.push(ids);
    }
    axes
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
