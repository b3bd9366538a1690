//! DepthToSpace, SpaceToDepth as views.
use super::{OpDef, op};
use crate::import::{Ctx, Lowered, NodeView};
use layout::Dim;

pub(crate) const OPS: &[OpDef] = &[op("DepthToSpace", lower), op("SpaceToDepth", lower)];

fn lower<'m>(c: &mut Ctx<'m>, n: &NodeView<'m>) -> Lowered {
    n.at_most(1)?;
    let x = n.input(0)?;
    let s = c.shape(x);
    let [b, ch, h, w] = s.as_slice() else {
        return Err(format!("needs rank 4, its input has {}", s.len()).into());
    };
    let k = n.int_opt("blocksize")?.filter(|k| (1..=1 << 15).contains(k)).ok_or("attribute 'blocksize' must be a positive number")?;
    let mode = n.text("mode", "DCR")?;
    if !["DCR", "CRD"].contains(&mode.as_str()) {
        return Err(format!("attribute 'mode' is '{mode}', it must be DCR or CRD").into());
    }
    let k2 = Dim::Known(k * k);
    let k = Dim::Known(k);
    let divided = |d: &Dim, by: &Dim| d.exact_div(by).unwrap_or_else(|| d.floor_div(by));
    let (wide, perm, out): (Vec<&Dim>, Vec<usize>, Vec<Dim>);
    let (q, hq, wq) = (divided(ch, &k2), divided(h, &k), divided(w, &k));
    if n.op == "DepthToSpace" {
        if ch.known().zip(k2.known()).is_some_and(|(a, b)| a % b != 0) {
            return Err(format!("{ch} channels are no multiple of {k2}").into());
        }
        (wide, perm) = match mode.as_str() {
            "DCR" => (vec![b, &k, &k, &q, h, w], vec![0, 3, 4, 1, 5, 2]),
            _ => (vec![b, &q, &k, &k, h, w], vec![0, 1, 4, 2, 5, 3]),
        };
        out = vec![b.clone(), q.clone(), h.clone() * k.clone(), w.clone() * k.clone()];
    } else {
        wide = vec![b, ch, &hq, &k, &wq, &k];
        perm = match mode.as_str() {
            "DCR" => vec![0, 3, 5, 1, 2, 4],
            _ => vec![0, 1, 3, 5, 2, 4],
        };
        out = vec![b.clone(), ch.clone() * k2, hq.clone(), wq.clone()];
    }
    let wide = wide.into_iter().cloned().collect();
    let y = c.reshape(n, n.tmp("blocks"), x, wide)?;
    let y = c.permute(n, n.tmp("moved"), y, perm)?;
    let y = c.reshape(n, n.name(0), y, out)?;
    c.set(n, 0, y);
    Ok(())
}
