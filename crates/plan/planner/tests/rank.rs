//! Which candidates have their instructions counted.
use shopfloor_planner::internals::{COUNTED, others_too};

#[test]
fn some_of_the_other_kind_are_counted_however_few_there_are() {
    // Even numbers are of one kind, odd ones of the other.
    let ordered = |mut list: Vec<usize>| {
        others_too(&mut list, COUNTED, |n| n % 2 == 0);
        list
    };
    for n in 0..COUNTED + 3 {
        let same: Vec<usize> = (0..n).map(|i| 2 * i).collect();
        assert_eq!(ordered(same.clone()), same, "there is no other kind");
        let last: Vec<usize> = same.iter().copied().chain([1, 3]).collect();
        let counted = ordered(last.clone());
        let others = counted.iter().take(COUNTED).filter(|n| *n % 2 == 1).count();
        assert_eq!(others, 2, "{counted:?}");
        assert_eq!(counted.len(), last.len());
    }
}
