//! What an assembler moves out of the places where a text has it: copies that it leaves out, comparisons, and
//! what is read into registers before it is used.
use super::line::{
    Kind, Line, Parsed, PredicateSource, Registers, Rematerialised, starts, target, written,
};
use layout::Arrange;
use std::collections::HashMap;

/// A stretch that is jumped over or gone round: its first line and the one behind it.
#[derive(Clone, Copy)]
pub(super) struct Region {
    from: usize,
    to: usize,
    /// It is a loop.
    pub round: bool,
}

impl Region {
    /// Line `at` is in it.
    pub fn inside(&self, at: usize) -> bool {
        self.from <= at && at < self.to
    }
}

/// The regions of a text, one for each jump.
pub(super) fn regions(lines: &[Line], labels: &[Option<usize>]) -> Vec<Region> {
    let of = |(i, l): (usize, &Line)| {
        let to = target(labels, l)?;
        Some(match to <= i {
            true => Region {
                from: to,
                to: i + 1,
                round: true,
            },
            false => Region {
                from: i + 1,
                to,
                round: false,
            },
        })
    };
    lines.iter().enumerate().filter_map(of).collect()
}

/// What stands at line `at` was executed wherever line `then` behind it is: no jump goes around the one
/// and not the other.
fn comes_before(all: &[Region], at: usize, then: usize) -> bool {
    let mut around = all.iter().filter(|g| !g.round && g.inside(at));
    around.all(|g| g.inside(then))
}

/// Lines that read each of `held`.
fn readers(p: &Parsed, held: &[u32]) -> Vec<Vec<usize>> {
    let mut out = vec![vec![]; held.len()];
    let mut place: Vec<Option<u32>> = vec![None; p.width.len()];
    for (at, &r) in (0u32..).zip(held) {
        place[r as usize] = Some(at);
    }
    for (i, l) in p.lines.iter().enumerate() {
        for at in l.uses.iter().filter_map(|u| place[*u as usize]) {
            let own: &mut Vec<usize> = &mut out[at as usize];
            if own.last() != Some(&i) {
                own.push(i);
            }
        }
    }
    out
}

/// Puts lines before the uses of each of `held` that read it, into a register of their own: a first one
/// before the loops around the first use, others where jumps may have gone around those that are there.
pub(super) fn read_once(p: &mut Parsed, held: &[u32], kind: Kind) {
    let all = regions(&p.lines, &p.labels);
    let mut reads: Vec<(usize, Line)> = vec![];
    for (r, lines) in held.iter().copied().zip(readers(p, held)) {
        let mut there: Vec<(usize, u32)> = vec![];
        for i in lines {
            let known = there.iter().find(|t| comes_before(&all, t.0, i));
            let own = known.map(|t| t.1).unwrap_or_else(|| {
                let loops = all.iter().filter(|g| g.round && g.inside(i));
                let at = loops.map(|g| g.from).min().unwrap_or(i);
                let own = p.width.len() as u32;
                p.width.push(p.width[r as usize]);
                p.truth.push(0);
                let defs = [own].into_iter().collect();
                let line = Line::default();
                let read = Line { defs, kind, ..line };
                reads.push((at, read));
                there.push((at, own));
                own
            });
            let uses = p.lines[i].uses.iter_mut();
            uses.filter(|u| **u == r).for_each(|u| *u = own);
        }
    }
    reads.arrange_by_key(|r| r.0);
    insert(p, reads);
}

/// `p` without what is made of `numbers` alone: an assembler makes it. An address that is a parameter and such a
/// number needs nothing then: it is read, into registers that all threads share if `shared`.
pub(super) fn folded(
    p: &mut Parsed,
    numbers: &[u32],
    factors: &[u32],
    pointers: &[u32],
    shared: bool,
) {
    let mut number = vec![false; p.width.len()];
    for &n in numbers.iter().chain(factors) {
        number[n as usize] = true;
    }
    let defined = written(p);
    let starts = starts(p);
    for i in 0..p.lines.len() {
        let (l, next) = (&p.lines[i], p.lines.get(i + 1));
        let &[to] = &l.defs[..] else { continue };
        let plain = l.kind == Kind::Other && !l.partial && p.truth[to as usize] == 0;
        if !plain || l.uses.is_empty() || pointers.contains(&to) {
            continue;
        }
        let made = |u: &&u32| !number[**u as usize];
        let left: Registers = l.uses.iter().filter(made).copied().collect();
        // An address is an offset first, and in the next line, under the same name, what it is with the pointer.
        let goes_on = |n: &Line| n.defs[..] == [to] && n.uses.contains(&to) && !n.partial;
        let offset = defined[to as usize] == 2
            && starts.binary_search(&(i + 1)).is_err()
            && next.is_some_and(goes_on);
        match left[..] {
            [] if defined[to as usize] == 1 => {
                number[to as usize] = true;
                p.width[to as usize] = 0;
                p.lines[i] = Line::default();
            }
            [] if offset => {
                number[to as usize] = true;
                p.lines[i] = Line::default();
            }
            [pointer] if pointers.contains(&pointer) && number[to as usize] => {
                number[to as usize] = false;
                if shared {
                    p.width[to as usize] = 0;
                }
                p.lines[i].uses.clear();
            }
            _ => number[to as usize] = false,
        }
    }
}

/// Truth values that are made of two as the comparison that gives one of them, which takes the other as an input:
/// that is one instruction. It stands where the two are joined, so what is compared is alive until there, even if
/// the comparison alone is there before.
pub(super) fn compared_again(p: &mut Parsed) {
    let defined = written(p);
    let once = |r: u32| defined[r as usize] <= 1;
    // What each truth value compares; only looked up.
    let mut of: HashMap<u32, Registers, foldhash::fast::FixedState> = HashMap::default();
    for l in &mut p.lines {
        let &[to] = &l.defs[..] else { continue };
        if l.partial || !once(to) {
            continue;
        }
        match l.truth {
            PredicateSource::Compared if l.uses.iter().all(|&u| once(u)) => {
                of.insert(to, l.uses.clone());
            }
            PredicateSource::Joined => {
                if let Some(at) = l.uses.iter().position(|u| of.contains_key(u)) {
                    let compared = l.uses.remove(at);
                    l.uses.extend(of[&compared].iter().copied());
                }
            }
            _ => {}
        }
    }
}

/// Comparisons where what they compare is there, before the parts that would be jumped over in between: an
/// assembler wants a condition early, which takes no register, and what it is made of is free for others then.
pub(super) fn compared_early(p: &mut Parsed) {
    // The line behind the last definition of each register, and how many there are.
    let mut defined = vec![(0usize, 0u32); p.width.len()];
    for (i, l) in p.lines.iter().enumerate() {
        for &d in &l.defs {
            defined[d as usize] = (i + 1, defined[d as usize].1 + 1);
        }
    }
    let once = |r: u32| defined[r as usize].1 <= 1;
    let all = regions(&p.lines, &p.labels);
    let mut moved: Vec<(usize, Line)> = vec![];
    for i in 0..p.lines.len() {
        let l = &p.lines[i];
        let compares = |&to: &u32| p.truth[to as usize] == 1 && once(to);
        if l.partial || l.kind != Kind::Other || l.defs.is_empty() || !l.defs.iter().all(compares) {
            continue;
        }
        // A sum with a number is made again of what it comes from.
        let source = |&u: &u32| match defined[u as usize] {
            (behind, 1) => match &p.lines[behind - 1] {
                Line {
                    rematerialised: Rematerialised::Number,
                    uses,
                    ..
                } if uses.len() == 1 => uses[0],
                _ => u,
            },
            _ => u,
        };
        let uses: Registers = l.uses.iter().map(source).collect();
        let at = uses.iter().map(|&u| defined[u as usize].0).max();
        let at = at.unwrap_or(i);
        let jumps = |at: usize| p.lines[at..i].iter().any(|l| l.jump.is_some());
        let enters = |g: &Region| g.round && g.inside(i) && !g.inside(at);
        if uses.iter().all(|&u| once(u))
            && at < i
            && comes_before(&all, at, i)
            && !all.iter().any(enters)
            && jumps(at)
        {
            moved.push((at, Line { uses, ..l.clone() }));
            p.lines[i] = Line::default();
        }
    }
    moved.arrange_by_key(|m| m.0);
    insert(p, moved);
}

/// `p` with lines put before others, those that come first at first. A loop begins behind what is put before its first line; who jumps over a
/// part comes to what is put before the line behind it.
fn insert(p: &mut Parsed, new: Vec<(usize, Line)>) {
    if new.is_empty() {
        return;
    }
    let mut round = vec![false; p.labels.len()];
    for (i, l) in p.lines.iter().enumerate() {
        if let (Some(name), Some(to)) = (l.jump, p.target(l)) {
            round[name as usize] |= to <= i;
        }
    }
    for (at, round) in p.labels.iter_mut().zip(round) {
        let Some(at) = at else { continue };
        *at += new.partition_point(|n| n.0 < *at || (round && n.0 == *at));
    }
    let all = Vec::with_capacity(p.lines.len() + new.len());
    let old = std::mem::replace(&mut p.lines, all);
    let mut new = new.into_iter().peekable();
    for (i, l) in old.into_iter().enumerate() {
        while let Some((_, n)) = new.next_if(|n| n.0 <= i) {
            p.lines.push(n);
        }
        p.lines.push(l);
    }
    p.lines.extend(new.map(|n| n.1));
}

/// Originals of copies, by the copy, within one block.
struct Copies {
    /// The original, what was in it when it was copied, and the block.
    of: Vec<Option<(u32, u32, u32)>>,
    /// How often each register has been given another value.
    values: Vec<u32>,
    block: u32,
}

impl Copies {
    fn new(names: usize) -> Copies {
        Copies {
            of: vec![None; names],
            values: vec![0; names],
            block: 0,
        }
    }

    /// Another block begins.
    fn clear(&mut self) {
        self.block += 1;
    }

    /// What `r` is a copy of, or itself.
    fn original(&self, r: u32) -> u32 {
        match self.of[r as usize] {
            Some((from, value, block))
                if block == self.block && value == self.values[from as usize] =>
            {
                from
            }
            _ => r,
        }
    }

    /// `defs` have other values from now on.
    fn forget(&mut self, defs: &[u32]) {
        for &d in defs {
            self.of[d as usize] = None;
            self.values[d as usize] += 1;
        }
    }

    fn add(&mut self, to: u32, original: u32) {
        self.of[to as usize] = Some((original, self.values[original as usize], self.block));
    }
}

/// `p` without copies of registers inside of basic blocks, whose readers read the original, and without what
/// nobody reads.
pub(super) fn settled(p: &mut Parsed) {
    let starts = starts(p);
    let mut copies = Copies::new(p.width.len());
    let mut starts = starts.into_iter().peekable();
    for (i, l) in p.lines.iter_mut().enumerate() {
        if starts.next_if_eq(&i).is_some() {
            copies.clear();
        }
        for u in &mut l.uses {
            *u = copies.original(*u);
        }
        copies.forget(&l.defs);
        if let (true, false, &[to], &[from]) = (l.copy, l.partial, &l.defs[..], &l.uses[..])
            && to != from
        {
            copies.add(to, from);
        }
    }
    without_unread(p);
}

/// Takes out of `p` what nobody reads, and what is read by that alone.
fn without_unread(p: &mut Parsed) {
    let mut read = vec![0u32; p.width.len()];
    for &u in p.lines.iter().flat_map(|l| &l.uses) {
        read[u as usize] += 1;
    }
    loop {
        let mut any = false;
        for l in p.lines.iter_mut().rev() {
            let stays = matches!(l.kind, Kind::Fence | Kind::Store) || l.defs.is_empty();
            if stays || l.defs.iter().any(|&d| read[d as usize] > 0) {
                continue;
            }
            for &u in &l.uses {
                read[u as usize] -= 1;
            }
            *l = Line::default();
            any = true;
        }
        if !any {
            return;
        }
    }
}
