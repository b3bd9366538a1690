//! Sweeps over divisions.
use shopfloor_report::{HowRun, LatencyMs, Style, SweepReport, SweepRow};

fn row(per_s: f64, p99: f64, chosen: bool) -> SweepRow {
    SweepRow {
        batch: 1,
        instances: 2,
        workers: 1,
        callers: 2,
        predicted_per_s: per_s,
        predicted_ms: p99,
        per_s,
        latency_ms: LatencyMs {
            p99,
            ..LatencyMs::default()
        },
        chosen,
    }
}

#[test]
fn the_best_is_among_those_that_keep_the_bound() {
    let mut r = SweepReport {
        model: "m".into(),
        device: "cpu".into(),
        how: HowRun::default(),
        threads: 2,
        bound_ms: None,
        reason: "because".into(),
        rows: vec![row(100.0, 50.0, false), row(80.0, 10.0, true)],
    };
    assert_eq!(r.share_of_best(), Some(0.8));
    r.bound_ms = Some(20.0);
    assert_eq!(r.share_of_best(), Some(1.0));
    let text = r.render(Style::default());
    assert!(
        text.contains("2 x 1") && text.contains("100% of the best"),
        "{text}"
    );
}
