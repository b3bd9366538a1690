//! What a step takes in virtual time.
use machine::Bound;
use shopfloor_sim::{Conditions, StepTime};

fn step() -> StepTime {
    StepTime {
        name: "s".into(),
        bound: Bound::Launch,
        predicted_s: 1e-3,
        compute_s: 1e-3,
        memory_s: 0.4e-3,
        fixed_s: 0.0,
        tasks: 8,
        workers: 2,
    }
}

#[test]
fn conditions_stretch_what_they_concern() {
    let s = step();
    let at = |clock, memory, others, shares: &[f64]| {
        s.seconds(
            &Conditions {
                clock,
                memory,
                others,
                shares,
            },
            0.0,
        )
    };
    let near = |a: f64, b: f64| assert!((a - b).abs() < 1e-9, "{a} {b}");
    near(at(1.0, 1.0, 0.0, &[1.0, 1.0]), 1e-3);
    near(at(0.5, 1.0, 0.0, &[1.0, 1.0]), 2e-3);
    near(at(1.0, 0.5, 0.0, &[1.0, 1.0]), 1e-3);
    near(at(1.0, 0.2, 0.0, &[1.0, 1.0]), 2e-3);
    near(at(1.0, 1.0, 0.0, &[1.0]), 2e-3);
    near(at(1.0, 1.0, 0.0, &[1.0, 0.5]), 4e-3 / 3.0);
    near(s.task_s(), 0.25e-3);
}
