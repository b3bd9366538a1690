//! How long blocks are said to take whose steps need not follow each other.
use crate::common;

use common::*;
use shopfloor_plan::{Step, Wait};

/// A block of steps of so many tasks, each taking one second, that wait for these.
fn block(steps: &[(u64, &[u32])]) -> shopfloor_plan::Block {
    let mut p = PlanMaker::new();
    let (x, y) = (
        p.input(layout::DType::F32, &[d(4), d(4)]),
        p.output(&[d(4), d(4)]),
    );
    let kernel = kernels::pointwise(d(4), d(4), expr::Unary::Exp);
    for _ in steps {
        p.step(
            false,
            (kernel.clone(), kernels::pointwise_cpu(3)),
            &[x, y],
            &[],
        );
    }
    let set = |(s, (tasks, waits)): (&mut Step, &(u64, &[u32]))| {
        s.cost_work.tasks = *tasks;
        s.waits = waits.iter().map(|&w| Wait::Step(w)).collect();
    };
    p.block.steps.iter_mut().zip(steps).for_each(set);
    p.block
}

#[test]
fn steps_that_wait_for_each_other_add_up() {
    let b = block(&[(1, &[]), (8, &[0]), (1, &[1])]);
    for workers in [1, 2, 3, 64] {
        assert_eq!(b.elapsed_s(workers, |_| 1.0), 3.0, "{workers} workers");
    }
}

#[test]
fn single_tasks_that_wait_for_nothing_run_side_by_side() {
    // Two directions of a recurrence, and what needs both.
    let b = block(&[(1, &[]), (1, &[]), (1, &[0, 1])]);
    assert_eq!(b.elapsed_s(1, |_| 1.0), 3.0);
    assert_eq!(b.elapsed_s(2, |_| 1.0), 2.0);
    // The longer of the two counts.
    assert_eq!(b.elapsed_s(2, |s| [3.0, 1.0, 1.0][s]), 4.0);
}

#[test]
fn tasks_go_to_whoever_is_free() {
    // While one worker is at the long task the other takes both halves of the next step.
    let b = block(&[(1, &[]), (2, &[]), (1, &[1])]);
    assert_eq!(b.elapsed_s(2, |s| [4.0, 1.0, 1.0][s]), 4.0);
    // Of three rounds for two workers one is half empty: the next step's task fits there.
    let b = block(&[(3, &[]), (1, &[])]);
    assert_eq!(b.elapsed_s(2, |s| [2.0, 1.0][s]), 2.0);
}

#[test]
fn who_waits_takes_nothing_else() {
    // The second worker has taken the task that waits, and the step after that waits for nothing: nobody is
    // free before the first is done.
    let b = block(&[(1, &[]), (1, &[0]), (1, &[])]);
    assert_eq!(b.elapsed_s(2, |s| [2.0, 1.0, 1.0][s]), 3.0);
}

#[test]
fn no_step_takes_no_time() {
    assert_eq!(block(&[]).elapsed_s(4, |_| 1.0), 0.0);
}
