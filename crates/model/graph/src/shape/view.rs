//! Views: the same elements under another shape.
use super::{ReliedEqualities, list, same_len};
use crate::View;
use layout::Dim;

pub(super) fn shape(
    view: &View,
    input: &[Dim],
    relied: &mut ReliedEqualities,
) -> Result<Vec<Dim>, String> {
    match view {
        View::Reshape(to) => {
            let (a, b) = (Dim::product(input), Dim::product(to));
            if !relied.same(&a, &b) {
                return Err(format!(
                    "{} has {a} elements, {} has {b}",
                    list(input),
                    list(to)
                ));
            }
            Ok(to.clone())
        }
        View::Permute(perm) => {
            same_len("the permutation", perm.len(), input.len())?;
            let mut seen = vec![false; input.len()];
            for &p in perm {
                match seen.get_mut(p) {
                    Some(s) if !*s => *s = true,
                    _ => return Err(format!("{perm:?} is not a permutation")),
                }
            }
            Ok(perm.iter().map(|&p| input[p].clone()).collect())
        }
        View::Slice {
            starts,
            steps,
            extents,
        } => {
            same_len("starts", starts.len(), input.len())?;
            same_len("steps", steps.len(), input.len())?;
            same_len("extents", extents.len(), input.len())?;
            for (d, n) in input.iter().enumerate() {
                let (start, step, extent) = (&starts[d], steps[d], &extents[d]);
                if step == 0 {
                    return Err(format!("the step of dimension {d} is 0"));
                }
                if extent.is_zero() {
                    continue;
                }
                let last = start.clone() + (extent.clone() - Dim::ONE) * Dim::Known(step);
                for at in [start, &last] {
                    let inside = at
                        .known()
                        .zip(n.known())
                        .is_none_or(|(at, n)| 0 <= at && at < n);
                    // A symbolic extent may be 0, then the last coordinate is never read.
                    if !inside && extent.known().is_some() {
                        return Err(format!("coordinate {at} lies outside dimension {d} of {n}"));
                    }
                }
                let (low, high) = if step > 0 {
                    (start, &last)
                } else {
                    (&last, start)
                };
                relied.at_most(&Dim::ZERO, extent);
                relied.at_most(&Dim::ZERO, low);
                relied.at_most(&(high.clone() + Dim::ONE), n);
            }
            Ok(extents.clone())
        }
        View::Expand(to) => match relied.broadcasts_to(input, to) {
            true => Ok(to.clone()),
            false => Err(format!(
                "{} does not broadcast to {}",
                list(input),
                list(to)
            )),
        },
    }
}
