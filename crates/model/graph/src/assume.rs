//! Assumptions of a graph: equalities between extents that shape rules rely on and requests are checked for.
use crate::shape::{self, ReliedEqualities};
use crate::{Assumption, Graph};
use layout::Dim;
use std::collections::BTreeSet;

/// The assumptions of a graph under construction, each pair of extents once.
#[derive(Clone, Debug, Default)]
pub(crate) struct Assumptions {
    known: BTreeSet<(Dim, Dim)>,
    list: Vec<Assumption>,
}

impl Assumptions {
    /// Notes that the graph is the model only where `left` and `right` are equal.
    pub fn add(&mut self, node: &str, left: &Dim, right: &Dim) {
        let pair = if left <= right {
            (left, right)
        } else {
            (right, left)
        };
        if left != right && self.known.insert((pair.0.clone(), pair.1.clone())) {
            self.list.push(Assumption {
                node: node.into(),
                left: left.clone(),
                right: right.clone(),
            });
        }
    }

    /// All of them, with every equality by which the shape rules let a node of `graph` pass though
    /// its symbols do not say so. A node that breaks a rule is for [`Graph::verify`] to report.
    pub fn of(mut self, graph: &Graph) -> Vec<Assumption> {
        let mut relied = ReliedEqualities::default();
        for node in &graph.nodes {
            let types: Vec<shape::Type> = node
                .outputs
                .iter()
                .map(|&o| (graph.value(o).dtype, graph.value(o).shape.clone()))
                .collect();
            let _ = shape::check(graph, &node.op, &node.inputs, &types, &mut relied);
            let name = node.origins.first().map_or("", |o| &o.name);
            for (left, right) in relied.0.drain(..) {
                self.add(name, &left, &right);
            }
        }
        self.list
    }
}
