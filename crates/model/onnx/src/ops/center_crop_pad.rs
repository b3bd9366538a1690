//! CenterCropPad: crops or pads around the middle.
use super::{OpDef, op};
use crate::import::{Ctx, Lowered, NodeView, axes_of, axis_of};
use graph::{Op, PadMode};
use layout::Dim;

pub(crate) const OPS: &[OpDef] = &[op("CenterCropPad", lower)];

fn lower<'m>(c: &mut Ctx<'m>, n: &NodeView<'m>) -> Lowered {
    n.at_most(2)?;
    let (x, target) = (n.input(0)?, n.input(1)?);
    let (s, d) = (c.shape(x), c.dtype(x));
    let axes: Vec<usize> = match n.ints("axes")? {
        Some(a) => {
            axes_of(&a, s.len())?;
            a.iter().map(|&a| axis_of(a, s.len())).collect::<Lowered<_>>()?
        }
        None => (0..s.len()).collect(),
    };
    let Some(target) = c.sizes(target)? else {
        let mut out: Vec<Option<Dim>> = s.into_iter().map(Some).collect();
        axes.iter().for_each(|&a| out[a] = None);
        return c.host(n, &[(d, out)]);
    };
    if target.len() != axes.len() {
        return Err(format!("has {} extents for {} axes", target.len(), axes.len()).into());
    }
    let (mut before, mut after) = (vec![Dim::ZERO; s.len()], vec![Dim::ZERO; s.len()]);
    let two = Dim::Known(2);
    for (&a, t) in axes.iter().zip(&target) {
        // Of an odd difference the larger half is cropped behind and padded behind: a floor toward
        // the start in both cases, so that both are one pad, negative where it crops.
        let more = t.clone() - s[a].clone();
        let grows = more.provably_nonneg() || more.known().is_some_and(|m| m >= 0);
        let shrinks = more.known().is_some_and(|m| m < 0) || (-more.clone()).provably_nonneg();
        let first = match (grows, shrinks) {
            (true, _) => more.floor_div(&two),
            (_, true) => -((-more.clone()).floor_div(&two)),
            _ => {
                let mut out: Vec<Option<Dim>> = s.into_iter().map(Some).collect();
                axes.iter().zip(&target).for_each(|(&a, t)| out[a] = Some(t.clone()));
                return c.host(n, &[(d, out)]);
            }
        };
        after[a] = more - first.clone();
        before[a] = first;
    }
    let y = c.add1(n, Op::Pad { before, after, mode: PadMode::Constant }, &[x], n.name(0))?;
    c.set(n, 0, y);
    Ok(())
}
