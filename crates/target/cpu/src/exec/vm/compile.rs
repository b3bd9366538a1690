//! From an [`Expr`] to a vector program: classes, fused forms, registers.
mod quant;

use super::{CH, Class, Kind, MAX_ARGS, Program, R, VInst, VOp};
use crate::ukr::Kernels;
use expr::{Binary, Compare, Expr, Inst, Ref, Scalar, Unary};
use layout::DType;
use plan::Params;

/// Compiles `e`. `lanes[slot]`: whether argument `slot` changes along the lane axis;
/// `lane`: the axis whose `Index` does.
pub(crate) fn compile(
    e: &Expr,
    lanes: &[bool],
    lane: Option<usize>,
    k: &'static Kernels,
    params: &mut Params,
) -> Result<Program, String> {
    compile_in(e, lanes, lane.map_or(0, |a| 1 << a), k, params)
}

/// [`compile`] with a set of axes whose `Index` changes along lanes.
pub(crate) fn compile_in(
    e: &Expr,
    lanes: &[bool],
    lane_axes: u32,
    k: &'static Kernels,
    params: &mut Params,
) -> Result<Program, String> {
    let types = e.types().map_err(|x| x.to_string())?;
    if lanes.len() > MAX_ARGS {
        return Err(format!(
            "a program has {} arguments, more than {MAX_ARGS}; fuse less",
            lanes.len()
        ));
    }
    let mut c = Compiler {
        e,
        types,
        lanes,
        lane_axes,
        k,
        insts: Vec::new(),
        map: vec![None; e.insts.len()],
        uses: vec![0; e.insts.len()],
        index: 0,
    };
    for i in &e.insts {
        for a in i.args() {
            c.uses[a as usize] += 1;
        }
    }
    for &o in &e.outputs {
        c.uses[o as usize] += 1;
    }
    let mut outputs = Vec::new();
    for &o in &e.outputs {
        let r = c.value(o, params)?;
        outputs.push((r, c.types[o as usize]));
    }
    let identity = matches!(outputs.as_slice(), [(r, d)]
        if matches!(c.insts[*r].op, VOp::Arg(0)) && c.insts[*r].dtype == *d);
    let unary = match outputs.as_slice() {
        [(r, DType::F32)] => match c.insts[*r].op {
            VOp::FUn(f, a) => match c.insts[a] {
                VInst {
                    op: VOp::Arg(slot),
                    dtype: DType::F32,
                    class: Class::Lane,
                    ..
                } => Some((f, slot)),
                _ => None,
            },
            _ => None,
        },
        _ => None,
    };
    // Output 0 may be computed in its destination when nothing runs after it and it is a computed row of f32.
    let direct = matches!(outputs.as_slice(), [(r, DType::F32)]
        if *r + 1 == c.insts.len() && c.insts[*r].class == Class::Lane && !matches!(c.insts[*r].op, VOp::Arg(_) | VOp::Splat(_)));
    let index = c.index;
    let mut insts = c.insts;
    let bytes = assign(&mut insts, &outputs);
    Ok(Program {
        insts,
        outputs,
        direct,
        identity,
        unary,
        index,
        bytes,
    })
}

struct Compiler<'a> {
    e: &'a Expr,
    types: Vec<DType>,
    lanes: &'a [bool],
    lane_axes: u32,
    k: &'static Kernels,
    insts: Vec<VInst>,
    map: Vec<Option<R>>,
    uses: Vec<u32>,
    index: u32,
}

fn operands(op: &VOp) -> ([R; 6], usize) {
    let few = |a: &[Option<R>]| {
        let (mut all, mut n) = ([0; 6], 0);
        for r in a.iter().flatten() {
            all[n] = *r;
            n += 1;
        }
        (all, n)
    };
    let (three, n) = match *op {
        VOp::Scaled(rows) => return few(&rows),
        VOp::Quantise(x, [a, b], _) => return few(&[Some(x), a, b]),
        VOp::Dequantise(_, _, _, by) => return few(&[Some(by)]),
        VOp::Splat(a)
        | VOp::FUn(_, a)
        | VOp::MNot(a)
        | VOp::Un(_, a)
        | VOp::Cast(a, ..)
        | VOp::Round(a) => ([a, 0, 0], 1),
        VOp::FBin(_, a, b) | VOp::FBinK(_, a, b) | VOp::Bin(_, a, b) | VOp::Cmp(_, a, b) => {
            ([a, b, 0], 2)
        }
        VOp::Fma(a, b, c) | VOp::FSelect(a, b, c) | VOp::Sel(a, b, c) => ([a, b, c], 3),
        _ => ([0; 3], 0),
    };
    ([three[0], three[1], three[2], 0, 0, 0], n)
}

impl Compiler<'_> {
    fn push(&mut self, op: VOp, dtype: DType, kind: Kind, class: Class) -> R {
        self.insts.push(VInst {
            op,
            dtype,
            kind,
            class,
            at: usize::MAX,
        });
        self.insts.len() - 1
    }

    fn class(&self, rs: &[R]) -> Class {
        rs.iter()
            .map(|&r| self.insts[r].class)
            .max()
            .unwrap_or(Class::Const)
    }

    /// `r` as a full row.
    fn row(&mut self, r: R) -> R {
        let i = self.insts[r];
        if i.class == Class::Lane {
            return r;
        }
        let at = self
            .insts
            .iter()
            .position(|x| matches!(x.op, VOp::Splat(a) if a == r));
        at.unwrap_or_else(|| self.push(VOp::Splat(r), i.dtype, i.kind, i.class))
    }

    fn inst(&self, r: Ref) -> &Inst {
        &self.e.insts[r as usize]
    }

    fn is_const(&self, r: Ref, v: f64) -> bool {
        match self.inst(r) {
            Inst::Float { bits, .. } => {
                let x = f64::from_bits(*bits);
                (x - v).abs() <= 1e-6 * v.abs()
            }
            _ => false,
        }
    }

    /// `x` of `mul(x, constant v)`, either way round.
    fn times(&self, r: Ref, v: f64) -> Option<Ref> {
        match self.inst(r) {
            Inst::Binary(Binary::Mul, a, b) if self.is_const(*b, v) => Some(*a),
            Inst::Binary(Binary::Mul, a, b) if self.is_const(*a, v) => Some(*b),
            Inst::Binary(Binary::Div, a, b) if self.is_const(*b, 1.0 / v) => Some(*a),
            _ => None,
        }
    }

    /// `x` of `add(x, 1)`.
    fn plus_one(&self, r: Ref) -> Option<Ref> {
        match self.inst(r) {
            Inst::Binary(Binary::Add, a, b) if self.is_const(*b, 1.0) => Some(*a),
            Inst::Binary(Binary::Add, a, b) if self.is_const(*a, 1.0) => Some(*b),
            _ => None,
        }
    }

    /// `erf(x / sqrt 2)`'s `x`.
    fn erf_of(&self, r: Ref) -> Option<Ref> {
        match self.inst(r) {
            Inst::Unary(Unary::Erf, a) => self.times(*a, std::f64::consts::FRAC_1_SQRT_2),
            _ => None,
        }
    }

    /// The argument of `tanh(sqrt(2/pi) (x + 0.044715 x^3))`.
    fn gelu_tanh_of(&self, r: Ref) -> Option<Ref> {
        let Inst::Unary(Unary::Tanh, a) = self.inst(r) else {
            return None;
        };
        let s = self.times(*a, (2.0 / std::f64::consts::PI).sqrt())?;
        let Inst::Binary(Binary::Add, p, q) = self.inst(s) else {
            return None;
        };
        let cubed = |r: Ref, x: Ref| {
            let Some(c) = self.times(r, 0.044715) else {
                return false;
            };
            match self.inst(c) {
                Inst::Binary(Binary::Pow, b, e) => *b == x && self.is_const(*e, 3.0),
                Inst::Binary(Binary::Mul, u, v) => {
                    let square = |r: Ref| match self.inst(r) {
                        Inst::Binary(Binary::Mul, a, b) => *a == x && *b == x,
                        Inst::Binary(Binary::Pow, b, e) => *b == x && self.is_const(*e, 2.0),
                        _ => false,
                    };
                    (*u == x && square(*v)) || (*v == x && square(*u))
                }
                _ => false,
            }
        };
        if cubed(*q, *p) {
            Some(*p)
        } else if cubed(*p, *q) {
            Some(*q)
        } else {
            None
        }
    }

    /// GELU, SiLU and their like, whichever way they are written: function and argument.
    fn fused(&self, r: Ref) -> Option<(crate::ukr::UnaryFn, Ref)> {
        let k = self.k;
        if self.types[r as usize] != DType::F32 {
            return None;
        }
        if let Some(x) = self.hard_swish_of(r) {
            return Some((k.hard_swish, x));
        }
        match self.inst(r) {
            Inst::Binary(Binary::Mul, a, b) => {
                for (a, b) in [(*a, *b), (*b, *a)] {
                    // (x/2) * (1 + erf), and x * (1 + erf) below a factor 1/2, come here by parts.
                    if let Some(inner) = self.plus_one(b) {
                        if let (Some(x), Some(y)) = (self.times(a, 0.5), self.erf_of(inner))
                            && x == y
                        {
                            return Some((k.gelu, x));
                        }
                        if let (Some(x), Some(y)) = (self.times(a, 0.5), self.gelu_tanh_of(inner))
                            && x == y
                        {
                            return Some((k.gelu_tanh, x));
                        }
                    }
                    if self.is_const(b, 0.5)
                        && let Inst::Binary(Binary::Mul, p, q) = self.inst(a)
                    {
                        for (p, q) in [(*p, *q), (*q, *p)] {
                            if let Some(inner) = self.plus_one(q) {
                                if self.erf_of(inner) == Some(p) {
                                    return Some((k.gelu, p));
                                }
                                if self.gelu_tanh_of(inner) == Some(p) {
                                    return Some((k.gelu_tanh, p));
                                }
                            }
                        }
                    }
                    // x * ((1 + f) / 2)
                    if let Some(half) = self.times(b, 0.5)
                        && let Some(inner) = self.plus_one(half)
                    {
                        if self.erf_of(inner) == Some(a) {
                            return Some((k.gelu, a));
                        }
                        if self.gelu_tanh_of(inner) == Some(a) {
                            return Some((k.gelu_tanh, a));
                        }
                    }
                    if matches!(self.inst(b), Inst::Unary(Unary::Sigmoid, x) if *x == a) {
                        return Some((k.silu, a));
                    }
                }
                None
            }
            Inst::Binary(Binary::Div, x, d) => {
                let e = self.plus_one(*d)?;
                let Inst::Unary(Unary::Exp, n) = self.inst(e) else {
                    return None;
                };
                match self.inst(*n) {
                    Inst::Unary(Unary::Neg, y) if y == x => Some((k.silu, *x)),
                    Inst::Unary(Unary::Neg, y) if self.is_const(*x, 1.0) => Some((k.sigmoid, *y)),
                    _ => None,
                }
            }
            _ => None,
        }
    }

    fn value(&mut self, r: Ref, params: &mut Params) -> Result<R, String> {
        if let Some(v) = self.map[r as usize] {
            return Ok(v);
        }
        let v = self.make(r, params)?;
        self.map[r as usize] = Some(v);
        Ok(v)
    }

    /// The value of `r`; types of 16 bits are computed as f32 and rounded after each operation that may
    /// leave them.
    fn make(&mut self, r: Ref, params: &mut Params) -> Result<R, String> {
        let v = self.exact(r, params)?;
        let own = self.types[r as usize];
        let rounds = match self.inst(r) {
            Inst::Unary(g, _) => !matches!(
                g,
                Unary::Neg | Unary::Abs | Unary::Floor | Unary::Ceil | Unary::Round
            ),
            Inst::Binary(g, ..) => !matches!(g, Binary::Min | Binary::Max),
            _ => false,
        };
        if rounds && matches!(own, DType::F16 | DType::BF16) && !self.is_only_stored(r) {
            let class = self.insts[v].class;
            return Ok(self.push(VOp::Round(v), own, Kind::F, class));
        }
        Ok(v)
    }

    /// Whether nothing but a store reads `r`: what is stored as 16 bits is rounded by it.
    fn is_only_stored(&self, r: Ref) -> bool {
        self.uses[r as usize] == 1 && self.e.outputs.contains(&r)
    }

    /// The value of `r`, which is `g` of `a`.
    fn unary(&mut self, r: Ref, g: Unary, a: Ref, params: &mut Params) -> Result<R, String> {
        let ty = self.types[a as usize];
        let x = self.value(a, params)?;
        let class = self.class(&[x]);
        if Kind::of(ty) == Kind::F
            && let Some(f) = self.funary(g)
        {
            return Ok(self.push(VOp::FUn(f, x), ty, Kind::F, class));
        }
        if ty == DType::Bool && g == Unary::Not {
            return Ok(self.push(VOp::MNot(x), ty, Kind::M, class));
        }
        if g == Unary::IsNan && Kind::of(ty) == Kind::F {
            return Ok(self.push(VOp::Cmp(Compare::Ne, x, x), ty, Kind::M, class));
        }
        Ok(self.push(VOp::Un(g, x), ty, Kind::of(self.types[r as usize]), class))
    }

    /// The value of `r`, which is one of two others as `c` says.
    fn select(&mut self, r: Ref, [c, a, b]: [Ref; 3], params: &mut Params) -> Result<R, String> {
        let own = self.types[r as usize];
        let kind = Kind::of(own);
        if own == DType::F32
            && let Some((x, m)) = expr::shifted_exp(&self.e.insts, r)
        {
            let (x, m) = (self.value(x, params)?, self.value(m, params)?);
            let lane = |r: R| self.insts[r].class == Class::Lane;
            if lane(x) && !lane(m) {
                let op = VOp::FBinK(self.k.exp_sub_k, x, m);
                return Ok(self.push(op, own, kind, Class::Lane));
            }
        }
        let (c, a, b) = (
            self.value(c, params)?,
            self.value(a, params)?,
            self.value(b, params)?,
        );
        let class = self.class(&[c, a, b]);
        if kind == Kind::F && class == Class::Lane {
            let (c, a, b) = (self.row(c), self.row(a), self.row(b));
            Ok(self.push(VOp::FSelect(c, a, b), own, kind, class))
        } else {
            Ok(self.push(VOp::Sel(c, a, b), own, kind, class))
        }
    }

    fn exact(&mut self, r: Ref, params: &mut Params) -> Result<R, String> {
        let own = self.types[r as usize];
        let kind = Kind::of(own);
        if let Some((g, x)) = self.fused(r) {
            let x = self.value(x, params)?;
            let class = self.class(&[x]);
            return Ok(self.push(VOp::FUn(g, x), DType::F32, Kind::F, class));
        }
        Ok(match self.inst(r).clone() {
            Inst::Input { slot, dtype } => {
                let slot = slot as usize;
                let Some(&l) = self.lanes.get(slot) else {
                    return Err(format!(
                        "a program reads argument {slot}, but only {} are given",
                        self.lanes.len()
                    ));
                };
                self.push(
                    VOp::Arg(slot),
                    dtype,
                    kind,
                    if l { Class::Lane } else { Class::Row },
                )
            }
            Inst::Float { bits, dtype } => {
                let s = Scalar::Float(f64::from_bits(bits)).of(dtype);
                self.push(VOp::Const(s), dtype, kind, Class::Const)
            }
            Inst::Int { value, dtype } => self.push(
                VOp::Const(Scalar::Int(value).of(dtype)),
                dtype,
                kind,
                Class::Const,
            ),
            Inst::Index { axis } => {
                let a = axis as usize;
                if a >= super::super::MAX_AXES {
                    return Err(format!(
                        "a program reads the coordinate along axis {a}, which is not there"
                    ));
                }
                self.index |= 1 << a;
                let class = if self.lane_axes >> a & 1 == 1 {
                    Class::Lane
                } else {
                    Class::Row
                };
                self.push(VOp::Index(a), own, kind, class)
            }
            Inst::Dim(d) => {
                let p = params.intern(&d);
                self.push(VOp::Dim(p), own, kind, Class::Const)
            }
            Inst::Unary(g, a) => self.unary(r, g, a, params)?,
            Inst::Binary(g, a, b) => {
                if own == DType::F32 {
                    if let Some(v) = self.dequantise(r, params)? {
                        return Ok(v);
                    }
                    if let Some(v) = self.scaled(r, params)? {
                        return Ok(v);
                    }
                }
                self.binary(g, a, b, own, params)?
            }
            Inst::Compare(g, a, b) => {
                let ty = self.types[a as usize];
                let (x, y) = (self.value(a, params)?, self.value(b, params)?);
                let class = self.class(&[x, y]);
                if Kind::of(ty) == Kind::F {
                    return Ok(self.fcompare(g, x, y, class));
                }
                self.push(VOp::Cmp(g, x, y), ty, Kind::M, class)
            }
            Inst::Select(c, a, b) => self.select(r, [c, a, b], params)?,
            Inst::Cast(a, to) => {
                if let Some(r) = self.quantise(a, to, params)? {
                    return Ok(r);
                }
                if let Some(r) = self.quantised(a, to, params)? {
                    return Ok(r);
                }
                let from = self.types[a as usize];
                let x = self.value(a, params)?;
                let rounded = matches!(to, DType::F16 | DType::BF16) && self.is_only_stored(r);
                if from == to || rounded && Kind::of(from) == Kind::F {
                    return Ok(x);
                }
                let class = self.class(&[x]);
                self.push(VOp::Cast(x, from, to), to, kind, class)
            }
        })
    }

    /// Quantising and its inverse in f32, where that is exact: a whole number plus a zero point that is
    /// saturated to 8 or 16 bits, and the difference of two numbers of 8 or 16 bits as f32.
    fn quantised(&mut self, a: Ref, to: DType, params: &mut Params) -> Result<Option<R>, String> {
        let small = |d: DType| d.is_int() && d.bits() <= 16;
        let from = self.types[a as usize];
        let inner = |c: &Self, r: Ref| match c.inst(r) {
            Inst::Cast(x, _) => Some((*x, c.types[*x as usize])),
            _ => None,
        };
        let both = |c: &Self, op: Binary| match c.inst(a) {
            Inst::Binary(g, p, q) if *g == op => Some((inner(c, *p)?, inner(c, *q)?)),
            _ => None,
        };
        let (op, left, right) = if small(to) && from == DType::F64 {
            let whole = |c: &Self, r: Ref| matches!(c.inst(r), Inst::Unary(Unary::Round, _));
            match (both(self, Binary::Add), inner(self, a)) {
                (Some(((q, DType::F32), (z, d))), _) if whole(self, q) && small(d) => {
                    (Binary::Add, q, Some(z))
                }
                (None, Some((q, DType::F32))) if whole(self, q) => (Binary::Add, q, None),
                _ => return Ok(None),
            }
        } else if to == DType::F32 && from == DType::I32 {
            match both(self, Binary::Sub) {
                Some(((q, d), (z, e))) if small(d) && small(e) => (Binary::Sub, q, Some(z)),
                _ => return Ok(None),
            }
        } else {
            return Ok(None);
        };
        let float = |c: &mut Self, r: Ref, params: &mut Params| -> Result<R, String> {
            let d = c.types[r as usize];
            let x = c.value(r, params)?;
            if d == DType::F32 {
                return Ok(x);
            }
            let class = c.class(&[x]);
            Ok(c.push(VOp::Cast(x, d, DType::F32), DType::F32, Kind::F, class))
        };
        let mut x = float(self, left, params)?;
        if let Some(z) = right {
            let z = float(self, z, params)?;
            let class = self.class(&[x, z]);
            let k = self.k;
            let (both, with, turned) = match op {
                Binary::Add => (k.add, k.add_k, k.add_k),
                _ => (k.sub, k.sub_k, k.rsub_k),
            };
            let lane = |c: &Self, r: R| c.insts[r].class == Class::Lane;
            let v = match (lane(self, x), lane(self, z)) {
                (true, false) => VOp::FBinK(with, x, z),
                (false, true) => VOp::FBinK(turned, z, x),
                _ => VOp::FBin(both, x, z),
            };
            x = self.push(v, DType::F32, Kind::F, class);
        }
        if op == Binary::Sub {
            return Ok(Some(x));
        }
        let class = self.class(&[x]);
        Ok(Some(self.push(
            VOp::Cast(x, DType::F32, to),
            to,
            Kind::of(to),
            class,
        )))
    }

    /// `x` of `x * max(0, min(1, x/6 + 1/2))`, and of `x * max(0, min(6, x + 3)) / 6`.
    fn hard_swish_of(&self, r: Ref) -> Option<Ref> {
        let clipped = |r: Ref, top: f64| {
            let (mut r, mut seen) = (r, [false; 2]);
            while let Inst::Binary(g @ (Binary::Min | Binary::Max), a, b) = *self.inst(r) {
                let (at, bound) = match g {
                    Binary::Min => (0, top),
                    _ => (1, 0.0),
                };
                let exact = |r: Ref| matches!(self.inst(r), Inst::Float { bits, .. } if f64::from_bits(*bits) == bound);
                r = if exact(b) {
                    a
                } else if exact(a) {
                    b
                } else {
                    return None;
                };
                seen[at] = true;
            }
            (seen == [true; 2]).then_some(r)
        };
        let plus = |r: Ref, v: f64| match *self.inst(r) {
            Inst::Binary(Binary::Add, a, b) if self.is_const(b, v) => Some(a),
            Inst::Binary(Binary::Add, a, b) if self.is_const(a, v) => Some(b),
            _ => None,
        };
        // x * f, x * (g / 6) and (x * g) / 6.
        if let Inst::Binary(Binary::Mul, a, b) = *self.inst(r) {
            for (x, f) in [(a, b), (b, a)] {
                let sixth = clipped(f, 1.0)
                    .and_then(|f| plus(f, 0.5))
                    .and_then(|f| self.times(f, 1.0 / 6.0));
                let whole = self
                    .times(f, 1.0 / 6.0)
                    .and_then(|f| clipped(f, 6.0))
                    .and_then(|f| plus(f, 3.0));
                if sixth == Some(x) || whole == Some(x) {
                    return Some(x);
                }
            }
        }
        let inner = self.times(r, 1.0 / 6.0)?;
        let Inst::Binary(Binary::Mul, a, b) = *self.inst(inner) else {
            return None;
        };
        [(a, b), (b, a)].into_iter().find_map(|(x, f)| {
            let f = clipped(f, 6.0).and_then(|f| plus(f, 3.0));
            (f == Some(x)).then_some(x)
        })
    }

    fn funary(&self, g: Unary) -> Option<crate::ukr::UnaryFn> {
        let k = self.k;
        Some(match g {
            Unary::Neg => k.neg,
            Unary::Abs => k.abs,
            Unary::Sqrt => k.sqrt,
            Unary::Rsqrt => k.rsqrt,
            Unary::Reciprocal => k.recip,
            Unary::Exp => k.exp,
            Unary::Log => k.log,
            Unary::Sin => k.sin,
            Unary::Cos => k.cos,
            Unary::Atan => k.atan,
            Unary::Tanh => k.tanh,
            Unary::Erf => k.erf,
            Unary::Sigmoid => k.sigmoid,
            Unary::Floor => k.floor,
            Unary::Ceil => k.ceil,
            Unary::Round => k.round,
            _ => return None,
        })
    }

    fn binary(
        &mut self,
        g: Binary,
        a: Ref,
        b: Ref,
        own: DType,
        params: &mut Params,
    ) -> Result<R, String> {
        let kind = Kind::of(own);
        let k = self.k;
        if kind != Kind::F {
            let (x, y) = (self.value(a, params)?, self.value(b, params)?);
            let class = self.class(&[x, y]);
            return Ok(self.push(VOp::Bin(g, x, y), own, kind, class));
        }
        if g == Binary::Pow && self.is_const(b, 2.0) {
            let x = self.value(a, params)?;
            let class = self.class(&[x]);
            return Ok(self.push(VOp::FBin(k.mul, x, x), own, kind, class));
        }
        if g == Binary::Add && own == DType::F32 {
            // a * b + c in one pass, where all three change along lanes.
            for (m, c) in [(a, b), (b, a)] {
                if let Inst::Binary(Binary::Mul, p, q) = *self.inst(m)
                    && self.uses[m as usize] == 1
                    && self.fused(m).is_none()
                    && m != c
                {
                    let (p, q, c) = (
                        self.value(p, params)?,
                        self.value(q, params)?,
                        self.value(c, params)?,
                    );
                    if [p, q, c]
                        .iter()
                        .all(|&r| self.insts[r].class == Class::Lane)
                    {
                        return Ok(self.push(VOp::Fma(p, q, c), own, kind, Class::Lane));
                    }
                    break;
                }
            }
        }
        let (x, y) = (self.value(a, params)?, self.value(b, params)?);
        let class = self.class(&[x, y]);
        let (cx, cy) = (self.insts[x].class, self.insts[y].class);
        // Both of a kind, lanes with uniform, uniform with lanes.
        let table: Option<(
            crate::ukr::BinaryFn,
            crate::ukr::ScalarFn,
            crate::ukr::ScalarFn,
        )> = match g {
            Binary::Add => Some((k.add, k.add_k, k.add_k)),
            Binary::Sub => Some((k.sub, k.sub_k, k.rsub_k)),
            Binary::Mul => Some((k.mul, k.mul_k, k.mul_k)),
            Binary::Div => Some((k.div, k.div_k, k.rdiv_k)),
            Binary::Min => Some((k.min, k.min_k, k.min_k)),
            Binary::Max => Some((k.max, k.max_k, k.max_k)),
            Binary::Pow => Some((k.pow, k.pow_k, k.rpow_k)),
            _ => None,
        };
        let Some((both, right, left)) = table else {
            return Ok(self.push(VOp::Bin(g, x, y), own, kind, class));
        };
        let op = match (cx == Class::Lane, cy == Class::Lane) {
            (true, false) => VOp::FBinK(right, x, y),
            (false, true) => VOp::FBinK(left, y, x),
            _ => VOp::FBin(both, x, y),
        };
        Ok(self.push(op, own, kind, class))
    }

    fn fcompare(&mut self, g: Compare, x: R, y: R, class: Class) -> R {
        let k = self.k;
        let lane = |c: &Self, r: R| c.insts[r].class == Class::Lane;
        let op = match (lane(self, x), lane(self, y)) {
            (true, false) => match g {
                Compare::Lt => VOp::FBinK(k.lt_k, x, y),
                Compare::Le => VOp::FBinK(k.le_k, x, y),
                Compare::Gt => VOp::FBinK(k.gt_k, x, y),
                Compare::Ge => VOp::FBinK(k.ge_k, x, y),
                Compare::Eq => VOp::FBinK(k.eq_k, x, y),
                Compare::Ne => VOp::Cmp(g, x, y),
            },
            (false, true) => match g {
                Compare::Lt => VOp::FBinK(k.gt_k, y, x),
                Compare::Le => VOp::FBinK(k.ge_k, y, x),
                Compare::Gt => VOp::FBinK(k.lt_k, y, x),
                Compare::Ge => VOp::FBinK(k.le_k, y, x),
                Compare::Eq => VOp::FBinK(k.eq_k, y, x),
                Compare::Ne => VOp::Cmp(g, x, y),
            },
            _ => match g {
                Compare::Lt => VOp::FBin(k.lt, x, y),
                Compare::Le => VOp::FBin(k.le, x, y),
                Compare::Gt => VOp::FBin(k.lt, y, x),
                Compare::Ge => VOp::FBin(k.le, y, x),
                Compare::Eq => VOp::FBin(k.eq, x, y),
                Compare::Ne => VOp::Cmp(g, x, y),
            },
        };
        self.push(op, DType::F32, Kind::M, class)
    }
}

/// Gives every instruction a register; rows whose last reader has run are used again. Returns the
/// bytes of scratch.
fn assign(insts: &mut [VInst], outputs: &[(R, DType)]) -> usize {
    let mut last = vec![0; insts.len()];
    for (i, inst) in insts.iter().enumerate() {
        let (ops, n) = operands(&inst.op);
        for &a in &ops[..n] {
            last[a] = last[a].max(i);
        }
    }
    for &(o, _) in outputs {
        last[o] = usize::MAX;
    }
    let round = |n: usize| n.div_ceil(64) * 64;
    let mut top = round(insts.len() * size_of::<*mut u8>());
    let mut free: Vec<(usize, usize)> = Vec::new();
    for i in 0..insts.len() {
        let inst = insts[i];
        let full = inst.class == Class::Lane || matches!(inst.op, VOp::Splat(_));
        let bytes = if full { CH * inst.kind.bytes() } else { 64 };
        // Values of other rows and uniform values keep their registers.
        let at = match free.iter().position(|f| f.0 == bytes) {
            Some(f) if inst.class == Class::Lane => free.swap_remove(f).1,
            _ => {
                top += bytes;
                top - bytes
            }
        };
        insts[i].at = at;
        let (ops, n) = operands(&inst.op);
        for j in 0..n {
            let a = ops[j];
            if last[a] == i && insts[a].class == Class::Lane && !ops[..j].contains(&a) {
                free.push((CH * insts[a].kind.bytes(), insts[a].at));
            }
        }
    }
    top
}
