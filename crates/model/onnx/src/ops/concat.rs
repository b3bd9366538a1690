//! Concat.
use super::{OpDef, op};
use crate::import::{Ctx, Lowered, NodeView, axis_of};
use graph::{Op, ValueId};
use layout::Dim;
use tensor::Attrs;

pub(crate) const OPS: &[OpDef] = &[op("Concat", lower)];

fn lower<'m>(c: &mut Ctx<'m>, n: &NodeView<'m>) -> Lowered {
    let xs = n.all_inputs()?;
    let Some(&first) = xs.first() else {
        return Err("needs at least one input".into());
    };
    // It had a default before opset 4.
    let given = n.int_opt("axis")?.or((n.opset < 4).then_some(1));
    let axis = axis_of(given.ok_or("attribute 'axis' is missing")?, c.rank(first))?;
    let xs = shortened(c, n, xs, axis)?;
    let y = c.add1(n, Op::Concat { axis }, &xs, n.name(0))?;
    c.set(n, 0, y);
    Ok(())
}

/// Terms and factors of a sum of extents that only the data gives, above which its parts get symbols of their own.
const LONG: usize = 1024;

/// What is joined along `axis`, with fewer symbols in the sum of its extents: every kernel that reads the result works
/// with that sum. Extents that inputs give are left, for a request makes numbers of them.
fn shortened<'m>(c: &mut Ctx<'m>, n: &NodeView<'m>, mut xs: Vec<ValueId>, axis: usize) -> Lowered<Vec<ValueId>> {
    for level in 0.. {
        let long = |c: &Ctx<'m>, x: ValueId| c.shape(x).get(axis).map_or(0, |d| if c.is_late(d) { d.size() } else { 0 });
        let sizes: Vec<usize> = xs.iter().map(|&x| long(c, x)).collect();
        if sizes.iter().sum::<usize>() <= LONG {
            break;
        }
        let mut parts: Vec<Vec<ValueId>> = vec![Vec::new()];
        let mut so_far = 0;
        for (&x, &size) in xs.iter().zip(&sizes) {
            if so_far + size > LONG && so_far > 0 {
                parts.push(Vec::new());
                so_far = 0;
            }
            so_far += size;
            parts.last_mut().into_iter().for_each(|p| p.push(x));
        }
        if parts.len() == xs.len() {
            break;
        }
        xs = Vec::new();
        for (i, part) in parts.into_iter().enumerate() {
            let name = format!("part{level}.{i}");
            let joined = c.add1(n, Op::Concat { axis }, &part, n.tmp(&name))?;
            let mut shape: Vec<Option<Dim>> = c.shape(joined).into_iter().map(Some).collect();
            shape[axis] = None;
            let op = Op::Host { name: "Identity".into(), attrs: Attrs::new() };
            let (name, dtype) = (n.tmp(&format!("{name}.sized")), c.dtype(joined));
            xs.extend(c.b().node_with_shapes(op, &[joined], &[(&name, dtype, shape)], &n.origin));
        }
    }
    Ok(xs)
}
