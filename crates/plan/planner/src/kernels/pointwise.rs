//! Element-wise and row kernels.
use super::epilogue::operand_mapping;
use super::simplify::magnitude;
use super::{Body, Builder, Lowering, Result};
use crate::fuse::{Anchor, Group, Mapping};
use graph::{Op, ValueId};
use kernel::{AxisId, Family};
use layout::{Arrange, Dim, Layout, Leaf};
use std::collections::BTreeMap;

/// What a group reads, with how its dimensions lie in the group's, and where.
struct Reads {
    mappings: Vec<Mapping>,
    layouts: Vec<Layout>,
    /// Leaves of every dimension of the group as its readers see it.
    modes: Vec<Vec<Vec<Leaf>>>,
    /// The largest one, whose memory is walked in order.
    lead: Option<usize>,
}

impl Reads {
    fn see(&mut self, mapping: &Mapping, layout: &Layout) {
        for (d, mode) in mapping.iter().zip(&layout.modes) {
            if let Some(d) = d {
                self.modes[*d].push(mode.coalesce().leaves);
            }
        }
    }

    /// Every dimension taken apart as finely as one of its readers sees it, if all others can follow.
    fn splits(&self, full: &[Dim]) -> Vec<Vec<Dim>> {
        let split = |(extent, seen): (&Dim, &Vec<Vec<Leaf>>)| {
            let finest = seen.iter().max_by_key(|l| l.len());
            let finest: Option<Vec<Dim>> =
                finest.map(|l| l.iter().map(|x| x.extent.clone()).collect());
            let follow = |f: &Vec<Dim>| {
                let all = |l: &Vec<Leaf>| kernel_mode(l).refine(f).is_some();
                f.len() > 1 && Dim::product(f) == *extent && seen.iter().all(all)
            };
            finest
                .filter(follow)
                .unwrap_or_else(|| vec![extent.clone()])
        };
        full.iter().zip(&self.modes).map(split).collect()
    }

    /// Parts of dimensions, as (dimension, part), in the order of the leading tensor's strides. Dimensions that it
    /// does not move along keep their place by number.
    fn order(&self, full: &[Dim], splits: &[Vec<Dim>]) -> Vec<(usize, usize)> {
        let mut parts: Vec<(std::cmp::Reverse<i64>, usize, usize)> = Vec::new();
        for (d, split) in splits
            .iter()
            .enumerate()
            .filter(|(d, _)| !full[*d].is_one())
        {
            let strides: Option<Vec<i64>> = self.lead.and_then(|i| {
                let at = self.mappings[i].iter().position(|m| *m == Some(d))?;
                let mode = self.layouts[i].modes[at].refine(split)?;
                Some(mode.leaves.iter().map(|l| magnitude(&l.stride)).collect())
            });
            for part in 0..split.len() {
                let stride = strides.as_ref().map_or(0, |s| s[part]);
                parts.push((std::cmp::Reverse(stride), d, part));
            }
        }
        if parts.iter().any(|p| p.0.0 == 0) {
            parts.arrange_by_key(|p| (p.1, p.2));
        } else {
            parts.arrange();
        }
        parts.into_iter().map(|p| (p.1, p.2)).collect()
    }
}

impl Lowering<'_> {
    pub(crate) fn pointwise(&mut self, g: &Group) -> Result<()> {
        let reads = self.group_reads(g)?;
        let splits = reads.splits(&g.full);
        let family = match g.anchor {
            Anchor::Row => Family::Row,
            _ => Family::Map,
        };
        let mut builder = Builder::new(&self.group_name(g), family);
        let mut ids: BTreeMap<(usize, usize), AxisId> = BTreeMap::new();
        for (d, part) in reads.order(&g.full, &splits) {
            let name = match splits[d].len() > 1 {
                true => format!("d{d}_{part}"),
                false => format!("d{d}"),
            };
            ids.insert((d, part), builder.axis(&name, &splits[d][part]));
        }
        let own = |d: usize| {
            let parts = 0..splits[d].len();
            parts.filter_map(|p| ids.get(&(d, p)).copied()).collect()
        };
        let body = Body {
            builder,
            dims: (0..g.full.len()).map(own).collect(),
            tiles: BTreeMap::new(),
            loads: BTreeMap::new(),
            indexed: true,
            folded: Vec::new(),
        };
        self.close(body, g, None)
    }

    /// The values from outside that a group's nodes read.
    fn group_reads(&mut self, g: &Group) -> Result<Reads> {
        let graph = self.graph;
        let mut values: Vec<(ValueId, Mapping)> = Vec::new();
        for &n in &g.nodes {
            let node = graph.node(n);
            if matches!(node.op, Op::View(_)) {
                continue;
            }
            for &v in &node.inputs {
                if g.mapping.contains_key(&v) {
                    continue;
                }
                let m = match &node.op {
                    Op::Reduce { .. } => {
                        crate::fuse::shape_mapping(&g.full, self.shape(v)).unwrap_or_default()
                    }
                    _ => operand_mapping(self.shape(v), &g.mapping[&node.outputs[0]], g, v),
                };
                if !values.contains(&(v, m.clone())) {
                    values.push((v, m));
                }
            }
        }
        let mut reads = Reads {
            mappings: Vec::new(),
            layouts: Vec::new(),
            modes: vec![Vec::new(); g.full.len()],
            lead: None,
        };
        let mut largest = i64::MIN;
        for (i, (v, m)) in values.into_iter().enumerate() {
            let layout = match self.gathered(v)? {
                Some(g) => {
                    reads.see(&m, &g.index.layout);
                    g.lead
                }
                None => self.locate(v)?.layout,
            };
            reads.see(&m, &layout);
            let size = magnitude(&super::touched(&layout));
            if reads.lead.is_none() || size > largest {
                (reads.lead, largest) = (Some(i), size);
            }
            reads.layouts.push(layout);
            reads.mappings.push(m);
        }
        Ok(reads)
    }

    /// A kernel's name: what its last member is called in the model, with the number of others.
    pub(crate) fn group_name(&self, g: &Group) -> String {
        let first = self.origins(&g.nodes[..1]).join("");
        let n = self.origins(&g.nodes).len();
        if n > 1 {
            format!("{first} +{}", n - 1)
        } else {
            first
        }
    }
}

fn kernel_mode(leaves: &[Leaf]) -> layout::Mode {
    layout::Mode {
        leaves: leaves.to_vec(),
    }
}
