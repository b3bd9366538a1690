//! What timelines say of steps.
use shopfloor_plan::{Span, Timeline};

#[test]
fn runs_of_a_loop_are_told_apart() {
    let span = |step, worker, first_task, tasks, start_ns, end_ns| Span {
        step,
        worker,
        first_task,
        tasks,
        start_ns,
        end_ns,
    };
    let t = Timeline {
        steps: vec!["once".into(), "body".into(), "never".into()],
        spans: vec![
            span(0, 0, 0, 4, 0, 50),
            span(0, 1, 4, 4, 10, 70),
            // Three runs of 10, 20 and 30, tasks shared out in another way each time.
            span(1, 0, 0, 2, 100, 110),
            span(1, 1, 2, 2, 101, 109),
            span(1, 1, 1, 3, 200, 220),
            span(1, 0, 0, 1, 205, 206),
            span(1, 0, 2, 2, 300, 330),
            span(1, 1, 0, 2, 301, 302),
        ],
        total_ns: 400,
        ..Timeline::default()
    };
    assert_eq!(t.step_runs_ns(), [(1, 70), (3, 60), (0, 0)]);
    assert_eq!(t.step_wall_ns(), [70, 60, 0]);
}
