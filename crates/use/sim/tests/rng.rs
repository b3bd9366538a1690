//! The simulator's random numbers.
use shopfloor_sim::Rng;

#[test]
fn means_are_what_they_should_be() {
    let mut r = Rng::new(7, 1);
    let n = 200_000;
    let mean = |f: &mut dyn FnMut() -> f64| (0..n).map(|_| f()).sum::<f64>() / f64::from(n);
    assert!((mean(&mut || r.unit()) - 0.5).abs() < 0.01);
    let mut r = Rng::new(7, 2);
    assert!((mean(&mut || r.exponential()) - 1.0).abs() < 0.02);
    let mut r = Rng::new(7, 3);
    assert!((mean(&mut || r.pareto(2.5)) - 1.0).abs() < 0.05);
    let mut r = Rng::new(7, 4);
    assert!(mean(&mut || r.normal()).abs() < 0.02);
    assert_ne!(Rng::new(1, 0).bits(), Rng::new(1, 1).bits());
    assert_eq!(Rng::new(3, 5).bits(), Rng::new(3, 5).bits());
}
