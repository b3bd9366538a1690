//! Sorting in little code gives what the standard library's gives.
use fastrand::Rng;
use shopfloor_layout::{Arrange, Inserted};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

#[test]
fn lists_of_any_length_are_sorted_and_equal_elements_keep_their_order() {
    let mut random = Rng::with_seed(7);
    for n in (0..40).chain([100, 1000]) {
        for kinds in [1, 3, 1000] {
            let list: Vec<(u32, usize)> = (0..n).map(|i| (random.u32(..kinds), i)).collect();
            let mut expected = list.clone();
            let mut given = list.clone();
            expected.sort_by_key(|e| e.0);
            given.arrange_by_key(|e| e.0);
            assert_eq!(given, expected);
            expected = list.clone();
            given = list;
            expected.sort_by_key(|e| Reverse(e.0));
            given.arrange_by(|a, b| b.0.cmp(&a.0));
            assert_eq!(given, expected);
            expected.sort();
            given.arrange();
            assert_eq!(given, expected);
        }
    }
}

#[test]
fn elements_are_moved_and_not_copied() {
    let mut list: Vec<String> = (0..50).map(|i| (i * 37 % 50).to_string()).collect();
    list.arrange_by_key(String::len);
    assert!(list.is_sorted_by_key(String::len));
    list.arrange_by(|a, b| a.cmp(b));
    assert!(list.is_sorted());
}

#[test]
fn maps_and_sets_are_as_if_collected() {
    let mut random = Rng::with_seed(8);
    let list: Vec<(u32, usize)> = (0..300).map(|i| (random.u32(..100), i)).collect();
    let each = || list.iter().copied();
    assert_eq!(
        each().inserted::<BTreeMap<u32, usize>>(),
        each().collect::<BTreeMap<u32, usize>>()
    );
    assert_eq!(
        each().inserted::<BTreeSet<(u32, usize)>>(),
        each().collect::<BTreeSet<(u32, usize)>>()
    );
}
