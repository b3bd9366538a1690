//! Where a graph value's elements lie: a program value seen through a layout.
use graph::View;
use layout::{Dim, Layout, Mode};
use plan::ValueIx;

/// A graph value in memory: elements of program value `ix` under `layout` (strides in elements).
#[derive(Clone, Debug)]
pub(crate) struct Located {
    pub ix: ValueIx,
    pub layout: Layout,
}

impl Located {
    /// The value under a view; `None` when no strides express it.
    pub fn view(&self, view: &View) -> Option<Located> {
        let layout = view.of(&self.layout)?;
        Some(Located {
            ix: self.ix,
            layout,
        })
    }
}

/// Which dimensions of `shape_in` survive as dimensions of `shape_out` under a view that only
/// inserts or removes extents of 1, permutes, or repeats extents of 1: for every output dimension
/// the input dimension it is, `None` where it is new or repeated. `None` for any other view.
pub(crate) fn carried_dims(
    view: &View,
    shape_in: &[Dim],
    shape_out: &[Dim],
) -> Option<Vec<Option<usize>>> {
    match view {
        View::Permute(perm) => Some(perm.iter().map(|&p| Some(p)).collect()),
        View::Expand(_) => {
            let missing = shape_out.len().checked_sub(shape_in.len())?;
            Some(
                (0..shape_out.len())
                    .map(|d| {
                        d.checked_sub(missing)
                            .filter(|&i| shape_in[i] == shape_out[d] && !shape_in[i].is_one())
                    })
                    .collect(),
            )
        }
        View::Reshape(_) => {
            let keep: Vec<usize> = (0..shape_in.len())
                .filter(|&i| !shape_in[i].is_one())
                .collect();
            let mut next = keep.iter();
            let mut out = Vec::new();
            for d in shape_out {
                if d.is_one() {
                    out.push(None);
                } else {
                    let &i = next.next()?;
                    if shape_in[i] != *d {
                        return None;
                    }
                    out.push(Some(i));
                }
            }
            next.next().is_none().then_some(out)
        }
        View::Slice { .. } => None,
    }
}

/// The value under a reshape whose sizes no rule shows to be equal: dimensions that agree stay,
/// extents of 1 appear, and a dimension without a partner is taken to be 1 (a squeezed size that
/// only the data's dims give). `None` when the dimensions do not line up like that; otherwise the
/// layout and the extents that must be 1.
pub(crate) fn reshape_assuming(l: &Located, shape: &[Dim]) -> Option<(Located, Vec<Dim>)> {
    let mut modes = Vec::new();
    let mut ones = Vec::new();
    let mut next = l.layout.modes.iter().peekable();
    for want in shape {
        if want.is_one() {
            modes.push(Mode::flat(Dim::ONE, Dim::ZERO));
            continue;
        }
        loop {
            let m = next.next()?;
            let e = m.extent();
            if e == *want {
                modes.push(m.clone());
                break;
            }
            if e.is_one() {
                continue;
            }
            e.known().is_none().then_some(())?;
            ones.push(e);
        }
    }
    for m in next {
        let e = m.extent();
        if !e.is_one() {
            e.known().is_none().then_some(())?;
            ones.push(e);
        }
    }
    Some((
        Located {
            ix: l.ix,
            layout: Layout {
                offset: l.layout.offset.clone(),
                modes,
            },
        },
        ones,
    ))
}

/// `mode` with the extent `want`, which is taken to be its own; `None` when its leaves cannot say so.
pub(crate) fn with_extent(mode: &Mode, want: &Dim) -> Option<Mode> {
    let c = mode.coalesce();
    match c.leaves.as_slice() {
        [l] => Some(Mode::flat(want.clone(), l.stride.clone())),
        [outer, inner @ ..] => {
            let below = Dim::product(inner.iter().map(|l| &l.extent));
            let mut leaves = vec![layout::Leaf {
                extent: want.exact_div(&below)?,
                stride: outer.stride.clone(),
            }];
            leaves.extend_from_slice(inner);
            Some(Mode { leaves })
        }
        [] => None,
    }
}
