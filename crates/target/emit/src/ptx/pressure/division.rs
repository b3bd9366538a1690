//! What an assembler makes of a division of integers.
use super::line::{Kind, Line, Parsed, Registers};

/// What a division is by.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Divisor {
    Register(u32),
    Number(i64),
}

/// The division that was last, for the quotient or remainder of the same numbers.
pub(super) struct Divided {
    of: Registers,
    by: Divisor,
    /// Quotient and remainder, without their signs.
    made: [u32; 2],
}

impl Divided {
    /// Whether one of `defs`, which have other values from now on, was divided or divided by.
    pub fn reads(&self, defs: &[u32]) -> bool {
        let by = |d: &u32| self.by == Divisor::Register(*d);
        defs.iter().any(|d| self.of.contains(d) || by(d))
    }

    /// Puts lines behind those of `out` for what `op` puts into `to`, the quotient or the remainder of `of` by `by`.
    /// No unit divides integers: the divisor's reciprocal comes from the special unit, is made exact by a product of
    /// 64 bits, and a high product with it gives both. Of numbers with signs the magnitudes are divided, and the
    /// results get their signs in the end, for which the numbers are kept.
    pub fn divide(
        last: &mut Option<Divided>,
        (op, to): (&str, &[u32]),
        of: &[u32],
        by: Divisor,
        out: &mut Parsed,
    ) {
        let signed = op.ends_with(".s32");
        let put = |out: &mut Parsed, defs: &[u32], uses: &[&[u32]], kind: Kind| {
            out.lines.push(Line {
                defs: defs.into(),
                uses: uses.iter().copied().flatten().copied().collect(),
                kind,
                ..Line::default()
            });
        };
        let divisor: Registers = match by {
            Divisor::Register(r) => [r].into_iter().collect(),
            Divisor::Number(_) => Registers::new(),
        };
        let known = last.as_ref().filter(|l| l.of[..] == *of && l.by == by);
        let [q, r] = known.map(|l| l.made).unwrap_or_else(|| {
            let size = |of: &[u32], out: &mut Parsed| -> Registers {
                if !signed || of.is_empty() {
                    return of.into();
                }
                let size = out.fresh(1);
                put(out, &[size], &[of], Kind::Other);
                [size].into_iter().collect()
            };
            let sizes = [size(&divisor, out), size(of, out)];
            let [one, off, exact, q, r] = [(); 5].map(|()| out.fresh(1));
            let wide = out.fresh(2);
            put(out, &[one], &[&sizes[0]], Kind::Load);
            put(out, &[wide], &[&[one]], Kind::Other);
            put(out, &[off], &[&sizes[0], &[wide]], Kind::Other);
            put(out, &[exact], &[&[wide, off]], Kind::Other);
            put(out, &[q], &[&sizes[1], &[exact]], Kind::Other);
            put(out, &[r], &[&sizes[1], &sizes[0], &[q]], Kind::Other);
            *last = Some(Divided {
                of: of.into(),
                by,
                made: [q, r],
            });
            [q, r]
        });
        let signs: &[u32] = if signed { of } else { &[] };
        match op.starts_with("div") {
            true => put(out, to, &[&[q, r], signs, &divisor], Kind::Other),
            false => put(out, to, &[&[r], signs], Kind::Other),
        }
    }
}
