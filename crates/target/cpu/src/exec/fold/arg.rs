//! The greatest or smallest few of f32 elements with their ranks, kept in order: by comparisons with what
//! is kept, without programs. Pieces of a row come in the order of their ranks.
use super::walk::{Walk, next};
use crate::exec::Arg;
use crate::exec::vm::Lane;
use crate::ukr::{Nan, Pick, Picks};
use expr::Monoid;
use layout::DType;

/// What is kept at most.
const MOST: usize = 4;

/// Elements of a row from which on a micro-kernel looks for the best.
const LONG: usize = 32;

impl Arg {
    /// The pick that `m` makes with states of `dtypes` of arguments of `args`.
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
                let (one, along): (Monoid, Monoid) = match largest {
                    true => (Monoid::argmax(f, 0, last), Monoid::argmax_along(f, 0, last)),
                    false => (Monoid::argmin(f, 0, last), Monoid::argmin_along(f, 0, last)),
                };
                let nan = match () {
                    () if *m == one => Nan::Wins,
                    () if *m == along => Nan::FirstStays,
                    () => continue,
                };
                return Some(Arg {
                    k,
                    pick: Pick { largest, last, nan },
                });
            }
            if *m == Monoid::first(k, f, 0, largest) {
                let nan = if largest { Nan::Wins } else { Nan::Loses };
                let last = false;
                return Some(Arg {
                    k,
                    pick: Pick { largest, last, nan },
                });
            }
        }
        None
    }

    /// Whether element `v` of rank `i` comes before what is kept, `s` of rank `j`.
    #[inline(always)]
    fn before(self, v: f32, i: i64, s: f32, j: i64) -> bool {
        let Pick { largest, last, nan } = self.pick;
        let better = match largest {
            true => v > s,
            false => v < s,
        };
        let (is, was) = (v.is_nan(), s.is_nan());
        let first = nan == Nan::FirstStays;
        let (came, stays) = (first & is & (i == 0), first & was & (j == 0));
        let by_nan = match nan {
            Nan::Wins => is & !was,
            Nan::Loses | Nan::FirstStays => was & !is,
        };
        let equal = (v == s) | (is & was);
        let ordered = if last { i > j } else { i < j };
        (j < 0) | came | (!stays & (better | by_nan | (equal & ordered)))
    }
}

/// Where values and ranks of one state lie.
#[derive(Clone, Copy)]
struct StatePointers {
    v: [*mut f32; MOST],
    i: [*mut i64; MOST],
}

impl StatePointers {
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
    fn of(&self, lane: usize) -> StatePointers {
        let by = |l: &Lane| (lane as i64 * l.st) as isize;
        StatePointers {
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
    fn states(&self, a: Arg) -> States {
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
        let kept = self.states(a).of(0);
        let rank = |e: usize| base[0] + step[0] * e as i64;
        let p = x.ptr.cast::<f32>().cast_const();
        // SAFETY: a row of n elements `st` apart in a tile; the state is one of its own.
        unsafe {
            if a.k == 1 && x.st == 1 && self.n >= LONG {
                let mut pick = a.pick;
                if pick.nan == Nan::FirstStays && rank(0) != 0 {
                    pick.nan = Nan::Loses;
                }
                let e = (self.ctx.kernel.kernels.row_pick)(&pick, p, self.n);
                kept.put(a, *p.add(e), rank(e));
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
        let states = self.states(a);
        // SAFETY: rows of n elements `st` apart in a tile, `ld` apart from one another; every lane has a
        // state of its own.
        unsafe {
            let unit = [x.st, states.v[0].st, states.i[0].st] == [1; 3];
            // Ranks within the piece have 32 bits, and come in their order.
            if a.k == 1 && (unit || self.n == 1) && rows < 1 << 30 && by >= 0 {
                let StatePointers { v, i } = states.of(0);
                (ctx.kernel.kernels.col_pick)(&Picks {
                    pick: a.pick,
                    rows,
                    n: self.n,
                    x: p,
                    ld: ld as isize,
                    base,
                    by,
                    values: v[0],
                    ranks: i[0],
                });
            } else {
                for l in 0..self.n {
                    let kept = states.of(l);
                    for r in 0..rows {
                        let off = l as i64 * x.st + r as i64 * ld;
                        let v = *p.wrapping_offset(off as isize);
                        kept.put(a, v, base + by * r as i64);
                    }
                }
            }
        }
        next(outer, &mut self.c, ctx)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::isa::Isa;
    use crate::ukr::{Kernels, kernels};

    /// Every way to pick one.
    fn monoids() -> Vec<Monoid> {
        let f = DType::F32;
        let of = |last| {
            [
                Monoid::argmax(f, 0, last),
                Monoid::argmin(f, 0, last),
                Monoid::argmax_along(f, 0, last),
                Monoid::argmin_along(f, 0, last),
            ]
        };
        [false, true].into_iter().flat_map(of).collect()
    }

    fn of(m: &Monoid) -> Arg {
        let kept = m.identity.output_types().expect("types");
        Arg::of(m, &kept, &[DType::F32]).expect("a pick")
    }

    fn all() -> impl Iterator<Item = (&'static Kernels, Arg)> {
        let isas = [Isa::Portable, Isa::Avx2, Isa::Avx512];
        let here = isas.into_iter().filter(|i| i.available());
        here.flat_map(|i| monoids().into_iter().map(move |m| (kernels(i), of(&m))))
    }

    /// Rows with many ties, infinities, zeros of both signs, and NaNs in some.
    fn rows() -> Vec<Vec<f32>> {
        let mut drawn = fastrand::Rng::with_seed(1);
        let mut draw = move |n: u64| drawn.u64(..n);
        let odd = [f32::INFINITY, f32::NEG_INFINITY, -0.0, 0.0];
        let mut out = Vec::new();
        for n in [1usize, 2, 15, 16, 17, 33, 100, 128, 129, 300, 1000] {
            for nans in [0, 3, 40] {
                let one = |_| match draw(100) {
                    x if x < nans => f32::NAN,
                    x if x < 60 => odd[x as usize % 4],
                    x => x as f32 % 7.0 - 3.0,
                };
                out.push((0..n).map(one).collect());
            }
            out.push(vec![f32::NAN; n]);
            for worst in [f32::NEG_INFINITY, f32::INFINITY] {
                out.push(vec![worst; n]);
                let mut mixed = vec![f32::NAN; n];
                mixed[n / 2] = worst;
                out.push(mixed);
            }
            for first in [f32::NAN, 9.0] {
                let mut row: Vec<f32> = (0..n).map(|i| (i % 7) as f32).collect();
                row[n - 1] = f32::NAN;
                row[0] = first;
                out.push(row);
            }
        }
        out
    }

    /// One after the other, from `first` on, beside what is kept.
    fn plainly(a: Arg, row: &[f32], first: i64, kept: (f32, i64)) -> (f32, i64) {
        let mut best = kept;
        for (i, v) in (first..).zip(row) {
            if a.before(*v, i, best.0, best.1) {
                best = (*v, i);
            }
        }
        best
    }

    #[test]
    fn a_row_and_its_columns_have_the_same_best() {
        for (k, a) in all() {
            for row in rows() {
                let nothing = (0.0, -1);
                let want = plainly(a, &row, 0, nothing);
                // SAFETY: the row's elements.
                let got = unsafe { (k.row_pick)(&a.pick, row.as_ptr(), row.len()) };
                assert_eq!(got as i64, want.1, "{k:?} {a:?} of {row:?}");
                // In two pieces, and columns that are not whole vectors.
                for n in [1usize, 16, 21] {
                    let wide: Vec<f32> = row.iter().flat_map(|v| vec![*v; n]).collect();
                    let (mut values, mut ranks) = (vec![0f32; n], vec![-1i64; n]);
                    let half = row.len() / 2;
                    for (from, rows) in [(0, half), (half, row.len() - half)] {
                        let d = Picks {
                            pick: a.pick,
                            rows,
                            n,
                            x: wide[from * n..].as_ptr(),
                            ld: n as isize,
                            base: from as i64,
                            by: 1,
                            values: values.as_mut_ptr(),
                            ranks: ranks.as_mut_ptr(),
                        };
                        // SAFETY: as many rows of n elements; as many values and ranks.
                        unsafe { (k.col_pick)(&d) };
                    }
                    assert_eq!(ranks, vec![want.1; n], "{k:?} {a:?} of {row:?}");
                    let bits = row[want.1 as usize].to_bits();
                    assert!(values.iter().all(|v| v.to_bits() == bits));
                }
            }
        }
    }

    #[test]
    fn parts_of_a_row_are_combined_in_any_order() {
        for m in monoids() {
            let a = of(&m);
            for row in rows() {
                let (left, right) = row.split_at(row.len() / 3);
                let nothing = (0.0, -1);
                let parts = [
                    plainly(a, left, 0, nothing),
                    plainly(a, right, left.len() as i64, nothing),
                ];
                let want = plainly(a, &row, 0, nothing).1;
                for (x, y) in [(0, 1), (1, 0)] {
                    let of =
                        |p: (f32, i64)| [expr::Scalar::Float(p.0.into()), expr::Scalar::Int(p.1)];
                    let both = [of(parts[x]), of(parts[y])].concat();
                    let got = eval(&m.combine, &both, 0)[1].as_i64();
                    assert_eq!(got, want, "{} of {row:?}", m.name);
                }
            }
        }
    }

    fn eval(e: &expr::Expr, inputs: &[expr::Scalar], i: i64) -> Vec<expr::Scalar> {
        let ctx = expr::EvalContext {
            inputs,
            index: &[i],
            symbols: &|_| None,
        };
        e.eval(&ctx).expect("an element")
    }

    #[test]
    fn what_is_kept_is_what_the_monoid_keeps() {
        let firsts =
            (1..=MOST).flat_map(|k| [true, false].map(|l| (k, Monoid::first(k, DType::F32, 0, l))));
        let picks = monoids().into_iter().map(|m| (1, m));
        for (k, m) in firsts.chain(picks) {
            let a = of(&m);
            for row in rows().into_iter().filter(|r| r.len() >= k) {
                let mut state = eval(&m.identity, &[], 0);
                let (mut v, mut r) = ([0f32; MOST], [-1i64; MOST]);
                let own = StatePointers {
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
