//! From the weights of a softmax back to the scores, as one scalar program.
use crate::edit::Edit;
use crate::pattern::{folds_with, groups};
use expr::{Binary, Expr, ExprBuilder, Inst, Ref};
use graph::{NodeId, Op, ValueId, View};
use layout::Dim;
use std::collections::{BTreeMap, BTreeSet};

/// Nodes looked at when going back from a product's operand.
const MAX_NODES: usize = 64;

/// Coordinates of the last and last but one dimension, whatever the rank.
const LAST: u32 = 1000;
/// Batch coordinates: `BATCH + 100 * level + axis`.
const BATCH: u32 = 2000;

/// What an argument of the program stands for.
pub(super) enum Slot {
    Scores,
    /// A value that does not depend on the scores, read at a level.
    Extra(ValueId, usize),
    /// A reduction over the last dimension: which, and its lifted argument.
    Reduced(Binary, Ref),
}

pub(super) struct Walk<'a, 'f> {
    e: &'a Edit<'f>,
    scores: ValueId,
    depends: BTreeSet<ValueId>,
    pub(super) b: ExprBuilder,
    pub(super) slots: Vec<Slot>,
    memo: BTreeMap<ValueId, Ref>,
    /// Shapes under which maps see the scores.
    levels: Vec<Vec<Dim>>,
    /// Values with one number per row of the scores.
    rows: BTreeSet<ValueId>,
    pub(super) nodes: BTreeSet<NodeId>,
}

/// Products that `p` depends on through maps, reshapes and reductions over the last dimension, if
/// there is a sum of these among them (otherwise this is no softmax).
pub(super) fn contracts_before(e: &Edit, p: ValueId) -> Vec<NodeId> {
    let (mut found, mut sum) = (Vec::new(), false);
    let mut seen = BTreeSet::new();
    let mut work = std::collections::VecDeque::from([p]);
    while let Some(v) = work.pop_front() {
        let Some(n) = e.writer(v) else { continue };
        if seen.len() >= MAX_NODES || !seen.insert(n) {
            continue;
        }
        let node = e.node(n);
        match &node.op {
            Op::Contract(_) => found.push(n),
            Op::Map(_) | Op::View(View::Reshape(_)) => work.extend(&node.inputs),
            Op::Reduce { monoid, axes, .. } => {
                let rank = e.value(node.inputs[0]).shape.len();
                if axes.len() == 1 && axes[0] + 1 == rank {
                    sum |= folds_with(monoid, Binary::Add);
                    work.extend(&node.inputs);
                }
            }
            _ => {}
        }
    }
    if sum { found } else { Vec::new() }
}

impl<'a, 'f> Walk<'a, 'f> {
    pub(super) fn new(e: &'a Edit<'f>, scores: ValueId, p: ValueId) -> Walk<'a, 'f> {
        let mut w = Walk {
            e,
            scores,
            depends: BTreeSet::new(),
            b: ExprBuilder::new(),
            slots: vec![Slot::Scores],
            memo: BTreeMap::new(),
            levels: Vec::new(),
            rows: BTreeSet::new(),
            nodes: BTreeSet::new(),
        };
        let mut seen = BTreeMap::new();
        w.mark(p, &mut seen, 0);
        w
    }

    /// Which values between `v` and the scores depend on them.
    fn mark(&mut self, v: ValueId, seen: &mut BTreeMap<ValueId, bool>, depth: usize) -> bool {
        if v == self.scores {
            self.depends.insert(v);
            return true;
        }
        if let Some(known) = seen.get(&v) {
            return *known;
        }
        seen.insert(v, false);
        let Some(n) = self.e.writer(v) else {
            return false;
        };
        if depth > MAX_NODES
            || !matches!(
                self.e.node(n).op,
                Op::Map(_) | Op::View(_) | Op::Reduce { .. }
            )
        {
            return false;
        }
        let mut any = false;
        for i in self.e.node(n).inputs.clone() {
            any |= self.mark(i, seen, depth + 1);
        }
        if any {
            self.depends.insert(v);
            seen.insert(v, true);
        }
        any
    }

    fn slot(&mut self, s: Slot) -> u32 {
        self.slots.push(s);
        self.slots.len() as u32 - 1
    }

    fn level(&mut self, shape: &[Dim]) -> Result<usize, String> {
        if shape.len() < 2 {
            return Err("a map between sees no rows and columns".into());
        }
        if let Some(i) = self.levels.iter().position(|l| l == shape) {
            return Ok(i);
        }
        self.levels.push(shape.to_vec());
        Ok(self.levels.len() - 1)
    }

    /// The value `v`, which depends on the scores, in the program.
    pub(super) fn lower(&mut self, v: ValueId) -> Result<Ref, String> {
        if let Some(r) = self.memo.get(&v) {
            return Ok(*r);
        }
        let r = self.lower_new(v)?;
        self.memo.insert(v, r);
        Ok(r)
    }

    fn lower_new(&mut self, v: ValueId) -> Result<Ref, String> {
        let e = self.e;
        let value = e.value(v);
        if v == self.scores {
            return Ok(self.b.input(0, value.dtype));
        }
        let n = match e.writer(v) {
            Some(n) if self.depends.contains(&v) => n,
            _ => return Err(format!("'{}' does not come from the scores", value.name)),
        };
        let node = e.node(n);
        match &node.op {
            Op::Map(p) if node.outputs.len() == 1 => {
                self.nodes.insert(n);
                let level = self.level(&value.shape)?;
                let rank = value.shape.len();
                let mut args = Vec::new();
                for &i in &node.inputs {
                    args.push(self.argument(i, level)?);
                }
                let of_rows = |i: &ValueId| !self.depends.contains(i) || self.rows.contains(i);
                if value.shape[rank - 1].is_one() && node.inputs.iter().all(of_rows) {
                    self.rows.insert(v);
                }
                let index = |b: &mut ExprBuilder, axis: u32| {
                    let from_end = (rank as u32).saturating_sub(1 + axis);
                    b.index(match from_end {
                        0 | 1 => LAST + from_end,
                        _ => BATCH + 100 * level as u32 + axis,
                    })
                };
                Ok(self.b.inline(p, &args, Some(&index))[0])
            }
            Op::View(View::Reshape(_)) => {
                let x = node.inputs[0];
                let (from, to) = (&e.value(x).shape, &value.shape);
                let reduced = e
                    .writer(x)
                    .is_some_and(|w| matches!(e.node(w).op, Op::Reduce { .. }));
                let keeps = match reduced {
                    // A reduction without the last dimension gets it back as 1.
                    true => {
                        to.last().is_some_and(Dim::is_one)
                            && (to[..to.len() - 1] == from[..] || to == from)
                    }
                    false => {
                        from.len() >= 2
                            && to.len() >= 2
                            && from[from.len() - 2..] == to[to.len() - 2..]
                    }
                };
                if !keeps {
                    return Err(format!("'{}' moves rows or columns", value.name));
                }
                self.nodes.insert(n);
                if reduced || self.rows.contains(&x) {
                    self.rows.insert(v);
                }
                match reduced {
                    true => self.reduced(x),
                    false => self.lower(x),
                }
            }
            Op::Reduce { keep: true, .. } => {
                self.rows.insert(v);
                self.reduced(v)
            }
            op => Err(format!("{} '{}' stands between", op.name(), value.name)),
        }
    }

    fn reduced(&mut self, v: ValueId) -> Result<Ref, String> {
        if let Some(r) = self.memo.get(&v) {
            return Ok(*r);
        }
        let e = self.e;
        let n = e.writer(v).ok_or("a reduction has no node")?;
        let node = e.node(n);
        let (Op::Reduce { monoid, axes, .. }, [x]) = (&node.op, node.inputs.as_slice()) else {
            return Err("a reduction of several tensors stands between".into());
        };
        if axes.len() != 1 || axes[0] + 1 != e.value(*x).shape.len() {
            return Err("the softmax is not over the last dimension".into());
        }
        let kind = [Binary::Add, Binary::Max]
            .into_iter()
            .find(|f| folds_with(monoid, *f))
            .ok_or_else(|| format!("the reduction '{}' stands between", monoid.name))?;
        if monoid
            .lift
            .insts
            .iter()
            .any(|i| matches!(i, Inst::Index { .. }))
        {
            return Err("a reduction depends on positions".into());
        }
        self.nodes.insert(n);
        let arg = self.lower(*x)?;
        let lifted = self.b.inline(&monoid.lift, &[arg], None)[0];
        let slot = self.slot(Slot::Reduced(kind, lifted));
        let r = self.b.input(slot, e.value(v).dtype);
        self.memo.insert(v, r);
        Ok(r)
    }

    /// Argument `v` of a map at `level`.
    fn argument(&mut self, v: ValueId, level: usize) -> Result<Ref, String> {
        let value = self.e.value(v);
        if self.depends.contains(&v) {
            let r = self.lower(v)?;
            let (own, want) = (&value.shape, &self.levels[level]);
            let row = own.len() == want.len()
                && own[..own.len() - 1] == want[..own.len() - 1]
                && own.last().is_some_and(Dim::is_one);
            if own != want && !(row && self.rows.contains(&v)) {
                return Err(format!("'{}' is broadcast between", value.name));
            }
            return Ok(r);
        }
        let known = self
            .slots
            .iter()
            .position(|s| matches!(s, Slot::Extra(x, l) if *x == v && *l == level));
        let slot = match known {
            Some(s) => s as u32,
            None => self.slot(Slot::Extra(v, level)),
        };
        Ok(self.b.input(slot, value.dtype))
    }

    /// The batch extents under which most of the masks are given.
    pub(super) fn batch(&self, scores: &[Dim], weights: &[Dim]) -> Result<Vec<Dim>, String> {
        let of = |s: &[Dim]| s[..s.len() - 2].to_vec();
        let mut best = of(scores);
        for l in &self.levels {
            let (ends, want) = (&l[l.len() - 2..], &scores[scores.len() - 2..]);
            if ends[0] != want[0] || (ends[1] != want[1] && !ends[1].is_one()) {
                return Err("rows and columns change between".into());
            }
            if l.len() - 2 > best.len() {
                best = of(l);
            }
        }
        let all = self
            .levels
            .iter()
            .map(|l| of(l))
            .chain([of(scores), of(weights)]);
        for b in all {
            if Dim::product(&b) != Dim::product(&best) {
                return Err("the batch dimensions between do not correspond".into());
            }
        }
        Ok(best)
    }

    /// The score's program with slot 0 the product and the others the extras that it reads.
    #[allow(clippy::type_complexity)] // A value and the shape to give it.
    pub(super) fn finish_score(
        &self,
        score: &Expr,
        batch: &[Dim],
    ) -> Result<(Expr, Vec<(ValueId, Option<Vec<Dim>>)>), String> {
        let mut used: Vec<u32> = Vec::new();
        let mut e = score.clone();
        for i in &mut e.insts {
            match i {
                Inst::Input { slot: 0, .. } => {}
                Inst::Input { slot, .. } => {
                    if matches!(self.slots[*slot as usize], Slot::Reduced(..)) {
                        return Err("the scores depend on a reduction of themselves".into());
                    }
                    let at = used.iter().position(|u| u == slot).unwrap_or(used.len());
                    if at == used.len() {
                        used.push(*slot);
                    }
                    *slot = at as u32 + 1;
                }
                Inst::Index { axis } if *axis < BATCH => {
                    *axis = batch.len() as u32 + 1 - (*axis - LAST);
                }
                Inst::Index { axis } => {
                    let (level, own) = ((*axis - BATCH) / 100, (*axis - BATCH) % 100);
                    let l = &self.levels[level as usize];
                    if l[..l.len() - 2] != *batch {
                        return Err("a mask depends on a batch position of another grouping".into());
                    }
                    *axis = own;
                }
                _ => {}
            }
        }
        let mut extras = Vec::new();
        for u in used {
            let Slot::Extra(v, level) = self.slots[u as usize] else {
                return Err("an argument is no tensor".into());
            };
            let (own, l) = (&self.e.value(v).shape, &self.levels[level]);
            if l[..l.len() - 2] == *batch {
                extras.push((v, None));
                continue;
            }
            extras.push((v, self.regrouped(own, l, batch)?));
        }
        Ok((e, extras))
    }

    /// The shape that a mask of shape `own`, given at level `l`, has under `batch`; `None` when
    /// it may stay.
    fn regrouped(&self, own: &[Dim], l: &[Dim], batch: &[Dim]) -> Result<Option<Vec<Dim>>, String> {
        let lead = own.len().saturating_sub(2);
        if lead == 0 {
            return Ok(None);
        }
        if own[..lead].iter().all(Dim::is_one) {
            return Ok(Some(own[lead..].to_vec()));
        }
        let fail = || "masks are given under different groupings of the batch".to_string();
        let joined = groups(batch, &l[..l.len() - 2]).ok_or_else(fail)?;
        let missing = l.len() - own.len();
        let mut to = Vec::new();
        for (i, g) in joined.iter().enumerate().skip(missing) {
            match &own[i - missing] {
                d if d.is_one() => to.extend(g.clone().map(|_| Dim::ONE)),
                d if *d == l[i] => to.extend(batch[g.clone()].iter().cloned()),
                _ => return Err(fail()),
            }
        }
        to.extend(own[lead..].iter().cloned());
        Ok(Some(to))
    }
}
