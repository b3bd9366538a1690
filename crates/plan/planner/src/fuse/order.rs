//! Which group needs which, and an order in which each comes after those that it needs: kept up while
//! groups grow, so that most questions are settled by two numbers.

use layout::Arrange;
/// Groups that one question looks at: what is further apart is left apart.
const NEAR: usize = 1024;

/// Groups with what they read from others.
#[derive(Debug, Default)]
pub struct Order {
    /// Groups that each group reads from.
    pub needs: Vec<Vec<usize>>,
    needed_by: Vec<Vec<usize>>,
    /// Place of each group: behind those of all that it needs.
    pub place: Vec<usize>,
}

impl Order {
    /// Adds a group that reads from `sources`.
    pub fn push(&mut self, sources: Vec<usize>) {
        let g = self.place.len();
        self.place.push(g);
        self.needed_by.push(Vec::new());
        sources.iter().for_each(|&s| self.needed_by[s].push(g));
        self.needs.push(sources);
    }

    /// Group `g` reads from `source` as well, before which [`Order::may_follow`] was asked.
    pub fn add(&mut self, g: usize, source: usize) {
        if !self.needs[g].contains(&source) {
            self.needs[g].push(source);
            self.needed_by[source].push(g);
        }
    }

    /// Groups that read from `g`.
    pub fn needed_by(&self, g: usize) -> &[usize] {
        &self.needed_by[g]
    }

    /// Group `s`, which `g` alone reads from, becomes a part of it: `g` reads what `s` did.
    pub fn merge(&mut self, s: usize, g: usize) {
        self.needs[g].retain(|&n| n != s);
        self.needed_by[s].clear();
        for source in std::mem::take(&mut self.needs[s]) {
            self.needed_by[source].retain(|&r| r != s);
            self.add(g, source);
        }
    }

    /// What each group needs, in order.
    pub fn needs(self) -> Vec<Vec<usize>> {
        let mut all = self.needs;
        all.iter_mut().for_each(|n| n.arrange());
        all
    }

    /// Groups that lead to `from`, itself included, along `next` as far as `within` says; `None` when they
    /// are many or `stop` is one of them.
    fn reach(
        from: usize,
        next: &[Vec<usize>],
        within: impl Fn(usize) -> bool,
        stop: usize,
    ) -> Option<Vec<usize>> {
        let mut out = vec![from];
        let mut seen: foldhash::HashSet<usize> = foldhash::HashSet::default();
        seen.insert(from);
        let mut at = 0;
        while let Some(&g) = out.get(at) {
            at += 1;
            for &s in next[g].iter().filter(|&&s| within(s)) {
                if s == stop || out.len() > NEAR {
                    return None;
                }
                if seen.insert(s) {
                    out.push(s);
                }
            }
        }
        Some(out)
    }

    /// Whether `g` may come to read from `source`: that does not need `g` itself, directly or through
    /// others. False too where that takes too long to find out.
    pub fn may_follow(&mut self, g: usize, source: usize) -> bool {
        let (first, last) = (self.place[g], self.place[source]);
        if last < first {
            return true;
        }
        let place = &self.place;
        let Some(before) = Order::reach(source, &self.needs, |s| place[s] >= first, g) else {
            return false;
        };
        let Some(after) = Order::reach(g, &self.needed_by, |s| place[s] <= last, source) else {
            return false;
        };
        // They share out the places that they have, those before first; each part in its order.
        let mut groups = before;
        groups.arrange_by_key(|&s| place[s]);
        let mut behind = after;
        behind.arrange_by_key(|&s| place[s]);
        groups.extend(behind);
        let mut places: Vec<usize> = groups.iter().map(|&s| place[s]).collect();
        places.arrange();
        for (s, p) in groups.into_iter().zip(places) {
            self.place[s] = p;
        }
        true
    }
}
