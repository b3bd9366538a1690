//! Operators of the standard whose cases lie in the standard's own suite: here what data may ask of
//! them and they refuse, and the Fourier transform against its definition.
use layout::DType;
use shopfloor_hostops as hostops;
use tensor::{Attr, Attrs, Tensor};

fn attrs(list: &[(&str, i64)]) -> Attrs {
    let one = |(k, v): &(&str, i64)| (k.to_string(), Attr::Int(*v));
    list.iter().map(one).collect()
}

fn ints(v: &[i64]) -> Tensor {
    Tensor::from_i64(&[v.len()], v).unwrap()
}

fn scalar(v: i64) -> Tensor {
    Tensor::from_i64(&[], &[v]).unwrap()
}

#[cfg(feature = "fft")]
#[test]
fn transforms_of_every_length_are_their_definition_and_turn_back() {
    for n in [1usize, 2, 3, 4, 5, 6, 7, 8, 12, 13, 30, 49] {
        let v: Vec<f32> = (0..2 * n)
            .map(|i| ((i * i + 3) % 11) as f32 - 5.0)
            .collect();
        let x = Tensor::from_f32(&[n, 2], &v).unwrap();
        let a = attrs(&[("opset", 20)]);
        let y = hostops::run("DFT", &a, &[Some(&x), None, Some(&scalar(0))]).unwrap();
        for k in 0..n {
            let (mut re, mut im) = (0.0f64, 0.0f64);
            for t in 0..n {
                let (s, c) = (std::f64::consts::TAU * (k * t) as f64 / n as f64).sin_cos();
                let (a, b) = (f64::from(v[2 * t]), f64::from(v[2 * t + 1]));
                re += a * c + b * s;
                im += b * c - a * s;
            }
            assert!((y[0].get_f64(2 * k) - re).abs() < 1e-4, "{n} {k}");
            assert!((y[0].get_f64(2 * k + 1) - im).abs() < 1e-4, "{n} {k}");
        }
        let a = attrs(&[("opset", 20), ("inverse", 1)]);
        let back = hostops::run("DFT", &a, &[Some(&y[0]), None, Some(&scalar(0))]).unwrap();
        for (i, v) in v.iter().enumerate() {
            assert!((back[0].get_f64(i) - f64::from(*v)).abs() < 1e-4, "{n} {i}");
        }
    }
}

#[test]
fn sizes_that_data_asks_for_are_refused_when_they_are_no_sizes() {
    let x = Tensor::from_f32(&[1, 4, 1], &[1.0; 4]).unwrap();
    let a = attrs(&[("opset", 20)]);
    for length in [0, -1, 1 << 40, (1 << 27) - 39, i64::MAX] {
        let r = hostops::run("DFT", &a, &[Some(&x), Some(&scalar(length)), None]);
        assert!(r.is_err(), "{length}");
    }
    let columns = Tensor::zeros(DType::F32, &[1, 4, 4]).unwrap();
    let pair = [i64::MAX, 2];
    for (image, block) in [(&pair, &[2, 2]), (&[4, 4], &pair), (&[-1, 4], &[2, 2])] {
        let r = hostops::run(
            "Col2Im",
            &Attrs::new(),
            &[Some(&columns), Some(&ints(image)), Some(&ints(block))],
        );
        assert!(r.is_err(), "{image:?} {block:?}");
    }
    let theta = Tensor::zeros(DType::F32, &[1, 2, 3]).unwrap();
    let size = ints(&[1, 1, i64::MAX, i64::MAX]);
    assert!(hostops::run("AffineGrid", &Attrs::new(), &[Some(&theta), Some(&size)]).is_err());
    let m = Tensor::zeros(DType::F32, &[2, 2]).unwrap();
    assert!(
        hostops::run(
            "CenterCropPad",
            &Attrs::new(),
            &[Some(&m), Some(&ints(&[1 << 40, 1 << 40]))]
        )
        .is_err()
    );
    assert!(hostops::run("ReduceSum", &Attrs::new(), &[Some(&m), Some(&ints(&[2]))]).is_err());
    assert!(hostops::run("Squeeze", &Attrs::new(), &[Some(&m), Some(&ints(&[0]))]).is_err());
    assert!(
        hostops::run(
            "Unsqueeze",
            &Attrs::new(),
            &[Some(&m), Some(&ints(&[0, 0]))]
        )
        .is_err()
    );
}

#[test]
fn reductions_by_axes_from_data() {
    let x = Tensor::from_f32(&[2, 3], &[1.0, 2.0, 3.0, 4.0, 5.0, 6.0]).unwrap();
    let sum = |keep: i64, axes: &[i64]| {
        let a = attrs(&[("keepdims", keep)]);
        hostops::run("ReduceSum", &a, &[Some(&x), Some(&ints(axes))]).unwrap()
    };
    assert_eq!(
        sum(1, &[0])[0],
        Tensor::from_f32(&[1, 3], &[5.0, 7.0, 9.0]).unwrap()
    );
    assert_eq!(
        sum(0, &[-1])[0],
        Tensor::from_f32(&[2], &[6.0, 15.0]).unwrap()
    );
    assert_eq!(sum(0, &[])[0], Tensor::from_f32(&[], &[21.0]).unwrap());
    let none = Tensor::zeros(DType::F32, &[0, 3]).unwrap();
    let a = attrs(&[("keepdims", 0)]);
    let max = hostops::run("ReduceMax", &a, &[Some(&none), Some(&ints(&[0]))]).unwrap();
    assert_eq!(
        max[0],
        Tensor::from_f32(&[3], &[f32::NEG_INFINITY; 3]).unwrap()
    );
}
