//! Batch, instances and workers per instance.
use shopfloor_plan::Goal;
use shopfloor_plan::division::{Prediction, choose, ladder, on_shares};

fn p(batch: u32, workers: u32, ms: f64, memory_ms: f64) -> Prediction {
    Prediction {
        batch,
        workers,
        seconds: ms * 1e-3,
        memory_s: memory_ms * 1e-3,
    }
}

#[test]
fn latency_takes_all_workers_only_where_that_pays() {
    let d = choose(
        "m",
        &[p(1, 1, 10.0, 1.0), p(1, 2, 6.0, 1.0)],
        &Goal::Latency,
        2,
    )
    .unwrap();
    assert_eq!((d.batch, d.instances, d.workers), (1, 1, 2));
    let d = choose(
        "m",
        &[p(1, 1, 10.0, 1.0), p(1, 2, 9.9, 1.0)],
        &Goal::Latency,
        2,
    )
    .unwrap();
    assert_eq!((d.instances, d.workers), (2, 1));
}

#[test]
fn throughput_prefers_instances_until_they_share_memory() {
    let goal = Goal::Throughput {
        max_latency_s: None,
    };
    let compute = [p(1, 1, 10.0, 1.0), p(1, 2, 6.0, 1.0)];
    let d = choose("m", &compute, &goal, 2).unwrap();
    assert_eq!((d.instances, d.workers), (2, 1));
    assert!((d.throughput - 200.0).abs() < 1e-9);
    let memory = [p(1, 1, 10.0, 9.0), p(1, 2, 8.0, 8.0)];
    let d = choose("m", &memory, &goal, 2).unwrap();
    assert_eq!((d.instances, d.workers), (1, 2));
}

#[test]
fn a_bound_limits_the_batch_and_what_cannot_be_kept_is_said() {
    let all = [p(1, 1, 10.0, 0.1), p(8, 1, 40.0, 0.1), p(32, 1, 140.0, 0.1)];
    let at = |ms: f64| {
        let goal = Goal::Throughput {
            max_latency_s: Some(ms * 1e-3),
        };
        choose("m", &all, &goal, 2).unwrap()
    };
    assert_eq!(at(500.0).batch, 32);
    assert_eq!(at(100.0).batch, 8);
    let none = at(5.0);
    assert_eq!(none.batch, 1);
    assert!(none.why.reason.contains("no way keeps"));
    assert!(at(100.0).max_delay_s > 0.0 && at(100.0).max_delay_s <= 0.020 + 1e-12);
    assert!((at(100.0).marginal - 3.0 / 7.0).abs() < 1e-9);
}

#[test]
fn shares_of_cores_stretch_runs() {
    assert_eq!(on_shares(1.0, 2, &[], 10), 1.0);
    assert_eq!(on_shares(1.0, 1, &[0.5, 1.0], 10), 1.0);
    assert!((on_shares(1.0, 2, &[0.5, 1.0], 0) - 2.0 / 1.5).abs() < 1e-12);
    // Few long steps wait for the slice in which a worker is away.
    assert!((on_shares(1.0, 2, &[0.5, 1.0], 10) - (2.0 / 1.5 + 10.0 * 0.75e-3)).abs() < 1e-12);
    // Many short ones stand still with it: a model of 60 steps that took 1.03 ms took 2.06 beside a
    // neighbour on one of two cores (bench/DRILLS.md).
    assert!((on_shares(1.03e-3, 2, &[0.5, 1.0], 60) - 2.06e-3).abs() < 1e-9);
    assert_eq!(ladder(6), [1, 2, 4, 6]);
    assert_eq!(ladder(0), [1]);
}

#[test]
fn nothing_sound_gives_nothing() {
    assert!(choose("m", &[], &Goal::Latency, 2).is_none());
    assert!(choose("m", &[p(1, 4, 1.0, 0.0)], &Goal::Latency, 2).is_none());
    assert!(choose("m", &[p(1, 1, f64::NAN, 0.0)], &Goal::Latency, 2).is_none());
}
