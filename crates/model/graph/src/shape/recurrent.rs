//! Recurrent layers.
use super::{Type, list};
use crate::{RecurrentKind, RecurrentSpec, Value};
use layout::Dim;

pub(super) fn outputs(s: &RecurrentSpec, v: &[&Value]) -> Result<Vec<Type>, String> {
    let given = s.present.iter().filter(|p| **p).count();
    if s.present.len() != 8 || given != v.len() {
        return Err(format!(
            "{given} of {} inputs are marked as given, but it has {}",
            s.present.len(),
            v.len()
        ));
    }
    if !s.present[0] || !s.present[2] {
        return Err("X and R must be given".into());
    }
    if s.hidden <= 0 {
        return Err(format!("{} units are not positive", s.hidden));
    }
    let dirs: i64 = match s.direction.as_str() {
        "forward" | "reverse" => 1,
        "bidirectional" => 2,
        other => {
            return Err(format!(
                "direction '{other}' is none of forward, reverse and bidirectional"
            ));
        }
    };
    let x = v[0];
    let [first, second, _] = x.shape.as_slice() else {
        return Err(format!("X {} does not have 3 dimensions", list(&x.shape)));
    };
    if let (false, [_, _, width]) = (s.present[1], x.shape.as_slice()) {
        let want = Dim::Known(dirs) * Dim::Known(s.gates()) * Dim::Known(s.hidden);
        if *width != want {
            return Err(format!(
                "X {} has {width} values per position where the gates take {want}; give W",
                list(&x.shape)
            ));
        }
    }
    let (dirs, hidden) = (Dim::Known(dirs), Dim::Known(s.hidden));
    let (y, state) = match s.batch_first {
        false => (
            vec![first.clone(), dirs.clone(), second.clone(), hidden.clone()],
            vec![dirs, second.clone(), hidden],
        ),
        true => (
            vec![first.clone(), second.clone(), dirs.clone(), hidden.clone()],
            vec![first.clone(), dirs, hidden],
        ),
    };
    let mut out = vec![(x.dtype, y), (x.dtype, state.clone())];
    if s.kind == RecurrentKind::Lstm {
        out.push((x.dtype, state));
    }
    Ok(out)
}
