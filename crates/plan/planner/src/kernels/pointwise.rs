//! Element-wise and row kernels.
use super::epilogue::operand_mapping;
use super::simplify::magnitude;
use super::{Body, Builder, Lowering, Result};
use crate::fuse::{Anchor, Group, Mapping};
use graph::{Op, ValueId};
use kernel::{AxisId, Family};
use layout::{Dim, Leaf};
use std::collections::BTreeMap;

impl Lowering<'_> {
    pub(crate) fn pointwise(&mut self, g: &Group) -> Result<()> {
        let graph = self.graph;
        let mut reads: Vec<(ValueId, Mapping)> = Vec::new();
        for &n in &g.nodes {
            let node = graph.node(n);
            if matches!(node.op, Op::View(_)) {
                continue;
            }
            for &v in &node.inputs {
                if g.mapping.contains_key(&v) || reads.iter().any(|(r, _)| *r == v) {
                    continue;
                }
                let m = match &node.op {
                    Op::Reduce { .. } => {
                        crate::fuse::shape_mapping(&g.full, self.shape(v)).unwrap_or_default()
                    }
                    _ => operand_mapping(self.shape(v), &g.mapping[&node.outputs[0]], g, v),
                };
                reads.push((v, m));
            }
        }
        let mut modes: Vec<Vec<Vec<Leaf>>> = vec![Vec::new(); g.full.len()];
        let mut lead: Option<(i64, usize)> = None;
        let mut layouts = Vec::new();
        for (i, (v, m)) in reads.iter().enumerate() {
            let l = match self.gathered(*v)? {
                Some(g) => {
                    for (d, mode) in m.iter().zip(&g.index.layout.modes) {
                        if let Some(d) = d {
                            modes[*d].push(mode.coalesce().leaves);
                        }
                    }
                    crate::located::Located {
                        ix: g.data.ix,
                        layout: g.lead,
                    }
                }
                None => self.locate(*v)?,
            };
            for (d, mode) in m.iter().zip(&l.layout.modes) {
                if let Some(d) = d {
                    modes[*d].push(mode.coalesce().leaves);
                }
            }
            // The largest input leads the order of the axes: its memory is walked in order.
            let size = super::simplify::magnitude(&super::touched(&l.layout));
            if lead.is_none_or(|(s, _)| size > s) {
                lead = Some((size, i));
            }
            layouts.push(l.layout);
        }
        // A dimension is taken apart as finely as one of its readers sees it, if all others can follow.
        let splits: Vec<Vec<Dim>> = g
            .full
            .iter()
            .zip(&modes)
            .map(|(extent, seen)| {
                let finest = seen
                    .iter()
                    .max_by_key(|l| l.len())
                    .map(|l| l.iter().map(|x| x.extent.clone()).collect::<Vec<_>>());
                match finest {
                    Some(f) if f.len() > 1 && Dim::product(&f) == *extent => {
                        let fits = seen.iter().all(|l| kernel_mode(l).refine(&f).is_some());
                        if fits { f } else { vec![extent.clone()] }
                    }
                    _ => vec![extent.clone()],
                }
            })
            .collect();
        // (stride in the leading tensor, dimension, part) decides the order of axes.
        let mut parts: Vec<(std::cmp::Reverse<i64>, usize, usize)> = Vec::new();
        for (d, split) in splits.iter().enumerate() {
            if g.full[d].is_one() {
                continue;
            }
            let strides: Option<Vec<i64>> = lead.and_then(|(_, i)| {
                let at = reads[i].1.iter().position(|m| *m == Some(d))?;
                Some(
                    layouts[i].modes[at]
                        .refine(split)?
                        .leaves
                        .iter()
                        .map(|l| magnitude(&l.stride))
                        .collect(),
                )
            });
            for part in 0..split.len() {
                let stride = strides.as_ref().map_or(0, |s| s[part]);
                parts.push((std::cmp::Reverse(stride), d, part));
            }
        }
        // Dimensions that the leading tensor does not move along keep their place by number.
        if parts.iter().any(|p| p.0.0 == 0) {
            parts.sort_by_key(|p| (p.1, p.2));
        } else {
            parts.sort();
        }
        let family = match g.anchor {
            Anchor::Row => Family::Row,
            _ => Family::Map,
        };
        let name = self.group_name(g);
        let mut builder = Builder::new(&name, family);
        let mut ids: BTreeMap<(usize, usize), AxisId> = BTreeMap::new();
        for (_, d, part) in &parts {
            let name = if splits[*d].len() > 1 {
                format!("d{d}_{part}")
            } else {
                format!("d{d}")
            };
            ids.insert((*d, *part), builder.axis(&name, &splits[*d][*part]));
        }
        let dims = (0..g.full.len())
            .map(|d| {
                (0..splits[d].len())
                    .filter_map(|p| ids.get(&(d, p)).copied())
                    .collect()
            })
            .collect();
        let body = Body {
            builder,
            dims,
            tiles: BTreeMap::new(),
            indexed: true,
            folded: Vec::new(),
        };
        self.close(body, g, None)
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
