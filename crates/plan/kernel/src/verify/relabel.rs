//! Rules of tiles under other labels, and of what is carried along an ordered axis.
use super::blame::{Blame, unique};
use crate::{AxisId, Kernel, KernelError, Label, TileId};
use layout::{Arrange, Dim};

type Checked = Result<(), KernelError>;

/// Statement `at`: `dst` is `src` under `labels`, carried along `along`.
pub(super) fn check(
    k: &Kernel,
    b: &Blame,
    at: usize,
    (dst, src): (TileId, TileId),
    labels: &[Label],
    along: Option<AxisId>,
) -> Checked {
    let (to, from) = (&k.tiles[dst as usize], &k.tiles[src as usize]);
    b.need(dst != src && to.dtype == from.dtype, "relabel", || {
        format!(
            "{} tile '{}' is no copy of {} tile '{}'",
            to.dtype, to.name, from.dtype, from.name
        )
    })?;
    let known = |a: AxisId| (a as usize) < k.axes.len();
    b.need(
        labels.iter().all(|l| known(l.from) && known(l.to)),
        "ids",
        || format!("statement {at} relabels an axis that is not there"),
    )?;
    let mut axes = from.axes.clone();
    let gone: Vec<AxisId> = labels.iter().map(|l| l.from).chain(along).collect();
    b.need(
        unique(&gone) && gone.iter().all(|a| axes.contains(a)),
        "relabel",
        || {
            format!(
                "tile '{}' lacks an axis that statement {at} takes from it",
                from.name
            )
        },
    )?;
    axes.retain(|a| !gone.contains(a));
    axes.extend(labels.iter().map(|l| l.to));
    axes.arrange();
    let new = labels.iter().all(|l| !from.axes.contains(&l.to));
    b.need(new && axes == to.axes, "relabel", || {
        format!(
            "tile '{}' has not exactly the axes of '{}' under their new labels",
            to.name, from.name
        )
    })?;
    for l in labels {
        let extent = |a: AxisId| &k.axes[a as usize].extent;
        let end = l.first.clone() + extent(l.to).clone();
        let inside = l.first.provably_nonneg() && within(&end, extent(l.from));
        b.need(inside, "relabel", || {
            format!(
                "tile '{}' is read up to {end} along '{}', which has {}",
                from.name,
                k.axes[l.from as usize].name,
                extent(l.from)
            )
        })?;
    }
    carried(k, b, at, dst, along)
}

fn within(end: &Dim, extent: &Dim) -> bool {
    end == extent || end.provably_le(extent)
}

/// Whatever else writes a carried tile stands before and does not touch the axis.
fn carried(k: &Kernel, b: &Blame, at: usize, dst: TileId, along: Option<AxisId>) -> Checked {
    let Some(along) = along else { return Ok(()) };
    for (i, s) in k.body.iter().enumerate() {
        if i == at || !s.writes().contains(&dst) {
            continue;
        }
        let tiles = s.reads().into_iter().chain(s.writes());
        let touches = s.over().contains(&along)
            || tiles
                .filter_map(|t| k.tiles.get(t as usize))
                .any(|t| t.axes.contains(&along));
        b.need(i < at && !touches, "ordered", || {
            format!(
                "tile '{}' is carried along '{}' and written by statement {i} as well",
                k.tiles[dst as usize].name, k.axes[along as usize].name
            )
        })?;
    }
    Ok(())
}
