//! Whether the items of a batch influence each other, read off the graph.
//!
//! Every value either is the same whatever the batch, or has the items along one dimension: then what it has for
//! one item follows from that item alone. What would break this (a reduction along that dimension, a view that
//! mixes it with others, an extent or a coordinate that says how many items there are or which one this is)
//! is a crossing.
use crate::{ContractSpec, Graph, Node, Op, RecurrentSpec, ResampleSpec, Value, ValueId, View};
use expr::{Expr, Inst, Monoid};
use layout::Dim;
use std::collections::BTreeSet;

/// Where a value has the items: dimension `axis` of extent `outer * items * inner`, the item being
/// `position / inner % items`.
#[derive(Clone, Debug, PartialEq)]
struct Place {
    axis: usize,
    outer: Dim,
    inner: Dim,
}

impl Place {
    fn at(&self, axis: usize) -> Place {
        Place {
            axis,
            ..self.clone()
        }
    }
}

/// A value's items; `None`: it is the same whatever the batch.
type Items = Option<Place>;

impl Graph {
    /// Whether the items along `symbol` do not influence each other: whether every output has for an item what
    /// follows from the inputs' parts for that item, and from inputs without the symbol.
    ///
    /// # Errors
    /// What they may cross at: the model's node and what it does, or an input or output.
    pub fn items_apart(&self, symbol: &str) -> Result<(), String> {
        let flow = Flow {
            symbol,
            items: Dim::sym(symbol),
        };
        let each = self.inputs.iter().map(|&v| {
            let value = self.value(v);
            flow.of_shape(value)
                .map_err(|why| format!("input '{}' {why}", value.name))
        });
        let inputs = each.collect::<Result<Vec<_>, _>>()?;
        let outputs = flow.graph(self, inputs)?;
        for (&v, items) in self.outputs.iter().zip(outputs) {
            if items.is_none() {
                let name = &self.value(v).name;
                return Err(format!("output '{name}' is one for all items"));
            }
        }
        Ok(())
    }
}

struct Flow<'a> {
    symbol: &'a str,
    items: Dim,
}

/// Nodes that outputs need.
fn needed(graph: &Graph) -> Vec<bool> {
    let mut value = vec![false; graph.values.len()];
    graph
        .outputs
        .iter()
        .for_each(|v| value[v.0 as usize] = true);
    let mut node = vec![false; graph.nodes.len()];
    for (n, is) in graph.nodes.iter().zip(&mut node).rev() {
        *is = n.outputs.iter().any(|v| value[v.0 as usize]);
        if *is {
            n.inputs.iter().for_each(|v| value[v.0 as usize] = true);
        }
    }
    node
}

const COUNTS: &str = "computes with how many items there are";

type Crossing<T> = Result<T, String>;

fn crosses<T>(why: &str) -> Crossing<T> {
    Err(why.into())
}

fn need(ok: bool, why: &str) -> Crossing<()> {
    if ok { Ok(()) } else { crosses(why) }
}

/// The one place of several values; `None` where all are the same whatever the batch.
fn one(places: impl Iterator<Item = Items>) -> Crossing<Items> {
    let mut places = places.flatten();
    let Some(first) = places.next() else {
        return Ok(None);
    };
    need(
        places.all(|p| p == first),
        "brings different items together",
    )?;
    Ok(Some(first))
}

impl Flow<'_> {
    fn counts(&self, d: &Dim) -> bool {
        let mut symbols = BTreeSet::new();
        if d.known().is_none() {
            d.symbols(&mut symbols);
        }
        symbols.iter().any(|s| **s == *self.symbol)
    }

    fn any_counts<'d>(&self, mut dims: impl Iterator<Item = &'d Dim>) -> bool {
        dims.any(|d| self.counts(d))
    }

    fn expr_counts(&self, e: &Expr) -> bool {
        e.insts
            .iter()
            .any(|i| matches!(i, Inst::Dim(d) if self.counts(d)))
    }

    fn monoid_counts(&self, m: &Monoid) -> bool {
        let parts = [&m.identity, &m.lift, &m.combine, &m.finish];
        parts.into_iter().any(|e| self.expr_counts(e))
    }

    /// Where a value whose contents are alike for all items has them, by its shape.
    fn of_shape(&self, v: &Value) -> Crossing<Items> {
        let counting = |(_, d): &(usize, &Dim)| self.counts(d);
        let mut all = v.shape.iter().enumerate().filter(counting);
        let Some((axis, d)) = all.next() else {
            return Ok(None);
        };
        need(all.next().is_none(), "has the batch in two dimensions")?;
        match d.exact_div(&self.items) {
            Some(inner) if !self.counts(&inner) => Ok(Some(Place {
                axis,
                outer: Dim::ONE,
                inner,
            })),
            _ => crosses("has an extent that follows from how many items there are"),
        }
    }

    /// Whether `v` has the shape that items there mean.
    fn fits(&self, v: &Value, items: &Items) -> bool {
        v.shape.iter().enumerate().all(|(i, d)| match items {
            Some(p) if p.axis == i => *d == p.outer.clone() * self.items.clone() * p.inner.clone(),
            _ => !self.counts(d),
        })
    }

    fn graph(&self, graph: &Graph, inputs: Vec<Items>) -> Crossing<Vec<Items>> {
        let mut items: Vec<Items> = vec![None; graph.values.len()];
        for (&v, i) in graph.inputs.iter().zip(inputs) {
            items[v.0 as usize] = i;
        }
        let needed = needed(graph);
        for (node, _) in graph.nodes.iter().zip(needed).filter(|n| n.1) {
            let named = |why: String| match node.origins.first() {
                // A branch's or body's own node says more.
                _ if why.starts_with("node ") => why,
                Some(o) => format!("node '{}' ({}) {why}", o.name, o.op_type),
                None => format!("a node {why}"),
            };
            let ins = node.inputs.iter().map(|v| items[v.0 as usize].clone());
            let outs = self.node(graph, node, ins.collect()).map_err(named)?;
            for (&v, i) in node.outputs.iter().zip(outs) {
                if !self.fits(graph.value(v), &i) {
                    let why = "has an extent that follows from how many items there are";
                    return Err(named(why.into()));
                }
                items[v.0 as usize] = i;
            }
        }
        let outputs = graph.outputs.iter();
        Ok(outputs.map(|v| items[v.0 as usize].clone()).collect())
    }

    /// Where a node's outputs have the items.
    fn node(&self, graph: &Graph, node: &Node, ins: Vec<Items>) -> Crossing<Vec<Items>> {
        let value = |v: &ValueId| graph.value(*v);
        let input = |i: usize| node.inputs.get(i).map(value);
        let first = ins.first().cloned().flatten();
        let all = |items: Items| Ok(vec![items; node.outputs.len()]);
        match &node.op {
            Op::Map(e) => {
                need(!self.expr_counts(e), COUNTS)?;
                all(self.map(graph, node, &ins, e)?)
            }
            Op::View(view) => {
                let (Some(from), Some(to)) = (input(0), node.outputs.first().map(value)) else {
                    return all(None);
                };
                all(match (view, first) {
                    (View::Expand(_), _) => self.broadcast(&[from], &ins, to)?,
                    (View::Slice { starts, .. }, _) if self.any_counts(starts.iter()) => {
                        return crosses(COUNTS);
                    }
                    (_, None) => None,
                    (view, Some(p)) => Some(self.view(view, &p, from, to)?),
                })
            }
            Op::Concat { axis } => {
                need(
                    first.as_ref().is_none_or(|p| p.axis != *axis),
                    "joins along the batch",
                )?;
                need(
                    ins.iter().all(|i| *i == first),
                    "brings different items together",
                )?;
                all(first)
            }
            Op::Pad { before, after, .. } => {
                let rim = before.iter().chain(after);
                need(!self.any_counts(rim), COUNTS)?;
                need(
                    ins.iter().skip(1).all(Option::is_none),
                    "pads with what follows from one item",
                )?;
                if let Some(p) = &first {
                    let none = |side: &[Dim]| side.get(p.axis).is_none_or(Dim::is_zero);
                    need(none(before) && none(after), "pads the batch")?;
                }
                all(first)
            }
            Op::Gather { axis, batch } => {
                let rank = |i: usize| input(i).map_or(0, |v| v.shape.len());
                all(gather(&ins, *axis, *batch, rank(1))?)
            }
            Op::ScatterNd(_) => {
                let depth = input(1).and_then(|v| v.shape.last()?.known());
                let rank = input(1).map_or(0, |v| v.shape.len());
                all(scatter(&ins, depth, rank)?)
            }
            Op::Contract(spec) => all(contract(&ins, spec)?),
            Op::Attention(spec) => {
                need(!self.expr_counts(&spec.score), COUNTS)?;
                let scores = self.attention(graph, node, &ins, &spec.score)?;
                all(scores)
            }
            Op::Recurrent(spec) => recurrent(&ins, spec),
            Op::If {
                then_branch,
                else_branch,
            } => {
                need(first.is_none(), "decides for all items by some")?;
                let inside = ins.get(1..).unwrap_or_default().to_vec();
                let a = self.graph(then_branch, inside.clone())?;
                let b = self.graph(else_branch, inside)?;
                need(a == b, "has the items elsewhere in either branch")?;
                Ok(a)
            }
            Op::Loop { body, carried, .. } => self.repeat(body, *carried, &ins),
            _ => all(self.along(graph, node, &ins, first)?),
        }
    }

    /// Where the output of an op that works along some dimensions has the items, which must lie along others.
    fn along(&self, graph: &Graph, node: &Node, ins: &[Items], first: Items) -> Crossing<Items> {
        match &node.op {
            Op::Conv(c) => {
                let pads = c.before.iter().chain(&c.after);
                need(!self.any_counts(pads), COUNTS)?;
                need(
                    ins.iter().skip(1).all(Option::is_none),
                    "has weights that follow from the items",
                )?;
                let apart = first.as_ref().is_none_or(|p| p.axis == 0);
                need(apart, "convolves along the batch")?;
                Ok(first)
            }
            Op::Pool(s) => {
                let pads = s.before.iter().chain(&s.after);
                need(!self.any_counts(pads), COUNTS)?;
                let apart = first.as_ref().is_none_or(|p| p.axis < 2);
                need(apart, "pools along the batch")?;
                Ok(first)
            }
            Op::Reduce { monoid, axes, keep } => {
                need(!self.monoid_counts(monoid), COUNTS)?;
                let items = one(ins.iter().cloned())?;
                let Some(p) = items else { return Ok(None) };
                need(!axes.contains(&p.axis), "reduces along the batch")?;
                let gone = axes.iter().filter(|a| **a < p.axis && !keep).count();
                Ok(Some(p.at(p.axis - gone)))
            }
            Op::Scan { monoid, axis, .. } => {
                need(!self.monoid_counts(monoid), COUNTS)?;
                let items = one(ins.iter().cloned())?;
                let apart = items.as_ref().is_none_or(|p| p.axis != *axis);
                need(apart, "runs along the batch")?;
                Ok(items)
            }
            Op::Sort { axis, k, .. } => {
                need(!self.counts(k), COUNTS)?;
                let apart = first.as_ref().is_none_or(|p| p.axis != *axis);
                need(apart, "sorts along the batch")?;
                Ok(first)
            }
            Op::Resample(spec) => {
                need(
                    ins.iter().skip(1).all(Option::is_none),
                    "is resampled by what follows from the items",
                )?;
                let value = |v: Option<&ValueId>| v.map(|v| graph.value(*v));
                let (from, out) = (value(node.inputs.first()), value(node.outputs.first()));
                if let (Some(p), Some(from), Some(to)) = (&first, from, out) {
                    need(unscaled(spec, p.axis, from, to), "resamples the batch")?;
                }
                Ok(first)
            }
            // User kernels and host operators.
            _ => {
                let why = "is an operator of which nobody knows what it does with the items";
                need(ins.iter().all(Option::is_none), why)?;
                Ok(None)
            }
        }
    }

    /// The items of a broadcast of `from` to `to`.
    fn broadcast(&self, from: &[&Value], ins: &[Items], to: &Value) -> Crossing<Items> {
        let rank = to.shape.len();
        let moved = |v: &Value, i: usize| (i + rank).checked_sub(v.shape.len());
        let mut places = Vec::new();
        for (v, items) in from.iter().zip(ins) {
            let Some(p) = items else { continue };
            let at = moved(v, p.axis).filter(|&a| to.shape.get(a) == v.shape.get(p.axis));
            let Some(at) = at else {
                return crosses("repeats items");
            };
            places.push(Some(p.at(at)));
        }
        let items = match one(places.into_iter())? {
            // What is alike for all items may be laid out for each.
            None => self.of_shape(to)?,
            items => items,
        };
        let Some(p) = items else { return Ok(None) };
        for (v, _) in from.iter().zip(ins).filter(|x| x.1.is_none()) {
            let along = (p.axis + v.shape.len()).checked_sub(rank);
            let alike = along.is_none_or(|a| v.shape[a].is_one());
            need(alike, "has a value of its own for every item")?;
        }
        Ok(Some(p))
    }

    fn map(&self, graph: &Graph, node: &Node, ins: &[Items], e: &Expr) -> Crossing<Items> {
        let from: Vec<&Value> = node.inputs.iter().map(|v| graph.value(*v)).collect();
        let Some(to) = node.outputs.first().map(|v| graph.value(*v)) else {
            return Ok(None);
        };
        let items = self.broadcast(&from, ins, to)?;
        if let Some(p) = &items {
            need(!indexes(e, p.axis), "computes with which item it is")?;
        }
        Ok(items)
    }

    fn view(&self, view: &View, p: &Place, from: &Value, to: &Value) -> Crossing<Place> {
        match view {
            View::Reshape(_) => self.reshaped(p, from, to),
            View::Permute(perm) => match perm.iter().position(|&a| a == p.axis) {
                Some(at) => Ok(p.at(at)),
                None => crosses("loses the batch"),
            },
            View::Slice {
                starts,
                steps,
                extents,
            } => {
                let whole = starts.get(p.axis).is_some_and(Dim::is_zero)
                    && steps.get(p.axis) == Some(&1)
                    && extents.get(p.axis) == from.shape.get(p.axis);
                need(whole, "takes some of the items")?;
                Ok(p.clone())
            }
            View::Expand(_) => crosses("repeats items"),
        }
    }

    /// The same elements in row-major order under another shape: some dimension has as many elements behind an
    /// item, and in front of the items, as before.
    fn reshaped(&self, p: &Place, from: &Value, to: &Value) -> Crossing<Place> {
        let product = |dims: &[Dim]| Dim::product(dims);
        let before = product(&from.shape[..p.axis]) * p.outer.clone();
        let after = product(&from.shape[p.axis + 1..]) * p.inner.clone();
        let found = (0..to.shape.len()).find_map(|axis| {
            let outer = before.exact_div(&product(&to.shape[..axis]))?;
            let inner = after.exact_div(&product(&to.shape[axis + 1..]))?;
            let place = Place { axis, outer, inner };
            self.fits(to, &Some(place.clone())).then_some(place)
        });
        found.ok_or_else(|| "mixes the batch with other dimensions".into())
    }

    /// Attention's scores are a map of [batch.., q, t], and its results sums along t.
    fn attention(
        &self,
        graph: &Graph,
        node: &Node,
        ins: &[Items],
        score: &Expr,
    ) -> Crossing<Items> {
        let rank = |i: usize| {
            node.inputs
                .get(i)
                .map_or(0, |v| graph.value(*v).shape.len())
        };
        let items = one(ins.iter().take(3).cloned())?;
        let Some(p) = &items else {
            let same = ins.iter().all(Option::is_none);
            need(same, "brings different items together")?;
            return Ok(None);
        };
        let all = ins.iter().take(3).all(Option::is_some);
        let lead = all && p.axis + 2 < rank(0) && rank(0) == rank(1) && rank(0) == rank(2);
        need(lead, "attends to other items")?;
        need(!indexes(score, p.axis), "computes with which item it is")?;
        for (i, extra) in ins.iter().enumerate().skip(3) {
            let shape = &graph.value(node.inputs[i]).shape;
            let along = (p.axis + shape.len()).checked_sub(rank(0));
            let alike = match extra {
                Some(e) => along.is_some_and(|a| *e == p.at(a)),
                None => along.is_none_or(|a| shape[a].is_one()),
            };
            need(alike, "brings different items together")?;
        }
        Ok(items)
    }

    fn repeat(&self, body: &Graph, carried: usize, ins: &[Items]) -> Crossing<Vec<Items>> {
        let control = ins.iter().take(2).all(Option::is_none);
        need(control, "decides for all items by some")?;
        let outs = self.graph(body, ins.to_vec())?;
        let mut outs = outs.into_iter();
        let again = outs.next().flatten();
        need(again.is_none(), "decides for all items by some")?;
        let mut all: Vec<Items> = outs.by_ref().take(carried).collect();
        let stays = all.iter().eq(ins.iter().skip(2).take(carried));
        need(stays, "has the items elsewhere after a turn of the loop")?;
        // Scanned values are stacked along a new first dimension.
        all.extend(outs.map(|i| i.map(|p| p.at(p.axis + 1))));
        Ok(all)
    }
}

fn indexes(e: &Expr, axis: usize) -> bool {
    let is = |i: &Inst| matches!(i, Inst::Index { axis: a } if *a as usize == axis);
    e.insts.iter().any(is)
}

fn gather(ins: &[Items], axis: usize, batch: usize, rank: usize) -> Crossing<Items> {
    match (
        ins.first().cloned().flatten(),
        ins.get(1).cloned().flatten(),
    ) {
        (None, None) => Ok(None),
        (Some(d), Some(i)) if d == i && d.axis < batch => Ok(Some(d)),
        (Some(_), Some(_)) => crosses("picks items by other items"),
        (None, Some(i)) => {
            need(i.axis >= batch, "has a value of its own for every item")?;
            let at = axis + i.axis - batch;
            Ok(Some(i.at(at)))
        }
        (Some(d), None) => {
            let apart = d.axis != axis && d.axis >= batch;
            need(apart, "picks among the items")?;
            match d.axis < axis {
                true => Ok(Some(d)),
                false => {
                    let at = d.axis - 1 + rank - batch;
                    Ok(Some(d.at(at)))
                }
            }
        }
    }
}

/// Indices tell the first `depth` dimensions; the others lie in updates behind those of the indices.
fn scatter(ins: &[Items], depth: Option<i64>, rank: usize) -> Crossing<Items> {
    let get = |i: usize| ins.get(i).cloned().flatten();
    let (data, indices, updates) = (get(0), get(1), get(2));
    need(indices.is_none(), "writes where the items say")?;
    let Some(d) = data else {
        need(updates.is_none(), "writes items into what all have")?;
        return Ok(None);
    };
    let depth = depth.and_then(|k| usize::try_from(k).ok());
    let at = depth.and_then(|k| Some(rank.checked_sub(1)? + d.axis.checked_sub(k)?));
    let apart = at.is_some_and(|at| updates == Some(d.at(at)));
    need(apart, "writes to other items")?;
    Ok(Some(d))
}

fn contract(ins: &[Items], spec: &ContractSpec) -> Crossing<Items> {
    let mut found: Items = None;
    let lists = [&spec.a, &spec.b];
    for (side, items) in ins.iter().enumerate().take(2) {
        let Some(p) = items else { continue };
        let (own, other) = (lists[side], lists[1 - side]);
        let label = own.get(p.axis).copied();
        let Some(label) = label.filter(|l| own.iter().filter(|x| *x == l).count() == 1) else {
            return crosses("takes a diagonal along the batch");
        };
        if let Some(at) = other.iter().position(|l| *l == label) {
            let same = ins.get(1 - side).cloned().flatten();
            need(same == Some(p.at(at)), "brings different items together")?;
        }
        let Some(at) = spec.out.iter().position(|l| *l == label) else {
            return crosses("sums along the batch");
        };
        let here = Some(p.at(at));
        need(
            found.is_none() || found == here,
            "brings different items together",
        )?;
        found = here;
    }
    Ok(found)
}

fn recurrent(ins: &[Items], spec: &RecurrentSpec) -> Crossing<Vec<Items>> {
    let (x, y, state) = match spec.batch_first {
        true => (0, 0, 0),
        false => (1, 2, 1),
    };
    let slot = |s: usize| spec.input(s).map(|i| ins.get(i).cloned().flatten());
    let items = slot(0).flatten();
    // Lengths and initial states have items, weights have none.
    let want = |s: usize| match s {
        0 => Some(x),
        4 => Some(0),
        5 | 6 => Some(state),
        _ => None,
    };
    for s in 0..spec.present.len() {
        let Some(given) = slot(s) else { continue };
        let right = want(s).and_then(|a| Some(items.as_ref()?.at(a)));
        need(given == right, "has the items along another dimension")?;
    }
    let at = |a: usize| items.as_ref().map(|p| p.at(a));
    Ok(vec![at(y), at(state), at(state)])
}

/// Whether positions along `axis` stay what they are.
fn unscaled(spec: &ResampleSpec, axis: usize, from: &Value, to: &Value) -> bool {
    // These move positions, or take others, where nothing is scaled.
    let moves = ["tf_half_pixel_for_nn", "tf_crop_and_resize"];
    let scale = spec.scales.get(axis).copied().unwrap_or(0.0);
    from.shape.get(axis) == to.shape.get(axis)
        && (scale == 1.0 || scale == 0.0)
        && !moves.contains(&spec.coordinates.as_str())
}
