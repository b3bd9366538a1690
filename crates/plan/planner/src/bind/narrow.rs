//! The part of a box of dims in which every tensor has a size of at least 0. A model that drops two rows has
//! nothing to compute for a single one, and a plan for such sizes could not be verified.
use super::bind_error;
use layout::{Dim, DimBox, Sym};
use plan::{PlanError, Program, Why};
use std::collections::BTreeSet;

/// `dims` with ends moved inwards until no extent of a program value can be negative.
///
/// # Errors
/// An extent is negative all over the box.
pub(super) fn narrowed(
    program: &Program,
    dims: &DimBox,
    whys: &mut Vec<Why>,
) -> Result<DimBox, PlanError> {
    let mut out = dims.clone();
    for v in &program.values {
        for e in &v.shape {
            let can_be_negative = |b: &DimBox| b.bounds(e).is_some_and(|r| r.lo < 0);
            if !can_be_negative(&out) {
                continue;
            }
            let Some((sym, lo, hi)) = smaller(&out, e, &can_be_negative) else {
                let why = match out.bounds(e) {
                    Some(r) if r.hi < 0 => format!(
                        "its extent {e} is negative for {out}; give the model larger inputs"
                    ),
                    _ => format!(
                        "its extent {e} can be negative for {out}; give a narrower range with --dim"
                    ),
                };
                return Err(bind_error(program, &v.name, why));
            };
            whys.push(Why {
                pass: "sizes".into(),
                subject: v.name.clone(),
                choice: format!("{sym}={lo}..{hi}"),
                alternatives: vec![],
                reason: format!("its extent {e} would be negative elsewhere"),
            });
            out.insert(sym, lo, hi);
        }
    }
    Ok(out)
}

/// One symbol's range, cut from below or from above by as little as makes `bad` false.
fn smaller(dims: &DimBox, e: &Dim, bad: &dyn Fn(&DimBox) -> bool) -> Option<(Sym, i64, i64)> {
    let mut symbols = BTreeSet::new();
    e.symbols(&mut symbols);
    for s in symbols {
        let Some(r) = dims.get(&s) else { continue };
        let with = |lo: i64, hi: i64| {
            let mut b = dims.clone();
            b.insert(s.clone(), lo, hi);
            bad(&b)
        };
        if !with(r.hi, r.hi) {
            let (mut low, mut good) = (r.lo, r.hi);
            while low < good {
                let mid = low + (good - low) / 2;
                if with(mid, r.hi) {
                    low = mid + 1;
                } else {
                    good = mid;
                }
            }
            return Some((s, good, r.hi));
        }
        if !with(r.lo, r.lo) {
            let (mut good, mut high) = (r.lo, r.hi);
            while good < high {
                let mid = high - (high - good) / 2;
                if with(r.lo, mid) {
                    high = mid - 1;
                } else {
                    good = mid;
                }
            }
            return Some((s, r.lo, good));
        }
    }
    None
}
