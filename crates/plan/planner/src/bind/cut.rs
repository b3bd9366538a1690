//! The cut of a plan between two devices where its predicted time is least.
//!
//! What runs is placed on one of two sides, each with a time of its own there; what is made on one side
//! and read on the other crosses the link between them, once however many read it. Steps follow each
//! other, so that times add: the least sum is a least cut of a network whose two ends are the devices,
//! which a flow finds exactly.
use std::collections::VecDeque;

/// A time that nothing pays: what cannot run on a side.
pub const NEVER: f64 = f64::INFINITY;

/// A value that may cross.
#[derive(Clone, Debug, Default)]
pub struct CutValue {
    /// The thing that makes it.
    pub made: usize,
    /// Things that read it.
    pub read: Vec<usize>,
    /// Seconds from the first side to the second, and back.
    pub seconds: [f64; 2],
}

/// What is to be placed. Things are numbered; the first side is the host.
#[derive(Clone, Debug, Default)]
pub struct Problem {
    /// Seconds of each thing on the two sides, [`NEVER`] where it cannot run.
    pub things: Vec<[f64; 2]>,
    /// Values that may cross.
    pub values: Vec<CutValue>,
    /// Things that are on the same side.
    pub tied: Vec<(usize, usize)>,
}

impl Problem {
    /// A thing that takes no time and is on the first side, such as a caller's memory.
    pub fn fixed(&mut self) -> usize {
        self.things.push([0.0, NEVER]);
        self.things.len() - 1
    }

    /// Predicted seconds when thing `i` is on the second side if `far[i]`; copies alone, and in all.
    pub fn seconds(&self, far: &[bool]) -> (f64, f64) {
        let mut copies = 0.0;
        for v in &self.values {
            let from = far[v.made];
            if v.read.iter().any(|&r| far[r] != from) {
                copies += v.seconds[usize::from(from)];
            }
        }
        let each = self.things.iter().zip(far);
        let steps: f64 = each.map(|(t, &f)| t[usize::from(f)]).sum();
        (copies, copies + steps)
    }

    /// Every thing on side `far` that can be, with what it is tied to.
    pub fn all_on(&self, far: bool) -> Vec<bool> {
        let mut out: Vec<bool> = self
            .things
            .iter()
            .map(|t| match t[usize::from(far)] < NEVER {
                true => far,
                false => !far,
            })
            .collect();
        // What is tied to something that cannot follow stays with it.
        loop {
            let mut changed = false;
            for &(a, b) in &self.tied {
                if out[a] != out[b] {
                    (out[a], out[b]) = (!far, !far);
                    changed = true;
                }
            }
            if !changed {
                return out;
            }
        }
    }

    /// Which things are on the second side in the placement of least time; of several, the one with
    /// the fewest things on the first.
    pub fn solve(&self) -> Vec<bool> {
        let n = self.things.len();
        let (source, sink) = (n, n + 1);
        let mut net = Net::new(n + 2);
        for (i, t) in self.things.iter().enumerate() {
            // What both sides cost is paid in any case.
            let (here, there) = (units(t[0]), units(t[1]));
            let both = here.min(there);
            net.edge(source, i, there - both, 0);
            net.edge(i, sink, here - both, 0);
        }
        for &(a, b) in &self.tied {
            net.edge(a, b, MUCH, MUCH);
        }
        for v in &self.values {
            let read: Vec<usize> = v.read.iter().copied().filter(|&r| r != v.made).collect();
            if read.is_empty() {
                continue;
            }
            if let [one] = read[..] {
                net.edge(v.made, one, units(v.seconds[0]), units(v.seconds[1]));
                continue;
            }
            let (up, down) = (net.node(), net.node());
            net.edge(v.made, up, units(v.seconds[0]), 0);
            net.edge(down, v.made, units(v.seconds[1]), 0);
            for r in read {
                net.edge(up, r, MUCH, 0);
                net.edge(r, down, MUCH, 0);
            }
        }
        net.flow(source, sink);
        let near = net.reached(source);
        let mut far: Vec<bool> = (0..n).map(|i| near[i] < 0).collect();
        // No placement at all: the caller finds what cannot run where it was put.
        if self.seconds(&far).1 == NEVER {
            far = self.all_on(true);
        }
        far
    }
}

/// Picoseconds: sums of thousands of hours fit.
fn units(seconds: f64) -> u64 {
    match seconds < NEVER {
        true => ((seconds.max(0.0) * 1e12).round() as u64).min(MUCH / 4),
        false => MUCH,
    }
}

/// More than any sum of times.
const MUCH: u64 = 1 << 60;

struct Edge {
    to: usize,
    left: u64,
}

/// A network of edges in pairs, each the other's way back.
struct Net {
    edges: Vec<Edge>,
    from: Vec<Vec<usize>>,
}

impl Net {
    fn new(nodes: usize) -> Net {
        Net {
            edges: vec![],
            from: vec![vec![]; nodes],
        }
    }

    fn node(&mut self) -> usize {
        self.from.push(vec![]);
        self.from.len() - 1
    }

    fn edge(&mut self, a: usize, b: usize, there: u64, back: u64) {
        if there == 0 && back == 0 {
            return;
        }
        self.from[a].push(self.edges.len());
        self.edges.push(Edge { to: b, left: there });
        self.from[b].push(self.edges.len());
        self.edges.push(Edge { to: a, left: back });
    }

    /// Distance of every node from `source` over edges with something left; -1: not reached.
    fn reached(&self, source: usize) -> Vec<i64> {
        let mut level = vec![-1; self.from.len()];
        level[source] = 0;
        let mut queue = VecDeque::from([source]);
        while let Some(a) = queue.pop_front() {
            for &e in &self.from[a] {
                let e = &self.edges[e];
                if e.left > 0 && level[e.to] < 0 {
                    level[e.to] = level[a] + 1;
                    queue.push_back(e.to);
                }
            }
        }
        level
    }

    /// Sends as much from `source` to `sink` as goes: shortest ways first, all of a length at once.
    fn flow(&mut self, source: usize, sink: usize) {
        loop {
            let level = self.reached(source);
            if level[sink] < 0 {
                return;
            }
            let mut next = vec![0; self.from.len()];
            let mut way: Vec<usize> = vec![];
            let mut at = source;
            loop {
                if at == sink {
                    let least = way.iter().map(|&e| self.edges[e].left).min();
                    let least = least.unwrap_or(0);
                    let mut back = 0;
                    for (i, &e) in way.iter().enumerate().rev() {
                        self.edges[e].left -= least;
                        let other = &mut self.edges[e ^ 1].left;
                        *other = other.saturating_add(least);
                        if self.edges[e].left == 0 {
                            back = i;
                        }
                    }
                    // On from before the first edge that is full now.
                    at = self.edges[way[back] ^ 1].to;
                    way.truncate(back);
                    continue;
                }
                let on = self.from[at][next[at]..].iter().position(|&e| {
                    let e = &self.edges[e];
                    e.left > 0 && level[e.to] == level[at] + 1
                });
                match on {
                    Some(skip) => {
                        next[at] += skip;
                        let e = self.from[at][next[at]];
                        way.push(e);
                        at = self.edges[e].to;
                    }
                    None => {
                        next[at] = self.from[at].len();
                        let Some(e) = way.pop() else { break };
                        at = self.edges[e ^ 1].to;
                        next[at] += 1;
                    }
                }
            }
        }
    }
}
