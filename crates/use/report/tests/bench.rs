//! Latencies of a benchmark.
use shopfloor_report::LatencyMs;

#[test]
fn nearest_ranks() {
    let v: Vec<f64> = (1..=100).rev().map(f64::from).collect();
    let l = LatencyMs::of(&v);
    assert_eq!(
        (l.min, l.mean, l.p50, l.p90, l.p99, l.p999),
        (1.0, 50.5, 50.0, 90.0, 99.0, 100.0)
    );
    assert_eq!(LatencyMs::of(&[]), LatencyMs::default());
    assert_eq!(LatencyMs::of(&[3.0]).p999, 3.0);
}
