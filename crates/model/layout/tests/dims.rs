//! Dimension arithmetic against plain integers.

use fastrand::Rng;
use shopfloor_layout::{Dim, DimBox, DimProgram, Sym};
use std::collections::BTreeSet;

const NAMES: [&str; 3] = ["a", "b", "odd name+(1)"];

/// A random expression, built by the operations, and its value computed beside it.
fn random(r: &mut Rng, v: &[i64; 3], depth: usize) -> (Dim, i64) {
    if depth == 0 || r.usize(..4) == 0 {
        if r.usize(..2) == 0 {
            let n = r.i64(-5..=9);
            return (Dim::Known(n), n);
        }
        let i = r.usize(..3);
        return (Dim::sym(NAMES[i]), v[i]);
    }
    let (x, p) = random(r, v, depth - 1);
    let (y, q) = random(r, v, depth - 1);
    // A divisor that is positive for all sizes.
    let (d, k) = match r.usize(..3) {
        0 => (Dim::sym(NAMES[0]) + Dim::ONE, v[0] + 1),
        _ => {
            let n = r.i64(1..=6);
            (Dim::Known(n), n)
        }
    };
    match r.usize(..10) {
        0 | 1 => (x + y, p + q),
        2 => (x - y, p - q),
        3 | 4 => (x * y, p * q),
        5 => (x.floor_div(&d), p.div_euclid(k)),
        6 => (x.ceil_div(&d), -(-p).div_euclid(k)),
        7 => (x.modulo(&d), p.rem_euclid(k)),
        8 => (x.min_with(&y), p.min(q)),
        _ => (x.max_with(&y), p.max(q)),
    }
}

fn value(d: &Dim, v: &[i64; 3]) -> Option<i64> {
    d.eval(&|s| NAMES.iter().position(|n| *n == s).map(|i| v[i]))
}

#[test]
fn operations_keep_the_value() {
    for seed in 0..20_000 {
        let mut r = Rng::with_seed(seed);
        let v = [r.i64(0..=7), r.i64(0..=7), r.i64(0..=7)];
        let (d, want) = random(&mut r, &v, 3);
        assert_eq!(value(&d, &v), Some(want), "seed {seed}: {d} at {v:?}");
        // What is proved holds.
        let (o, other) = random(&mut r, &v, 2);
        assert!(
            !d.provably_le(&o) || want <= other,
            "seed {seed}: {d} <= {o} at {v:?}"
        );
        assert!(
            !d.provably_lt(&o) || want < other,
            "seed {seed}: {d} < {o} at {v:?}"
        );
        assert!(
            !d.provably_nonneg() || want >= 0,
            "seed {seed}: {d} >= 0 at {v:?}"
        );
        if let Some(q) = d.exact_div(&o)
            && other != 0
        {
            assert_eq!(
                value(&q, &v).map(|q| q * other),
                Some(want),
                "seed {seed}: {d} / {o} = {q} at {v:?}"
            );
        }
        let product = (d.clone() * o.clone()).exact_div(&o);
        assert!(
            o.is_zero() || product == Some(d.clone()),
            "seed {seed}: ({d})*({o}) / ({o}) = {product:?}"
        );
        let swapped = d.substitute(&|s| (s == "a").then(|| Dim::sym("b") + Dim::Known(2)));
        let w = [v[1] + 2, v[1], v[2]];
        assert_eq!(
            value(&swapped, &v),
            value(&d, &w),
            "seed {seed}: {d} with a = b + 2 is {swapped}"
        );
    }
}

#[test]
fn text_and_serde_read_back() {
    for seed in 0..5000 {
        let mut r = Rng::with_seed(seed);
        let (d, _) = random(&mut r, &[1, 2, 3], 3);
        assert_eq!(
            d.to_string().parse::<Dim>(),
            Ok(d.clone()),
            "seed {seed}: {d}"
        );
    }
}

/// What was met before is not read again, and is the same.
#[test]
fn within_reading_texts_give_the_same() {
    for seed in 0..300 {
        let mut r = Rng::with_seed(seed);
        let dims: Vec<Dim> = (0..12).map(|_| random(&mut r, &[1, 2, 3], 4).0).collect();
        let texts: Vec<String> = dims.iter().map(Dim::to_string).collect();
        let read = shopfloor_layout::reading(|| all(&texts))
            .unwrap_or_else(|e| panic!("seed {seed}: {e}"));
        assert_eq!(read, dims, "seed {seed}");
    }
    let names = [
        "min(`a)b(`, 2) + c",
        "min(`a)b(`, 2)",
        "floordiv(`a)b(`, 2)*min(`a)b(`, 2)",
    ];
    let names = names.map(String::from);
    assert_eq!(shopfloor_layout::reading(|| all(&names)), all(&names));
    for wrong in ["min(a, 2", "min(a, 2))", "min(a, 2)b"] {
        let texts = ["min(a, 2)".into(), wrong.into()];
        assert!(
            shopfloor_layout::reading(|| all(&texts)).is_err(),
            "{wrong}"
        );
    }
}

/// Dims as data gives them.
fn all(texts: &[String]) -> Result<Vec<Dim>, serde::de::value::Error> {
    use serde::de::{Deserialize, IntoDeserializer, value::SeqDeserializer};
    let each = texts.iter().map(|t| t.as_str().into_deserializer());
    Vec::deserialize(SeqDeserializer::<_, serde::de::value::Error>::new(each))
}

#[test]
fn programs_agree_with_eval() {
    let symbols: Vec<Sym> = NAMES.iter().map(|n| Sym::from(*n)).collect();
    for seed in 0..2000 {
        let mut r = Rng::with_seed(seed);
        let dims: Vec<Dim> = (0..4).map(|_| random(&mut r, &[1, 2, 3], 3).0).collect();
        let p = DimProgram::compile(&dims, &symbols).unwrap();
        let (mut scratch, mut out) = (vec![0; p.scratch_len()], vec![0; p.len()]);
        for _ in 0..5 {
            let v = [r.i64(0..=9), r.i64(0..=9), r.i64(0..=9)];
            p.eval(&v, &mut scratch, &mut out).unwrap();
            for (d, got) in dims.iter().zip(&out) {
                assert_eq!(value(d, &v), Some(*got), "seed {seed}: {d} at {v:?}");
            }
        }
    }
    assert_eq!(
        DimProgram::compile(&[Dim::sym("q")], &symbols)
            .err()
            .as_deref(),
        Some("q")
    );
    let big = [
        Dim::sym("a") * Dim::sym("a") * Dim::sym("a"),
        Dim::Known(4).floor_div(&Dim::sym("b")),
    ];
    let p = DimProgram::compile(&big, &symbols).unwrap();
    let mut scratch = vec![0; p.scratch_len()];
    assert!(p.eval(&[1 << 31, 1, 1], &mut scratch, &mut [0; 2]).is_err());
    assert!(p.eval(&[1, 0, 1], &mut scratch, &mut [0; 2]).is_err());
}

#[test]
fn bounds_hold_every_value() {
    for seed in 0..3000 {
        let mut r = Rng::with_seed(seed);
        let (d, _) = random(&mut r, &[1, 2, 3], 3);
        let mut b = DimBox::new();
        let lo = [r.i64(0..=4), r.i64(0..=4), r.i64(0..=4)];
        for (n, l) in NAMES.iter().zip(lo) {
            b.insert(*n, l, l + 2);
        }
        let range = b.bounds(&d).unwrap();
        for i in 0..27 {
            let v = [lo[0] + i % 3, lo[1] + i / 3 % 3, lo[2] + i / 9];
            let x = value(&d, &v).unwrap();
            assert!(
                range.lo <= x && x <= range.hi,
                "seed {seed}: {d} is {x} at {v:?}, outside {range:?}"
            );
        }
    }
}

#[test]
fn examples() {
    let d = |s: &str| s.parse::<Dim>().unwrap();
    assert_eq!(d("(n + 1)*(n - 1) + 1"), d("n*n"));
    assert_eq!(d("a*b*c + b*c").exact_div(&d("a + 1")), Some(d("b*c")));
    assert_eq!(d("floordiv(4*n + 6, 4)"), d("n + 1 + floordiv(2, 4)"));
    assert_eq!(d("floordiv(8*n + m, 8)"), d("n + floordiv(m, 8)"));
    assert_eq!(d("mod(8*n + 3, 8)"), d("3"));
    assert_eq!(d("ceildiv(n, 1)"), d("n"));
    assert!(d("mod(n, 8)").provably_nonneg());
    assert!(d("mod(n, 8)").provably_lt(&d("8")));
    assert!(d("n").provably_le(&d("8*ceildiv(n, 8)")));
    assert!(d("min(n, 4)").provably_le(&d("n")));
    assert!(d("n").provably_le(&d("max(n, m)")));
    assert!(!d("n").provably_le(&d("m")));
    let mut s = BTreeSet::new();
    d("floordiv(n, 3) + min(m, 2)*`x y`").symbols(&mut s);
    assert_eq!(
        s.iter().map(|s| &**s).collect::<Vec<_>>(),
        ["m", "n", "x y"]
    );
}

#[test]
fn hostile_text_is_refused() {
    for t in [
        "",
        "1 +",
        "floordiv(n, 0",
        "9223372036854775808",
        "`open",
        "a b",
        "n*(",
        "é",
    ] {
        assert!(t.parse::<Dim>().is_err(), "{t}");
    }
    assert!("(".repeat(10_000).parse::<Dim>().is_err());
    let product: Vec<String> = (0..40).map(|i| format!("(a{i} + b{i})")).collect();
    assert!(product.join("*").parse::<Dim>().is_err());
    let nested = (0..60).fold("n".to_string(), |t, i| format!("mod({t}, k{i})"));
    assert!(nested.parse::<Dim>().is_err());
    let _ = "floordiv(n + 3, 0) + floordiv(7, 0) + mod(n, 0 - 3)".parse::<Dim>();
    let min = Dim::Known(i64::MIN);
    let _ = (
        min.exact_div(&Dim::Known(-1)),
        min.floor_div(&Dim::Known(-1)),
        min.clone() * min.clone(),
    );
}

#[test]
fn bounds_are_exact_along_rising_and_falling_symbols() {
    let d = |s: &str| s.parse::<Dim>().unwrap();
    let mut b = DimBox::new();
    b.insert("n", 1, 7);
    b.insert("s", 1, 5);
    b.insert("k", 2, 2);
    let range = |e: &str| b.bounds(&d(e)).map(|r| (r.lo, r.hi));
    assert_eq!(range("80*n*s - 40*n"), Some((40, 2520)));
    assert_eq!(range("n*s - n - s + 1"), Some((0, 24)));
    assert_eq!(range("4*s*s - 4*s + 1"), Some((1, 81)));
    assert_eq!(range("10 - n*k"), Some((-4, 8)));
    assert_eq!(range("k*n*s - n"), Some((1, 63)));
    assert_eq!(range("2*floordiv(s, 2)*n - n"), Some((-7, 21)));
    assert_eq!(range("x"), None);
}
