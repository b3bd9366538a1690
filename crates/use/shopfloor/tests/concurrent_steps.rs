//! Steps that do not wait for each other: planned, predicted and run side by side.
use crate::common;

use plan::Timeline;
use shopfloor::{Session, default_engine, inputs};
use std::collections::BTreeSet;

/// Requests until both workers must have been at work: one of them may be late to wake.
const REQUESTS: usize = 2000;

fn session(workers: usize) -> Session {
    let dir = tempfile::tempdir().expect("a folder");
    let file = dir.path().join("both_ways.onnx");
    std::fs::write(&file, common::both_ways(40, 128)).expect("written");
    Session::builder()
        .with_engine(default_engine(Some(workers), None, None).expect("an engine"))
        .commit_from_file(file)
        .expect("a session")
}

#[test]
fn two_directions_of_a_recurrence_run_side_by_side() {
    let s = session(2);
    let plan = s.plan(s.model().dims()).expect("a plan");
    let steps: Vec<_> = plan.blocks().flat_map(|b| &b.steps).collect();
    let sum: f64 = steps.iter().map(|s| s.predicted.time_s).sum();
    let single = steps.iter().filter(|s| s.cost_work.tasks == 1).count();
    assert!(single >= 2, "{single} steps of one task");
    assert!(
        plan.predicted.time_s < 0.75 * sum,
        "predicted {} s of steps that take {sum} s one after the other",
        plan.predicted.time_s
    );
    let named = inputs::random_inputs(s.model(), &Default::default()).expect("inputs");
    let named = inputs::borrowed(&named);
    let mut t = Timeline::default();
    let both = (0..REQUESTS).any(|_| {
        s.run_timed(&named, &mut t).expect("runs");
        let workers: BTreeSet<u32> = t.spans.iter().map(|s| s.worker).collect();
        workers.len() == 2
    });
    assert!(both, "one worker did all of {REQUESTS} requests");
}

#[test]
fn one_worker_takes_them_one_after_the_other() {
    let s = session(1);
    let plan = s.plan(s.model().dims()).expect("a plan");
    let steps = plan.blocks().flat_map(|b| &b.steps);
    let sum: f64 = steps.map(|s| s.predicted.time_s).sum();
    let off = plan.predicted.time_s / sum - 1.0;
    assert!(off.abs() < 1e-9, "{} and {sum}", plan.predicted.time_s);
}
