//! Reductions and elementwise functions over rows.

use super::{Guarded, Rng, close, fenced, isas};
use shopfloor_microkernels::isa::Isa;
use shopfloor_microkernels::{BinaryFn, Columns, Kernels, ScalarFn, UnaryFn, kernels};

#[test]
fn reductions_match_f64() {
    let mut rng = Rng::new(31);
    for isa in isas() {
        let k = kernels(isa);
        for round in 0..400 {
            let n = if round == 0 { 0 } else { rng.extent(300) };
            let (x, at) = fenced(&rng.values(n));
            let (y, y_at) = fenced(&rng.values(n));
            let p = x[at..].as_ptr();
            let row: Vec<f64> = x[at..at + n].iter().map(|&v| f64::from(v)).collect();
            let mean = 0.25_f32;
            // SAFETY: n elements lie behind each pointer.
            unsafe {
                close((k.row_sum)(p, n), row.iter().sum(), 1.0 + n as f64, "sum");
                close(
                    (k.row_prod)(p, n.min(30)),
                    row[..n.min(30)].iter().product(),
                    1.0,
                    "product",
                );
                close(
                    (k.row_max)(p, n),
                    row.iter().copied().fold(f64::NEG_INFINITY, f64::max),
                    1.0,
                    "max",
                );
                close(
                    (k.row_min)(p, n),
                    row.iter().copied().fold(f64::INFINITY, f64::min),
                    1.0,
                    "min",
                );
                close(
                    (k.row_sum_sq)(p, mean, n),
                    row.iter().map(|v| (v - 0.25).powi(2)).sum(),
                    1.0 + n as f64,
                    "sum_sq",
                );
                let dot = row
                    .iter()
                    .zip(&y[y_at..y_at + n])
                    .map(|(a, &b)| a * f64::from(b))
                    .sum();
                close(
                    (k.row_dot)(p, y[y_at..].as_ptr(), n),
                    dot,
                    1.0 + n as f64,
                    "dot",
                );
            }
        }
    }
}

#[test]
fn extremes_keep_nan_at_every_place() {
    for isa in isas() {
        let k = kernels(isa);
        for n in [1, 5, 16, 17, 64, 67, 130, 200] {
            for at in 0..n {
                let mut x = vec![1.0_f32; n];
                x[at] = f32::NAN;
                // SAFETY: x has n elements.
                unsafe {
                    assert!((k.row_max)(x.as_ptr(), n).is_nan(), "{isa} {n} {at}");
                    assert!((k.row_min)(x.as_ptr(), n).is_nan(), "{isa} {n} {at}");
                }
                x[at] = 7.0;
                // SAFETY: as above.
                assert_eq!(unsafe { (k.row_max)(x.as_ptr(), n) }, 7.0);
                x[at] = -7.0;
                // SAFETY: as above.
                assert_eq!(unsafe { (k.row_min)(x.as_ptr(), n) }, -7.0);
            }
        }
    }
}

#[test]
fn columns_match_f64() {
    let mut rng = Rng::new(37);
    for isa in isas() {
        let k = kernels(isa);
        for round in 0..200 {
            let (rows, n) = (if round == 0 { 0 } else { rng.extent(40) }, rng.extent(150));
            let ld = n + rng.below(4);
            let (x, at) = fenced(&rng.values(rows.max(1) * ld));
            let (mean, mean_at) = fenced(&rng.values(n));
            let start = rng.values(n);
            let column = |j: usize| (0..rows).map(move |i| i * ld + j);
            type Case<'a> = (
                &'static str,
                unsafe fn(&Columns),
                bool,
                &'a dyn Fn(usize) -> f64,
            );
            let value = |i: usize| f64::from(x[at + i]);
            let cases: [Case; 5] = [
                ("sum", k.col_sum, false, &|j| {
                    f64::from(start[j]) + column(j).map(value).sum::<f64>()
                }),
                ("squares", k.col_squares, false, &|j| {
                    f64::from(start[j]) + column(j).map(|i| value(i).powi(2)).sum::<f64>()
                }),
                ("deviations", k.col_squares, true, &|j| {
                    let m = f64::from(mean[mean_at + j]);
                    f64::from(start[j]) + column(j).map(|i| (value(i) - m).powi(2)).sum::<f64>()
                }),
                ("max", k.col_max, false, &|j| {
                    column(j).map(value).fold(f64::from(start[j]), f64::max)
                }),
                ("min", k.col_min, false, &|j| {
                    column(j).map(value).fold(f64::from(start[j]), f64::min)
                }),
            ];
            for (name, fold, centred, want) in cases {
                let mut acc = Guarded::new(n);
                acc.inner_mut().copy_from_slice(&start);
                let d = Columns {
                    rows,
                    n,
                    x: x[at..].as_ptr(),
                    ld: ld as isize,
                    mean: if centred {
                        mean[mean_at..].as_ptr()
                    } else {
                        std::ptr::null()
                    },
                    acc: acc.ptr(),
                };
                // SAFETY: rows of n elements lie ld apart behind x; mean and acc have n.
                unsafe { fold(&d) };
                acc.check();
                for j in 0..n {
                    close(acc.inner()[j], want(j), 4.0 + 4.0 * rows as f64, name);
                }
            }
        }
        let x = [1.0, f32::NAN, 3.0, 4.0];
        let mut acc = [0.0; 2];
        let d = Columns {
            rows: 2,
            n: 2,
            x: x.as_ptr(),
            ld: 2,
            mean: std::ptr::null(),
            acc: acc.as_mut_ptr(),
        };
        // SAFETY: two rows of two.
        unsafe { (k.col_max)(&d) };
        assert!(acc[0] == 3.0 && acc[1].is_nan(), "{isa} {acc:?}");
    }
}

#[test]
fn softmax_and_norm_rows() {
    let mut rng = Rng::new(32);
    for isa in isas() {
        let k = kernels(isa);
        for _ in 0..200 {
            let n = rng.extent(200);
            let (x, at) = fenced(&rng.values(n));
            let (g, b) = (rng.values(n), rng.values(n));
            let mut out = Guarded::new(n);
            // SAFETY: all have n elements.
            let sum = unsafe { (k.exp_sum)(x[at..].as_ptr(), out.ptr(), n, 2.0, 0.5) };
            out.check();
            let want: Vec<f64> = x[at..at + n]
                .iter()
                .map(|&v| (2.0 * (f64::from(v) - 0.5)).exp())
                .collect();
            for (got, want) in out.inner().iter().zip(&want) {
                close(*got, *want, *want, "exp");
            }
            close(sum, want.iter().sum(), 3.0 * n as f64, "exp_sum");
            for form in 0..4 {
                let gamma = if form & 1 == 0 {
                    std::ptr::null()
                } else {
                    g.as_ptr()
                };
                let beta = if form & 2 == 0 {
                    std::ptr::null()
                } else {
                    b.as_ptr()
                };
                // SAFETY: all have n elements.
                unsafe { (k.normalise)(x[at..].as_ptr(), out.ptr(), n, 0.125, 3.0, gamma, beta) };
                out.check();
                for i in 0..n {
                    let mut want = (f64::from(x[at + i]) - 0.125) * 3.0;
                    want *= if form & 1 == 0 { 1.0 } else { f64::from(g[i]) };
                    want += if form & 2 == 0 { 0.0 } else { f64::from(b[i]) };
                    close(out.inner()[i], want, 5.0, "normalise");
                }
            }
        }
    }
}

/// Equal, or both no numbers.
fn same(got: f32, want: f32) -> bool {
    got == want || (got.is_nan() && want.is_nan())
}

fn truth(t: bool) -> f32 {
    f32::from(u8::from(t))
}

/// `f`, and no number where an argument is none.
fn unless_nan(f: fn(f32, f32) -> f32, a: f32, b: f32) -> f32 {
    if a.is_nan() || b.is_nan() {
        f32::NAN
    } else {
        f(a, b)
    }
}

/// Functions of two rows, in place too, and of a row and a number.
fn two_arguments(k: &Kernels, isa: Isa, a: &[f32], b: &[f32]) {
    type Two = (&'static str, BinaryFn, ScalarFn, fn(f32, f32) -> f32);
    let list: [Two; 9] = [
        ("add", k.add, k.add_k, |a, b| a + b),
        ("sub", k.sub, k.sub_k, |a, b| a - b),
        ("mul", k.mul, k.mul_k, |a, b| a * b),
        ("div", k.div, k.div_k, |a, b| a / b),
        ("min", k.min, k.min_k, |a, b| unless_nan(f32::min, a, b)),
        ("max", k.max, k.max_k, |a, b| unless_nan(f32::max, a, b)),
        ("lt", k.lt, k.lt_k, |a, b| truth(a < b)),
        ("le", k.le, k.le_k, |a, b| truth(a <= b)),
        ("eq", k.eq, k.eq_k, |a, b| truth(a == b)),
    ];
    let n = a.len();
    for (name, two, with, want) in list {
        let mut out = Guarded::new(n);
        // SAFETY: all have n elements.
        unsafe { two(a.as_ptr(), b.as_ptr(), out.ptr(), n) };
        out.check();
        assert!(
            (0..n).all(|i| same(out.inner()[i], want(a[i], b[i]))),
            "{isa} {name} {n}"
        );
        out.inner_mut().copy_from_slice(b);
        // SAFETY: as above, in place.
        unsafe { two(a.as_ptr(), out.ptr(), out.ptr(), n) };
        assert!(
            (0..n).all(|i| same(out.inner()[i], want(a[i], b[i]))),
            "{isa} {name} {n} in place"
        );
        // SAFETY: as above.
        unsafe { with(a.as_ptr(), 0.5, out.ptr(), n) };
        out.check();
        assert!(
            (0..n).all(|i| same(out.inner()[i], want(a[i], 0.5))),
            "{isa} {name}_k {n}"
        );
    }
}

/// Functions with a number on the left, and of three rows.
fn other_forms(k: &Kernels, a: &[f32], b: &[f32]) {
    let n = a.len();
    let mut out = Guarded::new(n);
    // SAFETY: all have n elements.
    unsafe {
        (k.rsub_k)(a.as_ptr(), 2.0, out.ptr(), n);
        assert!((0..n).all(|i| same(out.inner()[i], 2.0 - a[i])));
        (k.rdiv_k)(a.as_ptr(), 2.0, out.ptr(), n);
        assert!((0..n).all(|i| same(out.inner()[i], 2.0 / a[i])));
        (k.gt_k)(a.as_ptr(), 0.0, out.ptr(), n);
        assert!((0..n).all(|i| out.inner()[i] == truth(a[i] > 0.0)));
        (k.ge_k)(a.as_ptr(), 0.0, out.ptr(), n);
        assert!((0..n).all(|i| out.inner()[i] == truth(a[i] >= 0.0)));
        (k.axpy)(2.0, a.as_ptr(), b.as_ptr(), out.ptr(), n);
        for i in 0..n {
            assert!(same(out.inner()[i], a[i].mul_add(2.0, b[i])));
        }
        (k.fma)(a.as_ptr(), b.as_ptr(), a.as_ptr(), out.ptr(), n);
        for i in 0..n {
            let want = a[i].mul_add(b[i], a[i]);
            assert!(same(out.inner()[i], want) || (out.inner()[i] - want).abs() < 1e-6);
        }
        (k.select)(out.ptr(), a.as_ptr(), b.as_ptr(), out.ptr(), n);
        for i in 0..n {
            let chosen = if a[i].mul_add(b[i], a[i]) == 0.0 {
                b[i]
            } else {
                a[i]
            };
            assert!(same(out.inner()[i], chosen));
        }
    }
    out.check();
}

/// Functions of one row, for its values and those at which they turn.
fn one_argument(k: &Kernels, isa: Isa, a: &[f32]) {
    type One = (&'static str, UnaryFn, fn(f32) -> f32);
    let list: [One; 9] = [
        ("abs", k.abs, f32::abs),
        ("neg", k.neg, |v| -v),
        ("floor", k.floor, f32::floor),
        ("ceil", k.ceil, f32::ceil),
        ("trunc", k.trunc, f32::trunc),
        ("round", k.round, f32::round_ties_even),
        ("sqrt", k.sqrt, f32::sqrt),
        ("recip", k.recip, |v| 1.0 / v),
        ("relu", k.relu, |v| if v.is_nan() { v } else { v.max(0.0) }),
    ];
    let wide: Vec<f32> = a
        .iter()
        .map(|v| v * 1e3 + 0.5)
        .chain([0.5, 1.5, 2.5, -0.5, 1e9, -1e30, f32::INFINITY, f32::NAN])
        .collect();
    let mut out = Guarded::new(wide.len());
    for (name, f, want) in list {
        // SAFETY: both have as many elements.
        unsafe { f(wide.as_ptr(), out.ptr(), wide.len()) };
        out.check();
        assert!(
            wide.iter()
                .zip(out.inner())
                .all(|(&x, &y)| same(y, want(x))),
            "{isa} {name}"
        );
    }
}

#[test]
fn elementwise_forms_and_in_place() {
    let mut rng = Rng::new(33);
    for isa in isas() {
        let k = kernels(isa);
        for n in [0, 1, 2, 7, 8, 9, 15, 16, 17, 31, 33, 100] {
            let (mut a, mut b) = (rng.values(n), rng.values(n));
            if n > 8 {
                (a[2], b[3], a[4]) = (f32::NAN, f32::NAN, b[4]);
                (a[5], b[6]) = (f32::INFINITY, -0.0);
            }
            two_arguments(k, isa, &a, &b);
            other_forms(k, &a, &b);
            one_argument(k, isa, &a);
        }
    }
}
