//! com.microsoft DynamicTimeWarping and BifurcationDetector: what decoders of speech and of corrected text ask between
//! two tokens.
use crate::args::Args;
use crate::data::{alloc, f32s, from_i64s, ints};
use crate::error::R;
use layout::DType;
use tensor::Tensor;

/// Where the cheapest way to a point comes from: from before both, from the row before or from the column before.
#[derive(Clone, Copy)]
enum From {
    Both,
    Row,
    Column,
}

/// The cheapest way from the first point of a matrix to its last, [2, points].
pub(crate) fn time_warping(a: &Args) -> R<Vec<Tensor>> {
    let x = a.input(0)?;
    let (rows, columns) = match *x.shape() {
        [r, c] | [1, r, c] => (r, c),
        ref s => return Err(format!("its costs have shape {s:?}, not two dimensions").into()),
    };
    let empty = rows == 0 || columns == 0;
    // Its size in bytes is that of a tensor, which has a limit.
    alloc(DType::F32, &[rows, columns])?;
    let costs = f32s(x);
    let mut from = vec![From::Column; rows * columns];
    let mut above = vec![f32::INFINITY; columns];
    for i in 0..rows {
        let mut left = f32::INFINITY;
        let mut corner = if i == 0 { 0.0 } else { f32::INFINITY };
        for j in 0..columns {
            let (both, row, column) = (corner, above[j], left);
            let (way, before) = if both < row && both < column {
                (From::Both, both)
            } else if row < both && row < column {
                (From::Row, row)
            } else {
                (From::Column, column)
            };
            from[i * columns + j] = way;
            corner = above[j];
            left = costs[i * columns + j] + before;
            above[j] = left;
        }
    }
    let (mut i, mut j) = (rows, columns);
    let (mut first, mut second) = (Vec::new(), Vec::new());
    while !empty && (i > 0 || j > 0) {
        first.push(i.max(1) - 1);
        second.push(j.max(1) - 1);
        // Along the rim there is one way only.
        let way = match (i > 1, j > 1) {
            (false, false) => break,
            (false, true) => From::Column,
            (true, false) => From::Row,
            (true, true) => from[(i - 1) * columns + j - 1],
        };
        match way {
            From::Both => (i, j) = (i - 1, j - 1),
            From::Row => i -= 1,
            From::Column => j -= 1,
        }
    }
    let mut y = alloc(DType::I32, &[2, first.len()])?;
    for (k, at) in first.iter().rev().chain(second.iter().rev()).enumerate() {
        y.set_i64(k, *at as i64);
    }
    Ok(vec![y])
}

/// Where `part` first stands in `all`, from `from` on.
fn position(all: &[i64], part: &[i64], from: usize) -> Option<usize> {
    let rest = all.get(from..)?;
    let at = rest.windows(part.len()).position(|w| w == part)?;
    Some(from + at)
}

/// The tokens so far and those that were foreseen, up to the first that differs from the source; and where the source
/// goes on after their last tokens, -1 where that is not one place.
pub(crate) fn bifurcation(a: &Args) -> R<Vec<Tensor>> {
    let (source, mut tokens) = (ints(a.ranked(0, 1)?), ints(a.ranked(1, 1)?));
    let (least, most) = (a.int("min_ngram_size", 1)?, a.int("max_ngram_size", 3)?);
    if let Some(foreseen) = a.opt(3).map(ints) {
        let begin = usize::try_from(a.scalar(2)?).ok();
        let rest = begin.and_then(|b| source.get(b..));
        let rest = rest.ok_or("its previous place is outside the source")?;
        if foreseen.len() != rest.len() + 1 {
            return Err(format!(
                "{} tokens are foreseen where {} of the source are left; foresee one more than these",
                foreseen.len(),
                rest.len()
            )
            .into());
        }
        let same = rest
            .iter()
            .zip(&foreseen)
            .take_while(|(a, b)| a == b)
            .count();
        tokens.extend(&foreseen[..=same]);
    }
    let mut place = -1;
    for size in least..=most {
        let size = usize::try_from(size).ok().filter(|n| *n >= 1);
        let size = size.ok_or("attribute 'min_ngram_size' must be a positive number")?;
        let Some(begin) = tokens.len().checked_sub(size) else {
            break;
        };
        let Some(at) = position(&source, &tokens[begin..], 0) else {
            break;
        };
        let again = position(&source, &tokens[begin..], at + 1);
        if at + size >= source.len() || again.is_none() {
            place = (at + size) as i64;
            break;
        }
    }
    Ok(vec![
        from_i64s(&[tokens.len()], &tokens)?,
        from_i64s(&[], &[place])?,
    ])
}
