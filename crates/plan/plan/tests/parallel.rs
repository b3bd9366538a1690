//! Work on several threads.
use shopfloor_plan::parallel::{map, with_threads};
use std::collections::HashSet;
use std::sync::{Barrier, Mutex};
use std::thread::{self, ThreadId};

#[test]
fn results_have_the_order_of_the_items() {
    for n in 0..40usize {
        let items: Vec<usize> = (0..n).collect();
        let squares: Vec<usize> = items.iter().map(|i| i * i).collect();
        assert_eq!(map(&items, |i| i * i), squares);
    }
}

#[test]
fn maps_within_maps_give_the_same() {
    let items: Vec<usize> = (0..12).collect();
    let inner = |i: &usize| map(&items, |k| i * k).into_iter().sum::<usize>();
    let alone: Vec<usize> = shopfloor_plan::with_pauses(|| {}, || map(&items, inner));
    for _ in 0..20 {
        assert_eq!(map(&items, inner), alone);
    }
}

#[test]
fn a_panic_reaches_the_caller_and_processors_are_given_back() {
    let items: Vec<usize> = (0..64).collect();
    for _ in 0..20 {
        let work = || map(&items, |i| assert_ne!(*i, 40));
        assert!(std::panic::catch_unwind(work).is_err());
    }
    assert_eq!(map(&items, |i| i + 1).len(), items.len());
}

#[test]
fn a_caller_may_have_threads_of_its_own() {
    let items: Vec<usize> = (0..12).collect();
    let seen: Mutex<HashSet<ThreadId>> = Mutex::default();
    let see = || {
        seen.lock().unwrap().insert(thread::current().id());
    };
    // Maps within maps take no more.
    let within = |i: &usize| {
        see();
        map(&items, |_| see());
        *i
    };
    assert_eq!(with_threads(1, || map(&items, within)), items);
    assert_eq!(seen.lock().unwrap().len(), 1);
    // Nobody goes on before four of them have come.
    let all = Barrier::new(4);
    let wait = |_: &usize| all.wait();
    with_threads(4, || map(&items[..4], wait));
    // What one caller took, no other has.
    let alone = with_threads(1, || with_threads(4, || map(&items[..4], wait)).len());
    assert_eq!(alone, 4);
}
