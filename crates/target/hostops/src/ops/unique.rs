//! Unique: distinct elements or slices with first positions, the way back, and counts.
use crate::args::Args;
use crate::core::{self, order};
use crate::data::{around, axis, from_i64s, get};
use crate::error::R;
use std::cmp::Ordering;
use tensor::Tensor;

pub(crate) fn run(a: &Args) -> R<Vec<Tensor>> {
    let x = a.input(0)?;
    let sorted = a.int("sorted", 1)? != 0;
    let (x, d) = match a.opt_int("axis")? {
        Some(d) => (x.clone(), axis(d, x.shape().len())?),
        None => (x.clone().reshaped(&[x.len()])?, 0),
    };
    let (outer, n, inner) = around(x.shape(), d);
    let compare = |p: usize, q: usize| {
        for o in 0..outer {
            for i in 0..inner {
                let at = |j| get(&x, (o * n + j) * inner + i);
                match order(at(p), at(q), x.dtype()) {
                    Ordering::Equal => {}
                    other => return other,
                }
            }
        }
        Ordering::Equal
    };
    let mut by_value: Vec<usize> = (0..n).collect();
    by_value.sort_by(|p, q| compare(*p, *q));
    // Groups of equal slices; the sort is stable, so the first of a group comes first in the input.
    let mut groups: Vec<Vec<usize>> = Vec::new();
    for j in by_value {
        match groups.last_mut() {
            Some(g) if compare(g[0], j) == Ordering::Equal => g.push(j),
            _ => groups.push(vec![j]),
        }
    }
    if !sorted {
        groups.sort_by_key(|g| g[0]);
    }
    let m = groups.len();
    let first: Vec<i64> = groups.iter().map(|g| g[0] as i64).collect();
    let counts: Vec<i64> = groups.iter().map(|g| g.len() as i64).collect();
    let mut back = vec![0i64; n];
    for (k, g) in groups.iter().enumerate() {
        g.iter().for_each(|j| back[*j] = k as i64);
    }
    let first = from_i64s(&[m], &first)?;
    let y = core::gather(&x, &first, d, 0).map_err(|e| e.to_string())?;
    Ok(vec![
        y,
        first,
        from_i64s(&[n], &back)?,
        from_i64s(&[m], &counts)?,
    ])
}
