//! A text's instructions as an assembler may order, guard or repeat them.
use super::alive::{Alive, SLOW, SLOW_TRUTHS, alive, count, has, step, stepped, unread};
use super::line::{Kind, Line, Parsed, Registers, Rematerialised, starts, written};
use super::loops::{Region, regions};
use layout::{Arrange, Few};
use std::cell::Cell;
use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// Lines of a guarded part that becomes guarded instructions.
const SHORT: usize = 8;
/// Lines of a part that becomes guarded instructions beside others.
const LONG: usize = 40;
/// Accesses behind a group of loads whose addresses are computed while the loads are under way.
const NEXT: usize = 6;
/// Loads, and functions of the special unit, under way at once.
const LOADS: usize = 16;
/// Lines of a stretch that are put in another order at most: the search goes through all that are ready
/// for every line.
const STRETCH: usize = 1 << 12;
/// Instructions that are made again for one use.
const CHAIN: usize = 5;

/// `guarded` as an assembler would leave it.
pub(super) fn ahead(mut guarded: Parsed) -> Parsed {
    let starts = starts(&guarded);
    let mut scratch = SCRATCH.take();
    scratch.needs.fit(guarded.width.len());
    let mut lines = Vec::with_capacity(guarded.lines.len());
    let ends = starts.iter().skip(1).copied().chain([guarded.lines.len()]);
    for (&from, to) in starts.iter().zip(ends) {
        let block = &mut guarded.lines[from..to];
        for part in block.split_inclusive_mut(|l| l.kind == Kind::Fence) {
            let order = loads_first(part, &mut scratch.needs);
            lines.extend(order.into_iter().map(|i| std::mem::take(&mut part[i])));
        }
    }
    SCRATCH.set(scratch);
    guarded.lines = lines;
    guarded
}

/// `p` with parts that are jumped over and are short, or stand beside others, as instructions that depend on the condition.
pub(super) fn guarded(p: &Parsed) -> Parsed {
    let n = p.lines.len();
    // End of the part that the jump in a line skips, where it only runs through.
    let end = |i: usize| -> Option<usize> {
        let l = &p.lines[i];
        let to = p.target(l)?;
        let through = |l: &Line| match l.jump {
            Some(_) => l.partial && p.target(l).is_some_and(|t| t > i && t <= to),
            // All threads come to a barrier.
            None => !l.ends && (l.kind != Kind::Fence || !l.uses.is_empty()),
        };
        (l.partial && to > i && p.lines[i + 1..to].iter().all(through)).then_some(to)
    };
    let mut ends: Vec<Option<usize>> = (0..n).map(end).collect();
    let beside = beside(p, &ends);
    for (i, end) in ends.iter_mut().enumerate() {
        let guards = |to: usize| length(&p.lines[i + 1..to]) <= SHORT || beside[i];
        *end = end.filter(|&to| guards(to));
    }
    // Where each register is defined first and last.
    let mut defined = vec![(usize::MAX, 0); p.width.len()];
    for (i, l) in p.lines.iter().enumerate() {
        for &d in &l.defs {
            let at = &mut defined[d as usize];
            *at = (at.0.min(i), at.1.max(i));
        }
    }
    let (mut lines, mut place) = (Vec::with_capacity(n), vec![0; n + 1]);
    // Parts that a line is in: their ends and the jump's number.
    let mut open: Vec<(usize, usize)> = vec![];
    for (i, l) in p.lines.iter().enumerate() {
        place[i] = lines.len();
        open.retain(|o| o.0 > i);
        if let Some(to) = ends[i] {
            open.push((to, i));
            continue;
        }
        let mut l = l.clone();
        for &(_, jump) in &open {
            l.uses.extend(p.lines[jump].uses.iter().copied());
        }
        if let Some(&(to, jump)) = open.last() {
            // What is defined nowhere else has no value to keep.
            let own = |&d: &u32| defined[d as usize].0 > jump && defined[d as usize].1 < to;
            l.partial |= !l.defs.iter().all(own);
        }
        lines.push(l);
    }
    place[n] = lines.len();
    let mut labels = vec![None; p.labels.len()];
    for (l, _) in p.lines.iter().zip(&ends).filter(|(_, end)| end.is_none()) {
        if let (Some(name), Some(to)) = (l.jump, p.target(l)) {
            labels[name as usize] = Some(place[to]);
        }
    }
    Parsed {
        labels,
        width: p.width.clone(),
        truth: p.truth.clone(),
        lines,
    }
}

/// Lines that are left of a part.
fn length(part: &[Line]) -> usize {
    let left = |l: &&Line| !l.uses.is_empty() || !l.defs.is_empty();
    part.iter().filter(left).count()
}

/// For each line whether it is in a longer part that is jumped over and becomes guarded instructions all the same,
/// so that its loads wait beside those of another. An assembler makes them of every such part of a loop; outside
/// of loops of two that follow one another, where neither is the kernel's last, whose jump ends the thread. What
/// has guarded instructions of its own, or calls a subroutine, is left as it is.
fn beside(p: &Parsed, ends: &[Option<usize>]) -> Vec<bool> {
    let n = p.lines.len();
    let mut labels: Vec<usize> = p.labels.iter().flatten().copied().collect();
    labels.arrange();
    let loops: Vec<Region> = regions(&p.lines, &p.labels);
    let waits = |l: &Line| matches!(l.kind, Kind::Load | Kind::Store);
    let plain = |l: &Line| l.jump.is_some() || !(l.partial || l.kind == Kind::Slow);
    let mut found = vec![false; n];
    // The part before that has no partner, if nothing but arithmetic came since.
    let mut alone: Option<(usize, usize)> = None;
    let mut i = 0;
    while i < n {
        let whole = |to: &usize| {
            let part = &p.lines[i + 1..*to];
            let fits = *to < n && (SHORT + 1..=LONG).contains(&length(part));
            fits && part.iter().all(plain) && part.iter().any(waits)
        };
        if let Some(to) = ends[i].filter(whole) {
            if loops.iter().any(|g| g.round && g.inside(i)) {
                found[i..to].fill(true);
            } else if let Some((first, end)) = alone.take() {
                found[first..end].fill(true);
                found[i..to].fill(true);
            } else {
                alone = Some((i, to));
            }
            i = to;
            continue;
        }
        let l = &p.lines[i];
        let joined = labels.binary_search(&i).is_ok() && alone.is_none_or(|a| a.1 != i);
        if joined || l.jump.is_some() || l.ends || waits(l) {
            alone = None;
        }
        i += 1;
    }
    found
}

/// Lines of a stretch that have to come before a line of it.
type Before = Few<u32, 6>;

/// Finds what has to come before each line of a stretch.
#[derive(Default)]
struct Needs {
    /// By register, within the stretch at hand: one more than the line that defines it last, and who uses it since.
    last: Vec<u32>,
    uses: Vec<Registers>,
}

impl Needs {
    /// Makes room for registers below `names`.
    fn fit(&mut self, names: usize) {
        if self.last.len() < names {
            self.last.resize(names, 0);
            self.uses.resize(names, Registers::new());
        }
    }

    /// Lines of `part` that have to come before each line of it.
    fn of(&mut self, part: &[Line]) -> Vec<Before> {
        let Needs { last, uses } = self;
        let mut needs: Vec<Before> = Vec::with_capacity(part.len());
        for (i, l) in part.iter().enumerate() {
            let mut own = Before::new();
            let mut after = |r: u32| own.extend(last[r as usize].checked_sub(1));
            l.uses.iter().for_each(|&u| after(u));
            l.defs.iter().for_each(|&d| after(d));
            let i = i as u32;
            for &d in &l.defs {
                own.extend(uses[d as usize].iter().copied().filter(|&u| u != i));
            }
            for &u in &l.uses {
                uses[u as usize].push(i);
            }
            for &d in &l.defs {
                last[d as usize] = i + 1;
                let kept = &mut uses[d as usize];
                kept.clear();
                kept.extend(l.partial.then_some(i));
            }
            own.sort_and_dedup();
            needs.push(own);
        }
        for &r in part.iter().flat_map(|l| l.defs.iter().chain(&l.uses)) {
            last[r as usize] = 0;
            uses[r as usize].clear();
        }
        needs
    }
}

/// A stretch that nothing moves out of, with its loads, some at a time, before what uses them. While they are
/// under way the addresses of what comes next are computed: arithmetic moves across stores, accesses do not. Gives
/// the order of its lines.
fn loads_first(part: &[Line], scratch: &mut Needs) -> Vec<usize> {
    let n = part.len();
    let mut needs = scratch.of(part);
    let memory = |i: &usize| matches!(part[*i].kind, Kind::Load | Kind::Store);
    let all: Vec<usize> = (0..n).filter(memory).collect();
    // Loads and stores stay in order around stores.
    let (mut store, mut since) = (None, vec![]);
    for &i in &all {
        needs[i].extend(store);
        match part[i].kind {
            Kind::Store => {
                needs[i].extend(since.drain(..));
                store = Some(i as u32);
            }
            _ => since.push(i as u32),
        }
    }
    // How many of the accesses have to be under way before each line.
    let mut behind = vec![0; n];
    for i in 0..n {
        let own = match memory(&i) {
            true => all.partition_point(|&a| a < i) + 1,
            false => 0,
        };
        behind[i] = needs[i]
            .iter()
            .fold(own, |most, &d| most.max(behind[d as usize]));
    }
    let mut done = vec![false; n];
    let mut order: Vec<usize> = Vec::with_capacity(n);
    let mut stack: Vec<usize> = vec![];
    let mut take = |i: usize| {
        stack.extend((!done[i]).then_some(i));
        while let Some(&at) = stack.last() {
            let missing = needs[at].iter().find(|&&d| !done[d as usize]);
            match missing {
                Some(&d) if !done[at] => stack.push(d as usize),
                _ => {
                    stack.pop();
                    if !done[at] {
                        done[at] = true;
                        order.push(at);
                    }
                }
            }
        }
    };
    let mut at = 0;
    while at < all.len() {
        let loads = all[at..].iter().take(LOADS);
        let loads = loads.take_while(|&&i| part[i].kind == Kind::Load).count();
        let next = at + loads.max(1);
        let group = &all[at..next];
        if loads > 0 {
            for &i in group {
                needs[i].iter().for_each(|&d| take(d as usize));
            }
            // What is read out of the constant bank waits for no address.
            let to = all.get(next).copied().unwrap_or(n);
            let reads = (0..to).filter(|&i| part[i].kind == Kind::Read);
            reads.for_each(&mut take);
            group.iter().for_each(|&i| take(i));
            for &i in all[next..].iter().take(NEXT) {
                let ready = |d: &&u32| behind[**d as usize] <= next;
                needs[i]
                    .iter()
                    .filter(ready)
                    .for_each(|&d| take(d as usize));
            }
        }
        (0..all.get(next).copied().unwrap_or(n)).for_each(&mut take);
        at = next;
    }
    (0..n).for_each(&mut take);
    order
}

/// `p` with what can be had again taken from where it comes, up to `most`: who used it uses the value that
/// it is made of, or none.
pub(super) fn remade(mut p: Parsed, most: Rematerialised) -> Parsed {
    let defined = written(&p);
    let once = |r: u32| defined[r as usize] == 1;
    // What each value is made of, where it can be had again.
    let mut of: Vec<Option<Option<u32>>> = vec![None; p.width.len()];
    for l in &p.lines {
        let &[to] = &l.defs[..] else { continue };
        if l.partial || !once(to) {
            continue;
        }
        let mut held = l.uses.iter().filter(|&&u| p.width[u as usize] > 0);
        of[to as usize] = match (l.rematerialised, held.next(), held.next()) {
            (Rematerialised::Special, ..) => Some(None),
            (Rematerialised::Number, Some(&u), None)
                if most == Rematerialised::Number && once(u) =>
            {
                Some(Some(u))
            }
            _ => None,
        };
    }
    let source = |u: u32| {
        let mut at = u;
        for _ in 0..CHAIN {
            match of[at as usize] {
                None => break,
                Some(next) => at = next?,
            }
        }
        Some(at)
    };
    for l in &mut p.lines {
        l.uses.retain(|u| match source(*u) {
            Some(of) => {
                *u = of;
                true
            }
            None => false,
        });
    }
    p
}

/// `p` with every stretch that nothing moves out of in the order that keeps least alive, as far as it is
/// found by going from the end and taking what frees most: that order or the text's. Gives what is alive as well, which
/// between blocks is the same in any order within them.
///
/// Where no order changes how much is alive at most in all of `p`, nor that more than `truths` truth values are, a stretch
/// is left as it is: to find one takes far longer than to see that.
pub(super) fn lean(mut p: Parsed, truths: u32) -> (Parsed, Alive) {
    let live = alive(&p);
    let mut scratch = SCRATCH.take();
    scratch.fit(p.width.len());
    // So much is alive in any order.
    let outs = live.out.iter().map(|out| count(out, &p.width));
    let mut least = outs.max().unwrap_or(0);
    let ends = live.starts.iter().skip(1).copied().chain([p.lines.len()]);
    for ((&from, to), out) in live.starts.iter().zip(ends).zip(&live.out) {
        let mut behind = out.clone();
        let (lines, width) = (&mut p.lines[from..to], &p.width);
        let parts = lines.split_inclusive_mut(|l| matches!(l.kind, Kind::Fence | Kind::Store));
        for part in parts.rev() {
            let (most, before) = most_alive(part, width, behind.clone(), 0..part.len());
            if most <= least && most_truths(part, &p.truth, &behind) <= truths {
                behind = before;
                continue;
            }
            let order = scratch.order(part, width, behind.clone());
            let (fewer, _) = most_alive(part, width, behind, order.iter().copied());
            least = least.max(fewer.min(most));
            if fewer < most {
                let mut old: Vec<Line> = part.iter_mut().map(std::mem::take).collect();
                for (line, &i) in part.iter_mut().zip(&order) {
                    *line = std::mem::take(&mut old[i]);
                }
            }
            behind = before;
        }
    }
    SCRATCH.set(scratch);
    (p, live)
}

/// Truth values that can be alive at once in a stretch, whatever its order; `live` are behind it.
fn most_truths(part: &[Line], truth: &[u32], live: &[u64]) -> u32 {
    let named = part.iter().flat_map(|l| l.defs.iter().chain(&l.uses));
    let mut own: Few<u32, 16> = named
        .copied()
        .filter(|&r| truth[r as usize] > 0 && !has(live, r))
        .collect();
    own.sort_and_dedup();
    let called = part.iter().any(|l| l.kind == Kind::Slow);
    count(live, truth) + own.len() as u32 + if called { SLOW_TRUTHS } else { 0 }
}

/// The most that is alive at once in a stretch in this order, and what is alive before it.
fn most_alive(
    part: &[Line],
    width: &[u32],
    mut live: Vec<u64>,
    order: impl DoubleEndedIterator<Item = usize>,
) -> (u32, Vec<u64>) {
    let mut now = count(&live, width);
    let mut most = now;
    for i in order.rev() {
        let l = &part[i];
        most = most.max(now + unread(&live, l, width));
        now = stepped(&mut live, l, width, now);
        let called = if l.kind == Kind::Slow { SLOW } else { 0 };
        most = most.max(now + called);
    }
    (most, live)
}

/// By how much more is alive before `l` than behind it, where `live` is.
fn change(l: &Line, width: &[u32], live: &[u64]) -> i64 {
    let of = |r: &u32| i64::from(width[*r as usize]);
    let first = |list: &[u32], i: usize| !list[..i].contains(&list[i]);
    let all = l.uses.iter().enumerate();
    let begins = all.filter(|&(i, u)| !has(live, *u) && first(&l.uses, i));
    let ends = l.defs.iter().enumerate();
    let ends = ends
        .filter(|&(i, d)| !l.partial && has(live, *d) && first(&l.defs, i) && !l.uses.contains(d));
    let begins: i64 = begins.map(|(_, u)| of(u)).sum();
    begins - ends.map(|(_, d)| of(d)).sum::<i64>()
}

thread_local! {
    /// What this thread orders stretches with. Tables of all registers of a text are long, and clean after every stretch:
    /// they serve for the next text.
    static SCRATCH: Cell<Frugal> = Cell::default();
}

/// Finds the order of a stretch's lines in which, from its end on, always that comes next which frees most.
#[derive(Default)]
struct Frugal {
    needs: Needs,
    /// Lines of the stretch at hand that name each register.
    named: Vec<Registers>,
}

impl Frugal {
    /// Makes room for registers below `names`.
    fn fit(&mut self, names: usize) {
        self.needs.fit(names);
        if self.named.len() < names {
            self.named.resize(names, Registers::new());
        }
    }

    fn order(&mut self, part: &[Line], width: &[u32], mut live: Vec<u64>) -> Vec<usize> {
        if part.len() > STRETCH {
            return (0..part.len()).collect();
        }
        let mut needs = self.needs.of(part);
        if let Some(last) = part
            .iter()
            .rposition(|l| matches!(l.kind, Kind::Fence | Kind::Store))
        {
            needs[last] = (0..last as u32).collect();
        }
        let registers = |l: &Line| l.defs.iter().chain(&l.uses).copied().collect::<Registers>();
        for (i, l) in part.iter().enumerate() {
            registers(l)
                .iter()
                .for_each(|&r| self.named[r as usize].push(i as u32));
        }
        let mut users = vec![0usize; part.len()];
        needs.iter().flatten().for_each(|&i| users[i as usize] += 1);
        // What each line changes, as long as nothing that it names begins or ends.
        let mut changes: Vec<i64> = part.iter().map(|l| change(l, width, &live)).collect();
        // The last of those that free most comes first. A line is in it once for every change since it was ready.
        let entry = |i: usize, changes: &[i64]| (Reverse(changes[i]), i);
        let ready = (0..part.len()).filter(|&i| users[i] == 0);
        let mut ready: BinaryHeap<_> = ready.map(|i| entry(i, &changes)).collect();
        let mut done = vec![false; part.len()];
        let mut order = Vec::with_capacity(part.len());
        while let Some((Reverse(by), i)) = ready.pop() {
            if done[i] || by != changes[i] {
                continue;
            }
            done[i] = true;
            let named = registers(&part[i]);
            let before: Few<bool, 16> = named.iter().map(|&r| has(&live, r)).collect();
            step(&mut live, &part[i]);
            order.push(i);
            let changed = named.iter().zip(&before);
            for (&r, _) in changed.filter(|&(&r, &was)| has(&live, r) != was) {
                for &k in &self.named[r as usize] {
                    let k = k as usize;
                    let now = change(&part[k], width, &live);
                    let other = std::mem::replace(&mut changes[k], now) != now;
                    if other && users[k] == 0 && !done[k] {
                        ready.push(entry(k, &changes));
                    }
                }
            }
            for &n in &needs[i] {
                users[n as usize] -= 1;
                if users[n as usize] == 0 {
                    ready.push(entry(n as usize, &changes));
                }
            }
        }
        order.reverse();
        for l in part {
            registers(l)
                .iter()
                .for_each(|&r| self.named[r as usize].clear());
        }
        order
    }
}
