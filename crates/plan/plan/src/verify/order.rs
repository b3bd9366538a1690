//! Happens-before between the steps of a block: steps that share bytes must be ordered by waits.
use super::access::{Prover, Shape};
use super::{Blame, tiles};
use crate::{
    Block, BufferKind, MAX_NODES, Pieces, PlanError, Step, StepSet, StepWork, TileMap, Wait,
};
use kernel::Role;
use layout::{Arrange, Dim};
use std::collections::BTreeMap;

/// Pairs of uses that one plan may have looked at by themselves: neither ordered by waits nor pieces of a row.
pub const MAX_PAIRS: usize = 1 << 22;

type Checked = Result<(), PlanError>;

/// One way in which a step touches a buffer.
pub(super) struct Use {
    pub step: usize,
    pub buffer: u32,
    pub write: bool,
    /// Operand or argument of the step.
    pub part: usize,
    pub shape: Shape,
}

/// For every step of a list, the steps that are over before it starts.
pub(super) struct Ordering {
    before: Vec<StepSet>,
    /// Waits by spans: (waiting step, step waited for).
    tiled: BTreeMap<(usize, usize), TileMap>,
}

/// Whether a wait by spans follows from some access of `step` to what `earlier` writes.
fn derived(earlier: &Step, step: &Step, map: &TileMap, p: &Prover) -> bool {
    pairs(earlier, step)
        .into_iter()
        .any(|(w, r)| tiles::derive(earlier, w, step, r, p).as_ref() == Some(map))
}

/// Operands by which `step` reads what `earlier` writes.
fn pairs(earlier: &Step, step: &Step) -> Vec<(usize, usize)> {
    let (
        StepWork::Kernel {
            kernel: k, args, ..
        },
        StepWork::Kernel {
            kernel: l,
            args: other,
            ..
        },
    ) = (&earlier.work, &step.work)
    else {
        return vec![];
    };
    let mut out = Vec::new();
    for (i, _) in k
        .operands
        .iter()
        .enumerate()
        .filter(|o| o.1.role == Role::Write)
    {
        for (j, _) in l
            .operands
            .iter()
            .enumerate()
            .filter(|o| o.1.role == Role::Read)
        {
            if args.get(i) == other.get(j) {
                out.push((i, j));
            }
        }
    }
    out
}

impl Ordering {
    pub fn new(list: &[Step], b: &Blame, p: &Prover) -> Result<Ordering, PlanError> {
        let mut tiled = BTreeMap::new();
        let n = list.len();
        let mut nodes = 0;
        let mut before: Vec<StepSet> = Vec::with_capacity(n);
        // Steps that are over when a step is over.
        let mut done: Vec<StepSet> = Vec::with_capacity(n);
        for (at, s) in list.iter().enumerate() {
            let mut start = StepSet::new();
            let mut all = Vec::new();
            for w in &s.waits {
                match w {
                    Wait::Step(to) => nodes += start.join(&done[*to as usize]),
                    Wait::Tiles { step, map } => {
                        let b = b.of(format!("{}, step '{}'", b.subject, s.name));
                        let other = &list[*step as usize];
                        let fits = match map {
                            TileMap::Range { ratio } => {
                                let some = ratio.known().is_some_and(|r| r >= 1);
                                some && other.tasks == s.tasks.clone() * ratio.clone()
                            }
                            TileMap::Spans { .. }
                            | TileMap::Interleaved
                            | TileMap::Clusters { .. } => derived(other, s, map, p),
                        };
                        b.need(fits, "waits", || {
                            format!(
                                "{map:?} are not all of the '{}' tasks of '{}' that it needs",
                                other.tasks, other.name
                            )
                        })?;
                        if !matches!(map, TileMap::Range { .. }) {
                            tiled.insert((at, *step as usize), map.clone());
                        }
                        // A task starts only after a task of that step, which started after these.
                        nodes += start.join(&before[*step as usize]);
                        all.push(*step as usize);
                    }
                }
            }
            let mut end = start.clone();
            all.iter().for_each(|&i| nodes += end.join(&done[i]));
            end.add(at);
            b.need(nodes <= MAX_NODES, "size", || {
                "its steps wait for each other in too many ways to look at".into()
            })?;
            before.push(start);
            done.push(end);
        }
        Ok(Ordering { before, tiled })
    }

    /// Whether every task of the step that reads comes after the tasks that wrote what it reads.
    fn task_by_task(&self, list: &[Step], x: &Use, y: &Use, p: &Prover) -> bool {
        let (w, r) = match (x.write, y.write) {
            (true, false) => (x, y),
            (false, true) => (y, x),
            _ => return false,
        };
        let Some(map) = self.tiled.get(&(r.step, w.step)) else {
            return false;
        };
        tiles::derive(&list[w.step], w.part, &list[r.step], r.part, p).as_ref() == Some(map)
    }

    /// Checks every pair of uses that share bytes, of the init segment or of the steps; `filled` are
    /// buffers that init wrote.
    pub fn check(
        &self,
        k: &Block,
        uses: &[Use],
        init: bool,
        filled: &[u32],
        b: &Blame,
        p: &mut Prover,
    ) -> Checked {
        let list = if init { &k.init } else { &k.steps };
        let mut by_buffer: Vec<Vec<usize>> = vec![Vec::new(); k.buffers.len()];
        for (i, u) in uses.iter().enumerate() {
            by_buffer[u.buffer as usize].push(i);
        }
        let mut pairs = MAX_PAIRS;
        let mut has_init = vec![false; k.buffers.len()];
        filled.iter().for_each(|&x| has_init[x as usize] = true);
        for (i, of) in by_buffer.iter().enumerate() {
            let b = b.of(format!("{}, buffer '{}'", b.subject, k.buffers[i].name));
            self.one(list, uses, of, &mut pairs, &b, p)?;
            self.written(list, k, uses, of, i, init, has_init[i], (&b, p))?;
        }
        let mut places: Vec<u32> = k.buffers.iter().map(|x| x.place).collect();
        places.arrange();
        places.dedup();
        places
            .into_iter()
            .try_for_each(|place| self.arena(k, uses, &by_buffer, place, b))
    }

    /// Uses of one buffer, in the order of their steps.
    fn one(
        &self,
        steps: &[Step],
        uses: &[Use],
        list: &[usize],
        pairs: &mut usize,
        b: &Blame,
        p: &mut Prover,
    ) -> Checked {
        let same = |x: &usize, y: &usize| uses[*x].step == uses[*y].step;
        let writes = |g: &[usize]| g.iter().filter(|&&u| uses[u].write).count();
        let shared = list.chunk_by(same).filter(|g| writes(g) > 0).count() > 1;
        let (mut readers, mut writers) = (StepSet::new(), StepSet::new());
        let mut pieces = Pieces::default();
        for group in list.chunk_by(same) {
            let at = uses[group[0]].step;
            let alone = shared && writes(group) == 1;
            for &u in group {
                let y = &uses[u];
                let mut fine = self.before[at].clone();
                if y.write {
                    self.others(
                        (steps, uses, list),
                        (&readers, &fine),
                        (false, y),
                        pairs,
                        b,
                        p,
                    )?;
                    if alone {
                        let reaches = p.reaches(&y.shape);
                        let top = |d: &Dim| p.dims.at_top(d);
                        fine.join(&pieces.add(at, reaches, &top, &|x, y| p.le(x, y)));
                    }
                }
                self.others(
                    (steps, uses, list),
                    (&writers, &fine),
                    (true, y),
                    pairs,
                    b,
                    p,
                )?;
            }
            for &u in group {
                match uses[u].write {
                    true => writers.add(at),
                    false => readers.add(at),
                }
            }
        }
        Ok(())
    }

    /// Checks `y` against those uses of the steps `there` that write, or that read; those of `fine` are.
    fn others(
        &self,
        (steps, uses, list): (&[Step], &[Use], &[usize]),
        (there, fine): (&StepSet, &StepSet),
        (write, y): (bool, &Use),
        pairs: &mut usize,
        b: &Blame,
        p: &mut Prover,
    ) -> Checked {
        let mut fine = fine.clone();
        while let Some(step) = there.last_outside(&fine) {
            let from = list.partition_point(|&u| uses[u].step < step);
            let of = list[from..].iter().map(|&u| &uses[u]);
            for x in of
                .take_while(|x| x.step == step)
                .filter(|x| x.write == write)
            {
                b.need(*pairs > 0, "size", || {
                    format!("more than {MAX_PAIRS} pairs of uses that no wait orders")
                })?;
                *pairs -= 1;
                let apart = p.apart(&x.shape, &y.shape) || self.task_by_task(steps, x, y, p);
                b.need(apart, "order", || {
                    format!(
                        "steps {} and {} use the same elements and none waits for the other",
                        step, y.step
                    )
                })?;
            }
            fine.add(step);
        }
        Ok(())
    }

    /// Whether what is read was made, and what is given back is.
    #[allow(clippy::too_many_arguments)]
    fn written(
        &self,
        steps: &[Step],
        k: &Block,
        uses: &[Use],
        list: &[usize],
        buffer: usize,
        init: bool,
        filled: bool,
        (b, p): (&Blame, &Prover),
    ) -> Checked {
        let writers: Vec<&Use> = list.iter().map(|&u| &uses[u]).filter(|u| u.write).collect();
        let kind = k.buffers[buffer].kind;
        for &u in list.iter().filter(|&&u| !uses[u].write) {
            let x = &uses[u];
            let made = match kind {
                BufferKind::Input(_) | BufferKind::Weight(_) | BufferKind::State(_) => true,
                BufferKind::Init if !init => filled,
                _ => writers
                    .iter()
                    .filter(|w| w.step < x.step)
                    .any(|w| self.before[x.step].has(w.step) || self.task_by_task(steps, w, x, p)),
            };
            b.need(made, "written", || {
                format!("step {} reads it before it is written", x.step)
            })?;
        }
        if let BufferKind::Output(n) = kind
            && !init
        {
            let empty = k.outputs[n as usize].shape.iter().any(Dim::is_zero);
            b.need(empty || !writers.is_empty(), "written", || {
                "no step writes this output".into()
            })?;
        }
        Ok(())
    }

    /// Arena buffers of one device that share bytes: all uses of one come before all uses of the next. Walking
    /// them in the order of their first use, each has to come only after those that it takes bytes
    /// from: they came after what was there before.
    fn arena(
        &self,
        k: &Block,
        uses: &[Use],
        by_buffer: &[Vec<usize>],
        place: u32,
        b: &Blame,
    ) -> Checked {
        let mut order: Vec<(usize, usize)> = Vec::new();
        for (i, list) in by_buffer.iter().enumerate() {
            if k.buffers[i].kind == BufferKind::Arena
                && k.buffers[i].place == place
                && k.buffers[i].bytes > 0
                && let Some(first) = list.iter().map(|&u| uses[u].step).min()
            {
                order.push((first, i));
            }
        }
        order.arrange();
        let mut touched: BTreeMap<usize, StepSet> = BTreeMap::new();
        // Owner of every piece of the arena: start to (end, buffer).
        let mut owner: BTreeMap<u64, (u64, usize)> = BTreeMap::new();
        for (_, i) in order {
            let x = &k.buffers[i];
            let (lo, hi) = (x.offset, x.offset + x.bytes);
            let mut all = StepSet::new();
            by_buffer[i].iter().for_each(|&u| all.add(uses[u].step));
            // Pieces that begin before `hi` and end after `lo`.
            let mut taken: Vec<(u64, u64, usize)> = Vec::new();
            for (&start, &(end, who)) in owner.range(..hi).rev() {
                if end <= lo {
                    break;
                }
                taken.push((start, end, who));
            }
            let mut earlier = StepSet::new();
            for t in &taken {
                earlier.join(&touched[&t.2]);
            }
            for &u in by_buffer[i].iter().filter(|_| !taken.is_empty()) {
                let start = &self.before[uses[u].step];
                b.need(earlier.within(start), "order", || {
                    let other = taken.iter().find(|t| !touched[&t.2].within(start));
                    let other = other.map_or("", |t| k.buffers[t.2].name.as_str());
                    format!("buffers '{other}' and '{}' share bytes and a step that uses the later one does not wait for the other's", x.name)
                })?;
            }
            for (start, end, who) in taken {
                owner.remove(&start);
                if start < lo {
                    owner.insert(start, (lo, who));
                }
                if end > hi {
                    owner.insert(hi, (end, who));
                }
            }
            owner.insert(lo, (hi, i));
            touched.insert(i, all);
        }
        Ok(())
    }
}
