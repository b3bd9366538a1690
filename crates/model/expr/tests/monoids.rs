//! Standard reductions: identity, associativity, and agreement with plain loops.

use layout::{DType, Dim};
use shopfloor_expr::{EvalContext, Expr, Monoid, Scalar};

fn run(e: &Expr, inputs: &[Scalar], index: i64) -> Vec<Scalar> {
    e.eval(&EvalContext {
        inputs,
        index: &[index],
        symbols: &|_| None,
    })
    .unwrap()
}

fn combine(m: &Monoid, a: &[Scalar], b: &[Scalar]) -> Vec<Scalar> {
    run(&m.combine, &[a, b].concat(), 0)
}

fn close(a: Scalar, b: Scalar, tolerance: f64) -> bool {
    match (a, b) {
        (Scalar::Int(x), Scalar::Int(y)) => x == y,
        _ => {
            let (x, y) = (a.as_f64(), b.as_f64());
            x == y
                || (x.is_nan() && y.is_nan())
                || (x - y).abs() <= tolerance * (1.0 + x.abs().max(y.abs()))
        }
    }
}

fn all_close(a: &[Scalar], b: &[Scalar]) -> bool {
    a.len() == b.len() && a.iter().zip(b).all(|(x, y)| close(*x, *y, 1e-5))
}

/// Equal states, or states that stand for equal results (log-sum-exp spreads a NaN).
fn equivalent(m: &Monoid, a: &[Scalar], b: &[Scalar]) -> bool {
    all_close(a, b) || all_close(&run(&m.finish, a, 0), &run(&m.finish, b, 0))
}

struct Rng(fastrand::Rng);

impl Rng {
    fn new(seed: u64) -> Rng {
        Rng(fastrand::Rng::with_seed(seed))
    }

    fn value(&mut self, d: DType) -> Scalar {
        if d.is_float() {
            Scalar::Float(f64::from(self.0.u8(..17)) / 4.0 - 1.0).of(d)
        } else {
            Scalar::Int(self.0.i64(-4..=4)).of(d)
        }
    }
}

fn every(d: DType) -> Vec<Monoid> {
    let acc = if d == DType::F16 { DType::F32 } else { d };
    let mut v = vec![
        Monoid::sum(d, acc),
        Monoid::product(d, acc),
        Monoid::max(d, acc),
        Monoid::min(d, acc),
        Monoid::mean(d, acc, &Dim::Known(7)),
        Monoid::sum_square(d, acc),
        Monoid::l1(d, acc),
        Monoid::l2(d, acc),
        Monoid::argmax(d, 0, false),
        Monoid::argmax(d, 0, true),
        Monoid::argmin(d, 0, false),
        Monoid::argmin(d, 0, true),
        Monoid::argmax_along(d, 0, false),
        Monoid::argmin_along(d, 0, true),
        Monoid::any(d),
        Monoid::all(d),
    ];
    if d.is_float() {
        v.extend([
            Monoid::log_sum(d, acc),
            Monoid::log_sum_exp(d, acc),
            Monoid::welford(d, acc, 0),
            Monoid::welford(d, acc, 1),
        ]);
    }
    v
}

fn reduce(m: &Monoid, xs: &[Scalar]) -> Vec<Scalar> {
    let mut s = run(&m.identity, &[], 0);
    for (i, x) in xs.iter().enumerate() {
        s = combine(m, &s, &run(&m.lift, &[*x], i as i64));
    }
    run(&m.finish, &s, 0)
}

#[test]
fn identity_associativity_and_text() {
    for d in [
        DType::F32,
        DType::F64,
        DType::F16,
        DType::I32,
        DType::U8,
        DType::I64,
        DType::U64,
        DType::I4,
    ] {
        for m in every(d) {
            for e in [&m.identity, &m.lift, &m.combine, &m.finish] {
                assert!(e.types().is_ok(), "{}", m.name);
            }
            assert_eq!(
                m.lift.output_types(),
                m.identity.output_types(),
                "{} {d}",
                m.name
            );
            assert_eq!(
                m.combine.output_types(),
                m.identity.output_types(),
                "{} {d}",
                m.name
            );
            assert_eq!(m.to_string().parse::<Monoid>(), Ok(m.clone()));
            let id = run(&m.identity, &[], 0);
            for seed in 0..60 {
                let mut r = Rng::new(seed);
                let mut states = Vec::new();
                for i in 0..4 {
                    let mut x = r.value(d);
                    if d.is_float() && seed % 5 == 0 && i == 1 && m.name != "welford" {
                        x = Scalar::Float(
                            [f64::INFINITY, f64::NEG_INFINITY, f64::NAN][seed as usize / 5 % 3],
                        );
                    }
                    states.push(run(&m.lift, &[x], i));
                }
                for s in &states {
                    assert!(
                        equivalent(&m, &combine(&m, &id, s), s),
                        "{} {d} seed {seed}: left identity at {s:?}",
                        m.name
                    );
                    assert!(
                        equivalent(&m, &combine(&m, s, &id), s),
                        "{} {d} seed {seed}: right identity at {s:?}",
                        m.name
                    );
                }
                let [a, b, c, e] = [0, 1, 2, 3].map(|i| &states[i]);
                let ab = combine(&m, a, b);
                let ce = combine(&m, c, e);
                let chain = combine(&m, &combine(&m, &ab, c), e);
                let tree = combine(&m, &ab, &ce);
                assert!(
                    equivalent(&m, &chain, &tree),
                    "{} {d} seed {seed}: {chain:?} {tree:?}",
                    m.name
                );
            }
        }
    }
}

#[test]
fn results_are_those_of_plain_loops() {
    let d = DType::F64;
    for seed in 0..100 {
        let mut r = Rng::new(seed);
        let n = r.0.usize(2..22);
        let xs: Vec<f64> = (0..n).map(|_| r.value(d).as_f64()).collect();
        let s: Vec<Scalar> = xs.iter().map(|&x| Scalar::Float(x)).collect();
        let sum: f64 = xs.iter().sum();
        let mean = sum / n as f64;
        let var: f64 = xs.iter().map(|x| (x - mean) * (x - mean)).sum();
        let count = Dim::from(n);
        let float = |m: Monoid, want: f64| {
            let got = reduce(&m, &s)[0].as_f64();
            let same =
                (got - want).abs() < 1e-9 * (1.0 + want.abs()) || (got.is_nan() && want.is_nan());
            assert!(same, "{} seed {seed}: {got} for {want}", m.name);
        };
        float(Monoid::sum(d, d), sum);
        float(Monoid::product(d, d), xs.iter().product());
        float(
            Monoid::max(d, d),
            xs.iter().copied().fold(f64::MIN, f64::max),
        );
        float(
            Monoid::min(d, d),
            xs.iter().copied().fold(f64::MAX, f64::min),
        );
        float(Monoid::mean(d, d, &count), mean);
        float(Monoid::sum_square(d, d), xs.iter().map(|x| x * x).sum());
        float(Monoid::l1(d, d), xs.iter().map(|x| x.abs()).sum());
        float(
            Monoid::l2(d, d),
            xs.iter().map(|x| x * x).sum::<f64>().sqrt(),
        );
        float(Monoid::log_sum(d, d), sum.ln());
        float(
            Monoid::log_sum_exp(d, d),
            xs.iter().map(|x| x.exp()).sum::<f64>().ln(),
        );
        float(Monoid::welford(d, d, 0), mean);
        let moments = reduce(&Monoid::welford(d, d, 1), &s);
        assert!(
            close(moments[1], Scalar::Float(var / (n as f64 - 1.0)), 1e-12),
            "seed {seed}"
        );
        let best = |better: fn(f64, f64) -> bool, last: bool| {
            let mut at = 0;
            for (i, x) in xs.iter().enumerate() {
                if better(*x, xs[at]) || (last && *x == xs[at]) {
                    at = i;
                }
            }
            vec![Scalar::Int(at as i64)]
        };
        for last in [false, true] {
            assert_eq!(
                reduce(&Monoid::argmax(d, 0, last), &s),
                best(|a, b| a > b, last),
                "seed {seed}"
            );
            assert_eq!(
                reduce(&Monoid::argmin(d, 0, last), &s),
                best(|a, b| a < b, last),
                "seed {seed}"
            );
            // With a NaN somewhere, `best` is who goes along and takes what is better.
            let with = |at: usize| {
                let mut s = s.clone();
                s[at] = Scalar::Float(f64::NAN);
                s
            };
            for at in [0, n / 2, n - 1] {
                let got = reduce(&Monoid::argmax_along(d, 0, last), &with(at));
                let mut want = 0;
                for (i, x) in xs.iter().enumerate().skip(1) {
                    let held = if want == at { f64::NAN } else { xs[want] };
                    if i != at && (*x > held || (last && *x == held)) {
                        want = i;
                    }
                }
                assert_eq!(got, [Scalar::Int(want as i64)], "seed {seed}, NaN at {at}");
            }
        }
        assert_eq!(
            reduce(&Monoid::any(d), &s),
            [Scalar::truth(xs.iter().any(|&x| x != 0.0))]
        );
        assert_eq!(
            reduce(&Monoid::all(d), &s),
            [Scalar::truth(xs.iter().all(|&x| x != 0.0))]
        );
    }
}

#[test]
fn special_values() {
    let d = DType::F32;
    let f = |v: &[f64]| v.iter().map(|&x| Scalar::Float(x)).collect::<Vec<_>>();
    let (nan, inf) = (f64::NAN, f64::INFINITY);
    assert_eq!(
        reduce(&Monoid::argmax(d, 0, false), &f(&[1.0, nan, 5.0, nan])),
        [Scalar::Int(1)]
    );
    assert_eq!(
        reduce(&Monoid::argmin(d, 0, true), &f(&[1.0, nan, 5.0, nan])),
        [Scalar::Int(3)]
    );
    assert_eq!(
        reduce(&Monoid::argmax(d, 0, false), &f(&[-inf, -inf])),
        [Scalar::Int(0)]
    );
    assert_eq!(
        reduce(&Monoid::log_sum_exp(d, d), &f(&[-inf, -inf])),
        [Scalar::Float(-inf)]
    );
    assert_eq!(
        reduce(&Monoid::log_sum_exp(d, d), &f(&[inf, 1.0])),
        [Scalar::Float(inf)]
    );
    assert_eq!(
        reduce(&Monoid::log_sum_exp(d, d), &f(&[1000.0])),
        [Scalar::Float(1000.0)]
    );
    assert!(
        reduce(&Monoid::max(d, d), &f(&[1.0, nan]))[0]
            .as_f64()
            .is_nan()
    );
    assert_eq!(
        reduce(&Monoid::sum(DType::I8, DType::I32), &[Scalar::Int(127); 3]),
        [Scalar::Int(125)]
    );
    assert_eq!(
        reduce(
            &Monoid::max(DType::U64, DType::U64),
            &[Scalar::Int(5), Scalar::Int(-2)]
        ),
        [Scalar::Int(-2)]
    );
}
