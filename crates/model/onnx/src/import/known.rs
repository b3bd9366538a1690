//! Contents of small tensors that follow during import: float detours of shape arithmetic.
//!
//! Integers are followed by `graph` itself ([`graph::Value::ints`]). Exporters also take sizes
//! through floats (a scale is a quotient of two sizes, a size the floor of a product), so small
//! float tensors are followed here, exactly where they hold sizes.
use super::num::Num;
use super::{Ctx, Lowered};
use expr::{Compare, Expr, Inst, Scalar};
use graph::{Op, ValueId, ValueSource, View};
use layout::{DType, Dim};

/// Longest float tensor that is followed.
const MAX: usize = 64;

fn run(e: &Expr, args: &[Num], index: &[i64]) -> Option<Vec<Num>> {
    let types = e.types().ok()?;
    let mut v: Vec<Option<Num>> = Vec::with_capacity(e.insts.len());
    for inst in &e.insts {
        let at = |r: u32| v.get(r as usize).cloned().flatten();
        let ty = |r: u32| types[r as usize];
        let x = match *inst {
            Inst::Input { slot, .. } => args.get(slot as usize).cloned(),
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
    e.outputs
        .iter()
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

impl<'m> Ctx<'m> {
    /// Contents of `v` where they are known and few.
    pub fn known(&mut self, v: ValueId) -> Option<Vec<Num>> {
        let f = self.frame();
        if let Some(x) = f.floats.get(&v) {
            return Some(x.clone());
        }
        let value = f.b.value(v);
        let dtype = value.dtype;
        if let Some(ints) = &value.ints {
            return (ints.len() <= MAX)
                .then(|| ints.iter().map(|d| Num::of_dim(d, dtype)).collect());
        }
        known_shape(&value.shape)?;
        let ValueSource::Weight(id) = value.source else {
            return None;
        };
        let t = f.b.graph().weights.tensor(id)?;
        Some(
            (0..t.len())
                .map(|i| match dtype.is_float() {
                    true => Num::Value(Scalar::Float(t.get_f64(i))),
                    false => Num::Value(Scalar::Int(t.get_i64(i))),
                })
                .collect(),
        )
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
            if follow && let Some(x) = self.contents(v, i) {
                let integer = !self.dtype(v).is_float();
                if integer {
                    if let Some(ints) = x.iter().map(Num::dim).collect() {
                        self.b().set_ints(v, ints);
                    }
                } else {
                    self.frame().floats.insert(v, x);
                }
            }
        }
    }

    fn contents(&mut self, v: ValueId, output: usize) -> Option<Vec<Num>> {
        let node = self.b().graph().producer(v)?.clone();
        let shape = known_shape(&self.shape(v))?;
        let mut args = Vec::new();
        for &i in &node.inputs {
            args.push((self.known(i)?, known_shape(&self.shape(i))?));
        }
        let all = coordinates(&shape);
        match &node.op {
            Op::Map(e) => all
                .iter()
                .map(|at| {
                    let x: Option<Vec<Num>> = args
                        .iter()
                        .map(|(x, s)| x.get(position(s, at)).cloned())
                        .collect();
                    run(e, &x?, at)?.get(output).cloned()
                })
                .collect(),
            Op::View(View::Reshape(_)) => args.pop().map(|a| a.0).filter(|x| x.len() == all.len()),
            Op::View(View::Expand(_)) => {
                let (x, s) = args.first()?;
                all.iter()
                    .map(|at| x.get(position(s, at)).cloned())
                    .collect()
            }
            Op::View(View::Permute(perm)) => {
                let (x, s) = args.first()?;
                all.iter()
                    .map(|at| {
                        let mut from = vec![0; s.len()];
                        for (o, &p) in perm.iter().enumerate() {
                            *from.get_mut(p)? = *at.get(o)?;
                        }
                        x.get(position(s, &from)).cloned()
                    })
                    .collect()
            }
            Op::View(View::Slice { starts, steps, .. }) => {
                let (x, s) = args.first()?;
                all.iter()
                    .map(|at| {
                        let from: Option<Vec<i64>> = (0..s.len())
                            .map(|d| Some(starts.get(d)?.known()? + steps.get(d)? * at.get(d)?))
                            .collect();
                        x.get(position(s, &from?)).cloned()
                    })
                    .collect()
            }
            Op::Concat { axis: 0 } if shape.len() == 1 => {
                Some(args.into_iter().flat_map(|a| a.0).collect())
            }
            Op::Gather { axis: 0, batch: 0 } if args.first()?.1.len() == 1 => {
                let (data, index) = (&args[0].0, &args.get(1)?.0);
                index
                    .iter()
                    .map(|i| {
                        let i = i.dim()?.known()?;
                        let i = if i < 0 { i + data.len() as i64 } else { i };
                        data.get(usize::try_from(i).ok()?).cloned()
                    })
                    .collect()
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
}
