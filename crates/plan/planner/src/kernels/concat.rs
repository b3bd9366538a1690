//! Concatenations that need no copies: what is joined is written where it belongs when it is made.
//!
//! A value that several concatenations read is written into the largest of them; one whose inputs lie
//! side by side in another is a part of that one's memory.
use super::{Lowering, row_major};
use crate::fuse::{Anchor, Group};
use crate::located::Located;
use graph::{Graph, NodeId, Op, SymbolSource, ValueId, ValueSource, View};
use kernel::Role;
use layout::{Dim, Inserted, Layout, Sym, Symbols};
use plan::ValueIx;
use std::collections::{BTreeMap, BTreeSet};

/// The memory of a concatenation.
#[derive(Debug)]
struct Place {
    whole: Located,
    /// Its dimensions' order.
    order: Vec<usize>,
    /// Where each input begins along the axis.
    starts: BTreeMap<ValueId, Dim>,
}

/// Where values that concatenations join are written.
#[derive(Debug, Default)]
pub(crate) struct ConcatPlaces {
    /// The concatenation into which a value is written, and as which of its inputs: the value or a view of it.
    home: BTreeMap<ValueId, (NodeId, ValueId)>,
    /// The memory of each concatenation that something was written to.
    places: BTreeMap<NodeId, Place>,
    /// Inputs of concatenations that were written to their places.
    filled: BTreeSet<(NodeId, ValueId)>,
    /// Program values that have several writers.
    shared: BTreeSet<ValueIx>,
}

impl ConcatPlaces {
    /// The concatenation that each value is written into, where it can be.
    pub(crate) fn new(graph: &Graph, groups: &[Group], is_output: &[bool]) -> ConcatPlaces {
        let mut concats = ConcatPlaces::default();
        // Memory is of one block of steps: nothing may split a request between the two.
        let mut block = vec![0usize; graph.nodes.len()];
        let mut blocks = 0;
        let late = graph.symbols.iter().filter_map(|s| match s.source {
            SymbolSource::Late { value, .. } => Some(value),
            SymbolSource::Input { .. } => None,
        });
        let late: BTreeSet<ValueId> = late.inserted();
        for g in groups {
            let splits = match g.anchor {
                Anchor::Alone(n) => splits(graph, n, &late),
                _ => false,
            };
            blocks += usize::from(splits);
            g.nodes.iter().for_each(|n| block[n.0 as usize] = blocks);
            blocks += usize::from(splits);
        }
        let of_input = |s: &&graph::Symbol| matches!(s.source, SymbolSource::Input { .. });
        let given = graph.symbols.iter().filter(of_input);
        let given: BTreeSet<&Sym> = given.map(|s| &s.name).inserted();
        let size = |n: NodeId| {
            let out = graph.node(n).outputs[0];
            super::simplify::magnitude(&Dim::product(&graph.value(out).shape))
        };
        for n in (0..graph.nodes.len()).map(|n| NodeId(n as u32)) {
            let node = graph.node(n);
            let Op::Concat { axis } = node.op else {
                continue;
            };
            let inputs = Inputs::new(graph, n, &given);
            for &v in &node.inputs {
                let Some((p, made)) = made(graph, v) else {
                    continue;
                };
                if block[p.0 as usize] == block[n.0 as usize]
                    && inputs.fits(graph, axis, v)
                    && !is_output[made.0 as usize]
                {
                    let home = concats.home.entry(made).or_insert((n, v));
                    if size(n) > size(home.0) {
                        *home = (n, v);
                    }
                }
            }
        }
        concats
    }

    /// Whether others write to program value `ix` too.
    pub(crate) fn is_shared(&self, ix: ValueIx) -> bool {
        self.shared.contains(&ix)
    }

    /// Whether `v` was written to where its concatenation has it.
    pub(crate) fn has(&self, n: NodeId, v: ValueId) -> bool {
        self.filled.contains(&(n, v))
    }

    /// Memory of concatenation `n`, when something was written to it.
    pub(crate) fn place(&self, n: NodeId) -> Option<Located> {
        self.places.get(&n).map(|p| p.whole.clone())
    }
}

/// The value that `v` is, or shows all of in another order or shape, and the node that makes it.
fn made(graph: &Graph, v: ValueId) -> Option<(NodeId, ValueId)> {
    let mut v = v;
    loop {
        let ValueSource::Node(n, _) = graph.value(v).source else {
            return None;
        };
        let node = graph.node(n);
        match node.op {
            Op::View(View::Reshape(_) | View::Permute(_)) => v = node.inputs[0],
            Op::View(_) => return None,
            _ => return Some((n, v)),
        }
    }
}

/// Whether a request's steps are split at node `n`.
fn splits(graph: &Graph, n: NodeId, late: &BTreeSet<ValueId>) -> bool {
    let node = graph.node(n);
    if matches!(node.op, Op::If { .. } | Op::Loop { .. }) {
        return true;
    }
    let held = |&v: &ValueId| graph.value(v).dtype.is_held();
    node.inputs.iter().chain(&node.outputs).any(held)
        || node.outputs.iter().any(|v| late.contains(v))
}

/// What a concatenation joins.
struct Inputs {
    out: ValueId,
    /// How often each value.
    times: BTreeMap<ValueId, usize>,
    /// Symbols of their shapes but for those of inputs, which are known from the beginning.
    needed: BTreeSet<Sym>,
}

impl Inputs {
    fn new(graph: &Graph, n: NodeId, given: &BTreeSet<&Sym>) -> Inputs {
        let node = graph.node(n);
        let (mut times, mut needed) = (BTreeMap::new(), Symbols::default());
        for &v in &node.inputs {
            *times.entry(v).or_insert(0) += 1;
            graph.value(v).shape.iter().for_each(|d| needed.add(d));
        }
        let used = needed.used();
        Inputs {
            out: node.outputs[0],
            times,
            needed: used.into_iter().filter(|s| !given.contains(s)).inserted(),
        }
    }

    /// Whether `v` is a whole piece along `axis`, once, whose place is known when `v` is made.
    fn fits(&self, graph: &Graph, axis: usize, v: ValueId) -> bool {
        let (from, to) = (graph.value(v), graph.value(self.out));
        let mut known = BTreeSet::new();
        from.shape.iter().for_each(|d| d.symbols(&mut known));
        let same = |(d, e): (usize, &Dim)| d == axis || to.shape.get(d) == Some(e);
        self.times.get(&v) == Some(&1)
            && from.dtype == to.dtype
            && !from.dtype.is_held()
            && from.dtype.bits() >= 8
            && from.shape.len() == to.shape.len()
            && from.shape.iter().enumerate().all(same)
            && !from.shape.iter().any(Dim::is_zero)
            && self.needed.len() <= known.len()
            && self.needed.is_subset(&known)
    }
}

impl Lowering<'_> {
    /// The place of `v` in what it is joined to, when that has its memory in the same `order`. `touched`:
    /// program values that the writing kernel reads or writes already. It reads none that it writes, and writes several
    /// pieces of one where sizes are known, so that a plan's proof finds them apart.
    pub(crate) fn join(
        &mut self,
        v: ValueId,
        order: &[usize],
        touched: &[(ValueIx, Role)],
    ) -> Option<Located> {
        // Concatenations may be joined to others in turn: the outermost has its memory first.
        let (mut placed, mut home) = (vec![], self.homeless(v, order));
        while let Some((n, axis, own)) = home {
            let out = self.graph.node(n).outputs[0];
            home = self.homeless(out, &own);
            placed.push((n, axis, out, own));
        }
        for (n, axis, out, own) in placed.into_iter().rev() {
            let whole = match self.part(out, &own, touched) {
                Some(l) => l,
                None => self.new_value(self.name(out), self.dtype(out), self.shape(out), &own),
            };
            self.place_at((n, axis), whole, own);
        }
        self.part(v, order, touched)
    }

    /// The concatenation that `v` is written into, its axis, and its dimensions' order, where it has no memory yet.
    fn homeless(&self, v: ValueId, order: &[usize]) -> Option<(NodeId, usize, Vec<usize>)> {
        let (n, input) = *self.concats.home.get(&v)?;
        let Op::Concat { axis } = self.graph.node(n).op else {
            return None;
        };
        if self.concats.places.contains_key(&n) {
            return None;
        }
        // Outputs, and what others than their makers' views see, are row-major.
        let out = self.graph.node(n).outputs[0];
        let own = match input == v && !self.is_output[out.0 as usize] {
            true => order.to_vec(),
            false => row_major(self.shape(out).len()),
        };
        Some((n, axis, own))
    }

    /// Gives concatenation `n` its memory.
    fn place_at(&mut self, (n, axis): (NodeId, usize), whole: Located, order: Vec<usize>) {
        let node = self.graph.node(n);
        self.concats.shared.insert(whole.ix);
        let (mut at, mut starts) = (Dim::ZERO, BTreeMap::new());
        for &i in &node.inputs {
            starts.entry(i).or_insert_with(|| at.clone());
            at = at + self.shape(i)[axis].clone();
        }
        let place = Place {
            whole,
            order,
            starts,
        };
        self.concats.places.insert(n, place);
    }

    /// The part of its concatenation's memory that `v` has.
    fn part(
        &mut self,
        v: ValueId,
        order: &[usize],
        touched: &[(ValueIx, Role)],
    ) -> Option<Located> {
        let (n, input) = *self.concats.home.get(&v)?;
        let node = self.graph.node(n);
        let Op::Concat { axis } = node.op else {
            return None;
        };
        let out = node.outputs[0];
        let place = self.concats.places.get(&n)?;
        let whole = &place.whole;
        let long = |order: &[usize]| -> Vec<usize> {
            let is = |d: &&usize| !self.shape(out)[**d].is_one();
            order.iter().filter(is).copied().collect()
        };
        let at = place.starts.get(&input)?;
        let piece = &self.shape(input)[axis..];
        let known = |d: &Dim| d.known().is_some();
        let sized = known(at) && piece.iter().all(known);
        let clashes = |t: &(ValueIx, Role)| t.0 == whole.ix && (t.1 == Role::Read || !sized);
        if touched.iter().any(clashes) || input == v && long(&place.order) != long(order) {
            return None;
        }
        let piece = whole.layout.slice(axis, at, 1, &self.shape(input)[axis])?;
        let layout = self.unviewed(piece, input, v)?;
        let along = order.iter().rev().find(|d| !self.shape(v)[**d].is_one());
        let unit = |l: &layout::Leaf| l.stride.is_one();
        if input != v
            && !along.is_none_or(|&d| layout.modes[d].coalesce().leaves.last().is_some_and(unit))
        {
            return None;
        }
        let ix = whole.ix;
        self.concats.filled.insert((n, input));
        Some(Located { ix, layout })
    }

    /// The layout of `v` where `seen`, a view of it, has this layout.
    fn unviewed(&self, layout: Layout, seen: ValueId, v: ValueId) -> Option<Layout> {
        let (mut layout, mut seen) = (layout, seen);
        while seen != v {
            let node = self.graph.producer(seen)?;
            seen = node.inputs[0];
            layout = match &node.op {
                Op::View(View::Reshape(_)) => layout.reshape(self.shape(seen))?,
                Op::View(View::Permute(perm)) => {
                    let mut back = vec![0; perm.len()];
                    perm.iter().enumerate().for_each(|(d, &p)| back[p] = d);
                    layout.permute(&back)
                }
                _ => return None,
            };
        }
        Some(layout)
    }

    /// Concatenation `n` as a part of a larger one, when all that it joins lies there side by side.
    pub(crate) fn part_of_larger(&self, n: NodeId, axis: usize) -> Option<Located> {
        let graph = self.graph;
        let node = graph.node(n);
        let (&first, out) = (node.inputs.first()?, node.outputs[0]);
        let (home, as_itself) = *self.concats.home.get(&first)?;
        let larger = graph.node(home);
        if home == n
            || as_itself != first
            || !matches!(larger.op, Op::Concat { axis: a } if a == axis)
        {
            return None;
        }
        let from = larger.inputs.iter().position(|&v| v == first)?;
        let there = larger.inputs.get(from..from + node.inputs.len())?;
        if there != node.inputs || !there.iter().all(|&v| self.concats.has(home, v)) {
            return None;
        }
        let at = larger.inputs[..from]
            .iter()
            .fold(Dim::ZERO, |at, &i| at + self.shape(i)[axis].clone());
        let whole = self.concats.place(home)?;
        let layout = whole.layout.slice(axis, &at, 1, &self.shape(out)[axis])?;
        Some(Located {
            ix: whole.ix,
            layout,
        })
    }

    /// Concatenations that `v`, written to its place, is a piece of.
    pub(crate) fn joins(&self, v: ValueId) -> Vec<NodeId> {
        let home = self.concats.home.get(&v);
        match home.filter(|(n, input)| self.concats.has(*n, *input)) {
            Some(&(_, input)) => {
                let all = self.readers[input.0 as usize].iter().copied();
                all.filter(|&r| matches!(self.graph.node(r).op, Op::Concat { .. }))
                    .collect()
            }
            None => vec![],
        }
    }
}
