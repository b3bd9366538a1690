//! Queues of a device.
use plan::{Activity, DeviceSpan, Timeline};
use shopfloor_report::queues;

#[test]
fn copies_beside_steps_are_told_from_those_before() {
    let span = |lane, what, bytes, start_ns, end_ns| DeviceSpan {
        lane,
        what,
        step: 0,
        bytes,
        start_ns,
        end_ns,
    };
    let t = Timeline {
        lanes: vec!["compute".into(), "copies".into()],
        device: vec![
            span(1, Activity::Upload, 100, 0, 2000),
            span(0, Activity::Wait, 0, 0, 2000),
            span(0, Activity::Kernel, 0, 2000, 6000),
            span(1, Activity::Download, 50, 5000, 8000),
        ],
        ..Timeline::default()
    };
    let q = queues(&t);
    assert_eq!(
        (q[0].kernels_us, q[0].waits_us, q[0].copies_us),
        (4.0, 2.0, 0.0)
    );
    assert_eq!((q[1].copies_us, q[1].overlapped_us), (5.0, 1.0));
    assert_eq!((q[1].uploaded, q[1].downloaded), (100, 50));
    assert!(
        q[0].line().starts_with("compute: steps 4"),
        "{}",
        q[0].line()
    );
}
