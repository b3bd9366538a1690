//! What would take bank conflicts away: padding and swizzles, each checked by the same count that found
//! the conflicts.

use super::{BANK_BYTES, BANKS, SharedAccess, shared_access};
use layout::{Dim, Layout};

/// A change of where elements lie in shared memory.
#[derive(Clone, Debug, PartialEq)]
pub struct Remedy {
    /// `padding` or `swizzle`.
    pub kind: &'static str,
    /// Elements of a row.
    pub row: u64,
    /// Elements left unused after every row (padding), or the columns that rows are swizzled over.
    pub by: u64,
    /// Where element `e` goes, as an expression.
    pub formula: String,
    /// Shared memory it costs, as a share of the rows' own; 0 for a swizzle.
    pub overhead: f64,
    /// The same access afterwards.
    pub after: SharedAccess,
}

/// Paddings and swizzles after which the elements of `lanes` (of `width` bytes) are read without
/// conflicts, the least of each kind; empty when there are no conflicts or none of them helps. Both keep
/// every element in a place of its own, and rows that lanes read along stay free of conflicts.
pub fn remedies(lanes: &[Option<u64>], width: u64) -> Vec<Remedy> {
    let width = width.clamp(1, 16);
    let now = shared_access(lanes, width);
    let mut out = Vec::new();
    if now.passes <= now.ideal {
        return out;
    }
    // Rows from one pass over the banks up to the farthest element, doubling.
    let unit = (BANKS * BANK_BYTES / width).max(1);
    let far = lanes.iter().flatten().copied().max().unwrap_or(0);
    let rows: Vec<u64> = (0..40)
        .map_while(|k| unit.checked_shl(k).filter(|r| *r <= far.max(unit)))
        .collect();
    let better = |after: &SharedAccess| after.passes == after.ideal;
    let padded = rows.iter().find_map(|&row| {
        (1..=unit).find_map(|pad| {
            let after = shared_access(&moved(lanes, &|e| pad_index(e, row, pad)), width);
            (better(&after) && row_free(width, &|e| pad_index(e, row, pad))).then(|| Remedy {
                kind: "padding",
                row,
                by: pad,
                formula: format!("e + e / {row} * {pad}"),
                overhead: pad as f64 / row as f64,
                after,
            })
        })
    });
    out.extend(padded);
    let swizzled = rows.iter().find_map(|&row| {
        let swap = |e: u64| e ^ (e / row % unit);
        let after = shared_access(&moved(lanes, &swap), width);
        (better(&after) && row_free(width, &swap)).then(|| Remedy {
            kind: "swizzle",
            row,
            by: unit,
            formula: format!("e ^ (e / {row} % {unit})"),
            overhead: 0.0,
            after,
        })
    });
    out.extend(swizzled);
    out
}

/// The remedies for lanes that walk down a column of a tile whose rows have `stride` elements, found on
/// the tile's layout: the padding is a layout whose rows are longer, read with the same coordinates.
pub fn row_remedies(rows: u64, stride: u64, width: u64) -> Vec<Remedy> {
    let width = width.clamp(1, 16);
    let column = |row: u64| -> Option<Vec<Option<u64>>> {
        let known = |v: u64| i64::try_from(v).ok().map(Dim::Known);
        let tile = Layout::row_major(&[known(rows)?, known(row)?], 1);
        (0..rows)
            .map(|r| {
                tile.address(&[r as i64, 0], &|_| None)
                    .map(|a| Some(a as u64))
            })
            .collect()
    };
    let Some(lanes) = column(stride) else {
        return Vec::new();
    };
    let now = shared_access(&lanes, width);
    if now.passes <= now.ideal || stride == 0 {
        return Vec::new();
    }
    let unit = (BANKS * BANK_BYTES / width).max(1);
    let padded = (1..=unit).find_map(|pad| {
        let after = shared_access(&column(stride.checked_add(pad)?)?, width);
        (after.passes == after.ideal).then(|| Remedy {
            kind: "padding",
            row: stride,
            by: pad,
            formula: format!("row * {} + column", stride + pad),
            overhead: pad as f64 / stride as f64,
            after,
        })
    });
    let mut out: Vec<Remedy> = padded.into_iter().collect();
    if stride.is_multiple_of(unit) {
        let swap = |e: u64| e ^ (e / stride % unit);
        let after = shared_access(&moved(&lanes, &swap), width);
        if after.passes == after.ideal && row_free(width, &swap) {
            out.push(Remedy {
                kind: "swizzle",
                row: stride,
                by: unit,
                formula: format!("row * {stride} + (column ^ (row % {unit}))"),
                overhead: 0.0,
                after,
            });
        }
    }
    out
}

fn pad_index(e: u64, row: u64, pad: u64) -> u64 {
    e.saturating_add((e / row).saturating_mul(pad))
}

fn moved(lanes: &[Option<u64>], to: &dyn Fn(u64) -> u64) -> Vec<Option<u64>> {
    lanes.iter().map(|l| l.map(to)).collect()
}

/// Whether 32 elements side by side are still read without conflicts, in a few rows.
fn row_free(width: u64, to: &dyn Fn(u64) -> u64) -> bool {
    (0..4).all(|r| {
        let lanes: Vec<Option<u64>> = (0..32).map(|i| Some(to(r * 32 + i))).collect();
        let a = shared_access(&lanes, width);
        // A row that begins off its alignment after padding may take one pass more for 8 and 16 bytes.
        a.passes <= a.ideal
    })
}
