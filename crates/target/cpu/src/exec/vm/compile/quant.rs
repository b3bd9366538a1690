//! Programs between whole steps and numbers, found as a whole: sums of products scaled, quantising, and
//! dequantising bytes. Each runs in one pass.
use super::super::{Kind, R, VOp};
use super::{Class, Compiler};
use expr::{Binary, Inst, Ref, Unary};
use layout::DType;
use plan::Params;

impl Compiler<'_> {
    /// The argument that `r` is, when it changes along lanes and has type `d`.
    fn lane_arg(&self, r: Ref, d: DType) -> Option<Ref> {
        match self.inst(r) {
            Inst::Input { slot, dtype } if *dtype == d => {
                self.lanes.get(*slot as usize)?.then_some(r)
            }
            _ => None,
        }
    }

    fn sum(&self, r: Ref, g: Binary) -> Option<(Ref, Ref)> {
        match self.inst(r) {
            Inst::Binary(f, a, b) if *f == g && self.types[r as usize] == DType::F32 => {
                Some((*a, *b))
            }
            _ => None,
        }
    }

    /// `r` as `other(inner)` with an argument that changes along lanes: (inner, argument).
    fn peeled(&self, r: Ref, g: Binary) -> Option<(Ref, Ref)> {
        let (a, b) = self.sum(r, g)?;
        match (self.lane_arg(a, DType::F32), self.lane_arg(b, DType::F32)) {
            (None, Some(b)) => Some((a, b)),
            (Some(a), None) => Some((b, a)),
            _ => None,
        }
    }

    /// `(f32(acc + off) + before) * scale + after` of arguments.
    pub(super) fn scaled(&mut self, r: Ref, params: &mut Params) -> Result<Option<R>, String> {
        let mut at = r;
        let mut take = |c: &Self, g: Binary| {
            let (inner, arg) = c.peeled(at, g)?;
            at = inner;
            Some(arg)
        };
        let last = take(self, Binary::Add);
        let scale = take(self, Binary::Mul);
        // Without a scale there is one sum.
        let (before, after) = match scale {
            Some(_) => (take(self, Binary::Add), last),
            None => (last, None),
        };
        let Inst::Cast(whole, DType::F32) = *self.inst(at) else {
            return Ok(None);
        };
        let (acc, off, factor) = match *self.inst(whole) {
            Inst::Binary(Binary::Add, a, b) => (a, Some(b), None),
            Inst::Binary(Binary::Sub, a, b) => match *self.inst(b) {
                Inst::Binary(Binary::Mul, p, q) if self.lane_arg(p, DType::I32).is_some() => {
                    (a, Some(p), Some(q))
                }
                Inst::Binary(Binary::Mul, p, q) => (a, Some(q), Some(p)),
                _ => return Ok(None),
            },
            _ => (whole, None, None),
        };
        let int = |r: Ref| self.lane_arg(r, DType::I32);
        if int(acc).is_none() || off.is_some_and(|o| int(o).is_none()) || at == r {
            return Ok(None);
        }
        let mut rows = [None; 6];
        if let Some(f) = factor {
            let f = self.value(f, params)?;
            if self.insts[f].class == Class::Lane {
                return Ok(None);
            }
            rows[5] = Some(f);
        }
        for (row, r) in rows.iter_mut().zip([Some(acc), off, before, scale, after]) {
            if let Some(r) = r {
                *row = Some(self.value(r, params)?);
            }
        }
        Ok(Some(self.push(
            VOp::Scaled(rows),
            DType::F32,
            Kind::F,
            Class::Lane,
        )))
    }

    fn float(&self, r: Ref) -> Option<f64> {
        match *self.inst(r) {
            Inst::Float {
                bits,
                dtype: DType::F32,
            } => Some(f64::from_bits(bits)),
            _ => None,
        }
    }

    /// `r` in f32 that does not change along lanes.
    fn uniform(&mut self, r: Ref, params: &mut Params) -> Result<Option<R>, String> {
        if self.types[r as usize] != DType::F32 {
            return Ok(None);
        }
        let v = self.value(r, params)?;
        Ok((self.insts[v].class != Class::Lane).then_some(v))
    }

    /// `saturated(round(x / by) + zero)` as `to`.
    pub(super) fn quantise(
        &mut self,
        a: Ref,
        to: DType,
        params: &mut Params,
    ) -> Result<Option<R>, String> {
        let (mut lo, mut hi) = match to {
            DType::U8 => (0.0, 255.0),
            DType::I8 => (-128.0, 127.0),
            DType::U16 => (0.0, 65535.0),
            DType::I16 => (-32768.0, 32767.0),
            _ => return Ok(None),
        };
        let mut at = a;
        while let Inst::Binary(g @ (Binary::Min | Binary::Max), p, q) = *self.inst(at) {
            let (x, k) = match (self.float(p), self.float(q)) {
                (None, Some(k)) => (p, k),
                (Some(k), None) => (q, k),
                _ => return Ok(None),
            };
            // Only bounds that are whole and inside one another come to the same in any order.
            if k.fract() != 0.0 || !(lo..=hi).contains(&k) {
                return Ok(None);
            }
            match g {
                Binary::Min => hi = k,
                _ => lo = k,
            }
            at = x;
        }
        let round = |c: &Self, r: Ref| match *c.inst(r) {
            Inst::Unary(Unary::Round, x) if c.types[r as usize] == DType::F32 => Some(x),
            _ => None,
        };
        let mut zero = None;
        if let Some((p, q)) = self.sum(at, Binary::Add) {
            let (x, z) = if round(self, p).is_some() {
                (p, q)
            } else {
                (q, p)
            };
            (at, zero) = (x, Some(z));
        }
        let Some(x) = round(self, at) else {
            return Ok(None);
        };
        let mut rows = [None; 2];
        let mut x = x;
        let mut rising = true;
        if let Some((p, q)) = self.sum(x, Binary::Div)
            && let Some(by) = self.uniform(q, params)?
        {
            rising = self.float(q).is_some_and(|k| k > 0.0);
            (x, rows[0]) = (p, Some(by));
        }
        // A bound of 0 before is the zero point as a bound behind.
        if let Some((p, q)) = self.sum(x, Binary::Max)
            && let Some(z) = zero.map_or(Some(0.0), |z| self.float(z))
        {
            let at = match (self.float(p), self.float(q)) {
                (None, Some(0.0)) => Some(p),
                (Some(0.0), None) => Some(q),
                _ => None,
            };
            if let Some(at) = at.filter(|_| rising && (lo..=hi).contains(&z)) {
                (x, lo) = (at, lo.max(z));
            }
        }
        if let Some(z) = zero {
            let Some(z) = self.uniform(z, params)? else {
                return Ok(None);
            };
            rows[1] = Some(z);
        }
        let x = self.value(x, params)?;
        if self.insts[x].class != Class::Lane {
            return Ok(None);
        }
        let op = VOp::Quantise(x, rows, [lo as f32, hi as f32]);
        Ok(Some(self.push(op, to, Kind::of(to), Class::Lane)))
    }

    /// `(x - zero) * by` of an argument of bytes.
    pub(super) fn dequantise(&mut self, r: Ref, params: &mut Params) -> Result<Option<R>, String> {
        let Some((p, q)) = self.sum(r, Binary::Mul) else {
            return Ok(None);
        };
        let cast = |c: &Self, r: Ref| match *c.inst(r) {
            Inst::Cast(x, DType::F32 | DType::I32 | DType::I16) => Some(x),
            _ => None,
        };
        for (steps, by) in [(p, q), (q, p)] {
            let Some(whole) = cast(self, steps) else {
                continue;
            };
            let (x, zero) = match *self.inst(whole) {
                Inst::Binary(Binary::Sub, x, z) => (x, Some(z)),
                _ => (steps, None),
            };
            let x = cast(self, x).unwrap_or(x);
            let bytes = [DType::U8, DType::I8];
            let found = bytes.into_iter().find(|&d| self.lane_arg(x, d).is_some());
            let (Some(d), Inst::Input { slot, .. }) = (found, self.inst(x)) else {
                continue;
            };
            let slot = *slot as usize;
            let zero = match zero {
                None => 0.0,
                Some(z) => match self.inst(cast(self, z).unwrap_or(z)) {
                    Inst::Int { value, .. } => *value as f32,
                    _ => continue,
                },
            };
            let Some(by) = self.uniform(by, params)? else {
                continue;
            };
            let op = VOp::Dequantise(slot, d == DType::I8, zero, by);
            return Ok(Some(self.push(op, DType::F32, Kind::F, Class::Lane)));
        }
        Ok(None)
    }
}
