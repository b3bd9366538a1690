//! Which half of the registers a value is put into: those with even numbers are one bank, those with odd
//! numbers the other, and an instruction reads one of each at once.
use super::alive::{Alive, SLOW};
use super::line::{Parsed, Registers};

/// Values of which it is known that they are in the same bank, or in different ones. The last place stands for
/// what is in the bank of even numbers.
struct Sides {
    /// A value whose bank is known with this one's, itself if there is none.
    up: Vec<usize>,
    /// It is in the other bank than that.
    other: Vec<bool>,
}

impl Sides {
    fn new(n: usize) -> Sides {
        Sides {
            up: (0..=n).collect(),
            other: vec![false; n + 1],
        }
    }

    /// The value that stands for all whose banks are known with that of `at`, and whether `at` is in the other one.
    fn of(&self, mut at: usize) -> (usize, bool) {
        let mut other = false;
        while self.up[at] != at {
            other ^= self.other[at];
            at = self.up[at];
        }
        (at, other)
    }

    /// Puts `a` and `b` into different banks, unless it is settled already how they are.
    fn part(&mut self, a: usize, b: usize) {
        let ((a, x), (b, y)) = (self.of(a), self.of(b));
        let even = self.up.len() - 1;
        let (a, b) = if a == even { (b, a) } else { (a, b) };
        if a != b {
            self.up[a] = b;
            self.other[a] = !(x ^ y);
        }
    }
}

/// Registers up to the highest in use when all that is alive is put into the banks: the stack's address is in an
/// odd one, a pair takes one of each and is read from the even one; two operands of an instruction are in
/// different ones, as far as nothing before it has settled otherwise; and of values that depend on one another
/// in that way the first one has an even number, as the first free register has.
pub(super) fn banked(p: &Parsed, live: &Alive) -> u32 {
    let n = p.width.len();
    let place = |r: u32| {
        if p.width[r as usize] == 2 {
            n
        } else {
            r as usize
        }
    };
    let mut sides = Sides::new(n);
    for l in &p.lines {
        let mut read: Registers = l.uses.clone();
        read.retain(|&mut u| p.width[u as usize] > 0);
        read.sort_and_dedup();
        match read[..] {
            [a, b] => sides.part(place(a), place(b)),
            // What a pair is made of becomes its second half, or is multiplied into one.
            [a] if l.defs.iter().any(|&d| p.width[d as usize] == 2) => sides.part(place(a), n),
            _ => {}
        }
    }
    let known: Vec<(usize, bool)> = (0..n).map(|i| sides.of(i)).collect();
    // How many depend on one another, and whether the first of them would have an odd number.
    let mut together = vec![0u32; n + 1];
    let mut first: Vec<Option<bool>> = vec![None; n + 1];
    first[n] = Some(false);
    for (i, k) in known.iter().enumerate() {
        together[k.0] += u32::from(p.width[i] == 1);
    }
    for &d in p.lines.iter().flat_map(|l| &l.defs) {
        if p.width[d as usize] == 1 {
            let (root, other) = known[d as usize];
            first[root].get_or_insert(other);
        }
    }
    let bank = |odd: bool| {
        let takes = |i: usize| {
            let (root, other) = known[i];
            match p.width[i] {
                2 => 1,
                1 if root == n || together[root] > 1 => {
                    u32::from((other ^ first[root].unwrap_or(false)) == odd)
                }
                _ => 0,
            }
        };
        (0..n).map(takes).collect::<Vec<u32>>()
    };
    let odd = 1 + live.most(p, &bank(true), SLOW.div_ceil(2));
    let even = live.most(p, &bank(false), SLOW / 2);
    (2 * odd.max(even)).max(1 + live.most(p, &p.width, SLOW))
}
