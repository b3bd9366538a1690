//! LinearAttention: a recurrence over tokens with a matrix as state, run by the host.
use super::{OpDef, op};
use crate::import::{Ctx, Lowered, NodeView};
use layout::Dim;

pub(crate) const OPS: &[OpDef] = &[op("LinearAttention", lower)];

fn lower<'m>(c: &mut Ctx<'m>, n: &NodeView<'m>) -> Lowered {
    n.at_most(6)?;
    let (q, k, v) = (n.input(0)?, n.input(1)?, n.input(2)?);
    let (sq, sk, sv, d) = (c.shape(q), c.shape(k), c.shape(v), c.dtype(q));
    if sq.len() != 3 || sk.len() != 3 || sv.len() != 3 {
        return Err("needs query, key and value of rank 3".into());
    }
    let heads = |name: &str| -> Lowered<Dim> {
        let h = n.int_opt(name)?.filter(|h| *h > 0);
        Ok(Dim::Known(h.ok_or_else(|| format!("attribute '{name}' must be a positive number"))?))
    };
    let (hq, hk) = (heads("q_num_heads")?, heads("kv_num_heads")?);
    let (dk, dv) = (sk[2].floor_div(&hk), sv[2].floor_div(&hk));
    let out = vec![Some(sq[0].clone()), Some(sq[1].clone()), Some(hq * dv.clone())];
    let state = vec![Some(sq[0].clone()), Some(hk), Some(dk), Some(dv)];
    let ds = n.opt(3).map_or(d, |p| c.dtype(p));
    c.host(n, &[(d, out), (ds, state)])
}
