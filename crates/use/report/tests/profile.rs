//! Profiles.
use plan::{Fate, NodeFate, Span, Timeline};
use shopfloor_report::{Profile, ProfileInput, StepView, Style};

fn view(number: u32, name: &str, family: &str) -> StepView {
    StepView {
        number,
        name: name.into(),
        nodes: vec![format!("/{name}")],
        family: family.into(),
        kernel: "k".into(),
        shapes: "m=4".into(),
        schedule: "m4".into(),
        tasks: 1,
        predicted_us: 2.0,
        flop: 4000.0,
        ops: 4000.0,
        unique_read: 1000.0,
        unique_written: 1000.0,
        loaded: 4000.0,
        stored: 1000.0,
        bound: "compute:fma".into(),
        reason: String::new(),
    }
}

#[test]
fn medians_shares_and_every_node_once() {
    let span = |step, worker, a, b| Span {
        step,
        worker,
        first_task: worker,
        tasks: 1,
        start_ns: a,
        end_ns: b,
    };
    let t = |slow: u64| Timeline {
        steps: vec!["a".into(), "b".into()],
        spans: vec![
            span(0, 0, 0, 3000 * slow),
            span(0, 1, 1000, 2000),
            span(1, 0, 3000, 4000),
        ],
        total_ns: 5000,
        ..Timeline::default()
    };
    let fates = [
        NodeFate {
            node: "/a".into(),
            op_type: "MatMul".into(),
            fate: Fate::Items(vec!["a".into()]),
        },
        NodeFate {
            node: "/r".into(),
            op_type: "Reshape".into(),
            fate: Fate::View,
        },
    ];
    let p = Profile::new(ProfileInput {
        model: "m",
        device: "cpu",
        machine: "x",
        threads: 2,
        warmup: 1,
        steps: vec![
            (view(0, "a", "contract"), None),
            (view(1, "b", "map"), None),
            (view(2, "not run", "map"), None),
        ],
        timelines: &[t(1), t(1), t(9)],
        fates: &fates,
        dims: String::new(),
    });
    assert_eq!(p.steps.len(), 2);
    assert_eq!((p.steps[0].time_us, p.steps[0].workers), (3.0, 2));
    assert!((p.other_share - 0.25).abs() < 1e-9);
    assert!((p.steps[0].error - 0.5).abs() < 1e-9);
    assert!((p.steps[0].gflops - 4000.0 / 3000.0).abs() < 1e-9);
    assert_eq!(
        (
            p.accounting.total,
            p.accounting.in_steps,
            p.accounting.views
        ),
        (2, 1, 1)
    );
    let text = p.render(Style::default(), 15, true);
    assert!(text.contains("0.67|1.67"), "{text}");
    assert!(text.lines().all(|l| l.chars().count() <= 100), "{text}");
}
