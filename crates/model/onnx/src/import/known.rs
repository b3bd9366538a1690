//! Contents of small tensors that follow during import: float detours of shape arithmetic.
//!
//! Integers are followed by `graph` itself ([`graph::Value::ints`]). Exporters also take sizes
//! through floats (a scale is a quotient of two sizes, a size the floor of a product), so small
//! float tensors are followed here, exactly where they hold sizes. Some elements may be known and
//! others not: a shape is often joined from sizes and from what only the data gives.
use super::num::Num;
use super::{Ctx, Lowered};
use expr::{Compare, Expr, Inst, Scalar};
use graph::{Op, ValueId, ValueSource, View};
use layout::{DType, Dim};

/// Longest float tensor that is followed.
const MAX: usize = 64;

/// What `e` gives at `index`, as far as it follows from what is known of its inputs there.
fn run(e: &Expr, args: &[Option<Num>], index: &[i64]) -> Vec<Option<Num>> {
    let Ok(types) = e.types() else {
        return Vec::new();
    };
    let mut v: Vec<Option<Num>> = Vec::with_capacity(e.insts.len());
    for inst in &e.insts {
        let at = |r: u32| v.get(r as usize).cloned().flatten();
        let ty = |r: u32| types[r as usize];
        let x = match *inst {
            Inst::Input { slot, .. } => args.get(slot as usize).cloned().flatten(),
            Inst::Float { bits, dtype } => {
                Some(Num::Value(Scalar::Float(f64::from_bits(bits)).of(dtype)))
            }
            Inst::Int { value, dtype } => Some(Num::Value(Scalar::Int(value).of(dtype))),
            Inst::Index { axis } => index
                .get(axis as usize)
                .map(|&i| Num::Value(Scalar::Int(i))),
            Inst::Dim(ref d) => Some(Num::of_dim(d, DType::I64)),
            Inst::Unary(f, a) => at(a).and_then(|x| x.unary(f, ty(a))),
            Inst::Binary(f, a, b) => at(a).zip(at(b)).and_then(|(x, y)| x.binary(f, &y, ty(a))),
            Inst::Compare(f, a, b) => at(a).zip(at(b)).and_then(|(x, y)| match (x, y) {
                (Num::Value(x), Num::Value(y)) => {
                    Some(Num::Value(Scalar::truth(x.compare(f, y, ty(a)))))
                }
                (x, y) if x == y => Some(Num::Value(Scalar::truth(matches!(
                    f,
                    Compare::Eq | Compare::Le | Compare::Ge
                )))),
                _ => None,
            }),
            Inst::Select(c, a, b) => match at(c) {
                Some(Num::Value(s)) => {
                    if s.as_i64() != 0 {
                        at(a)
                    } else {
                        at(b)
                    }
                }
                _ => None,
            },
            Inst::Cast(a, to) => at(a).and_then(|x| x.cast(ty(a), to)),
        };
        v.push(x);
    }
    let outputs = e.outputs.iter();
    outputs
        .map(|&o| v.get(o as usize).cloned().flatten())
        .collect()
}

fn known_shape(s: &[Dim]) -> Option<Vec<i64>> {
    let s: Option<Vec<i64>> = s.iter().map(|d| d.known().filter(|n| *n >= 0)).collect();
    let s = s?;
    let n = s.iter().try_fold(1i64, |a, &d| a.checked_mul(d))?;
    (n <= MAX as i64).then_some(s)
}

/// Coordinates of every element, row-major.
fn coordinates(shape: &[i64]) -> Vec<Vec<i64>> {
    let mut all = vec![Vec::new()];
    for &d in shape {
        all = all
            .into_iter()
            .flat_map(|c: Vec<i64>| (0..d).map(move |i| [c.as_slice(), &[i]].concat()))
            .collect();
    }
    all
}

/// Row-major position of right-aligned, broadcast coordinates.
fn position(shape: &[i64], at: &[i64]) -> usize {
    let skip = at.len().saturating_sub(shape.len());
    let p = shape
        .iter()
        .zip(&at[skip..])
        .fold(0, |p, (&d, &i)| p * d + if d == 1 { 0 } else { i });
    p.max(0) as usize
}

/// Contents where every element is known.
fn whole(some: Vec<Option<Num>>) -> Option<Vec<Num>> {
    some.into_iter().collect()
}

impl<'m> Ctx<'m> {
    /// What is known of the contents of `v`, element by element, where they are few.
    fn known_some(&mut self, v: ValueId) -> Option<Vec<Option<Num>>> {
        let f = self.frame();
        if let Some(x) = f.numbers.get(&v) {
            return Some(x.clone());
        }
        let value = f.b.value(v);
        let dtype = value.dtype;
        if let Some(ints) = &value.ints {
            let all = || ints.iter().map(|d| Some(Num::of_dim(d, dtype))).collect();
            return (ints.len() <= MAX).then(all);
        }
        known_shape(&value.shape)?;
        let ValueSource::Weight(id) = value.source else {
            return None;
        };
        let t = f.b.graph().weights.tensor(id)?;
        let element = |i| match dtype.is_float() {
            true => Scalar::Float(t.get_f64(i)),
            false => Scalar::Int(t.get_i64(i)),
        };
        Some((0..t.len()).map(|i| Some(Num::Value(element(i)))).collect())
    }

    /// Contents of `v` where they are known and few.
    pub fn known(&mut self, v: ValueId) -> Option<Vec<Num>> {
        self.known_some(v).and_then(whole)
    }

    /// Contents of `v` as numbers.
    pub fn floats(&mut self, v: ValueId) -> Option<Vec<f64>> {
        self.known(v)?.iter().map(Num::float).collect()
    }

    /// The only element of `v` as a number.
    pub fn scalar(&mut self, v: ValueId) -> Option<f64> {
        self.floats(v).filter(|x| x.len() == 1).map(|x| x[0])
    }

    /// Follows the contents of new values.
    pub fn fold(&mut self, outs: &[ValueId]) {
        for (i, &v) in outs.iter().enumerate() {
            let value = self.b().value(v);
            let follow = value.ints.is_none() && known_shape(&value.shape).is_some();
            let found = if follow { self.contents(v, i) } else { None };
            let Some(x) = found.filter(|x| x.iter().any(Option::is_some)) else {
                continue;
            };
            let sizes = x.iter().map(|x| x.as_ref()?.dim()).collect();
            match (self.dtype(v).is_float(), sizes) {
                (false, Some(ints)) => self.b().set_ints(v, ints),
                _ => drop(self.frame().numbers.insert(v, x)),
            }
        }
    }

    fn contents(&mut self, v: ValueId, output: usize) -> Option<Vec<Option<Num>>> {
        let node = self.b().graph().producer(v)?.clone();
        let shape = known_shape(&self.shape(v))?;
        let (mut args, mut any) = (Vec::new(), node.inputs.is_empty());
        for &i in &node.inputs {
            let shape = known_shape(&self.shape(i))?;
            let some = self.known_some(i);
            any |= some.is_some();
            let open = || vec![None; shape.iter().product::<i64>() as usize];
            args.push((some.unwrap_or_else(open), shape));
        }
        if !any {
            return None;
        }
        let at = |x: &[Option<Num>], s: &[i64], at: &[i64]| x.get(position(s, at)).cloned();
        let all = coordinates(&shape);
        let (x, s) = args.first().cloned().unwrap_or_default();
        match &node.op {
            Op::Map(e) => all
                .iter()
                .map(|here| {
                    let x = args.iter().map(|(x, s)| at(x, s, here));
                    run(e, &x.collect::<Option<Vec<_>>>()?, here)
                        .get(output)
                        .cloned()
                })
                .collect(),
            Op::View(View::Reshape(_)) => Some(x).filter(|x| x.len() == all.len()),
            Op::View(View::Expand(_)) => all.iter().map(|here| at(&x, &s, here)).collect(),
            Op::View(View::Permute(perm)) => {
                let moved = |here: &Vec<i64>| {
                    let mut from = vec![0; s.len()];
                    for (o, &p) in perm.iter().enumerate() {
                        *from.get_mut(p)? = *here.get(o)?;
                    }
                    at(&x, &s, &from)
                };
                all.iter().map(moved).collect()
            }
            Op::View(View::Slice { starts, steps, .. }) => {
                let cut = |here: &Vec<i64>| {
                    let from: Option<Vec<i64>> = (0..s.len())
                        .map(|d| Some(starts.get(d)?.known()? + steps.get(d)? * here.get(d)?))
                        .collect();
                    at(&x, &s, &from?)
                };
                all.iter().map(cut).collect()
            }
            Op::Concat { axis: 0 } if shape.len() == 1 => {
                Some(args.into_iter().flat_map(|a| a.0).collect())
            }
            Op::Gather { axis: 0, batch: 0 } if s.len() == 1 => {
                let picked = |i: &Option<Num>| {
                    let i = i.as_ref()?.dim()?.known()?;
                    let i = if i < 0 { i + x.len() as i64 } else { i };
                    x.get(usize::try_from(i).ok()?).cloned().flatten()
                };
                Some(args.get(1)?.0.iter().map(picked).collect())
            }
            _ => None,
        }
    }

    /// The contents of `v` as sizes; `None` where not known.
    pub fn sizes(&mut self, v: ValueId) -> Lowered<Option<Vec<Dim>>> {
        if let Some(d) = self.ints(v) {
            return Ok(Some(d));
        }
        Ok(self.known(v).and_then(|x| x.iter().map(Num::dim).collect()))
    }

    /// The `count` elements of `v` as sizes, each where it is known.
    pub fn some_sizes(&mut self, v: ValueId, count: usize) -> Vec<Option<Dim>> {
        match self.known_some(v) {
            Some(x) if x.len() == count => x.iter().map(|x| x.as_ref()?.dim()).collect(),
            _ => vec![None; count],
        }
    }
}
