//! Persistent sets of step numbers, for the verifier's happens-before relation.
//!
//! A set of bits per step would take the square of their number. Here sets share what they have in
//! common: one that was made of another by adding a step takes a few nodes more, and whole ranges
//! take none.
use std::collections::BTreeSet;
use std::sync::Arc;

/// Sets that a node is made of.
const WAYS: usize = 8;
const WAYS_LOG: u32 = WAYS.trailing_zeros();

/// Steps under a node: of level 0 a word of bits, of each higher level as many as [`WAYS`] nodes have.
#[derive(Clone, Debug, Default)]
enum Node {
    #[default]
    Empty,
    Full,
    /// A single step, by its number under the node.
    One(u32),
    /// Level 0 only.
    Bits(u64),
    /// Higher levels only.
    Many(Arc<[Node; WAYS]>),
}

/// A set of step numbers.
#[derive(Clone, Debug, Default)]
pub struct StepSet {
    level: u32,
    root: Node,
}

/// Nodes that the sets of one list of steps may take together: beyond that steps wait for each other in ways that
/// no two sets share.
pub const MAX_NODES: usize = 1 << 22;

/// Bits to shift a number by for the child of a node of `level` that it is under.
fn shift(level: u32) -> u32 {
    u64::BITS.trailing_zeros() + (level - 1) * WAYS_LOG
}

/// The child that `i` is under, and its number there.
fn under(level: u32, i: u32) -> (usize, u32) {
    let s = shift(level);
    ((i >> s) as usize, i & ((1 << s) - 1))
}

impl Node {
    fn bits(&self) -> u64 {
        match self {
            Node::Empty | Node::Many(_) => 0,
            Node::Full => u64::MAX,
            Node::One(i) => 1 << i,
            Node::Bits(b) => *b,
        }
    }

    fn of_bits(bits: u64) -> Node {
        match bits {
            0 => Node::Empty,
            u64::MAX => Node::Full,
            b if b.is_power_of_two() => Node::One(b.trailing_zeros()),
            b => Node::Bits(b),
        }
    }

    /// The children of a node of `level`, which is above 0.
    fn children(&self, level: u32) -> [Node; WAYS] {
        match self {
            Node::Many(m) => (**m).clone(),
            Node::Full => std::array::from_fn(|_| Node::Full),
            Node::One(i) => {
                let (at, i) = under(level, *i);
                let mut all: [Node; WAYS] = Default::default();
                all[at] = Node::One(i);
                all
            }
            Node::Empty | Node::Bits(_) => Default::default(),
        }
    }

    fn of_children(all: [Node; WAYS]) -> Node {
        match all.iter().all(|n| matches!(n, Node::Full)) {
            true => Node::Full,
            false => Node::Many(Arc::new(all)),
        }
    }

    fn has(&self, level: u32, i: u32) -> bool {
        match self {
            Node::Empty => false,
            Node::Full => true,
            Node::One(one) => *one == i,
            Node::Bits(b) => b >> i & 1 == 1,
            Node::Many(m) => {
                let (at, i) = under(level, i);
                m[at].has(level - 1, i)
            }
        }
    }

    /// Whether all of `o` is here.
    fn holds(&self, o: &Node, level: u32) -> bool {
        match (self, o) {
            (_, Node::Empty) | (Node::Full, _) => true,
            (_, Node::One(i)) => self.has(level, *i),
            (Node::Many(a), Node::Many(b)) => {
                let mut each = a.iter().zip(&**b);
                Arc::ptr_eq(a, b) || each.all(|(a, b)| a.holds(b, level - 1))
            }
            _ if level == 0 => o.bits() & !self.bits() == 0,
            // A node of many has fewer than all, and one or none has not two.
            _ => false,
        }
    }

    /// Adds all of `o`; gives how many nodes that took. What is equal afterwards stays shared.
    fn join(&mut self, o: &Node, level: u32) -> usize {
        if self.holds(o, level) {
            return 0;
        }
        let mut made = 0;
        if o.holds(self, level) {
            self.clone_from(o);
        } else if level == 0 {
            *self = Node::of_bits(self.bits() | o.bits());
        } else {
            let mut all = self.children(level);
            match o {
                Node::One(i) => {
                    let (at, i) = under(level, *i);
                    made += all[at].join(&Node::One(i), level - 1);
                }
                Node::Many(m) => {
                    let each = all.iter_mut().zip(&**m);
                    each.for_each(|(a, b)| made += a.join(b, level - 1));
                }
                // Both are held by one of the two.
                Node::Empty | Node::Full | Node::Bits(_) => {}
            }
            *self = Node::of_children(all);
            made += 1;
        }
        made
    }

    /// The last one here that is not in `o`.
    fn last_outside(&self, o: &Node, level: u32) -> Option<u32> {
        match (self, o) {
            (Node::Empty, _) | (_, Node::Full) => None,
            (Node::One(i), _) => (!o.has(level, *i)).then_some(*i),
            (Node::Many(a), Node::Many(b)) if Arc::ptr_eq(a, b) => None,
            _ if level == 0 => {
                let left = self.bits() & !o.bits();
                (left != 0).then(|| left.ilog2())
            }
            _ => {
                let child = |n: &Node, at: usize| match n {
                    Node::Many(m) => m[at].clone(),
                    Node::Full => Node::Full,
                    Node::One(i) if under(level, *i).0 == at => Node::One(under(level, *i).1),
                    _ => Node::Empty,
                };
                (0..WAYS).rev().find_map(|at| {
                    let last = child(self, at).last_outside(&child(o, at), level - 1)?;
                    Some(((at as u32) << shift(level)) + last)
                })
            }
        }
    }
}

impl StepSet {
    /// The empty set.
    pub fn new() -> StepSet {
        StepSet::default()
    }

    /// Makes room for step `i`, and the nodes of both sets alike.
    fn rise(&mut self, level: u32) {
        while self.level < level {
            self.level += 1;
            self.root = match std::mem::take(&mut self.root) {
                n @ (Node::Empty | Node::One(_)) => n,
                n => {
                    let mut all: [Node; WAYS] = Default::default();
                    all[0] = n;
                    Node::of_children(all)
                }
            };
        }
    }

    fn level_of(i: usize) -> u32 {
        let mut level = 0;
        while i >> (u64::BITS.trailing_zeros() + level * WAYS_LOG) > 0 {
            level += 1;
        }
        level
    }

    /// The other set at this one's level, which is no lower.
    fn level_with(&self, o: &StepSet) -> Option<StepSet> {
        (o.level < self.level).then(|| {
            let mut o = o.clone();
            o.rise(self.level);
            o
        })
    }

    /// Whether step `i` is in it.
    pub fn has(&self, i: usize) -> bool {
        StepSet::level_of(i) <= self.level && self.root.has(self.level, i as u32)
    }

    /// Adds step `i`.
    pub fn add(&mut self, i: usize) {
        self.rise(StepSet::level_of(i));
        self.root.join(&Node::One(i as u32), self.level);
    }

    /// Adds the steps of `o`; gives about how many nodes that took: of a few hundred bytes each, shared by the sets
    /// that are made of this one.
    pub fn join(&mut self, o: &StepSet) -> usize {
        self.rise(o.level);
        let o = self
            .level_with(o)
            .map_or_else(|| o.root.clone(), |o| o.root);
        self.root.join(&o, self.level)
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        matches!(self.root, Node::Empty)
    }

    /// Whether all of its steps are in `o`.
    pub fn within(&self, o: &StepSet) -> bool {
        self.last_outside(o).is_none()
    }

    /// The last of its steps that `o` does not have.
    pub fn last_outside(&self, o: &StepSet) -> Option<usize> {
        let (mut a, mut b) = (None, None);
        if self.level < o.level {
            a = o.level_with(self);
        } else {
            b = self.level_with(o);
        }
        let (a, b) = (a.as_ref().unwrap_or(self), b.as_ref().unwrap_or(o));
        a.root.last_outside(&b.root, a.level).map(|i| i as usize)
    }
}

/// Adds the nodes of several steps that a set is made of to `known`, by their addresses: sets that share a node
/// add the same.
pub fn shared_nodes(set: &StepSet, known: &mut BTreeSet<usize>) {
    fn walk(n: &Node, known: &mut BTreeSet<usize>) {
        if let Node::Many(m) = n
            && known.insert(Arc::as_ptr(m).addr())
        {
            m.iter().for_each(|n| walk(n, known));
        }
    }
    walk(&set.root, known);
}
