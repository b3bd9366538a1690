//! Addresses of operands under the values of symbols.
use crate::error::{R, Why};
use kernel::{Access, Bound, Kernel, OperandId};
use layout::Dim;

/// A bound: axes with coefficients, constant part, exclusive upper end.
struct Limit {
    terms: Vec<(usize, i64)>,
    base: i64,
    extent: i64,
}

/// An [`Access`] with every dimension replaced by its number.
pub(crate) struct Address {
    offset: i64,
    terms: Vec<(usize, Vec<(i64, i64)>)>,
    bounds: Vec<Limit>,
    /// Value of a load outside the bounds.
    pub outside: f64,
    indexed: Vec<(OperandId, i64, i64)>,
}

/// What an access leads to.
pub(crate) enum Found {
    /// Element of the buffer; may lie outside of it.
    Element(i64),
    /// A bound fails.
    Outside,
}

/// Number of a dimension.
pub(crate) fn number(d: &Dim, lookup: Lookup) -> R<i64> {
    d.eval(lookup)
        .ok_or_else(|| format!("dimension '{d}' has no value").into())
}

fn bound(b: &Bound, lookup: Lookup) -> R<Limit> {
    let terms = b
        .terms
        .iter()
        .map(|(a, d)| Ok((*a as usize, number(d, lookup)?)))
        .collect::<R<_>>()?;
    Ok(Limit {
        terms,
        base: number(&b.base, lookup)?,
        extent: number(&b.extent, lookup)?,
    })
}

impl Address {
    /// Binds `a`.
    pub fn new(a: &Access, lookup: Lookup) -> R<Address> {
        let terms = a
            .terms
            .iter()
            .map(|t| {
                let leaves = t
                    .leaves
                    .iter()
                    .map(|l| Ok((number(&l.extent, lookup)?, number(&l.stride, lookup)?)))
                    .collect::<R<Vec<_>>>()?;
                Ok((t.axis as usize, leaves))
            })
            .collect::<R<_>>()?;
        Ok(Address {
            offset: number(&a.offset, lookup)?,
            terms,
            bounds: a
                .bounds
                .iter()
                .map(|b| bound(b, lookup))
                .collect::<R<_>>()?,
            outside: a.outside,
            indexed: a
                .indexed
                .iter()
                .map(|i| Ok((i.by, number(&i.stride, lookup)?, number(&i.extent, lookup)?)))
                .collect::<R<_>>()?,
        })
    }

    /// Axes that the address depends on, those of indexing operands excepted.
    pub fn axes(&self) -> impl Iterator<Item = usize> {
        let bounds = self.bounds.iter().flat_map(|b| b.terms.iter().map(|t| t.0));
        self.terms.iter().map(|t| t.0).chain(bounds)
    }

    /// Operands that the address is gathered by.
    pub fn by(&self) -> impl Iterator<Item = OperandId> {
        self.indexed.iter().map(|i| i.0)
    }

    /// The element at the coordinates `at` (one per kernel axis); `index` gives the value of an
    /// indexing operand there.
    pub fn find(&self, at: &[i64], index: &mut dyn FnMut(OperandId) -> R<i64>) -> R<Found> {
        let overflow = || Why("the address overflows 64 bits".into());
        for Limit {
            terms,
            base,
            extent,
        } in &self.bounds
        {
            let v = terms
                .iter()
                .try_fold(*base, |v, (a, c)| v.checked_add(at[*a].checked_mul(*c)?))
                .ok_or_else(overflow)?;
            if v < 0 || v >= *extent {
                return Ok(Found::Outside);
            }
        }
        let mut e = self.offset;
        for (axis, leaves) in &self.terms {
            let mut rank = at[*axis];
            for (extent, stride) in leaves.iter().rev() {
                if *extent <= 0 {
                    return Err("a leaf has no positions".into());
                }
                e = rank
                    .rem_euclid(*extent)
                    .checked_mul(*stride)
                    .and_then(|v| e.checked_add(v))
                    .ok_or_else(overflow)?;
                rank = rank.div_euclid(*extent);
            }
            if rank != 0 {
                return Err(format!("coordinate {} leaves the term's leaves", at[*axis]).into());
            }
        }
        for (by, stride, extent) in &self.indexed {
            let i = index(*by)?;
            if i < -extent || i >= *extent {
                return Err(format!("index {i} is outside an extent of {extent}").into());
            }
            let i = if i < 0 { i + extent } else { i };
            e = i
                .checked_mul(*stride)
                .and_then(|v| e.checked_add(v))
                .ok_or_else(overflow)?;
        }
        Ok(Found::Element(e))
    }
}

/// Axis names with coordinates, for messages.
pub(crate) fn place(k: &Kernel, at: &[i64]) -> String {
    let parts: Vec<String> = k
        .axes
        .iter()
        .zip(at)
        .map(|(a, c)| format!("{}={c}", a.name))
        .collect();
    format!("({})", parts.join(", "))
}

/// Values of symbols.
pub(crate) type Lookup<'a> = &'a dyn Fn(&str) -> Option<i64>;
