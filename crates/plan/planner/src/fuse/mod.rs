//! Which nodes share a kernel.
//!
//! Groups grow in topological order: a node joins the group of a node it reads when their axes fit
//! (see [`space`]) and no other path leads from the group to the node. Every joining and every
//! refusal that a person could wonder about leaves a [`Why`].
mod absorb;
mod gathered;
pub(crate) mod order;
mod space;

pub(crate) use gathered::constant;
use graph::{Graph, Node, NodeId, Op, ValueId, ValueSource};
use layout::{Arrange, Dim, Inserted};
use plan::{Saving, Why};
pub(crate) use space::{Mapping, shape_mapping};
use std::collections::{BTreeMap, BTreeSet};

/// What a group is built around.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Anchor {
    /// Element-wise nodes only.
    Map,
    /// Element-wise nodes and reductions over the same dimensions.
    Row,
    /// A contraction, convolution, pool or attention with an element-wise epilogue.
    Node(NodeId),
    /// A node that stands alone.
    Alone(NodeId),
}

/// Nodes that become one kernel (or, for [`Anchor::Alone`], whatever that node needs).
#[derive(Clone, Debug)]
pub(crate) struct Group {
    pub anchor: Anchor,
    /// Members in topological order; views inside the group are members too.
    pub nodes: Vec<NodeId>,
    /// Shape of the iteration space.
    pub full: Vec<Dim>,
    /// Dimensions of `full` that reductions run over (Row).
    pub reduced: Vec<usize>,
    /// For every member value: its dimensions as dimensions of `full`.
    pub mapping: BTreeMap<ValueId, Mapping>,
}

/// Most nodes that one kernel may take, so that programs stay readable and compile quickly.
const MAX_NODES: usize = 96;
/// Most outside values that one kernel may read.
const MAX_READS: usize = 24;

/// Partitions the nodes of `graph` (views excepted, unless inside a group) into groups in an order
/// in which each can run after those before it.
pub(crate) fn groups(graph: &Graph, whys: &mut Vec<Why>, savings: &mut Vec<Saving>) -> Vec<Group> {
    let mut f = Fuser {
        graph,
        of_node: vec![None; graph.nodes.len()],
        groups: Vec::new(),
        order: order::Order::default(),
        reducers: BTreeMap::new(),
        mappers: BTreeMap::new(),
        outputs: graph.outputs.iter().copied().inserted(),
        readers: graph.readers(),
        sizes: graph.sizes_from(),
        whys,
        savings,
    };
    for n in 0..graph.nodes.len() {
        f.add(NodeId(n as u32));
    }
    f.absorb();
    f.give_away();
    f.ordered()
}

/// The values that a node reads, each once.
fn read_by(node: &Node) -> Vec<ValueId> {
    let mut all = node.inputs.clone();
    all.arrange();
    all.dedup();
    all
}

struct Fuser<'a> {
    graph: &'a Graph,
    of_node: Vec<Option<usize>>,
    groups: Vec<Group>,
    order: order::Order,
    /// Groups of rows that reduce a value over given axes, by that, those that may still grow.
    reducers: BTreeMap<(ValueId, Vec<usize>), Vec<usize>>,
    /// Groups of maps by the values that one of their nodes reads, the latest of each.
    mappers: BTreeMap<Vec<ValueId>, usize>,
    outputs: BTreeSet<ValueId>,
    readers: Vec<Vec<NodeId>>,
    /// For every node the values whose sizes it works with though only data gives them.
    sizes: Vec<Vec<ValueId>>,
    whys: &'a mut Vec<Why>,
    savings: &'a mut Vec<Saving>,
}

impl Fuser<'_> {
    fn producer(&self, v: ValueId) -> Option<NodeId> {
        match self.graph.value(v).source {
            ValueSource::Node(n, _) => Some(n),
            _ => None,
        }
    }

    /// Groups that a node reads from or has sizes from, looking through views, in order.
    fn sources(&self, n: NodeId) -> Vec<usize> {
        let mut out = BTreeSet::new();
        let mut met = BTreeSet::new();
        let needs = |n: NodeId| {
            let inputs = self.graph.node(n).inputs.iter();
            inputs.chain(&self.sizes[n.0 as usize]).copied()
        };
        let mut stack: Vec<ValueId> = needs(n).collect();
        while let Some(v) = stack.pop() {
            let Some(p) = self.producer(v) else { continue };
            match self.of_node[p.0 as usize] {
                Some(g) => drop(out.insert(g)),
                None if met.insert(p) => stack.extend(needs(p)),
                None => {}
            }
        }
        out.into_iter().collect()
    }

    fn add(&mut self, n: NodeId) {
        let node = self.graph.node(n);
        if matches!(node.op, Op::View(_)) || gathered::folds(self.graph, &self.readers, n) {
            return;
        }
        let joinable = matches!(node.op, Op::Map(_) | Op::Reduce { .. });
        if joinable {
            // The latest group first: it is the one whose result is still near.
            for g in self.sources(n).into_iter().rev() {
                match self.try_join(n, g) {
                    Ok(()) => {
                        let how = "it uses the other's result tile by tile, before the tile leaves the cache or registers";
                        return self.note_fusion((n, g), how, self.saved(n, g));
                    }
                    Err(Some(reason)) => self.refuse(n, g, reason),
                    Err(None) => {}
                }
            }
        }
        if let Some(g) = self.beside(n) {
            let how = "it reads the same values, which are loaded once for both";
            return self.note_fusion((n, g), how, self.read_once(n));
        }
        let shape = |v: ValueId| self.graph.value(v).shape.clone();
        let (anchor, full, reduced) = match &node.op {
            Op::Map(_) => (Anchor::Map, shape(node.outputs[0]), vec![]),
            Op::Reduce { axes, .. } => (Anchor::Row, shape(node.inputs[0]), axes.clone()),
            Op::Contract(_) | Op::Conv(_) | Op::Pool(_) | Op::Attention(_) => {
                (Anchor::Node(n), shape(node.outputs[0]), vec![])
            }
            _ => (Anchor::Alone(n), vec![], vec![]),
        };
        let mut group = Group {
            anchor,
            nodes: vec![n],
            full,
            reduced,
            mapping: BTreeMap::new(),
        };
        match (&node.op, anchor) {
            (_, Anchor::Alone(_)) => {}
            (Op::Reduce { keep, .. }, _) => {
                let m = space::reduced_mapping(group.full.len(), &group.reduced, *keep);
                for &o in &node.outputs {
                    group.mapping.insert(o, m.clone());
                }
            }
            _ => {
                let m: Mapping = space::identity(&group.full);
                for &o in &node.outputs {
                    group.mapping.insert(o, m.clone());
                }
            }
        }
        let g = self.groups.len();
        self.order.push(self.sources(n));
        self.of_node[n.0 as usize] = Some(g);
        self.groups.push(group);
        self.reduces(n, g);
        if anchor == Anchor::Map {
            self.mappers.insert(read_by(self.graph.node(n)), g);
        }
    }

    fn name(&self, n: NodeId) -> String {
        let first = self.graph.node(n).origins.first();
        first.map(|o| o.name.clone()).unwrap_or_default()
    }

    /// Bytes that `n` need not read from memory, nor group `g` write, when the two are one kernel.
    fn saved(&self, n: NodeId, g: usize) -> Dim {
        let mut sum = Dim::ZERO;
        for &v in &self.graph.node(n).inputs {
            if !self.shows(g, v) {
                continue;
            }
            let value = self.graph.value(v);
            let alone = self.readers[v.0 as usize].len() == 1 && !self.outputs.contains(&v);
            let times = if alone { 2 } else { 1 };
            let bits = i64::from(value.dtype.bits()) * times;
            sum = sum + (Dim::product(&value.shape) * Dim::Known(bits)).floor_div(&Dim::Known(8));
        }
        sum
    }

    /// What became of `n` in group `g`, in words: an operator may come as several nodes, which have its name.
    fn fused_with(&self, n: NodeId, g: usize) -> String {
        let first = self.name(self.groups[g].nodes[0]);
        match self.name(n) == first {
            true => "its parts are one kernel".into(),
            false => format!("fused with {first}"),
        }
    }

    /// Bytes that `n` need not read because what it is in one kernel with reads them too.
    fn read_once(&self, n: NodeId) -> Dim {
        let each = read_by(self.graph.node(n)).into_iter().map(|v| {
            let value = self.graph.value(v);
            let bits = Dim::product(&value.shape) * Dim::Known(value.dtype.bits().into());
            bits.floor_div(&Dim::Known(8))
        });
        each.fold(Dim::ZERO, |sum, bytes| sum + bytes)
    }

    /// `n` has joined group `g`, which saves `bytes`.
    fn note_fusion(&mut self, (n, g): (NodeId, usize), how: &str, bytes: Dim) {
        let choice = self.fused_with(n, g);
        let node = self.name(n);
        self.savings.push(Saving {
            node: node.clone(),
            choice: choice.clone(),
            fused: true,
            bytes,
        });
        self.whys.push(Why {
            pass: "fuse".into(),
            subject: node,
            choice,
            alternatives: vec![],
            reason: how.into(),
        });
    }

    /// Why a person might expect `n` in group `g`, and why it is not.
    fn refuse(&mut self, n: NodeId, g: usize, reason: String) {
        let choice = format!("not fused with {}", self.name(self.groups[g].nodes[0]));
        let node = self.name(n);
        self.savings.push(Saving {
            node: node.clone(),
            choice: choice.clone(),
            fused: false,
            bytes: self.saved(n, g),
        });
        self.whys.push(Why {
            pass: "fuse".into(),
            subject: node,
            choice,
            alternatives: vec![],
            reason,
        });
    }

    /// Puts a node beside another one that reads the same: a reduction of the same rows, whose tile it shares, or a map.
    /// Nothing that is in a group yet reads it, so that no path leads from it to what that group reads.
    fn beside(&mut self, n: NodeId) -> Option<usize> {
        let node = self.graph.node(n);
        match (&node.op, node.inputs.as_slice()) {
            (Op::Map(_), _) => self.beside_map(n),
            (Op::Reduce { axes, keep, .. }, &[x]) => self.beside_reduction(n, x, axes, *keep),
            _ => None,
        }
    }

    /// Puts a map beside another one of the same values and shape, which are loaded once for both.
    fn beside_map(&mut self, n: NodeId) -> Option<usize> {
        let node = self.graph.node(n);
        let &g = self.mappers.get(&read_by(node))?;
        let full = &self.graph.value(node.outputs[0]).shape;
        let sources = self.sources(n);
        let group = &self.groups[g];
        let fits = group.anchor == Anchor::Map
            && group.full == *full
            && group.nodes.len() < MAX_NODES
            && sources.iter().all(|&s| self.order.may_follow(g, s));
        if !fits {
            return None;
        }
        sources.iter().for_each(|&s| self.order.add(g, s));
        let m = space::identity(full);
        let group = &mut self.groups[g];
        for &o in &node.outputs {
            group.mapping.insert(o, m.clone());
        }
        group.nodes.push(n);
        self.of_node[n.0 as usize] = Some(g);
        Some(g)
    }

    fn beside_reduction(
        &mut self,
        n: NodeId,
        x: ValueId,
        axes: &[usize],
        keep: bool,
    ) -> Option<usize> {
        let full = &self.graph.value(x).shape;
        let key = (x, axes.to_vec());
        // The latest that has room. A group has the dimensions of what it reads from outside in their order.
        let g = loop {
            let &g = self.reducers.get(&key)?.last()?;
            let group = &self.groups[g];
            let outside = !group.mapping.contains_key(&x);
            if group.full == *full && outside && group.nodes.len() < MAX_NODES {
                break g;
            }
            // Nor will it ever.
            self.reducers.get_mut(&key)?.pop();
        };
        let m = space::reduced_mapping(full.len(), axes, keep);
        let node = self.graph.node(n);
        let group = &mut self.groups[g];
        for &o in &node.outputs {
            group.mapping.insert(o, m.clone());
        }
        group.nodes.push(n);
        self.of_node[n.0 as usize] = Some(g);
        Some(g)
    }

    /// Notes what node `n`, which is in group `g`, reduces.
    fn reduces(&mut self, n: NodeId, g: usize) {
        let node = self.graph.node(n);
        let group = &self.groups[g];
        if let (Op::Reduce { axes, .. }, &[x]) = (&node.op, node.inputs.as_slice())
            && group.reduced == *axes
            && group.anchor == Anchor::Row
        {
            let list = self.reducers.entry((x, axes.clone())).or_default();
            // In the order of the groups, each once.
            if let Err(at) = list.binary_search(&g) {
                list.insert(at, g);
            }
        }
    }

    fn try_join(&mut self, n: NodeId, g: usize) -> Result<(), Option<String>> {
        let graph = self.graph;
        let node = graph.node(n);
        let group = &self.groups[g];
        if matches!(group.anchor, Anchor::Alone(_)) {
            return Err(None);
        }
        if group.nodes.len() >= MAX_NODES {
            return Err(Some(format!("the kernel already holds {MAX_NODES} nodes")));
        }
        let constant = |v: &ValueId| gathered::constant(graph, *v, 0);
        let reads = self.outside_reads(g);
        // What reads nothing, such as positions, is as cheap to make where it is used.
        if !reads.is_empty() && reads.iter().all(constant) && !node.inputs.iter().all(constant) {
            return Err(Some(
                "the kernel's result is a constant, which is made when the model is loaded".into(),
            ));
        }
        // Views between the group and the node become members when they keep axes apart.
        let mut views = Vec::new();
        let mut maps: Vec<Option<Mapping>> = Vec::new();
        for &v in &node.inputs {
            maps.push(self.through_views(g, v, &mut views));
        }
        if maps.iter().all(Option::is_none) {
            return Err(None);
        }
        // An input that shows the kernel's result in another order needs all of it first.
        let elsewhere = |(v, m): (&ValueId, &Option<Mapping>)| m.is_none() && self.shows(g, *v);
        if node.inputs.iter().zip(&maps).any(elsewhere) {
            return Err(Some(
                "another input of it is the kernel's result in another order".into(),
            ));
        }
        let out = graph.value(node.outputs[0]);
        let (anchor, reduced, mapping) = match &node.op {
            Op::Reduce { axes, keep, .. } => self.reduce_in(group, node, &maps, (axes, *keep))?,
            _ => {
                let m = space::join(&group.full, &out.shape, graph, &node.inputs, &maps);
                (group.anchor, group.reduced.clone(), m.map_err(Some)?)
            }
        };
        if matches!(anchor, Anchor::Node(_)) && !space::covers(&mapping, &group.full) {
            return Err(Some(
                "its result has another shape than the kernel's".into(),
            ));
        }
        // A row kernel keeps rows whole; a wide map that joins must span the same rows.
        let others: Vec<usize> = self.sources(n).into_iter().filter(|&s| s != g).collect();
        if !others.iter().all(|&s| self.order.may_follow(g, s)) {
            return Err(Some(
                "another input of it depends on the kernel's result, or is too far from it to tell"
                    .into(),
            ));
        }
        if reads.len() + node.inputs.len() > MAX_READS {
            return Err(Some(format!(
                "the kernel already reads {MAX_READS} tensors"
            )));
        }
        others.iter().for_each(|&s| self.order.add(g, s));
        let group = &mut self.groups[g];
        for (view_node, value, m) in views {
            if !group.nodes.contains(&view_node) {
                group.nodes.push(view_node);
                group.mapping.insert(value, m);
            }
        }
        for &o in &node.outputs {
            group.mapping.insert(o, mapping.clone());
        }
        group.anchor = anchor;
        group.reduced = reduced;
        group.nodes.push(n);
        self.of_node[n.0 as usize] = Some(g);
        self.reduces(n, g);
        Ok(())
    }

    /// What a reduction makes of a group whose value it reduces: its anchor, its reduced dimensions, and the
    /// mapping of the result.
    fn reduce_in(
        &self,
        group: &Group,
        node: &Node,
        maps: &[Option<Mapping>],
        (axes, keep): (&[usize], bool),
    ) -> Result<(Anchor, Vec<usize>, Mapping), Option<String>> {
        if matches!(group.anchor, Anchor::Node(_)) {
            return Err(Some(
                "a reduction needs whole rows, which this kernel's tiles do not hold".into(),
            ));
        }
        let m = maps[0].as_ref().ok_or(None)?;
        if node.inputs.len() != 1 {
            return Err(None);
        }
        let shape = &self.graph.value(node.inputs[0]).shape;
        let long = axes.iter().filter(|&&a| !shape[a].is_one());
        let over: Option<Vec<usize>> = long.map(|&a| m[a]).collect();
        let mut over = over.ok_or(None)?;
        over.arrange();
        let (anchor, reduced) = match group.anchor {
            Anchor::Map => (Anchor::Row, over.clone()),
            other => (other, group.reduced.clone()),
        };
        if over != reduced {
            return Err(Some(
                "it reduces other dimensions than the kernel does".into(),
            ));
        }
        // Everything that is not reduced must be there, or the result would be partial.
        let spread = |d: usize| m[d].is_none() && !shape[d].is_one();
        if (0..shape.len()).any(|d| !axes.contains(&d) && spread(d)) {
            return Err(Some("its result spans more than the kernel's space".into()));
        }
        Ok((anchor, reduced, space::drop_axes(m, axes, keep)))
    }

    /// The mapping of `v` when it is a value of group `g` seen through axis-keeping views; the
    /// views passed are added to `views`.
    fn through_views(
        &self,
        g: usize,
        v: ValueId,
        views: &mut Vec<(NodeId, ValueId, Mapping)>,
    ) -> Option<Mapping> {
        let mapping = &self.groups[g].mapping;
        // From `v` down to the value that is the group's.
        let mut chain = vec![];
        let mut at = v;
        while !mapping.contains_key(&at) {
            let p = self.producer(at)?;
            let Op::View(view) = &self.graph.node(p).op else {
                return None;
            };
            chain.push((p, at, view));
            at = self.graph.node(p).inputs[0];
        }
        let mut m = mapping[&at].clone();
        for (p, seen, view) in chain.into_iter().rev() {
            let from = &self.graph.value(self.graph.node(p).inputs[0]).shape;
            let to = &self.graph.value(seen).shape;
            let carried = crate::located::carried_dims(view, from, to)?;
            m = carried.iter().map(|c| c.and_then(|i| m[i])).collect();
            if !views.iter().any(|(_, x, _)| *x == seen) {
                views.push((p, seen, m.clone()));
            }
        }
        Some(m)
    }

    /// True when `v` is, seen through any views, a value of group `g`.
    fn shows(&self, g: usize, v: ValueId) -> bool {
        let (mut stack, mut met) = (vec![v], BTreeSet::new());
        while let Some(v) = stack.pop() {
            let Some(p) = self.producer(v) else { continue };
            match self.of_node[p.0 as usize] {
                Some(of) if of == g => return true,
                Some(_) => {}
                None if met.insert(p) => stack.extend(&self.graph.node(p).inputs),
                None => {}
            }
        }
        false
    }

    fn outside_reads(&self, g: usize) -> Vec<ValueId> {
        let group = &self.groups[g];
        let mut out: Vec<ValueId> = Vec::new();
        for &n in &group.nodes {
            for &v in &self.graph.node(n).inputs {
                if !group.mapping.contains_key(&v) && !out.contains(&v) {
                    out.push(v);
                }
            }
        }
        out
    }

    /// Groups in an order in which each comes after those it reads from.
    fn ordered(self) -> Vec<Group> {
        let deps = self.order.needs();
        let mut done = vec![false; self.groups.len()];
        let mut order = Vec::new();
        // Depth-first from each group in creation order keeps the model's own order where it can.
        for root in 0..self.groups.len() {
            let mut stack = vec![(root, 0)];
            while let Some((g, at)) = stack.pop() {
                if done[g] {
                    continue;
                }
                match deps[g].get(at) {
                    Some(&d) => {
                        stack.push((g, at + 1));
                        if !done[d] {
                            stack.push((d, 0));
                        }
                    }
                    None => {
                        done[g] = true;
                        order.push(g);
                    }
                }
            }
        }
        let mut slots: Vec<Option<Group>> = self.groups.into_iter().map(Some).collect();
        order
            .into_iter()
            .filter_map(|g| slots[g].take())
            .filter(|g| !g.nodes.is_empty())
            .collect()
    }
}
