//! Values that a kernel loads through indices: gathers without a kernel of their own.
use super::{Body, Lowering, Result, touched};
use crate::located::Located;
use graph::{NodeId, Op, ValueId, ValueSource};
use kernel::{Indexed, Role, TileId};
use layout::{Dim, Layout, Mode};

/// A gathered value seen through views: where its data and its indices lie, both with the value's
/// own dimensions.
pub(crate) struct Gathered {
    pub node: NodeId,
    pub data: Located,
    pub index: Located,
    /// As if the indices counted up: decides the order of axes.
    pub lead: Layout,
    stride: Dim,
    extent: Dim,
    index_value: ValueId,
}

impl Lowering<'_> {
    /// Whether gather `n` is left to its reader.
    pub(crate) fn is_folded(&self, n: NodeId) -> bool {
        !self.grouped[n.0 as usize]
    }

    /// `v` as a gathered value, when it is one that is left to its reader and views of it are strides.
    pub(crate) fn gathered(&mut self, v: ValueId) -> Result<Option<Gathered>> {
        let graph = self.graph;
        let (mut views, mut v) = (vec![], v);
        let n = loop {
            let ValueSource::Node(n, _) = graph.value(v).source else {
                return Ok(None);
            };
            if self.located[v.0 as usize].is_some() {
                return Ok(None);
            }
            let node = graph.node(n);
            let Op::View(view) = &node.op else { break n };
            views.push(view);
            v = node.inputs[0];
        };
        let Some(g) = self.gather_read(n, v)? else {
            return Ok(None);
        };
        Ok(views.iter().rev().try_fold(g, |g, view| {
            let lead = Located {
                ix: g.data.ix,
                layout: g.lead,
            };
            let lead = lead.view(view);
            let data = g.data.view(view)?;
            Some(Gathered {
                lead: lead.map_or_else(|| data.layout.clone(), |l| l.layout),
                index: g.index.view(view)?,
                data,
                ..g
            })
        }))
    }

    /// Gather `n`, whose result is `v`, when it is left to its reader.
    fn gather_read(&mut self, n: NodeId, v: ValueId) -> Result<Option<Gathered>> {
        let graph = self.graph;
        let node = graph.node(n);
        match &node.op {
            Op::Gather { axis, batch } if self.is_folded(n) => {
                let (axis, batch, value) = (*axis, *batch, node.inputs[1]);
                let data = self.locate(node.inputs[0])?;
                let index = self.locate(value)?;
                let picked = data.layout.modes[axis].coalesce();
                let stride = match picked.leaves.as_slice() {
                    [] => Dim::ZERO,
                    [l] => l.stride.clone(),
                    _ => return Ok(None),
                };
                let q = index.layout.modes.len() - batch;
                let shape = graph.value(v).shape.clone();
                // The same positions for both, one of them standing still but for what both begin with.
                let still = |d: usize| Mode::flat(shape[d].clone(), Dim::ZERO);
                let (mut modes, mut by, mut lead) = (vec![], vec![], vec![]);
                for d in 0..shape.len() {
                    if (axis..axis + q).contains(&d) {
                        modes.push(still(d));
                        by.push(index.layout.modes[batch + d - axis].clone());
                        let below = Dim::product(&shape[d + 1..axis + q]);
                        lead.push(Mode::flat(shape[d].clone(), stride.clone() * below));
                    } else {
                        let from = if d < axis { d } else { d + 1 - q };
                        modes.push(data.layout.modes[from].clone());
                        by.push(match d < batch {
                            true => index.layout.modes[d].clone(),
                            false => still(d),
                        });
                        lead.push(data.layout.modes[from].clone());
                    }
                }
                let layout = |of: &Located, modes| Layout {
                    offset: of.layout.offset.clone(),
                    modes,
                };
                Ok(Some(Gathered {
                    node: n,
                    stride,
                    extent: self.shape(node.inputs[0])[axis].clone(),
                    index_value: value,
                    lead: layout(&data, lead),
                    data: Located {
                        ix: data.ix,
                        layout: layout(&data, modes),
                    },
                    index: Located {
                        ix: index.ix,
                        layout: layout(&index, by),
                    },
                }))
            }
            _ => Ok(None),
        }
    }

    /// The tile of gathered value `v`, loaded through its indices; `None` where its dimensions do not
    /// fit the kernel's axes.
    pub(crate) fn gathered_tile(
        &mut self,
        body: &mut Body,
        v: ValueId,
        g: Gathered,
        m: &crate::fuse::Mapping,
    ) -> Result<Option<TileId>> {
        let dims = body.axes_of(m);
        let want: Vec<Option<Dim>> = dims
            .iter()
            .map(|axes| {
                let extents = axes.iter().map(|&a| body.builder.extent(a));
                (!axes.is_empty()).then(|| Dim::product(extents))
            })
            .collect();
        let agrees = |l: &Layout| {
            let of = |(m, w): (&Mode, &Option<Dim>)| {
                let e = m.extent();
                e.is_one() || w.as_ref().is_none_or(|w| *w == e)
            };
            l.modes.iter().zip(&want).all(of)
        };
        if !agrees(&g.data.layout) || !agrees(&g.index.layout) {
            return Ok(None);
        }
        let b = &mut body.builder;
        let (Some(mut access), Some(by)) = (
            b.access(&g.data.layout, &dims),
            b.access(&g.index.layout, &dims),
        ) else {
            return Ok(None);
        };
        let elements = touched(&g.index.layout);
        let dtype = self.dtype(g.index_value);
        let by = b.operand("index", dtype, Role::Read, by, elements, g.index.ix);
        access.indexed.push(Indexed {
            by,
            stride: g.stride,
            extent: g.extent,
        });
        let name = super::epilogue::short(self.name(v));
        let read = Dim::product(self.shape(v));
        let t = b.load(&name, self.dtype(v), access, read, g.data.ix);
        body.folded.push(g.node);
        Ok(Some(t))
    }
}
