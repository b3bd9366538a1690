//! LinearAttention: a matrix per head as state, updated and read token by token.
use crate::args::Args;
use crate::data::{alloc, extent, f64s, from_f64s};
use crate::error::R;
use layout::DType;
use tensor::Tensor;

/// Whether the state decays, and whether what it holds for a key is taken off first.
fn rule(a: &Args) -> R<(bool, bool)> {
    Ok(match a.text("update_rule", "gated_delta")? {
        "linear" => (false, false),
        "gated" => (true, false),
        "delta" => (false, true),
        "gated_delta" => (true, true),
        r => return Err(format!("update rule '{r}' is not one that ONNX lists").into()),
    })
}

pub(crate) fn run(a: &Args) -> R<Vec<Tensor>> {
    let (q, k, v) = (a.ranked(0, 3)?, a.ranked(1, 3)?, a.ranked(2, 3)?);
    let (hq, hk) = (
        extent(a.int("q_num_heads", 0)?)?,
        extent(a.int("kv_num_heads", 0)?)?,
    );
    let (gated, delta) = rule(a)?;
    let [batch, tokens, width] = *q.shape() else {
        return Err("the query must have three dimensions".into());
    };
    if hk == 0 || hq == 0 || hq % hk != 0 || width % hq != 0 || v.shape()[2] % hk != 0 {
        return Err(format!("{hq} and {hk} heads do not fit {q:?} and {v:?}").into());
    }
    let (dk, dv) = (width / hq, v.shape()[2] / hk);
    if k.shape() != [batch, tokens, hk * dk] || v.shape() != [batch, tokens, hk * dv] {
        return Err(format!("key {k:?} and value {v:?} do not fit {q:?}").into());
    }
    // A number per token and head, or per element of the key.
    let per =
        |i: usize, wanted: bool, name: &str, widths: [usize; 2]| -> R<Option<(Vec<f64>, usize)>> {
            let Some(t) = a.opt(i).filter(|_| wanted) else {
                return match wanted {
                    true => Err(format!("input '{name}' is missing").into()),
                    false => Ok(None),
                };
            };
            match *t.shape() {
                [b, n, w] if b == batch && n == tokens && widths.contains(&w) => {
                    Ok(Some((f64s(t), w)))
                }
                _ => Err(format!("input '{name}' has shape {:?}", t.shape()).into()),
            }
        };
    let decay = per(4, gated, "decay", [hk, hk * dk])?;
    let beta = per(5, delta, "beta", [hk, 1])?;
    let scale = match a.float("scale", 0.0)? {
        0.0 => 1.0 / (dk as f64).sqrt(),
        s => s,
    };
    let states = [batch, hk, dk, dv];
    let (mut state, kind) = match a.opt(3) {
        Some(p) if p.shape() == states => (f64s(p), p.dtype()),
        Some(p) => {
            return Err(format!("the state has shape {:?}, not {states:?}", p.shape()).into());
        }
        None => (vec![0.0; alloc(DType::F64, &states)?.len()], q.dtype()),
    };
    let shape = [batch, tokens, hq * dv];
    let mut y = vec![0.0; alloc(DType::F64, &shape)?.len()];
    let (qv, kv, vv) = (f64s(q), f64s(k), f64s(v));
    for b in 0..batch {
        for t in 0..tokens {
            let at = b * tokens + t;
            for h in 0..hk {
                let s = &mut state[(b * hk + h) * dk * dv..][..dk * dv];
                let key = &kv[(at * hk + h) * dk..][..dk];
                let mut value = vv[(at * hk + h) * dv..][..dv].to_vec();
                if let Some((g, w)) = &decay {
                    for (i, row) in s.chunks_exact_mut(dv.max(1)).enumerate() {
                        let g = if *w == hk {
                            g[at * w + h]
                        } else {
                            g[at * w + h * dk + i]
                        };
                        row.iter_mut().for_each(|x| *x *= g.exp());
                    }
                }
                if let Some((b, w)) = &beta {
                    let b = b[at * w + if *w == 1 { 0 } else { h }];
                    for (j, x) in value.iter_mut().enumerate() {
                        let held: f64 = (0..dk).map(|i| s[i * dv + j] * key[i]).sum();
                        *x = b * (*x - held);
                    }
                }
                for (i, k) in key.iter().enumerate() {
                    for (j, x) in value.iter().enumerate() {
                        s[i * dv + j] += k * x;
                    }
                }
                for g in 0..hq / hk {
                    let head = h * (hq / hk) + g;
                    let query = &qv[(at * hq + head) * dk..][..dk];
                    for j in 0..dv {
                        let sum: f64 = (0..dk).map(|i| query[i] * s[i * dv + j]).sum();
                        y[at * hq * dv + head * dv + j] = scale * sum;
                    }
                }
            }
        }
    }
    Ok(vec![
        from_f64s(q.dtype(), &shape, &y)?,
        from_f64s(kind, &states, &state)?,
    ])
}
