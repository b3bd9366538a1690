//! Indices into flattened tensors, for operators that index each element: they become one gather or
//! scatter over a single dimension.
use crate::import::{Ctx, Lowered, NodeView};
use expr::{Binary, Compare, ExprBuilder, Ref};
use graph::ValueId;
use layout::{DType, Dim};

/// Product of the extents behind each dimension.
pub(crate) fn strides(s: &[Dim]) -> Vec<Dim> {
    (0..s.len()).map(|d| Dim::product(&s[d + 1..])).collect()
}

/// `i` as I64, counted from the end when negative; one outside `extent` becomes an index that no
/// tensor has, so that it is found out when it is used.
pub(crate) fn wrapped(e: &mut ExprBuilder, i: Ref, from: DType, extent: &Dim) -> (Ref, Ref) {
    let i = if from == DType::I64 {
        i
    } else {
        e.cast(i, DType::I64)
    };
    let (zero, n) = (e.int(0, DType::I64), e.dim(extent));
    let negative = e.compare(Compare::Lt, i, zero);
    let back = e.add(i, n);
    let i = e.select(negative, back, i);
    let (low, high) = (
        e.compare(Compare::Ge, i, zero),
        e.compare(Compare::Lt, i, n),
    );
    (i, e.binary(Binary::And, low, high))
}

/// No tensor is so long.
const NOWHERE: i64 = i64::MIN / 4;

/// `rank` where `valid`, else an index that no tensor has.
pub(crate) fn or_nowhere(e: &mut ExprBuilder, valid: Ref, rank: Ref) -> Ref {
    let nowhere = e.int(NOWHERE, DType::I64);
    e.select(valid, rank, nowhere)
}

/// Row-major ranks in a tensor of shape `s` of the elements that `indices` pick along `axis`, their
/// own coordinates counting along the other dimensions.
pub(crate) fn element_ranks<'m>(
    c: &mut Ctx<'m>,
    n: &NodeView<'m>,
    indices: ValueId,
    s: &[Dim],
    axis: usize,
) -> Lowered<ValueId> {
    let (d, by) = (c.dtype(indices), strides(s));
    if c.rank(indices) != s.len() {
        return Err(format!(
            "needs indices of rank {}, they have {}",
            s.len(),
            c.rank(indices)
        )
        .into());
    }
    c.map(n, n.tmp("ranks"), &[indices], |e, a| {
        let (own, valid) = wrapped(e, a[0], d, &s[axis]);
        let mut rank = e.int(0, DType::I64);
        for (k, stride) in by.iter().enumerate() {
            let at = if k == axis { own } else { e.index(k as u32) };
            let stride = e.dim(stride);
            let part = e.mul(at, stride);
            rank = e.add(rank, part);
        }
        or_nowhere(e, valid, rank)
    })
}
