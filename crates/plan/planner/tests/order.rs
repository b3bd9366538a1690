//! The order of groups that grow.
use shopfloor_planner::internals::GroupOrder;

#[test]
fn a_group_follows_what_does_not_need_it() {
    let seed = 0x9e37_79b9_7f4a_7c15_u64;
    let mut drawn = fastrand::Rng::with_seed(seed);
    let mut below = |n: usize| drawn.usize(..n);
    for round in 0..100 {
        let mut o = GroupOrder::default();
        for _ in 0..60 {
            let n = o.place.len();
            if n < 2 || below(3) > 0 {
                let sources: Vec<usize> = (0..n).filter(|_| below(n.max(4)) < 2).collect();
                o.push(sources);
                continue;
            }
            let (g, s) = (below(n), below(n));
            let mut seen = vec![false; n];
            let mut stack = vec![s];
            while let Some(x) = stack.pop() {
                if !std::mem::replace(&mut seen[x], true) {
                    stack.extend(&o.needs[x]);
                }
            }
            if g != s {
                assert_eq!(o.may_follow(g, s), !seen[g], "seed {seed} round {round}");
                if !seen[g] {
                    o.add(g, s);
                }
            }
            for (g, needs) in o.needs.iter().enumerate() {
                assert!(needs.iter().all(|&s| o.place[s] < o.place[g]));
            }
        }
    }
}
