//! Groups of nodes: as large as possible, and none with a path that leaves and comes back.
use onnxruntime_ep_shopfloor::groups::groups;

#[test]
fn a_chain_is_cut_where_a_node_is_not_taken() {
    let from = [vec![], vec![0], vec![1], vec![2]];
    assert_eq!(groups(&[true; 4], &from), [vec![0, 1, 2, 3]]);
    let takes = [true, true, false, true];
    assert_eq!(groups(&takes, &from), [vec![0, 1], vec![3]]);
}

#[test]
fn what_a_path_around_joins_is_two_groups() {
    // 0 goes to 2 directly and through 1, which is not taken.
    let from = [vec![], vec![0], vec![0, 1]];
    assert_eq!(groups(&[true, false, true], &from), [vec![0], vec![2]]);
}

#[test]
fn what_begins_beside_joins_those_that_take_it() {
    // 3 takes what 2 gives, which begins a branch of its own, and what comes over 1, which is not taken.
    let from = [vec![], vec![0], vec![], vec![1, 2]];
    assert_eq!(
        groups(&[true, false, true, true], &from),
        [vec![0], vec![2, 3]]
    );
}

#[test]
fn groups_of_random_graphs_are_convex_and_no_two_wait_for_each_other() {
    let mut seed = 1u64;
    let mut draw = |n: u64| {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (seed >> 33) % n
    };
    for _ in 0..300 {
        let count = 2 + draw(30) as usize;
        let takes: Vec<bool> = (0..count).map(|_| draw(4) > 0).collect();
        let from: Vec<Vec<usize>> = (0..count)
            .map(|n| (0..n).filter(|_| draw(6) == 0).collect())
            .collect();
        let all = groups(&takes, &from);
        let mut of: Vec<usize> = (0..count).map(|n| all.len() + n).collect();
        for (g, nodes) in all.iter().enumerate() {
            assert!(nodes.iter().all(|&n| takes[n]) && nodes.is_sorted());
            nodes.iter().for_each(|&n| of[n] = g);
        }
        assert!(takes.iter().zip(&of).all(|(&t, &g)| t == (g < all.len())));
        // Each group as one node: a circle would be a path that comes back.
        let mut waits: Vec<Vec<usize>> = vec![vec![]; all.len() + count];
        for n in 0..count {
            let others = from[n].iter().filter(|&&p| of[p] != of[n]);
            waits[of[n]].extend(others.map(|&p| of[p]));
        }
        let mut done = vec![false; waits.len()];
        for _ in 0..waits.len() {
            for g in 0..waits.len() {
                done[g] |= waits[g].iter().all(|&w| done[w]);
            }
        }
        assert!(
            done.iter().all(|&d| d),
            "{takes:?} {from:?} give {all:?}, which wait for each other"
        );
    }
}
