//! The greatest or smallest few of f32 elements with their ranks, kept in order: by comparisons with what
//! is kept, without programs.
use super::{Walk, next};
use crate::exec::vm::Lane;
use expr::Monoid;
use layout::DType;

/// What is kept at most.
const MOST: usize = 4;

/// Columns that go down rows together.
const WIDE: usize = 16;

/// Elements of a row from which on the extreme is looked for first, and then where it is.
const LONG: usize = 32;

/// A monoid that picks elements: the best one, or the first `k` in order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Arg {
    k: usize,
    /// The greatest, not the smallest.
    largest: bool,
    /// Of equal elements the last one.
    last: bool,
    /// A NaN is better than any number.
    nan_wins: bool,
}

impl Arg {
    /// The pick that `m` makes with states of `dtypes` of arguments of `args`. ArgMax and ArgMin of models are not
    /// among them: there a NaN wins as little as in onnxruntime, which depends on what came first.
    pub(crate) fn of(m: &Monoid, dtypes: &[DType], args: &[DType]) -> Option<Arg> {
        let k = dtypes.len() / 2;
        let states = || dtypes.iter().enumerate();
        let kept = states().all(|(i, d)| *d == if i < k { DType::F32 } else { DType::I64 });
        if args != [DType::F32] || !(1..=MOST).contains(&k) || dtypes.len() != 2 * k || !kept {
            return None;
        }
        let f = DType::F32;
        for largest in [true, false] {
            for last in [true, false] {
                let one = match largest {
                    true => Monoid::argmax(f, 0, last),
                    false => Monoid::argmin(f, 0, last),
                };
                if k == 1 && *m == one {
                    return Some(Arg {
                        k,
                        largest,
                        last,
                        nan_wins: true,
                    });
                }
            }
            if *m == Monoid::first(k, f, 0, largest) {
                return Some(Arg {
                    k,
                    largest,
                    last: false,
                    nan_wins: largest,
                });
            }
        }
        None
    }

    /// Whether element `v` of rank `i` comes before what is kept, `s` of rank `j`.
    #[inline(always)]
    fn before(self, v: f32, i: i64, s: f32, j: i64) -> bool {
        let better = match self.largest {
            true => v > s,
            false => v < s,
        };
        let (nan, kept_nan) = (v.is_nan(), s.is_nan());
        let by_nan = match self.nan_wins {
            true => nan & !kept_nan,
            false => kept_nan & !nan,
        };
        let equal = (v == s) | (nan & kept_nan);
        let ordered = if self.last { i > j } else { i < j };
        (j < 0) | better | by_nan | (equal & ordered)
    }
}

/// Where values and ranks of one state lie.
#[derive(Clone, Copy)]
struct Kept {
    v: [*mut f32; MOST],
    i: [*mut i64; MOST],
}

impl Kept {
    /// Puts element `v` of rank `i` where it belongs.
    ///
    /// # Safety
    /// The first `k` pointers are to elements that nobody else uses.
    #[inline(always)]
    unsafe fn put(&self, a: Arg, v: f32, i: i64) {
        // SAFETY: as above.
        unsafe {
            let mut at = a.k;
            while at > 0 && a.before(v, i, *self.v[at - 1], *self.i[at - 1]) {
                at -= 1;
            }
            if at == a.k {
                return;
            }
            for p in (at + 1..a.k).rev() {
                *self.v[p] = *self.v[p - 1];
                *self.i[p] = *self.i[p - 1];
            }
            *self.v[at] = v;
            *self.i[at] = i;
        }
    }
}

/// States of all lanes.
struct States {
    v: [Lane; MOST],
    i: [Lane; MOST],
}

impl States {
    #[inline(always)]
    fn of(&self, lane: usize) -> Kept {
        let by = |l: &Lane| (lane as i64 * l.st) as isize;
        Kept {
            v: self.v.map(|l| l.ptr.cast::<f32>().wrapping_offset(by(&l))),
            i: self.i.map(|l| l.ptr.cast::<i64>().wrapping_offset(by(&l))),
        }
    }
}

impl Walk<'_> {
    /// The whole piece.
    pub(super) fn arg(&mut self, a: Arg) {
        let (f, ctx) = (self.f, self.ctx);
        loop {
            loop {
                if f.horizontal {
                    self.arg_row(a);
                    if !next(self.reduced, &mut self.c, ctx) {
                        break;
                    }
                } else if !self.arg_columns(a) {
                    break;
                }
            }
            if !next(&f.kept, &mut self.c, ctx) {
                return;
            }
        }
    }

    /// The states at the current coordinates.
    fn kept(&self, a: Arg) -> States {
        let mut s = States {
            v: [Lane::NONE; MOST],
            i: [Lane::NONE; MOST],
        };
        for n in 0..a.k {
            s.v[n] = self.state(n);
            s.i[n] = self.state(a.k + n);
        }
        s
    }

    /// One row, reduced.
    fn arg_row(&self, a: Arg) {
        let x = self.args()[0];
        let (base, step) = self.coords(0);
        let kept = self.kept(a).of(0);
        let rank = |e: usize| base[0] + step[0] * e as i64;
        let p = x.ptr.cast::<f32>().cast_const();
        // SAFETY: a row of n elements `st` apart in a tile; the state is one of its own.
        unsafe {
            if a.k == 1 && x.st == 1 && self.n >= LONG {
                let row = std::slice::from_raw_parts(p, self.n);
                let e = extreme(a, row);
                kept.put(a, row[e], rank(e));
                return;
            }
            for e in 0..self.n {
                let v = *p.wrapping_offset((e as i64 * x.st) as isize);
                kept.put(a, v, rank(e));
            }
        }
    }

    /// Rows along the innermost reduced axis, each lane with a state of its own; false when the reduced
    /// axes are through.
    fn arg_columns(&mut self, a: Arg) -> bool {
        let ctx = self.ctx;
        let (inner, outer) = match self.reduced.split_last() {
            Some((&i, o)) => (Some(i), o),
            None => (None, self.reduced),
        };
        let x = self.args()[0];
        let p = x.ptr.cast::<f32>().cast_const();
        let base = self.coords(0).0[0];
        let (mut rows, mut ld, mut by) = (1, 0, 0);
        if let Some(i) = inner.filter(|&i| ctx.len[i] > 1) {
            rows = ctx.len[i] as usize;
            ld = ctx.views[self.f.args[0]].st[i];
            self.c[i] = 1;
            by = self.coords(0).0[0] - base;
            self.c[i] = 0;
        }
        let states = self.kept(a);
        let mut lane = 0;
        // SAFETY: rows of n elements `st` apart in a tile, `ld` apart from one another; every lane has a
        // state of its own.
        unsafe {
            // Ranks within the piece have 32 bits.
            if a.k == 1 && x.st == 1 && rows < 1 << 30 {
                while lane + WIDE <= self.n {
                    let (v, r) = down(a, p.add(lane), rows, ld as isize);
                    for l in 0..WIDE {
                        let rank = base + by * i64::from(r[l]);
                        states.of(lane + l).put(a, v[l], rank);
                    }
                    lane += WIDE;
                }
            }
            for l in lane..self.n {
                let kept = states.of(l);
                for r in 0..rows {
                    let off = l as i64 * x.st + r as i64 * ld;
                    let v = *p.wrapping_offset(off as isize);
                    kept.put(a, v, base + by * r as i64);
                }
            }
        }
        next(outer, &mut self.c, ctx)
    }
}

/// Where the best of a row is.
fn extreme(a: Arg, row: &[f32]) -> usize {
    let sign = if a.largest { 1.0 } else { -1.0 };
    let (wide, rest) = row.as_chunks::<WIDE>();
    let mut best = [f32::NEG_INFINITY; WIDE];
    let mut nans = [0u32; WIDE];
    for c in wide {
        for l in 0..WIDE {
            let v = c[l] * sign;
            best[l] = if v > best[l] { v } else { best[l] };
            nans[l] |= u32::from(v.is_nan());
        }
    }
    let most = best.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    let most = rest.iter().map(|v| v * sign).fold(most, f32::max) * sign;
    let any = nans.iter().any(|n| *n != 0) || rest.iter().any(|v| v.is_nan());
    let found = |is: &dyn Fn(f32) -> bool| match a.last {
        true => row.iter().rposition(|v| is(*v)),
        false => row.iter().position(|v| is(*v)),
    };
    let numbers = || row.iter().any(|v| !v.is_nan());
    let nan = any && (a.nan_wins || !numbers());
    let at = match nan {
        true => found(&f32::is_nan),
        false => found(&|v| v == most),
    };
    at.unwrap_or(0)
}

/// The best of each of `WIDE` columns of `rows` rows, `ld` elements apart, and its row.
///
/// # Safety
/// The elements are there, and `rows` is not 0.
unsafe fn down(a: Arg, p: *const f32, rows: usize, ld: isize) -> ([f32; WIDE], [i32; WIDE]) {
    // SAFETY: as the caller says.
    unsafe {
        match (a.largest, a.last) {
            (true, false) => walk::<true, false>(a, p, rows, ld),
            (true, true) => walk::<true, true>(a, p, rows, ld),
            (false, false) => walk::<false, false>(a, p, rows, ld),
            (false, true) => walk::<false, true>(a, p, rows, ld),
        }
    }
}

/// [`down`] with the comparison known to the compiler.
///
/// # Safety
/// As there.
#[inline(always)]
unsafe fn walk<const LARGEST: bool, const LAST: bool>(
    a: Arg,
    p: *const f32,
    rows: usize,
    ld: isize,
) -> ([f32; WIDE], [i32; WIDE]) {
    // SAFETY: as the caller says.
    let row = |r: usize| unsafe { &*p.offset(r as isize * ld).cast::<[f32; WIDE]>() };
    let (mut v, mut at) = (*row(0), [0i32; WIDE]);
    for r in 1..rows {
        let x = row(r);
        for l in 0..WIDE {
            let better = match (LARGEST, LAST) {
                (true, false) => x[l] > v[l],
                (true, true) => x[l] >= v[l],
                (false, false) => x[l] < v[l],
                (false, true) => x[l] <= v[l],
            };
            let (nan, kept) = (x[l].is_nan(), v[l].is_nan());
            let by_nan = match a.nan_wins {
                true => nan & (LAST | !kept),
                false => kept & (LAST | !nan),
            };
            let takes = better | by_nan;
            v[l] = if takes { x[l] } else { v[l] };
            at[l] = if takes { r as i32 } else { at[l] };
        }
    }
    (v, at)
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: [(bool, bool); 4] = [(true, false), (true, true), (false, false), (false, true)];

    fn monoid(largest: bool, last: bool) -> Monoid {
        match largest {
            true => Monoid::argmax(DType::F32, 0, last),
            false => Monoid::argmin(DType::F32, 0, last),
        }
    }

    fn of(largest: bool, last: bool) -> Arg {
        let kept = [DType::F32, DType::I64];
        Arg::of(&monoid(largest, last), &kept, &[DType::F32]).expect("a pick")
    }

    /// Rows with many ties, infinities, zeros of both signs, and NaNs in two of three.
    fn rows() -> Vec<Vec<f32>> {
        let mut seed = 1u64;
        let mut draw = move |n: u64| {
            seed = seed
                .wrapping_mul(6364136223846793005)
                .wrapping_add(1442695040888963407);
            (seed >> 33) % n
        };
        let odd = [f32::INFINITY, f32::NEG_INFINITY, -0.0, 0.0];
        let mut out = Vec::new();
        for n in [1usize, 2, 15, 16, 17, 33, 100] {
            for nans in [0, 3, 40] {
                let one = |_| match draw(100) {
                    x if x < nans => f32::NAN,
                    x if x < 60 => odd[x as usize % 4],
                    x => x as f32 % 7.0 - 3.0,
                };
                out.push((0..n).map(one).collect());
            }
            out.push(vec![f32::NAN; n]);
            out.push(vec![f32::NEG_INFINITY; n]);
        }
        out
    }

    /// One after the other.
    fn plainly(a: Arg, row: &[f32]) -> usize {
        let mut best = (0.0, -1);
        for (i, v) in row.iter().enumerate() {
            if a.before(*v, i as i64, best.0, best.1) {
                best = (*v, i as i64);
            }
        }
        best.1 as usize
    }

    #[test]
    fn a_row_and_its_columns_have_the_same_best() {
        for (largest, last) in ALL {
            let a = of(largest, last);
            for row in rows() {
                let want = plainly(a, &row);
                assert_eq!(extreme(a, &row), want, "{a:?} of {row:?}");
                let wide: Vec<f32> = row.iter().flat_map(|v| [*v; WIDE]).collect();
                // SAFETY: as many rows of WIDE elements.
                let (v, at) = unsafe { down(a, wide.as_ptr(), row.len(), WIDE as isize) };
                assert_eq!(at, [want as i32; WIDE], "{a:?} of {row:?}");
                assert!(v.iter().all(|v| v.to_bits() == row[want].to_bits()));
            }
        }
    }

    #[test]
    fn what_is_kept_is_what_the_monoid_keeps() {
        let eval = |e: &expr::Expr, inputs: &[expr::Scalar], i: i64| {
            let ctx = expr::EvalContext {
                inputs,
                index: &[i],
                symbols: &|_| None,
            };
            e.eval(&ctx).expect("an element")
        };
        let firsts =
            (1..=MOST).flat_map(|k| [true, false].map(|l| (k, Monoid::first(k, DType::F32, 0, l))));
        let picks = ALL.map(|(g, l)| (1, monoid(g, l)));
        for (k, m) in firsts.chain(picks) {
            let kept: Vec<DType> = m.identity.output_types().expect("types");
            let a = Arg::of(&m, &kept, &[DType::F32]).expect("a pick");
            for row in rows().into_iter().filter(|r| r.len() >= k) {
                let mut state = eval(&m.identity, &[], 0);
                let (mut v, mut r) = ([0f32; MOST], [-1i64; MOST]);
                let own = Kept {
                    v: std::array::from_fn(|n| &raw mut v[n]),
                    i: std::array::from_fn(|n| &raw mut r[n]),
                };
                for (i, x) in row.iter().enumerate() {
                    let lifted = eval(&m.lift, &[expr::Scalar::Float(f64::from(*x))], i as i64);
                    state.extend(lifted);
                    state = eval(&m.combine, &state, 0);
                    // SAFETY: the pointers are to the arrays above.
                    unsafe { own.put(a, *x, i as i64) };
                }
                let want: Vec<i64> = state[k..].iter().map(|s| s.as_i64()).collect();
                assert_eq!(r[..k], want, "{} of {row:?}", m.name);
            }
        }
    }
}
