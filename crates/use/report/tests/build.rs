//! The report page's data.
use plan::{Activity, DeviceSpan, Span, Timeline};
use shopfloor_report::internals::{module_in, page_timeline};
use std::collections::BTreeMap;

#[test]
fn modules_are_read_off_names() {
    // Where the exporter left nothing.
    let module_of = |node: &str| module_in(&BTreeMap::new(), node);
    assert_eq!(
        module_of("/blocks/blocks.0/attn/MatMul"),
        "blocks/blocks.0/attn"
    );
    assert_eq!(module_of("/MatMul"), "");
    assert_eq!(module_of("node_linear_3"), "");
    assert_eq!(module_of("/"), "");
    assert_eq!(module_of("a//b/"), "a");
}

#[test]
fn nodes_of_functions_are_in_the_modules_of_their_call() {
    let known = [("layer3_attn", "encoder/layer.3"), ("own", "head")];
    let known = known.map(|(a, b)| (a.to_string(), b.to_string()));
    let known = BTreeMap::from(known);
    let of = |n: &str| module_in(&known, n);
    assert_eq!(of("own"), "head");
    assert_eq!(of("layer3_attn/MatMul_7"), "encoder/layer.3/layer3_attn");
    assert_eq!(
        of("layer3_attn/scores/Softmax"),
        "encoder/layer.3/layer3_attn/scores"
    );
    assert_eq!(of("/blocks/0/Add"), "blocks/0");
    assert_eq!(of("other/Add"), "other");
}

#[test]
fn neighbours_in_a_lane_are_one_span() {
    let span = |step, worker, start_ns, end_ns| Span {
        step,
        worker,
        first_task: 0,
        tasks: 1,
        start_ns,
        end_ns,
    };
    let t = Timeline {
        steps: vec!["a".into(), "b".into(), "unknown".into()],
        spans: vec![
            span(1, 0, 3000, 4000),
            span(0, 0, 0, 1000),
            span(0, 0, 1000, 2500),
            span(0, 3, 500, 900),
            span(2, 3, 1000, 1100),
        ],
        total_ns: 4000,
        held_ns: 0,
        descheduled_ns: vec![],
        lanes: vec!["queue".into()],
        device: vec![DeviceSpan {
            lane: 0,
            what: Activity::Upload,
            step: 1,
            bytes: 8,
            start_ns: 0,
            end_ns: 5000,
        }],
        ..Timeline::default()
    };
    let numbers = BTreeMap::from([("a", 0), ("b", 1)]);
    let p = page_timeline(&t, &numbers);
    assert_eq!(p.total_us, 5.0);
    let names: Vec<&str> = p.lanes.iter().map(|l| l.name.as_str()).collect();
    assert_eq!(names, ["worker 0 (caller)", "worker 3", "queue"]);
    assert_eq!(
        p.spans,
        [
            (0, 0, 0.0, 2.5, 2, "kernel"),
            (0, 1, 3.0, 1.0, 1, "kernel"),
            (1, 0, 0.5, 0.4, 1, "kernel"),
            (1, -1, 1.0, 0.1, 1, "kernel"),
            (2, 1, 0.0, 5.0, 0, "to device"),
        ]
    );
}
