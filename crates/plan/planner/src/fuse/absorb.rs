//! Element-wise nodes that one other group alone reads become a part of it: groups, such as the branches of a sum, of
//! which the rule that looks at nodes one by one lets the sum join only the last, and the last nodes of groups that
//! would pass less through memory without them, such as the squares that a norm sums behind a product.
use super::{Anchor, Fuser, Group, MAX_NODES, MAX_READS, Mapping, gathered};
use graph::{NodeId, Op, ValueId};
use layout::Dim;
use plan::{Saving, Why};
use std::collections::BTreeSet;

/// Whether every dimension is itself, but for extents of 1, which are at one place anyway.
fn own_place(m: &Mapping, full: &[Dim]) -> bool {
    let own = |(d, e): (usize, &Dim)| e.is_one() || m.get(d) == Some(&Some(d));
    m.len() == full.len() && full.iter().enumerate().all(own)
}

impl Fuser<'_> {
    /// Puts every such group into its reader, the last groups first.
    pub(super) fn absorb(&mut self) {
        for s in (0..self.groups.len()).rev() {
            if let Some((g, at)) = self.absorbing(s) {
                self.put_into(s, g, at);
            }
        }
    }

    /// Gives the last nodes of groups to their readers where less goes through memory then, the last nodes first.
    pub(super) fn give_away(&mut self) {
        let mut moved = BTreeSet::new();
        for n in (0..self.graph.nodes.len()).rev().map(|n| NodeId(n as u32)) {
            if let Some((from, to)) = self.taken_by(n) {
                moved.extend(self.move_to(n, from, to));
            }
        }
        // What was said of them before holds no longer.
        let holds = |of: (&String, &String)| !moved.contains(&(of.0.clone(), of.1.clone()));
        self.whys
            .retain(|w: &Why| w.pass != "fuse" || holds((&w.subject, &w.choice)));
        self.savings
            .retain(|s: &Saving| holds((&s.node, &s.choice)));
    }

    /// The group that node `n` is in, and the only one that reads it, if that is better off with it: what it would read
    /// from memory instead is there already, or has fewer bits.
    fn taken_by(&self, n: NodeId) -> Option<(usize, usize)> {
        let from = self.of_node[n.0 as usize]?;
        let node = self.graph.node(n);
        let &[out] = node.outputs.as_slice() else {
            return None;
        };
        let group = &self.groups[from];
        let behind = matches!(group.anchor, Anchor::Node(_) | Anchor::Row);
        if !behind || !self.reads_by_element(group, n) || self.outputs.contains(&out) {
            return None;
        }
        let readers = &self.readers[out.0 as usize];
        let to = self.of_node[readers.first()?.0 as usize]?;
        let reader = &self.groups[to];
        let by_element = |r: &NodeId| {
            let summed = matches!(self.graph.node(*r).op, Op::Reduce { .. });
            self.of_node[r.0 as usize] == Some(to) && (summed || self.reads_by_element(reader, *r))
        };
        let fits = to != from
            && reader.full == group.full
            && readers.iter().all(by_element)
            && reader.nodes.len() < MAX_NODES
            && self.outside_reads(to).len() + node.inputs.len() <= MAX_READS;
        if !fits {
            return None;
        }
        let bits = |v: ValueId| self.graph.value(v).dtype.bits();
        let mut more = 0;
        for &v in node.inputs.iter().filter(|v| !self.in_memory(from, **v)) {
            let whole = self.graph.value(v).shape == group.full;
            let viewed = self
                .producer(v)
                .is_none_or(|p| matches!(self.graph.node(p).op, Op::View(_)));
            if !whole || viewed {
                return None;
            }
            more += bits(v);
        }
        (more < bits(out)).then_some((from, to))
    }

    /// Whether value `v`, which a node of group `g` reads, is in memory anyway: others make it, or read it too.
    fn in_memory(&self, g: usize, v: ValueId) -> bool {
        let elsewhere = |r: &NodeId| self.of_node[r.0 as usize].is_some_and(|of| of != g);
        !self.groups[g].mapping.contains_key(&v)
            || self.outputs.contains(&v)
            || self.readers[v.0 as usize].iter().any(elsewhere)
    }

    /// Puts node `n` into another group; its name and the choice that was said of it, where it is another now.
    fn move_to(&mut self, n: NodeId, from: usize, to: usize) -> Option<(String, String)> {
        let out = self.graph.node(n).outputs[0];
        let subject = self.name(n);
        let [was, choice] = [from, to].map(|g| self.fused_with(n, g));
        self.groups[from].nodes.retain(|m| *m != n);
        let mapping = self.groups[from].mapping.remove(&out);
        // What it reads comes before the group that it was in, which comes before its reader.
        for s in self.sources(n).into_iter().filter(|s| *s != to) {
            self.order.add(to, s);
        }
        self.of_node[n.0 as usize] = Some(to);
        let group = &mut self.groups[to];
        group.nodes.insert(0, n);
        group.mapping.extend(mapping.map(|m| (out, m)));
        self.whys.push(Why {
            pass: "fuse".into(),
            subject: subject.clone(),
            choice: choice.clone(),
            alternatives: vec![],
            reason:
                "nothing else reads it, and what it reads is in memory anyway or has fewer bits"
                    .into(),
        });
        (was != choice).then_some((subject, was))
    }

    /// The group that can take group `s`, and the place among its nodes of the first that reads it.
    fn absorbing(&self, s: usize) -> Option<(usize, usize)> {
        let group = &self.groups[s];
        let &[g] = self.order.needed_by(s) else {
            return None;
        };
        let reader = &self.groups[g];
        let fits = group.anchor == Anchor::Map
            && !matches!(reader.anchor, Anchor::Alone(_))
            && group.full == reader.full
            && group.nodes.len() + reader.nodes.len() <= MAX_NODES
            && self.outside_reads(s).len() + self.outside_reads(g).len() <= MAX_READS;
        // What follows from constants is computed once, when the model is loaded.
        let constant = |v: &ValueId| gathered::constant(self.graph, *v, 0);
        if !fits || self.outside_reads(s).iter().all(constant) {
            return None;
        }
        let mut first = reader.nodes.len();
        for (&v, m) in &group.mapping {
            if self.outputs.contains(&v) {
                return None;
            }
            for r in self.readers[v.0 as usize]
                .iter()
                .filter(|r| !group.nodes.contains(r))
            {
                if !own_place(m, &group.full) || !self.reads_by_element(reader, *r) {
                    return None;
                }
                first = first.min(reader.nodes.iter().position(|n| n == r)?);
            }
        }
        (first < reader.nodes.len()).then_some((g, first))
    }

    /// Whether node `r` of `group` goes through what it reads element by element, over all of the group's space.
    fn reads_by_element(&self, group: &Group, r: NodeId) -> bool {
        let node = self.graph.node(r);
        let out = node.outputs[0];
        matches!(node.op, Op::Map(_))
            && self.graph.value(out).shape == group.full
            && group
                .mapping
                .get(&out)
                .is_some_and(|m| own_place(m, &group.full))
    }

    fn put_into(&mut self, s: usize, g: usize, at: usize) {
        let empty = Group {
            anchor: Anchor::Map,
            nodes: vec![],
            full: vec![],
            reduced: vec![],
            mapping: Default::default(),
        };
        let group = std::mem::replace(&mut self.groups[s], empty);
        for &n in &group.nodes {
            self.of_node[n.0 as usize] = self.of_node[n.0 as usize].map(|_| g);
        }
        self.whys.push(Why {
            pass: "fuse".into(),
            subject: self.name(group.nodes[0]),
            choice: self.fused_with(group.nodes[0], g),
            alternatives: vec![],
            reason: "nothing else reads it, and it goes through the same elements".into(),
        });
        let reader = &mut self.groups[g];
        reader.nodes.splice(at..at, group.nodes);
        reader.mapping.extend(group.mapping);
        self.order.merge(s, g);
    }
}
