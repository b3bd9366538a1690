//! Element-wise groups that one other group alone reads become a part of it: the branches of a sum, say, of which the
//! rule that looks at nodes one by one lets the sum join only the last.
use super::{Anchor, Fuser, Group, MAX_NODES, MAX_READS, gathered, space};
use graph::{NodeId, Op, ValueId};
use plan::Why;

impl Fuser<'_> {
    /// Puts every such group into its reader, the last groups first.
    pub(super) fn absorb(&mut self) {
        for s in (0..self.groups.len()).rev() {
            if let Some((g, at)) = self.absorbing(s) {
                self.put_into(s, g, at);
            }
        }
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
        let whole = space::identity(&group.full);
        let mut first = reader.nodes.len();
        for (&v, m) in &group.mapping {
            if self.outputs.contains(&v) {
                return None;
            }
            for r in self.readers[v.0 as usize]
                .iter()
                .filter(|r| !group.nodes.contains(r))
            {
                if *m != whole || !self.reads_by_element(reader, *r) {
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
            && group.mapping.get(&out) == Some(&space::identity(&group.full))
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
