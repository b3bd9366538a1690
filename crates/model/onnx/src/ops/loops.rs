//! Loop. Its rounds are one graph that runs again and again; where a carried value changes its rank no graph is that
//! of all rounds, and the first rounds are lowered in place of the node until the ranks settle or the loop ends.
use super::control::{Apart, Ended, Looped, Open, one_body, one_bool, poison, refuse, scalar, stacks_held};
use super::{OpDef, op};
use crate::import::{Ctx, ImportError, LowerError, Lowered, MAX_UNROLLED, NodeView};
use expr::{Binary, Compare};
use graph::{Op, ValueId};
use layout::{DType, Dim};
use tensor::Tensor;

pub(crate) const OPS: &[OpDef] = &[op("Loop", repeat)];

/// Rounds that are lowered one by one at most. Ranks that change at every one of so many are no model's.
const MAX_ROUNDS: i64 = 1024;

/// Rounds that are tried, from none on, where only the request tells how many run.
const GUESSES: usize = 9;

/// Rounds that are rather lowered one by one than as a loop, at most, where each may decide its own ranks.
const FEW: i64 = 16;

fn repeat<'m>(c: &mut Ctx<'m>, n: &NodeView<'m>) -> Lowered {
    let body = n.graph("body")?;
    let carried = n.inputs.len().checked_sub(2).ok_or("needs a trip count and a condition, left out or not")?;
    let initial: Vec<ValueId> = (0..carried).map(|i| n.input(i + 2)).collect::<Lowered<_>>()?;
    let spec = Looped {
        name: if body.name.is_empty() { format!("{}.body", n.origin.name) } else { body.name.clone() },
        trip: n.opt(0),
        cond: n.opt(1),
        initial,
        formals: Ctx::real_inputs(body).iter().skip(2).map(|i| i.name.clone()).collect(),
        first: 0,
        names: (0..body.outputs.len().max(1)).map(|i| n.name(i)).collect(),
    };
    let inline: Inline<'_, 'm> = &|c, prefix, ins| c.inline_body(body, prefix, ins);
    let Some(ys) = rounds(c, n, spec, &|c, ins| c.open_body(n, body, ins, &[]), inline)? else {
        poison(c, n);
        return Ok(());
    };
    for (i, y) in ys.into_iter().enumerate() {
        c.set(n, i, y);
    }
    Ok(())
}

/// Lowers what [`Open`] opens a body for in place: with a prefix for its names, on these values.
pub(super) type Inline<'a, 'm> = &'a dyn Fn(&mut Ctx<'m>, String, &[ValueId]) -> Lowered<Option<Vec<ValueId>>>;

/// Adds a loop whose carried values may change their ranks; gives its results, or nothing when its body is not supported.
pub(super) fn rounds<'m>(
    c: &mut Ctx<'m>,
    n: &NodeView<'m>,
    spec: Looped,
    open: Open<'_, 'm>,
    inline: Inline<'_, 'm>,
) -> Lowered<Option<Vec<ValueId>>> {
    Rounds { spec, stacked: Vec::new(), open, inline }.lower(c, n)
}

/// A loop whose first rounds are lowered one by one.
struct Rounds<'a, 'm> {
    /// What is left of it, but for the trip count, which is that of the whole.
    spec: Looped,
    /// What each round gave to be stacked.
    stacked: Vec<Vec<ValueId>>,
    open: Open<'a, 'm>,
    inline: Inline<'a, 'm>,
}

impl<'m> Rounds<'_, 'm> {
    /// Its results, or nothing when its body is not supported.
    fn lower(&mut self, c: &mut Ctx<'m>, n: &NodeView<'m>) -> Lowered<Option<Vec<ValueId>>> {
        loop {
            let next = self.goes_on(c);
            if next == Some(false) && self.spec.first > 0 {
                return self.results(c, n, None, &[]).map(Some);
            }
            let (why, types) = match self.rest(c, n)? {
                Ended::Values(ys) => return self.results(c, n, Some(ys), &[]).map(Some),
                Ended::Poisoned => return Ok(None),
                Ended::Ranks(why, types) => (why, types),
            };
            if let Some(k) = types.iter().position(|t| t.0.is_held()) {
                return Err(stacks_held(self.spec.initial.len() + k));
            }
            let goes = match next {
                Some(goes) => goes,
                None => self.planned(c, n, &why)?,
            };
            if !goes {
                return self.results(c, n, None, &types).map(Some);
            }
            if self.spec.first == MAX_ROUNDS {
                return Err(LowerError::Unsupported(format!("{why}, still after {MAX_ROUNDS} rounds; let ranks settle before that")));
            }
            if !c.may_unroll() {
                return Err(LowerError::Unsupported(format!("{why}, and rounds of this model's loops that are lowered one by one have {MAX_UNROLLED} nodes and carried values already; let ranks settle earlier, or make one loop of those in each other")));
            }
            if !self.round(c, n)? {
                return Ok(None);
            }
        }
    }

    /// Whether the next round runs, where that is known.
    fn goes_on(&self, c: &Ctx<'m>) -> Option<bool> {
        let left = self.spec.trip.map_or(Some(true), |t| c.const_int(t).map(|t| t > self.spec.first));
        let holds = self.spec.cond.map_or(Some(true), |k| c.const_int(k).map(|k| k != 0));
        match (left, holds) {
            (Some(false), _) | (_, Some(false)) => Some(false),
            (Some(true), Some(true)) => Some(true),
            _ => None,
        }
    }

    /// What is left as a loop of its own, if its carried values keep their ranks.
    fn rest(&self, c: &mut Ctx<'m>, n: &NodeView<'m>) -> Lowered<Ended> {
        let mut spec = self.spec.clone();
        if spec.first > 0 {
            spec.trip = self.left(c, n)?;
            spec.names = (0..spec.names.len()).map(|i| n.tmp(&format!("rest{i}"))).collect();
        }
        let (frames, mark) = (c.frames.len(), c.mark());
        // That no body is that of all rounds may only have come out when one was run.
        let apart = match c.taken.contains_key(&n.origin.name) {
            true => Apart::Always,
            false => Apart::Within(FEW),
        };
        match one_body(c, n, spec, self.open, apart) {
            // A value of the rank reached may be one that no further round takes.
            Err(LowerError::Import(e @ (ImportError::Node { .. } | ImportError::Graph { .. }))) if self.spec.first > 0 => {
                c.frames.truncate(frames);
                c.rewind(mark);
                Ok(Ended::Ranks(e.to_string(), Vec::new()))
            }
            ended => ended,
        }
    }

    /// The trip count without the rounds that are done.
    fn left(&self, c: &mut Ctx<'m>, n: &NodeView<'m>) -> Lowered<Option<ValueId>> {
        let done = self.spec.first;
        match self.spec.trip {
            // The largest number stands for no limit.
            Some(t) if c.const_int(t) != Some(i64::MAX) => {
                let left = c.map(n, n.tmp(&format!("left{done}")), &[t], |e, a| {
                    let done = e.int(done, DType::I64);
                    let most = e.binary(Binary::Max, a[0], done);
                    e.sub(most, done)
                })?;
                Ok(Some(left))
            }
            trip => Ok(trip),
        }
    }

    /// Whether the rest of the model is made for another round, where only the request tells; one for which the
    /// other is right is refused.
    fn planned(&self, c: &mut Ctx<'m>, n: &NodeView<'m>, why: &str) -> Lowered<bool> {
        let done = self.spec.first;
        let rounds = match c.told(n) {
            Some(rounds) => rounds,
            None => c.ranks.guess(GUESSES) as i64,
        };
        let goes = done < rounds;
        let (mut inputs, mut trip) = (Vec::new(), None);
        if let Some(k) = self.spec.cond.filter(|&k| c.const_int(k).is_none()) {
            inputs.push(one_bool(c, n, k)?);
        }
        if let Some(t) = self.spec.trip.filter(|&t| c.const_int(t).is_none()) {
            let t = scalar(c, n, Some(t), "trip", DType::I64)?;
            // Where nothing else ends the loop it is how many rounds run.
            trip = inputs.is_empty().then_some(t);
            inputs.push(c.map(n, n.tmp(&format!("more{done}")), &[t], |e, a| {
                let done = e.int(done, DType::I64);
                e.compare(Compare::Gt, a[0], done)
            })?);
        }
        let both = |e: &mut expr::ExprBuilder, a: &[expr::Ref]| match *a {
            [a, b] => e.binary(Binary::And, a, b),
            _ => a[0],
        };
        let name = n.tmp(&format!("goes{done}"));
        let next = c.map(n, name, &inputs, both)?;
        let taken = done + i64::from(!goes);
        let rounds = if goes { format!("more than {done}") } else { format!("{done}") };
        let why = format!("{why}, and the model was planned for {rounds} of its rounds, which is not what these inputs make it run; load it from a file, or for the number of rounds that run (option 'taken')");
        check(c, n, (next, goes), (taken, trip), &why)?;
        Ok(goes)
    }

    /// Lowers the next round; false where its body is not supported.
    fn round(&mut self, c: &mut Ctx<'m>, n: &NodeView<'m>) -> Lowered<bool> {
        let done = self.spec.first;
        let number = c.constant(&n.tmp(&format!("round{done}")), Tensor::from_i64(&[], &[done])?)?;
        let goes = c.constant(&n.tmp(&format!("cond{done}")), Tensor::from_bytes(DType::Bool, &[], vec![1])?)?;
        let inputs: Vec<ValueId> = [number, goes].into_iter().chain(self.spec.initial.iter().copied()).collect();
        let prefix = format!("{}/{done}/", n.origin.name);
        let inline = self.inline;
        let Some(outs) = c.one_round(self.spec.initial.len(), |c| inline(c, prefix, &inputs))? else {
            return Ok(false);
        };
        let mut outs = outs.into_iter();
        self.spec.cond = outs.next();
        for v in &mut self.spec.initial {
            *v = outs.next().ok_or("its body has fewer outputs than carried values")?;
        }
        self.stacked.push(outs.collect());
        self.spec.first += 1;
        Ok(true)
    }

    /// What the loop gives: what it carries, then what its rounds gave, stacked. `rest`: what the rounds gave that are
    /// a loop of their own; `types`: of what a round gives to be stacked, where none ran.
    fn results(&self, c: &mut Ctx<'m>, n: &NodeView<'m>, rest: Option<Vec<ValueId>>, types: &[(DType, Vec<Dim>)]) -> Lowered<Vec<ValueId>> {
        let carried = self.spec.initial.len();
        if self.spec.first == 0
            && let Some(ys) = rest
        {
            return Ok(ys);
        }
        let (mut ys, last) = match rest {
            Some(mut ys) => {
                let last = ys.split_off(carried.min(ys.len()));
                (ys, last)
            }
            None => (self.spec.initial.clone(), Vec::new()),
        };
        for (k, (d, s)) in types.iter().enumerate().filter(|_| self.spec.first == 0) {
            let shape: Vec<Dim> = [Dim::ZERO].iter().chain(s).cloned().collect();
            ys.push(c.fill(n, n.name(carried + k), &shape, *d, |e| e.constant(0.0, *d))?);
        }
        for k in 0..self.stacked.first().map_or(0, Vec::len) {
            let mut parts = Vec::new();
            for (round, vs) in self.stacked.iter().enumerate() {
                let shape: Vec<Dim> = [Dim::ONE].into_iter().chain(c.shape(vs[k])).collect();
                parts.push(c.reshape(n, n.tmp(&format!("stacked{k}.{round}")), vs[k], shape)?);
            }
            parts.extend(last.get(k));
            ys.push(match parts.as_slice() {
                [one] => *one,
                all => c.add1(n, Op::Concat { axis: 0 }, all, n.name(carried + k))?,
            });
        }
        Ok(ys)
    }
}

/// A node that refuses requests for which `goes` is not `want`: their node takes `taken`, or what `by` holds, instead of
/// what the rest of the model is made for.
fn check<'m>(c: &mut Ctx<'m>, n: &NodeView<'m>, (goes, want): (ValueId, bool), (taken, by): (i64, Option<ValueId>), why: &str) -> Lowered {
    c.push_frame(&format!("{}/planned", n.origin.name), Default::default());
    let at = c.frames.len() - 1;
    let held = c.capture(at, goes)?;
    by.map(|by| c.capture(at, by)).transpose()?;
    let (passes, _) = c.close_body(&[held]);
    let outs = refuse(c, n, (goes, by), taken, &[], &[c.kind(goes)], why)?;
    let (refuses, _) = c.close_body(&outs);
    let (yes, no) = if want { (passes, refuses) } else { (refuses, passes) };
    let op = Op::If { then_branch: Box::new(yes), else_branch: Box::new(no) };
    let name = n.tmp(&format!("takes{taken}"));
    let inputs: Vec<ValueId> = [goes, goes].into_iter().chain(by).collect();
    c.b().node_with_shapes(op, &inputs, &[(&name, DType::Bool, vec![])], &n.origin);
    Ok(())
}
