//! Work on several threads.
use shopfloor_planner::internals::map;

#[test]
fn results_have_the_order_of_the_items() {
    for n in 0..40usize {
        let items: Vec<usize> = (0..n).collect();
        let squares: Vec<usize> = items.iter().map(|i| i * i).collect();
        assert_eq!(map(&items, |i| i * i), squares);
    }
}
