//! The metric by which outputs are judged.
use tensor::Tensor;
use testkit::compare::{difference, sampled};

fn t(v: &[f32]) -> Tensor {
    Tensor::from_f32(&[v.len()], v).unwrap()
}

#[test]
fn the_metric() {
    assert_eq!(difference(&t(&[1.0, -4.0]), &t(&[1.0, -4.0])), 0.0);
    assert_eq!(difference(&t(&[2.0, -4.0]), &t(&[1.0, -4.0])), 0.25);
    assert_eq!(difference(&t(&[]), &t(&[])), 0.0);
    assert_eq!(difference(&t(&[0.0]), &t(&[0.0])), 0.0);
    assert_eq!(difference(&t(&[1.0]), &t(&[1.0, 2.0])), f64::INFINITY);
    assert_eq!(difference(&t(&[f32::NAN]), &t(&[1.0])), f64::INFINITY);
    assert_eq!(difference(&t(&[1.0]), &t(&[f32::INFINITY])), f64::INFINITY);
    assert_eq!(
        difference(&t(&[f32::INFINITY, 1.0]), &t(&[f32::INFINITY, 2.0])),
        0.5
    );
    let a = Tensor::from_i64(&[2], &[i64::MAX, 1]).unwrap();
    let b = Tensor::from_i64(&[2], &[i64::MAX - 1, 1]).unwrap();
    assert_eq!((difference(&a, &a), difference(&a, &b)), (0.0, 1.0));
    assert_eq!(difference(&a, &t(&[1.0, 1.0])), f64::INFINITY);
}

#[test]
fn every_third_element() {
    let all = Tensor::from_f32(&[2, 4], &[0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0]).unwrap();
    assert_eq!(sampled(&all, 3), t(&[0.0, 3.0, 6.0]));
    assert_eq!(sampled(&all, 1).shape(), [8]);
    assert_eq!(sampled(&t(&[]), 5).shape(), [0]);
}
