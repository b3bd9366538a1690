//! What an assembler makes of a division of integers.
use super::line::{Kind, Line, Names, Registers};

/// The division that was last, for the quotient or remainder of the same numbers.
#[derive(Default)]
pub(super) struct Divided<'a> {
    of: Registers,
    by: &'a str,
    /// Registers that the divisor is in.
    reads: Registers,
    /// Quotient and remainder, without their signs.
    made: [u32; 2],
}

impl<'a> Divided<'a> {
    /// `defs` have other values from now on.
    pub fn forget(&mut self, defs: &[u32]) {
        if defs
            .iter()
            .any(|d| self.of.contains(d) || self.reads.contains(d))
        {
            *self = Divided::default();
        }
    }

    /// Lines for what `op` puts into `to`, the quotient or the remainder of `of` by `by`. No unit divides
    /// integers: the divisor's reciprocal comes from the special unit, is made exact by a product of 64 bits,
    /// and a high product with it gives both. Of numbers with signs the magnitudes are divided, and the
    /// results get their signs in the end, for which the numbers are kept.
    pub fn lines(
        &mut self,
        (op, to): (&str, &[u32]),
        of: &[u32],
        by: &'a str,
        names: &mut Names<'a>,
    ) -> Vec<Line> {
        let signed = op.ends_with(".s32");
        let mut out = vec![];
        let mut put = |defs: &[u32], uses: &[&[u32]], kind: Kind| {
            out.push(Line {
                defs: defs.into(),
                uses: uses.iter().copied().flatten().copied().collect(),
                kind,
                ..Line::default()
            });
        };
        if (&self.of[..], self.by) != (of, by) {
            let divisor = names.all(by);
            let mut size = |of: &[u32], names: &mut Names| -> Registers {
                if !signed || of.is_empty() {
                    return of.into();
                }
                let size = names.fresh(1);
                put(&[size], &[of], Kind::Other);
                [size].into_iter().collect()
            };
            let sizes = [size(&divisor, names), size(of, names)];
            let [one, off, exact, q, r] = [(); 5].map(|()| names.fresh(1));
            let wide = names.fresh(2);
            put(&[one], &[&sizes[0]], Kind::Load);
            put(&[wide], &[&[one]], Kind::Other);
            put(&[off], &[&sizes[0], &[wide]], Kind::Other);
            put(&[exact], &[&[wide, off]], Kind::Other);
            put(&[q], &[&sizes[1], &[exact]], Kind::Other);
            put(&[r], &[&sizes[1], &sizes[0], &[q]], Kind::Other);
            *self = Divided {
                of: of.into(),
                by,
                reads: divisor,
                made: [q, r],
            };
        }
        let [q, r] = self.made;
        let signs: &[u32] = if signed { of } else { &[] };
        match op.starts_with("div") {
            true => put(to, &[&[q, r], signs, &self.reads], Kind::Other),
            false => put(to, &[&[r], signs], Kind::Other),
        }
        out
    }
}
