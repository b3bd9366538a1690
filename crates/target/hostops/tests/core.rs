//! Core ops that run as host steps, against hand-computed values and brute force.
use expr::{ExprBuilder, Monoid};
use graph::{PoolKind, RecurrentKind, RecurrentSpec, ResampleMode, ResampleSpec, ScatterReduce};
use layout::DType;
use shopfloor_hostops::*;
use tensor::Tensor;

fn f(shape: &[usize], v: &[f32]) -> Tensor {
    Tensor::from_f32(shape, v).unwrap()
}

fn random(shape: &[usize], seed: u64) -> Tensor {
    let n = shape.iter().product();
    let mut drawn = fastrand::Rng::with_seed(seed);
    let v: Vec<f32> = (0..n).map(|_| 2.0 * drawn.f32() - 1.0).collect();
    f(shape, &v)
}

fn spec(kind: RecurrentKind, hidden: usize, direction: &str, present: &[usize]) -> RecurrentSpec {
    RecurrentSpec {
        kind,
        hidden: hidden as i64,
        direction: direction.into(),
        batch_first: false,
        present: (0..8).map(|i| present.contains(&i)).collect(),
        activations: vec![],
        alphas: vec![],
        betas: vec![],
        clip: None,
        linear_before_reset: false,
        input_forget: false,
    }
}

fn sig(x: f64) -> f64 {
    1.0 / (1.0 + (-x).exp())
}

#[test]
fn lstm_against_the_formulas() {
    let (seq, batch, input, h) = (5, 2, 11, 13);
    let x = random(&[seq, batch, input], 1);
    let w = random(&[2, 4 * h, input], 2);
    let r = random(&[2, 4 * h, h], 3);
    let b = random(&[2, 8 * h], 4);
    let lens = Tensor::from_i32(&[batch], &[5, 3]).unwrap();
    let h0 = random(&[2, batch, h], 5);
    let c0 = random(&[2, batch, h], 6);
    let p = random(&[2, 3 * h], 7);
    let s = spec(
        RecurrentKind::Lstm,
        h,
        "bidirectional",
        &[0, 1, 2, 3, 4, 5, 6, 7],
    );
    let out = recurrent(&s, &[&x, &w, &r, &b, &lens, &h0, &c0, &p]).unwrap();
    assert_eq!(out[0].shape(), [seq, 2, batch, h]);
    let mut y = vec![0.0; seq * 2 * batch * h];
    for d in 0..2 {
        for n in 0..batch {
            let len = [5, 3][n];
            let mut hs: Vec<f64> = (0..h)
                .map(|k| h0.get_f64((d * batch + n) * h + k))
                .collect();
            let mut cs: Vec<f64> = (0..h)
                .map(|k| c0.get_f64((d * batch + n) * h + k))
                .collect();
            for step in 0..len {
                let t = if d == 1 { len - 1 - step } else { step };
                let gate = |g: usize, k: usize, hs: &[f64]| {
                    let row = g * h + k;
                    let mut v = b.get_f64(d * 8 * h + row) + b.get_f64(d * 8 * h + 4 * h + row);
                    for q in 0..input {
                        v += w.get_f64((d * 4 * h + row) * input + q)
                            * x.get_f64((t * batch + n) * input + q);
                    }
                    for (q, hq) in hs.iter().enumerate() {
                        v += r.get_f64((d * 4 * h + row) * h + q) * hq;
                    }
                    v
                };
                let peep = |g: usize, k: usize| p.get_f64(d * 3 * h + g * h + k);
                let mut nh = vec![0.0; h];
                for k in 0..h {
                    let i = sig(gate(0, k, &hs) + peep(0, k) * cs[k]);
                    let fg = sig(gate(2, k, &hs) + peep(2, k) * cs[k]);
                    let c = fg * cs[k] + i * gate(3, k, &hs).tanh();
                    let o = sig(gate(1, k, &hs) + peep(1, k) * c);
                    cs[k] = c;
                    nh[k] = o * c.tanh();
                }
                hs = nh;
                for k in 0..h {
                    y[((t * 2 + d) * batch + n) * h + k] = hs[k];
                }
            }
            for k in 0..h {
                let at = (d * batch + n) * h + k;
                assert!((out[1].get_f64(at) - hs[k]).abs() < 1e-5);
                assert!((out[2].get_f64(at) - cs[k]).abs() < 1e-5);
            }
        }
    }
    for (k, v) in y.iter().enumerate() {
        assert!((out[0].get_f64(k) - v).abs() < 1e-5, "{k}");
    }
}

#[test]
fn gru_both_forms_and_batch_first() {
    let (seq, batch, input, h) = (4, 3, 5, 6);
    let x = random(&[batch, seq, input], 1);
    let w = random(&[1, 3 * h, input], 2);
    let r = random(&[1, 3 * h, h], 3);
    let b = random(&[1, 6 * h], 4);
    for linear in [false, true] {
        let mut s = spec(RecurrentKind::Gru, h, "forward", &[0, 1, 2, 3]);
        s.linear_before_reset = linear;
        s.batch_first = true;
        let out = recurrent(&s, &[&x, &w, &r, &b]).unwrap();
        assert_eq!(out.len(), 2);
        assert_eq!(out[0].shape(), [batch, seq, 1, h]);
        for n in 0..batch {
            let mut hs = vec![0.0f64; h];
            for t in 0..seq {
                let wx = |row: usize| {
                    (0..input)
                        .map(|q| w.get_f64(row * input + q) * x.get_f64((n * seq + t) * input + q))
                        .sum::<f64>()
                        + b.get_f64(row)
                };
                let rh = |row: usize, v: &[f64]| {
                    (0..h).map(|q| r.get_f64(row * h + q) * v[q]).sum::<f64>()
                        + b.get_f64(3 * h + row)
                };
                let z: Vec<f64> = (0..h).map(|k| sig(wx(k) + rh(k, &hs))).collect();
                let rs: Vec<f64> = (0..h).map(|k| sig(wx(h + k) + rh(h + k, &hs))).collect();
                let scaled: Vec<f64> = (0..h).map(|k| rs[k] * hs[k]).collect();
                hs = (0..h)
                    .map(|k| {
                        let g = wx(2 * h + k)
                            + if linear {
                                rs[k] * rh(2 * h + k, &hs)
                            } else {
                                rh(2 * h + k, &scaled)
                            };
                        (1.0 - z[k]) * g.tanh() + z[k] * hs[k]
                    })
                    .collect();
                for (k, v) in hs.iter().enumerate() {
                    assert!((out[0].get_f64((n * seq + t) * h + k) - v).abs() < 1e-5);
                }
            }
        }
    }
}

#[test]
fn rnn_activations_and_clip() {
    let mut s = spec(RecurrentKind::Rnn, 1, "reverse", &[0, 1, 2]);
    s.activations = vec!["Affine".into()];
    s.alphas = vec![2.0];
    s.betas = vec![1.0];
    s.clip = Some(3.0);
    let x = f(&[2, 1, 1], &[1.0, 4.0]);
    let one = f(&[1, 1, 1], &[1.0]);
    let out = recurrent(&s, &[&x, &one, &one]).unwrap();
    // From the end: 2*min(4,3)+1 = 7, then 2*min(1+7,3)+1 = 7.
    assert_eq!(out[0].to_f32().unwrap(), [7.0, 7.0]);
    // Each activation has its own parameters, those that take none included.
    let mut both = spec(RecurrentKind::Rnn, 1, "bidirectional", &[0, 1, 2]);
    both.activations = vec!["Relu".into(), "Affine".into()];
    both.alphas = vec![0.0, 2.0];
    both.betas = vec![0.0, 1.0];
    let two = f(&[2, 1, 1], &[1.0, 1.0]);
    let out = recurrent(&both, &[&f(&[1, 1, 1], &[3.0]), &two, &two]).unwrap();
    assert_eq!(out[0].to_f32().unwrap(), [3.0, 7.0]);
    // Without W the parts of the gates are given.
    let mut rest = s.clone();
    rest.present[1] = false;
    let parts = recurrent(&rest, &[&x, &one]).unwrap();
    assert_eq!(parts[0].to_f32().unwrap(), [7.0, 7.0]);
    let wrong = recurrent(&s, &[&x, &x, &one]).unwrap_err().to_string();
    assert!(
        wrong.contains("RNN") && wrong.contains("W must be"),
        "{wrong}"
    );
}

#[test]
fn running_sums() {
    let mut b = ExprBuilder::new();
    let z = b.constant(0.0, DType::F32);
    let identity = b.finish(&[z]);
    let mut b = ExprBuilder::new();
    let (p, q) = (b.input(0, DType::F32), b.input(1, DType::F32));
    let s = b.add(p, q);
    let m = Monoid {
        name: "sum".into(),
        identity,
        lift: expr::Expr::identity(DType::F32),
        combine: b.finish(&[s]),
        finish: expr::Expr::identity(DType::F32),
    };
    let x = f(&[2, 3], &[1., 2., 3., 4., 5., 6.]);
    let go = |e, r| {
        scan(&[&x], &m, 1, e, r, &|_| None).unwrap()[0]
            .to_f32()
            .unwrap()
    };
    assert_eq!(go(false, false), [1., 3., 6., 4., 9., 15.]);
    assert_eq!(go(true, false), [0., 1., 3., 0., 4., 9.]);
    assert_eq!(go(false, true), [6., 5., 3., 15., 11., 6.]);
    assert_eq!(go(true, true), [5., 3., 0., 11., 6., 0.]);
}

#[test]
fn resampling() {
    let go = |mode: ResampleMode, coordinates: &str, antialias: bool, x: &[f32], n: usize| {
        let s = ResampleSpec {
            mode,
            coordinates: coordinates.into(),
            scales: vec![n as f64 / x.len() as f64],
            antialias,
            exclude_outside: false,
        };
        resample(&s, &f(&[x.len()], x), &[n])
            .unwrap()
            .to_f32()
            .unwrap()
    };
    let near = |r: &str| ResampleMode::Nearest { rounding: r.into() };
    assert_eq!(
        go(near("floor"), "asymmetric", false, &[1., 2.], 4),
        [1., 1., 2., 2.]
    );
    assert_eq!(
        go(
            near("round_prefer_floor"),
            "half_pixel",
            false,
            &[1., 2., 3., 4.],
            2
        ),
        [1., 3.]
    );
    assert_eq!(
        go(ResampleMode::Linear, "half_pixel", false, &[1., 2.], 4),
        [1., 1.25, 1.75, 2.]
    );
    assert_eq!(
        go(ResampleMode::Linear, "align_corners", false, &[1., 4.], 4),
        [1., 2., 3., 4.]
    );
    // A triangle of half width 2 around 0.5 and 2.5 (in input coordinates), normalised.
    let v = go(
        ResampleMode::Linear,
        "half_pixel",
        true,
        &[1., 2., 3., 4.],
        2,
    );
    assert!(
        (v[0] - (1.0 * 0.25 + 1.0 * 0.75 + 2.0 * 0.75 + 3.0 * 0.25) / 2.0).abs() < 1e-6,
        "{v:?}"
    );
    let c = ResampleMode::Cubic { a: -0.75 };
    let v = go(c, "half_pixel", false, &[1., 2., 3., 4.], 8);
    // Neighbours differ as in a row of the standard's upsample example.
    let want = [0.894_531_25, 1.191_406_3, 1.667_968_8, 2.296_875];
    assert!(
        v.iter().zip(want).all(|(a, b)| (a - b).abs() < 1e-6),
        "{v:?}"
    );
    // Scales of 0 stand for the ratio of extents; nothing from nothing is nothing.
    for (x, n) in [(vec![1., 2.], 4), (vec![], 0), (vec![1.], 0)] {
        let s = ResampleSpec {
            mode: near("floor"),
            coordinates: "asymmetric".into(),
            scales: vec![0.0],
            antialias: false,
            exclude_outside: false,
        };
        let y = resample(&s, &f(&[x.len()], &x), &[n]).unwrap();
        assert_eq!(y.to_f32().unwrap(), [1., 1., 2., 2.][..n]);
    }
    let bad = ResampleSpec {
        mode: ResampleMode::Linear,
        coordinates: "odd".into(),
        scales: vec![2.0],
        antialias: false,
        exclude_outside: false,
    };
    assert!(
        resample(&bad, &f(&[2], &[1., 2.]), &[4])
            .unwrap_err()
            .to_string()
            .contains("'odd'")
    );
}

#[test]
fn pooling_counts_padding_as_told() {
    let x = f(&[1, 1, 4], &[1., 2., 3., 4.]);
    let w = PoolWindow {
        kernel: vec![3],
        strides: vec![2],
        dilations: vec![1],
        before: vec![1],
        after: vec![0],
        out: vec![3],
    };
    let go = |k: PoolKind| pool(&x, &k, &w).unwrap().to_f32().unwrap();
    assert_eq!(go(PoolKind::Max), [2., 4., 4.]);
    assert_eq!(go(PoolKind::Average { include_pad: false }), [1.5, 3., 4.]);
    // The last window reaches beyond the padding, which never counts.
    assert_eq!(go(PoolKind::Average { include_pad: true }), [1., 3., 4.]);
    let lp = go(PoolKind::Lp { p: 2 });
    assert!((lp[0] - 5f32.sqrt()).abs() < 1e-6);
    let bytes = Tensor::from_i8(&[1, 1, 4], &[-5, -2, -7, -8]).unwrap();
    assert_eq!(
        pool(&bytes, &PoolKind::Max, &w).unwrap().to_i8().unwrap(),
        [-2, -2, -8]
    );
    assert!(pool(&bytes, &PoolKind::Lp { p: 1 }, &w).is_err());
}

#[test]
fn movement() {
    let x = f(&[2, 3], &[0., 1., 2., 3., 4., 5.]);
    assert_eq!(
        permute(&x, &[1, 0]).unwrap().to_f32().unwrap(),
        [0., 3., 1., 4., 2., 5.]
    );
    assert!(permute(&x, &[1, 1]).is_err());
    assert_eq!(
        slice(&x, &[1, 2], &[1, -2], &[1, 2])
            .unwrap()
            .to_f32()
            .unwrap(),
        [5., 3.]
    );
    assert!(slice(&x, &[0, 0], &[1, 2], &[2, 3]).is_err());
    let e = expand(&f(&[3], &[1., 2., 3.]), &[2, 3]).unwrap();
    assert_eq!(e.to_f32().unwrap(), [1., 2., 3., 1., 2., 3.]);
    let c = concat(&[&x, &f(&[2, 1], &[8., 9.])], 1).unwrap();
    assert_eq!(c.to_f32().unwrap(), [0., 1., 2., 8., 3., 4., 5., 9.]);
    let at = Tensor::from_i64(&[2], &[-1, 0]).unwrap();
    assert_eq!(
        gather(&x, &at, 1, 0).unwrap().to_f32().unwrap(),
        [2., 0., 5., 3.]
    );
    assert!(gather(&x, &Tensor::from_i64(&[1], &[3]).unwrap(), 1, 0).is_err());
    // Each row by indices of its own.
    let own = Tensor::from_i64(&[2, 2], &[2, 2, 0, -2]).unwrap();
    assert_eq!(
        gather(&x, &own, 1, 1).unwrap().to_f32().unwrap(),
        [2., 2., 3., 4.]
    );
    assert!(gather(&x, &Tensor::from_i64(&[1, 1], &[0]).unwrap(), 1, 1).is_err());
    let ix = Tensor::from_i64(&[2, 1], &[1, 1]).unwrap();
    let u = f(&[2, 3], &[1.; 6]);
    let y = scatter_nd(&x, &ix, &u, ScatterReduce::Add).unwrap();
    assert_eq!(y.to_f32().unwrap(), [0., 1., 2., 5., 6., 7.]);
    let (v, i) = sort(&x, 1, 2, true).unwrap();
    assert_eq!(v.to_f32().unwrap(), [2., 1., 5., 4.]);
    assert_eq!(i.to_i64().unwrap(), [2, 1, 2, 1]);
    let u64s = Tensor::from_bytes(
        DType::U64,
        &[2],
        [u64::MAX.to_le_bytes(), 1u64.to_le_bytes()].concat(),
    )
    .unwrap();
    assert_eq!(sort(&u64s, 0, 1, true).unwrap().1.to_i64().unwrap(), [0]);
}
