//! What is made once and shared.
use shopfloor_plan::MadeOnce;
use std::sync::Arc;

#[test]
fn what_was_made_is_found_again_by_whoever_shares_it() {
    let made = MadeOnce::default();
    let first = made.get_or_make(|| 1u32);
    let shared = made.clone();
    assert!(Arc::ptr_eq(&first, &made.get_or_make(|| 2u32)));
    assert!(Arc::ptr_eq(&first, &shared.get_or_make(|| 3u32)));
    assert_eq!(*made.get_or_make(|| "another type"), "another type");
}
