//! Cuts between two devices against every other placement.
use shopfloor_planner::internals::{CutValue, NEVER, Problem};

/// A chain with readers further on, about one in ten bound to a side.
fn random(things: usize, drawn: &mut fastrand::Rng) -> Problem {
    let mut p = Problem::default();
    let host = p.fixed();
    let us = |drawn: &mut fastrand::Rng, most: u64| drawn.u64(..most) as f64 * 1e-6;
    for i in 0..things {
        let mut t = [us(drawn, 50), us(drawn, 50)];
        match drawn.u64(..20) {
            0 => t[1] = NEVER,
            1 => t[0] = NEVER,
            _ => {}
        }
        p.things.push(t);
        let me = i + 1;
        let mut read: Vec<usize> = (0..drawn.u64(..3))
            .map(|_| (me + 1 + drawn.usize(..3)).min(things))
            .collect();
        if drawn.u8(..10) == 0 {
            read.push(host);
        }
        let made = match drawn.u64(..8) {
            0 => host,
            _ => me,
        };
        let seconds = [us(drawn, 30), us(drawn, 30)];
        p.values.push(CutValue {
            made,
            read,
            seconds,
        });
    }
    p
}

#[test]
fn no_other_placement_takes_less() {
    let mut drawn = fastrand::Rng::with_seed(7);
    for round in 0..200 {
        let n = 1 + (round % 9);
        let mut p = random(n, &mut drawn);
        if n > 3 && round % 3 == 0 {
            p.tied.push((1, 3));
        }
        let far = p.solve();
        let (_, got) = p.seconds(&far);
        let mut least = NEVER;
        for bits in 0..1u32 << n {
            let mut all = vec![false];
            all.extend((0..n).map(|i| bits >> i & 1 == 1));
            if p.tied.iter().all(|&(a, b)| all[a] == all[b]) {
                least = least.min(p.seconds(&all).1);
            }
        }
        assert!(
            got == least || (got - least).abs() < 1e-11 * n as f64,
            "round {round}: {got} for {least}: {p:?}"
        );
        for side in [false, true] {
            assert!(got <= p.seconds(&p.all_on(side)).1 + 1e-12);
        }
    }
}

#[test]
fn a_thousand_things_are_placed_at_once() {
    let mut drawn = fastrand::Rng::with_seed(3);
    let p = random(20_000, &mut drawn);
    let far = p.solve();
    let (copies, all) = p.seconds(&far);
    assert!(copies > 0.0 && all < NEVER);
    assert!(all < 0.9 * p.seconds(&p.all_on(true)).1);
}
