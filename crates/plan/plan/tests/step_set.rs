//! Sets of step numbers.
use shopfloor_plan::StepSet;
use shopfloor_plan::internals::shared_nodes;
use std::collections::BTreeSet;

#[test]
fn sets_do_as_plain_sets_do() {
    let seed = 0x5151_7a0b_9c3d_2211;
    let mut r = fastrand::Rng::with_seed(seed);
    for round in 0..200 {
        let most = [5, 64, 65, 600, 5000, 70_000][r.usize(..6)];
        let mut sets: Vec<(StepSet, BTreeSet<usize>)> = vec![Default::default(); 4];
        for _ in 0..60 {
            let (x, y) = (r.usize(..4), r.usize(..4));
            match r.usize(..4) {
                0 => {
                    let from = sets[y].clone();
                    sets[x].0.join(&from.0);
                    sets[x].1.extend(from.1);
                }
                1 => {
                    let from = r.usize(..most);
                    for i in from..(from + r.usize(..1500)).min(most) {
                        sets[x].0.add(i);
                        sets[x].1.insert(i);
                    }
                }
                _ => {
                    let i = r.usize(..most);
                    sets[x].0.add(i);
                    sets[x].1.insert(i);
                }
            }
            let (a, b) = (&sets[x], &sets[y]);
            let last = a.1.difference(&b.1).last().copied();
            assert_eq!(a.0.last_outside(&b.0), last, "seed {seed} round {round}");
            assert_eq!(a.0.within(&b.0), a.1.is_subset(&b.1));
            assert_eq!(a.0.is_empty(), a.1.is_empty());
            let i = r.usize(..2 * most);
            assert_eq!(a.0.has(i), a.1.contains(&i), "seed {seed} round {round}");
        }
    }
}

#[test]
fn sets_of_a_chain_share_their_steps() {
    let n = 20_000usize;
    let mut known = BTreeSet::new();
    let mut done: Vec<StepSet> = Vec::new();
    for i in 0..n {
        // Two strands that never meet, and every step of the last third after all before it.
        let mut s = done.get(i.wrapping_sub(2)).cloned().unwrap_or_default();
        if 3 * i > 2 * n {
            s.join(&done[i - 1]);
        }
        s.add(i);
        shared_nodes(&s, &mut known);
        done.push(s);
    }
    assert!(known.len() < 6 * n, "{}", known.len());
}
