//! Products of quantised tensors as products of their 8-bit numbers.
//!
//! A factor `(q - zero) * scale` is a map of a tensor of 8 bits. The product of two such factors is
//! `(sum(q * p) - zero_q * sum(p) - zero_p * sum(q) + count * zero_q * zero_p) * scale_q * scale_p`, in
//! which everything but the first sum and the sum of `q` is known when a model is loaded. Sums of
//! products of 8-bit integers are exact and run on instructions of their own; the padding of a
//! convolution holds the zero point, so that it counts as 0.
//!
//! The left factor becomes unsigned and the right one signed, as those instructions want them: the
//! other way round its numbers, and its zero point with them, move by 128.
use crate::edit::Edit;
use crate::pattern::constants;
use crate::{Error, Fuel, Rewritten};
use expr::{Binary, Expr, ExprBuilder, Inst, Monoid, Ref};
use graph::{Graph, NodeId, Op, Origin, PadMode, ValueId, View};
use layout::{DType, Dim};

/// Numbers that one instruction multiplies and sums.
const QUAD: i64 = 4;

pub(crate) fn run(graph: Graph, fuel: &mut Fuel) -> Result<Rewritten, Error> {
    let constant = constants(&graph);
    let mut e = Edit::new("integer", graph, fuel);
    for n in e.live() {
        if e.is_dead(n) || !matches!(e.node(n).op, Op::Conv(_) | Op::Contract(_)) {
            continue;
        }
        if !product(&mut e, n, &constant)? {
            break;
        }
    }
    Ok(e.finish())
}

/// A number of a factor's program.
#[derive(Clone)]
enum Number {
    /// A constant of the program.
    Known(Inst),
    /// A tensor.
    Value(ValueId),
}

/// `(x - zero) * scale`.
struct Dequantised {
    x: ValueId,
    zero: Option<Number>,
    scale: Option<Number>,
}

/// `v` as whole steps of a tensor of 8 bits, when it is a map of one.
fn steps(e: &Edit, v: ValueId) -> Option<Dequantised> {
    let value = e.value(v);
    let small = |d: DType| matches!(d, DType::I8 | DType::U8);
    if small(value.dtype) {
        return Some(Dequantised {
            x: v,
            zero: None,
            scale: None,
        });
    }
    let node = e.node(e.writer(v)?);
    let Op::Map(p) = &node.op else { return None };
    let ([out], [_]) = (p.outputs.as_slice(), node.outputs.as_slice()) else {
        return None;
    };
    let inst = |r: Ref| &p.insts[r as usize];
    let leaf = |r: Ref| match inst(r) {
        Inst::Input { slot, .. } => Some(Number::Value(*node.inputs.get(*slot as usize)?)),
        i @ (Inst::Float { .. } | Inst::Int { .. }) => Some(Number::Known(i.clone())),
        _ => None,
    };
    let types = p.types().ok()?;
    // Casts keep whole numbers of 8 bits and their differences.
    let keeps = |d: DType| matches!(d, DType::I16 | DType::I32 | DType::I64 | DType::F32);
    let through = |mut r: Ref| loop {
        match inst(r) {
            Inst::Cast(a, d) if keeps(*d) => r = *a,
            _ => return r,
        }
    };
    let whole = |r: Ref| -> Option<(ValueId, Option<Number>)> {
        let r = through(r);
        let (x, z) = match inst(r) {
            Inst::Binary(Binary::Sub, a, b) if keeps(types[r as usize]) => (*a, Some(*b)),
            _ => (r, None),
        };
        let Some(Number::Value(x)) = leaf(through(x)) else {
            return None;
        };
        if !small(e.value(x).dtype) || e.value(x).shape != value.shape {
            return None;
        }
        let Some(z) = z else { return Some((x, None)) };
        let z = leaf(through(z))?;
        match &z {
            Number::Value(v) if !small(e.value(*v).dtype) => None,
            Number::Known(Inst::Float { .. }) => None,
            _ => Some((x, Some(z))),
        }
    };
    if let Some((x, zero)) = whole(*out) {
        return Some(Dequantised {
            x,
            zero,
            scale: None,
        });
    }
    let Inst::Binary(Binary::Mul, a, b) = inst(*out) else {
        return None;
    };
    [(*a, *b), (*b, *a)].into_iter().find_map(|(q, s)| {
        let ((x, zero), scale) = (whole(q)?, leaf(s)?);
        let float = types[s as usize] == DType::F32;
        float.then_some(Dequantised {
            x,
            zero,
            scale: Some(scale),
        })
    })
}

/// Where a right factor's kept dimension lies: in the factor and in the result.
#[derive(Clone, Copy)]
struct KeptDimension {
    of: usize,
    at: usize,
    out: usize,
}

/// A product that may be done in integers.
struct Product<'a> {
    node: NodeId,
    origins: &'a [Origin],
    name: String,
    /// Factors, the one that is not constant first.
    factors: [Dequantised; 2],
    /// Which of the node's inputs is the right factor.
    right: usize,
    kept: Option<KeptDimension>,
    /// Summed dimensions of both.
    over: [Vec<usize>; 2],
}

fn is_one(s: &[Dim]) -> bool {
    s.iter().all(Dim::is_one)
}

/// False when the fuel is spent.
fn product(e: &mut Edit, n: NodeId, constant: &[bool]) -> Result<bool, Error> {
    let is_const = |v: ValueId| constant.get(v.0 as usize).is_some_and(|c| *c);
    let (inputs, origins) = (e.node(n).inputs.clone(), e.node(n).origins.clone());
    let out = e.node(n).outputs[0];
    if !matches!(e.value(out).dtype, DType::F32 | DType::I32) {
        return Ok(true);
    }
    let right = match &e.node(n).op {
        Op::Contract(_) if is_const(inputs[0]) && !is_const(inputs[1]) => 0,
        _ => 1,
    };
    let (Some(x), Some(w)) = (steps(e, inputs[1 - right]), steps(e, inputs[right])) else {
        return Ok(true);
    };
    // What is made already, and products of constants, stay as they are.
    let done = x.x == inputs[1 - right] && e.value(x.x).dtype == DType::U8;
    if done && w.x == inputs[right] && e.value(w.x).dtype == DType::I8 || is_const(x.x) {
        return Ok(true);
    }
    if !is_const(w.x) {
        e.why_not(e.title(n), "its right factor is no constant");
        return Ok(true);
    }
    let rank = e.value(inputs[right]).shape.len();
    let out_rank = e.value(out).shape.len();
    let (kept, over) = match &e.node(n).op {
        Op::Conv(s) => {
            if s.transposed {
                return Ok(true);
            }
            let kept = KeptDimension {
                of: 0,
                at: 1,
                out: out_rank,
            };
            let all: Vec<usize> = (1..rank).collect();
            (Some(kept), [all.clone(), all])
        }
        Op::Contract(s) => {
            let (a, b) = match right {
                1 => (&s.a, &s.b),
                _ => (&s.b, &s.a),
            };
            let summed = |l: &u8| a.contains(l) && b.contains(l) && !s.out.contains(l);
            let places = |ls: &[u8]| (0..ls.len()).filter(|&i| summed(&ls[i])).collect();
            let over: [Vec<usize>; 2] = [places(a), places(b)];
            let rest: Vec<usize> = (0..b.len()).filter(|&i| !summed(&b[i])).collect();
            let kept = match rest.as_slice() {
                [] => None,
                [i] if s.out.contains(&b[*i]) && !a.contains(&b[*i]) => Some(KeptDimension {
                    of: *i,
                    at: s.out.iter().position(|l| *l == b[*i]).unwrap_or(0),
                    out: out_rank,
                }),
                _ => return Ok(true),
            };
            let lost = |l: &u8| !s.out.contains(l) && !b.contains(l);
            if over[0].is_empty() || a.iter().any(lost) {
                return Ok(true);
            }
            (kept, over)
        }
        _ => return Ok(true),
    };
    let p = Product {
        node: n,
        name: e.value(out).name.clone(),
        origins: &origins,
        factors: [x, w],
        right,
        kept,
        over,
    };
    if !p.fits(e) {
        return Ok(true);
    }
    if !e.may(e.title(n), "its factors are multiplied as 8-bit integers") {
        return Ok(false);
    }
    p.replace(e, out)?;
    Ok(true)
}

/// A zero point, moved with its factor.
enum Zero {
    Known(i64),
    /// A tensor and what is added to it.
    Value(ValueId, i64),
}

impl Product<'_> {
    /// Whether sizes and numbers are such that integers can do it.
    fn fits(&self, e: &Edit) -> bool {
        let [x, w] = &self.factors;
        let one = |n: &Option<Number>| match n {
            Some(Number::Value(v)) => is_one(&e.value(*v).shape),
            _ => true,
        };
        // Numbers of the left factor are the same everywhere, those of the right one change along its
        // kept dimension at most.
        let along = |n: &Option<Number>| match n {
            Some(Number::Value(v)) => {
                let s = &e.value(*v).shape;
                let own = self.kept.map(|k| k.of + s.len()).and_then(|i| {
                    let rank = e.value(w.x).shape.len();
                    i.checked_sub(rank)
                });
                (0..s.len()).all(|i| s[i].is_one() || Some(i) == own)
            }
            _ => true,
        };
        if !one(&x.zero) || !one(&x.scale) || !along(&w.zero) || !along(&w.scale) {
            return false;
        }
        let Some(shape) = e
            .value(w.x)
            .shape
            .iter()
            .map(Dim::known)
            .collect::<Option<Vec<i64>>>()
        else {
            return false;
        };
        let depth: i64 = self.over[1].iter().map(|&d| shape[d]).product();
        if depth <= 0 {
            return false;
        }
        match &e.node(self.node).op {
            Op::Conv(s) => {
                // The padding's number must be known, and so must be that of the weights.
                let pads = s.before.iter().chain(&s.after).any(|d| !d.is_zero());
                let known = !matches!(x.zero, Some(Number::Value(_)));
                // Each tap is a run of channels; few channels are padded to one. One channel per group is
                // a sum of its own.
                let each = s.groups == shape[0] && shape[1] == 1;
                let whole = shape[1] % QUAD == 0 || shape[1] < QUAD && s.groups == 1;
                (known || !pads) && (each || whole) && self.symmetric(e)
            }
            _ => self.over[1].len() == 1 && depth % QUAD == 0,
        }
    }

    /// Whether the right factor's zero point is 0 once its numbers are signed.
    fn symmetric(&self, e: &Edit) -> bool {
        match self.zero(e, 1) {
            Zero::Known(0) => true,
            Zero::Value(v, by) => {
                let Some(t) = contents(e, v) else {
                    return false;
                };
                (0..t.len()).all(|i| t.get_i64(i) + by == 0)
            }
            _ => false,
        }
    }

    /// How far the numbers of factor `i` move.
    fn moved(&self, e: &Edit, i: usize) -> i64 {
        match (i, e.value(self.factors[i].x).dtype) {
            (0, DType::I8) => 128,
            (1, DType::U8) => -128,
            _ => 0,
        }
    }

    fn zero(&self, e: &Edit, i: usize) -> Zero {
        let by = self.moved(e, i);
        match &self.factors[i].zero {
            None => Zero::Known(by),
            Some(Number::Known(Inst::Int { value, .. })) => Zero::Known(value + by),
            Some(Number::Known(_)) => Zero::Known(by),
            Some(Number::Value(v)) => match contents(e, *v) {
                Some(t) if !t.is_empty() && (1..t.len()).all(|i| t.get_i64(i) == t.get_i64(0)) => {
                    Zero::Known(t.get_i64(0) + by)
                }
                _ => Zero::Value(*v, by),
            },
        }
    }

    fn add(&self, e: &mut Edit, op: Op, inputs: &[ValueId], what: &str) -> Result<ValueId, Error> {
        e.add(op, inputs, &format!("{}.{what}", self.name), self.origins)
    }

    /// Factor `i` in the type that it is to have.
    fn factor(&self, e: &mut Edit, i: usize) -> Result<ValueId, Error> {
        let (x, by) = (self.factors[i].x, self.moved(e, i));
        if by == 0 {
            return Ok(x);
        }
        let (from, to) = match i {
            0 => (DType::I8, DType::U8),
            _ => (DType::U8, DType::I8),
        };
        let mut b = ExprBuilder::new();
        let v = b.input(0, from);
        let v = b.cast(v, DType::I32);
        let by = b.int(by, DType::I32);
        let v = b.add(v, by);
        let v = b.cast(v, to);
        let name = ["steps", "weight"][i];
        self.add(e, Op::Map(b.finish(&[v])), &[x], name)
    }

    /// A tensor with one dimension at most, laid along the result's dimension of the right factor.
    fn laid(&self, e: &mut Edit, v: ValueId, what: &str) -> Result<ValueId, Error> {
        let long: Vec<Dim> = e
            .value(v)
            .shape
            .iter()
            .filter(|d| !d.is_one())
            .cloned()
            .collect();
        let mut to = long;
        if let (Some(k), false) = (self.kept, to.is_empty()) {
            to.resize(k.out - k.at, Dim::ONE);
        }
        if e.value(v).shape == to {
            return Ok(v);
        }
        self.add(e, Op::View(View::Reshape(to)), &[v], what)
    }

    /// Sums of `v` over `axes`, as I32, with dimensions kept.
    fn summed(
        &self,
        e: &mut Edit,
        v: ValueId,
        axes: &[usize],
        what: &str,
    ) -> Result<ValueId, Error> {
        let mut b = ExprBuilder::new();
        let x = b.input(0, e.value(v).dtype);
        let x = b.cast(x, DType::I32);
        let wide = self.add(
            e,
            Op::Map(b.finish(&[x])),
            &[v],
            &format!("{what}.elements"),
        )?;
        let op = Op::Reduce {
            monoid: Monoid::sum(DType::I32, DType::I32),
            axes: axes.to_vec(),
            keep: true,
        };
        self.add(e, op, &[wide], what)
    }

    fn replace(&self, e: &mut Edit, out: ValueId) -> Result<(), Error> {
        let (x, w) = (self.factor(e, 0)?, self.factor(e, 1)?);
        let (zx, zw) = (self.zero(e, 0), self.zero(e, 1));
        let mut op = e.node(self.node).op.clone();
        let (mut left, mut right) = (x, w);
        if let Op::Conv(s) = &mut op {
            if let Zero::Known(z) = zx {
                s.outside = z;
            }
            let channels = e.value(w).shape[1].known().unwrap_or(QUAD);
            if channels % QUAD != 0 && s.groups == 1 {
                // A run of channels is a whole number of quads.
                let more = QUAD - channels % QUAD;
                for (v, what) in [(&mut left, "x.quads"), (&mut right, "w.quads")] {
                    let rank = e.value(*v).shape.len();
                    let mut after = vec![Dim::ZERO; rank];
                    after[1] = Dim::Known(more);
                    let pad = Op::Pad {
                        before: vec![Dim::ZERO; rank],
                        after,
                        mode: PadMode::Constant,
                    };
                    *v = self.add(e, pad, &[*v], what)?;
                }
            }
        }
        let both = match self.right {
            1 => [left, right],
            _ => [right, left],
        };
        let mut y = self.add(e, op, &both, "sums")?;
        let int = DType::I32;
        // What the left factor's zero point adds, when it is known.
        let mut terms: Vec<ValueId> = Vec::new();
        let mut b = ExprBuilder::new();
        let mut sum = b.input(0, int);
        if !matches!(zx, Zero::Known(0)) {
            let s = self.summed(e, w, &self.over[1], "w.sums")?;
            let s = self.laid(e, s, "w.laid")?;
            match zx {
                Zero::Known(z) => {
                    let mut t = ExprBuilder::new();
                    let v = t.input(0, int);
                    let z = t.int(-z, int);
                    let v = t.mul(v, z);
                    let s = self.add(e, Op::Map(t.finish(&[v])), &[s], "w.offset")?;
                    terms.push(s);
                    let s = b.input(1, int);
                    sum = b.add(sum, s);
                }
                Zero::Value(v, by) => {
                    let z = self.laid(e, v, "x.zero")?;
                    terms.extend([s, z]);
                    let s = b.input(1, int);
                    let z = b.input(2, e.value(v).dtype);
                    let mut z = b.cast(z, int);
                    if by != 0 {
                        let by = b.int(by, int);
                        z = b.add(z, by);
                    }
                    let t = b.mul(s, z);
                    sum = b.sub(sum, t);
                }
            }
        }
        if !matches!(zw, Zero::Known(0)) {
            sum = self.asymmetric(e, &mut b, sum, &mut terms, x, (&zx, &zw))?;
        }
        if e.value(out).dtype == DType::F32 {
            sum = b.cast(sum, DType::F32);
            if let Some((s, known)) = self.scales(e)? {
                let s = match (s, known) {
                    (Some(v), _) => {
                        terms.push(v);
                        b.input(terms.len() as u32, DType::F32)
                    }
                    (None, k) => b.inline(&k, &[], None)[0],
                };
                sum = b.mul(sum, s);
            }
        }
        if sum != 0 || !terms.is_empty() {
            let inputs: Vec<ValueId> = [y].into_iter().chain(terms).collect();
            y = self.add(e, Op::Map(b.finish(&[sum])), &inputs, "real")?;
        }
        e.replace(out, y);
        Ok(())
    }

    /// Adds what the right factor's zero point takes: sums of the left factor are needed for that.
    fn asymmetric(
        &self,
        e: &mut Edit,
        b: &mut ExprBuilder,
        sum: Ref,
        terms: &mut Vec<ValueId>,
        x: ValueId,
        (zx, zw): (&Zero, &Zero),
    ) -> Result<Ref, Error> {
        let int = DType::I32;
        let Op::Contract(spec) = e.node(self.node).op.clone() else {
            return Ok(sum);
        };
        let s = self.summed(e, x, &self.over[0], "x.sums")?;
        // Its other dimensions in the result's order, with 1 where the right factor's is.
        let labels = if self.right == 1 { &spec.a } else { &spec.b };
        let mut perm: Vec<usize> = spec
            .out
            .iter()
            .filter_map(|l| labels.iter().position(|x| x == l))
            .collect();
        perm.extend(self.over[0].iter().copied());
        let shape: Vec<Dim> = spec
            .out
            .iter()
            .map(|l| match labels.iter().position(|x| x == l) {
                Some(d) => e.value(x).shape[d].clone(),
                None => Dim::ONE,
            })
            .collect();
        let s = self.add(e, Op::View(View::Permute(perm)), &[s], "x.turned")?;
        let s = self.add(e, Op::View(View::Reshape(shape)), &[s], "x.laid")?;
        terms.push(s);
        let rows = b.input(terms.len() as u32, int);
        let mut number =
            |e: &mut Edit, b: &mut ExprBuilder, z: &Zero, what: &str| -> Result<Ref, Error> {
                Ok(match z {
                    Zero::Known(z) => b.int(*z, int),
                    Zero::Value(v, by) => {
                        let v = self.laid(e, *v, what)?;
                        terms.push(v);
                        let d = e.value(v).dtype;
                        let z = b.input(terms.len() as u32, d);
                        let z = b.cast(z, int);
                        let by = b.int(*by, int);
                        b.add(z, by)
                    }
                })
            };
        let (left, right) = (number(e, b, zx, "x.point")?, number(e, b, zw, "w.point")?);
        // sum - zw * (rows - count * zx)
        let depth: i64 = self.over[1]
            .iter()
            .filter_map(|&d| e.value(self.factors[1].x).shape[d].known())
            .product();
        let count = b.int(depth, int);
        let all = b.mul(count, left);
        let rows = b.sub(rows, all);
        let t = b.mul(right, rows);
        Ok(b.sub(sum, t))
    }

    /// The product of both scales: a tensor along the right factor's dimension, or a constant.
    fn scales(&self, e: &mut Edit) -> Result<Option<(Option<ValueId>, Expr)>, Error> {
        let mut b = ExprBuilder::new();
        let mut inputs = Vec::new();
        let mut all: Option<Ref> = None;
        for (f, what) in self.factors.iter().zip(["x.scale", "w.scale"]) {
            let s = match &f.scale {
                None => continue,
                Some(Number::Known(i)) => b.push(i.clone()),
                Some(Number::Value(v)) => {
                    let v = self.laid(e, *v, what)?;
                    inputs.push(v);
                    b.input(inputs.len() as u32 - 1, DType::F32)
                }
            };
            all = Some(match all {
                Some(a) => b.mul(a, s),
                None => s,
            });
        }
        let Some(r) = all else { return Ok(None) };
        let p = b.finish(&[r]).simplified();
        if inputs.is_empty() {
            return Ok(Some((None, p)));
        }
        if p == Expr::identity(DType::F32) {
            return Ok(Some((Some(inputs[0]), p)));
        }
        let v = self.add(e, Op::Map(p.clone()), &inputs, "scale")?;
        Ok(Some((Some(v), p)))
    }
}

/// The numbers of a constant, seen through reshapes.
fn contents(e: &Edit, v: ValueId) -> Option<tensor::Tensor> {
    let mut v = v;
    while let Some((Op::View(View::Reshape(_)), x)) = e.unary(v) {
        v = x;
    }
    let graph::ValueSource::Weight(id) = e.value(v).source else {
        return None;
    };
    e.graph().weights.tensor(id)
}
