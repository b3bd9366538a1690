//! What happens before what, and whether that suffices for shared bytes.
use super::access::{Prover, Shape};
use super::{Blame, tiles};
use crate::{Block, BufferKind, PlanError, Step, StepWork, TileMap, Wait};
use kernel::Role;
use layout::Dim;
use std::collections::BTreeMap;

/// Pairs of a writer and another use that one buffer may have.
const MAX_PAIRS: usize = 1 << 22;

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

/// A set of steps.
#[derive(Clone)]
struct Set(Vec<u64>);

impl Set {
    fn new(n: usize) -> Set {
        Set(vec![0; n.div_ceil(64)])
    }
    fn add(&mut self, i: usize) {
        self.0[i / 64] |= 1 << (i % 64);
    }
    fn has(&self, i: usize) -> bool {
        self.0[i / 64] >> (i % 64) & 1 == 1
    }
    fn join(&mut self, o: &Set) {
        self.0.iter_mut().zip(&o.0).for_each(|(a, b)| *a |= b);
    }
    fn meet(&mut self, o: &Set) {
        self.0.iter_mut().zip(&o.0).for_each(|(a, b)| *a &= b);
    }
    fn within(&self, o: &Set) -> bool {
        self.0.iter().zip(&o.0).all(|(a, b)| a & !b == 0)
    }
}

/// For every step of a list, the steps that are over before it starts.
pub(super) struct Ordering {
    before: Vec<Set>,
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
        let mut before: Vec<Set> = Vec::with_capacity(n);
        // Steps that are over when a step is over.
        let mut done: Vec<Set> = Vec::with_capacity(n);
        for (at, s) in list.iter().enumerate() {
            let mut start = Set::new(n);
            let mut all = Vec::new();
            for w in &s.waits {
                match w {
                    Wait::Step(to) => start.join(&done[*to as usize]),
                    Wait::Tiles { step, map } => {
                        let b = b.of(format!("{}, step '{}'", b.subject, s.name));
                        let other = &list[*step as usize];
                        let fits = match map {
                            TileMap::Range { ratio } => {
                                let some = ratio.known().is_some_and(|r| r >= 1);
                                some && other.tasks == s.tasks.clone() * ratio.clone()
                            }
                            TileMap::Spans { .. } => derived(other, s, map, p),
                        };
                        b.need(fits, "waits", || {
                            format!(
                                "{map:?} are not all of the '{}' tasks of '{}' that it needs",
                                other.tasks, other.name
                            )
                        })?;
                        if matches!(map, TileMap::Spans { .. }) {
                            tiled.insert((at, *step as usize), map.clone());
                        }
                        // A task starts only after a task of that step, which started after these.
                        start.join(&before[*step as usize]);
                        all.push(*step as usize);
                    }
                }
            }
            let mut end = start.clone();
            all.iter().for_each(|&i| end.join(&done[i]));
            end.add(at);
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

    fn ordered(&self, a: usize, b: usize) -> bool {
        self.before[a.max(b)].has(a.min(b))
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
        let mut has_init = vec![false; k.buffers.len()];
        filled.iter().for_each(|&x| has_init[x as usize] = true);
        for (i, of) in by_buffer.iter().enumerate() {
            let b = b.of(format!("{}, buffer '{}'", b.subject, k.buffers[i].name));
            self.one(list, uses, of, &b, p)?;
            self.written(list, k, uses, of, i, init, has_init[i], (&b, p))?;
        }
        let mut places: Vec<u32> = k.buffers.iter().map(|x| x.place).collect();
        places.sort_unstable();
        places.dedup();
        places
            .into_iter()
            .try_for_each(|place| self.arena(k, uses, &by_buffer, place, b))
    }

    /// Uses of one buffer.
    fn one(
        &self,
        steps: &[Step],
        uses: &[Use],
        list: &[usize],
        b: &Blame,
        p: &mut Prover,
    ) -> Checked {
        let writers = list.iter().filter(|&&u| uses[u].write).count();
        b.need(
            writers.saturating_mul(list.len()) <= MAX_PAIRS,
            "size",
            || format!("{writers} writers among {} uses", list.len()),
        )?;
        for &w in list.iter().filter(|&&w| uses[w].write) {
            for &u in list.iter().filter(|&&u| uses[u].step != uses[w].step) {
                // Pairs of writers are looked at once.
                if uses[u].write && u < w {
                    continue;
                }
                let (x, y) = (&uses[u], &uses[w]);
                let fine = self.ordered(x.step, y.step)
                    || p.apart(&x.shape, &y.shape)
                    || self.task_by_task(steps, x, y, p);
                b.need(fine, "order", || {
                    format!(
                        "steps {} and {} use the same elements and none waits for the other",
                        x.step.min(y.step),
                        x.step.max(y.step)
                    )
                })?;
            }
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
        let n = self.before.len();
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
        order.sort_unstable();
        let mut touched: BTreeMap<usize, Set> = BTreeMap::new();
        // Owner of every piece of the arena: start to (end, buffer).
        let mut owner: BTreeMap<u64, (u64, usize)> = BTreeMap::new();
        for (_, i) in order {
            let x = &k.buffers[i];
            let (lo, hi) = (x.offset, x.offset + x.bytes);
            let mut all = Set::new(n);
            let mut after: Option<Set> = None;
            for &u in &by_buffer[i] {
                all.add(uses[u].step);
                let start = &self.before[uses[u].step];
                match &mut after {
                    Some(a) => a.meet(start),
                    None => after = Some(start.clone()),
                }
            }
            let after = after.unwrap_or_else(|| Set::new(n));
            // Pieces that begin before `hi` and end after `lo`.
            let mut taken: Vec<(u64, u64, usize)> = Vec::new();
            for (&start, &(end, who)) in owner.range(..hi).rev() {
                if end <= lo {
                    break;
                }
                taken.push((start, end, who));
            }
            for (start, end, who) in taken {
                b.need(touched[&who].within(&after), "order", || {
                    format!("buffers '{}' and '{}' share bytes and a step that uses the later one does not wait for the other's", k.buffers[who].name, x.name)
                })?;
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
