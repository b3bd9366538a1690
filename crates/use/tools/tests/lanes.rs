//! How lanes of a request lie.
use shopfloor_tools::internals::{touched, way};

#[test]
fn lanes_are_told_apart_by_their_distances() {
    let at = |v: &[i64]| -> Vec<Option<u64>> { v.iter().map(|a| u64::try_from(*a).ok()).collect() };
    assert_eq!(way(&at(&[0, 4, 8]), 4), ("contiguous", Some(4)));
    assert_eq!(way(&at(&[64, -1, 72]), 4), ("contiguous", Some(4)));
    assert_eq!(way(&at(&[8, 8, 8]), 4), ("one element", Some(0)));
    assert_eq!(way(&at(&[12, 8, 4]), 4), ("strided", Some(-4)));
    assert_eq!(way(&at(&[0, 4, 16, 36]), 4), ("scattered", None));
    assert_eq!(way(&at(&[0, 4, 64, 68]), 4), ("in rows", None));
    assert_eq!(way(&at(&[0, -1, 5]), 4), ("scattered", None));
    assert_eq!(way(&at(&[-1, 8]), 4), ("contiguous", None));
    assert_eq!(way(&[], 4), ("contiguous", None));
    assert_eq!(touched(&at(&[60, 64, -1]), 8, 64), (2, 1));
    assert_eq!(touched(&at(&[0, 0, 0]), 4, 64), (1, 1));
    assert_eq!(touched(&at(&[0, 256, 512]), 4, 64), (3, 1));
    assert_eq!(touched(&[], 4, 64), (0, 0));
}
