//! Widening of the dims that a new plan covers: a dimension that has varied gets a range.
use layout::DimBox;
use layout::Inserted;
use std::collections::BTreeSet;

/// Ranges of a dimension that are planned for as they are asked for.
const EXACT: usize = 2;
/// Ranges of a dimension, and into how many parts every doubling of it is cut when no more than these are
/// at hand.
const PARTS: [(usize, u64); 2] = [(4, 4), (8, 2)];

/// The range that `v` lies in where every doubling is cut into `parts` (a power of two): all numbers up to
/// `2 * parts` stand alone.
fn bucket(v: u64, parts: u64) -> Option<(i64, i64)> {
    let step = (v.checked_next_power_of_two()? / 2 / parts).max(1);
    let hi = v.checked_next_multiple_of(step)?;
    let lo = i64::try_from(hi - step + 1).ok()?;
    Some((lo, i64::try_from(hi).ok()?))
}

/// `dims` with ranges for those symbols that have one size there and had others in several of `boxes`: the
/// more there were, the wider. A shape inside a box needs no plan, and a plan for a range takes as long to
/// make and to run as one for a single size; it works in memory for the largest, which is why the first
/// sizes are planned for alone and no range goes beyond a doubling. `None` where nothing becomes wider.
pub(crate) fn widened<'a>(
    dims: &DimBox,
    boxes: impl Iterator<Item = &'a DimBox> + Clone,
) -> Option<DimBox> {
    let mut out = dims.clone();
    for (s, r) in dims.iter().filter(|(_, r)| r.lo == r.hi && r.lo > 0) {
        let had = boxes.clone().filter_map(|b| b.get(s));
        let apart: BTreeSet<(i64, i64)> = had
            .filter(|h| r.lo < h.lo || h.hi < r.hi)
            .map(|h| (h.lo, h.hi))
            .inserted();
        if apart.len() < EXACT {
            continue;
        }
        let finer = PARTS.iter().find(|(most, _)| apart.len() < *most);
        if let Some((lo, hi)) = bucket(r.lo as u64, finer.map_or(1, |f| f.1)) {
            out.insert(s.clone(), lo, hi);
        }
    }
    (out != *dims).then_some(out)
}

#[cfg(test)]
mod tests {
    use super::{bucket, widened};
    use layout::{DimBox, Sym};

    fn at(lo: i64, hi: i64) -> DimBox {
        let mut b = DimBox::new();
        b.insert(Sym::from("n"), lo, hi);
        b
    }

    #[test]
    fn every_size_lies_in_one_range() {
        for parts in [1u64, 2, 4] {
            let mut end = 0;
            for v in 1..3000u64 {
                let (lo, hi) = bucket(v, parts).unwrap();
                assert!(lo <= v as i64 && v as i64 <= hi, "{v}: {lo}..{hi}");
                if lo != end + 1 {
                    assert_eq!(bucket(v - 1, parts).unwrap(), (lo, hi), "{v}, {parts}");
                }
                if v as i64 == hi {
                    end = hi;
                }
                assert!((hi as f64) < lo as f64 * (1.0 + 1.0 / parts as f64), "{v}");
            }
        }
        assert_eq!(bucket(300, 4), Some((257, 320)));
        assert_eq!(bucket(300, 1), Some((257, 512)));
        assert_eq!(bucket(u64::MAX, 1), None);
        assert_eq!(bucket(i64::MAX as u64, 1), None);
    }

    #[test]
    fn what_varies_becomes_wider() {
        let mut boxes = Vec::new();
        let mut asked = Vec::new();
        for v in [100, 1, 101, 300, 700, 1100, 2100, 4100, 9000, 20000, 102, 0] {
            let wide = widened(&at(v, v), boxes.iter()).unwrap_or(at(v, v));
            let r = wide.get("n").unwrap();
            asked.push((r.lo, r.hi));
            boxes.push(wide);
        }
        let expected = [
            (100, 100),
            (1, 1),
            (97, 112),
            (257, 320),
            (513, 768),
            (1025, 1536),
            (2049, 3072),
            (4097, 6144),
            (8193, 16384),
            (16385, 32768),
            (65, 128),
            (0, 0),
        ];
        assert_eq!(asked, expected);
        // One size again and again, and a range that was asked for, stay as they are.
        let same = [at(5, 5), at(5, 5), at(1, 9)];
        assert_eq!(widened(&at(5, 5), same.iter()), None);
        assert_eq!(widened(&at(20, 30), boxes.iter()), None);
    }
}
