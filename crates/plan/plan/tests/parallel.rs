//! Work on several threads.
use shopfloor_plan::parallel::map;

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
