//! Pauses for others.
use shopfloor_plan::{pause, pauses, with_pauses};
use std::cell::Cell;

thread_local!(static COUNT: Cell<usize> = const { Cell::new(0) });

#[test]
fn pauses_end_with_the_work_that_asked_for_them() {
    let count = || COUNT.set(COUNT.get() + 1);
    pause();
    with_pauses(count, pause);
    assert!(!pauses() && with_pauses(count, pauses));
    let panics = std::panic::catch_unwind(|| with_pauses(count, || panic!("on purpose")));
    assert!(panics.is_err());
    pause();
    assert_eq!(COUNT.get(), 1);
}
