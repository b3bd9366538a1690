//! How the dimensions of values line up inside a group.
use graph::{Graph, ValueId};
use layout::Dim;

/// For every dimension of a value the dimension of the group's iteration space that it is; `None`
/// for extents of 1.
pub(crate) type Mapping = Vec<Option<usize>>;

/// Every dimension is itself.
pub(crate) fn identity(full: &[Dim]) -> Mapping {
    full.iter()
        .enumerate()
        .map(|(d, e)| (!e.is_one()).then_some(d))
        .collect()
}

/// Result of reducing a tensor of the full shape over `reduced`.
pub(crate) fn reduced_mapping(rank: usize, reduced: &[usize], keep: bool) -> Mapping {
    (0..rank)
        .filter(|d| keep || !reduced.contains(d))
        .map(|d| (!reduced.contains(&d)).then_some(d))
        .collect()
}

/// Result of reducing a tensor with mapping `m` over its own dimensions `axes`.
pub(crate) fn drop_axes(m: &Mapping, axes: &[usize], keep: bool) -> Mapping {
    (0..m.len())
        .filter(|d| keep || !axes.contains(d))
        .map(|d| if axes.contains(&d) { None } else { m[d] })
        .collect()
}

/// True when every dimension of the space that is not 1 is mapped.
pub(crate) fn covers(m: &Mapping, full: &[Dim]) -> bool {
    (0..full.len()).all(|d| full[d].is_one() || m.contains(&Some(d)))
}

/// Mapping of a value of `shape` by position, when it has the rank of the space and its extents are
/// the space's or 1.
pub(crate) fn shape_mapping(full: &[Dim], shape: &[Dim]) -> Option<Mapping> {
    let missing = full.len().checked_sub(shape.len())?;
    (0..shape.len())
        .map(
            |d| match (shape[d].is_one(), shape[d] == full[d + missing]) {
                (true, _) => Some(None),
                (_, true) => Some(Some(d + missing)),
                _ => None,
            },
        )
        .collect()
}

/// Mapping of an element-wise result of `shape` from the mappings of its inputs inside the group
/// (`None`: outside); the error says why it does not fit.
pub(crate) fn join(
    full: &[Dim],
    shape: &[Dim],
    graph: &Graph,
    inputs: &[ValueId],
    maps: &[Option<Mapping>],
) -> Result<Mapping, String> {
    let mut out: Mapping = Vec::new();
    for d in 0..shape.len() {
        let mut found: Option<usize> = None;
        for (v, m) in inputs.iter().zip(maps) {
            let Some(m) = m else { continue };
            let rank = graph.value(*v).shape.len();
            let Some(i) = (d + rank).checked_sub(shape.len()) else {
                continue;
            };
            match (found, m[i]) {
                (None, f) => found = f,
                (Some(a), Some(b)) if a != b => {
                    return Err("its inputs run over different axes".into());
                }
                _ => {}
            }
        }
        if found.is_none() && !shape[d].is_one() {
            if shape.len() != full.len() || shape[d] != full[d] {
                return Err("its result spans more than the kernel's space".into());
            }
            found = Some(d);
        }
        if let Some(f) = found {
            if shape[d] != full[f] {
                return Err("its result spans more than the kernel's space".into());
            }
            if out.contains(&Some(f)) {
                return Err("an axis would occur twice in its result".into());
            }
        }
        out.push(found);
    }
    Ok(out)
}
