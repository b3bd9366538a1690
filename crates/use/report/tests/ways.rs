//! Pages about the ways by which steps run.
use shopfloor_report::{
    BenchReport, HowRun, LatencyMs, PersistentReport, Style, WaysReport, Worker,
};

#[test]
fn pages_are_a_hundred_columns_wide() {
    let one = BenchReport {
        model: "a_model_with_a_long_name".into(),
        device: "emulated:a100 (ptx-sm_80)".into(),
        threads: 108,
        how: HowRun {
            launch: Some("resident".into()),
            precision: Some("f32: 1 step by multiply-adds".into()),
            ran_on: vec![(Worker::Multiprocessor, 108)],
        },
        bound_to_device: false,
        iterations: 10_000,
        latency_ms: LatencyMs::of(&[1.2345, 2.0, 123.456]),
        throughput_per_s: 123_456.0,
        predicted_ms: 123.4,
        predicted_copies_ms: 2.0,
        emulated: true,
        emulation_ms: Some(10.0),
        round_trip_us: Some(2.92),
        load_ms: 1.0,
        plan_ms: 1.0,
        assumed: vec![],
        peak_rss_bytes: None,
    };
    let ways = WaysReport {
        steps: one.clone(),
        resident: one.clone(),
    };
    let textbook = PersistentReport {
        device: one.device.clone(),
        how: HowRun::default(),
        emulated: true,
        batches: 100,
        kernel: "f32 product [16,1024] x [1024,16]".into(),
        bytes: (1 << 20, 1 << 20),
        kernel_us: 10.0,
        launched_us: 1234.5,
        resident_us: 1000.0,
        predicted_us: (2000.0, 1000.0),
        round_trip_us: Some(2.9),
    };
    let style = Style::default();
    let pages = [
        one.render(style),
        ways.render(style),
        textbook.render(style),
    ];
    for page in pages {
        for line in page.lines() {
            assert!(line.chars().count() <= 100, "{line}");
        }
        assert!(page.contains("emulated"), "{page}");
    }
    let none = WaysReport {
        resident: BenchReport {
            round_trip_us: None,
            ..one.clone()
        },
        steps: one,
    };
    assert!(none.render(style).contains("no kernel stays"));
}
