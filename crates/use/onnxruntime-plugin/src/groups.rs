//! Groups of nodes that can each become one node: what lies between two of a group is of the group too.

/// The largest such groups of connected nodes, each in the graph's order. `takes[n]` says whether node `n` may be in
/// one, `from[n]` which nodes it takes values of; those stand before it.
///
/// Every node gets a level, no lower than those that it takes values of, and a higher one where it may be in a group and
/// one of those may not. What lies between two nodes of a level is then of that level or may be in a group.
pub fn groups(takes: &[bool], from: &[Vec<usize>]) -> Vec<Vec<usize>> {
    let count = takes.len();
    let mut level = vec![0usize; count];
    for n in 0..count {
        let above = |&p: &usize| level[p] + usize::from(takes[n] && !takes[p]);
        level[n] = from[n].iter().map(above).max().unwrap_or(0);
    }
    raise(takes, from, &mut level);
    let mut of: Vec<usize> = (0..count).collect();
    for n in 0..count {
        for &p in &from[n] {
            if takes[n] && takes[p] && level[n] == level[p] {
                let (a, b) = (root(&mut of, n), root(&mut of, p));
                of[a.max(b)] = a.min(b);
            }
        }
    }
    let mut all: Vec<Vec<usize>> = vec![vec![]; count];
    for n in (0..count).filter(|&n| takes[n]) {
        let group = root(&mut of, n);
        all[group].push(n);
    }
    all.retain(|g| !g.is_empty());
    all
}

/// Raises nodes that begin a group to the level of those that take their values, so that they join them.
fn raise(takes: &[bool], from: &[Vec<usize>], level: &mut [usize]) {
    let count = takes.len();
    let mut most = vec![usize::MAX; count];
    for n in (0..count).rev() {
        let joins = |&p: &usize| takes[n] && takes[p] && level[p] == level[n];
        if most[n] != usize::MAX && !from[n].iter().any(joins) {
            level[n] = level[n].max(most[n]);
        }
        for &p in &from[n] {
            let below = level[n].saturating_sub(usize::from(takes[n] && !takes[p]));
            most[p] = most[p].min(below);
        }
    }
}

fn root(of: &mut [usize], mut n: usize) -> usize {
    while of[n] != n {
        of[n] = of[of[n]];
        n = of[n];
    }
    n
}
