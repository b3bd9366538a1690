//! The cells: what one position makes of its gates' input parts and of the state.
use super::{Layer, cut};
use crate::located::Located;
use expr::{Binary, Compare, Expr, ExprBuilder, Ref, Unary, functions};
use graph::{RecurrentKind, RecurrentSpec};
use kernel::{AxisId, TileId};
use layout::{DType, Dim};

/// Activations where the model names none, per kind.
fn usual(kind: RecurrentKind) -> &'static [&'static str] {
    match kind {
        RecurrentKind::Lstm => &["Sigmoid", "Tanh", "Tanh"],
        RecurrentKind::Gru => &["Sigmoid", "Tanh"],
        RecurrentKind::Rnn => &["Tanh"],
    }
}

/// Whether every activation is one that the standard lists, and as many as there must be.
pub(super) fn known(spec: &RecurrentSpec) -> Result<(), String> {
    let per = usual(spec.kind).len();
    let (got, want) = (spec.activations.len(), per * spec.directions());
    if got != 0 && got != want {
        return Err(format!("it has {got} activations where {want} are needed"));
    }
    let mut b = ExprBuilder::new();
    let x = b.input(0, DType::F32);
    for name in &spec.activations {
        if activation(&mut b, name, (0.0, 0.0), x, DType::F32).is_none() {
            return Err(format!("activation '{name}' is not one that ONNX lists"));
        }
    }
    Ok(())
}

fn activation(
    b: &mut ExprBuilder,
    name: &str,
    (alpha, beta): (f64, f64),
    x: Ref,
    d: DType,
) -> Option<Ref> {
    let line = |b: &mut ExprBuilder, x: Ref, by: f64, plus: f64| {
        let (by, plus) = (b.constant(by, d), b.constant(plus, d));
        let y = b.mul(x, by);
        b.add(y, plus)
    };
    Some(match name.to_ascii_lowercase().as_str() {
        "sigmoid" => functions::sigmoid(b, x),
        "tanh" => b.unary(Unary::Tanh, x),
        "relu" => functions::relu(b, x, d),
        "affine" => line(b, x, alpha, beta),
        "leakyrelu" => functions::leaky_relu(b, x, alpha, d),
        "thresholdedrelu" => functions::thresholded_relu(b, x, alpha, d),
        "scaledtanh" => {
            let (outer, inner) = (b.constant(alpha, d), b.constant(beta, d));
            let y = b.mul(x, inner);
            let y = b.unary(Unary::Tanh, y);
            b.mul(y, outer)
        }
        "hardsigmoid" => functions::hard_sigmoid(b, x, alpha, beta, d),
        "elu" => functions::elu(b, x, alpha, d),
        "softsign" => functions::softsign(b, x, d),
        "softplus" => functions::softplus(b, x, d),
        _ => return None,
    })
}

/// A program over tiles, one slot for each that it takes.
struct Code {
    b: ExprBuilder,
    d: DType,
    args: Vec<TileId>,
}

impl Code {
    fn new(d: DType) -> Code {
        Code {
            b: ExprBuilder::new(),
            d,
            args: vec![],
        }
    }

    fn arg(&mut self, t: TileId) -> Ref {
        self.typed(t, self.d)
    }

    fn typed(&mut self, t: TileId, d: DType) -> Ref {
        let at = self.args.iter().position(|&x| x == t).unwrap_or_else(|| {
            self.args.push(t);
            self.args.len() - 1
        });
        self.b.input(at as u32, d)
    }

    fn done(self, out: Ref) -> (Expr, Vec<TileId>) {
        (self.b.finish(&[out]), self.args)
    }
}

/// What a cell makes of a position.
struct Next {
    h: TileId,
    c: Option<TileId>,
}

impl Layer<'_> {
    /// Which sequences have not ended at a position, from their lengths.
    fn lengths(&mut self, l: &Located, dtype: DType) -> Option<()> {
        let axes = self.over(&[self.axes.t, self.axes.b]);
        let access = self.access(l, &[self.axes.b])?;
        let elements = super::touched(&l.layout);
        let lens = self.builder.load("lens", dtype, access, elements, l.ix);
        let mut e = ExprBuilder::new();
        let len = e.input(0, dtype);
        let len = e.cast(len, DType::I64);
        let at = match self.axes.t {
            None => e.int(0, DType::I64),
            Some(t) => {
                let at = e.index(u32::from(t));
                match self.reverse {
                    false => at,
                    true => {
                        let last = e.dim(&(self.seq.clone() - Dim::ONE));
                        e.sub(last, at)
                    }
                }
            }
        };
        let before = e.compare(Compare::Lt, at, len);
        let e = e.finish(&[before]);
        self.alive = Some(self.builder.map("alive", DType::Bool, &axes, e, &[lens]));
        Some(())
    }

    /// The whole kernel: state, positions, what is left at the end. `None` when an operand lies so
    /// that no strides express it.
    pub(super) fn build(
        &mut self,
        lengths: Option<(Located, DType)>,
        [h0, c0]: [Option<Located>; 2],
        y: Option<Located>,
        last: &[Option<Located>],
    ) -> Option<()> {
        let a = self.axes;
        let lstm = self.spec.kind == RecurrentKind::Lstm;
        let gru = self.spec.kind == RecurrentKind::Gru;
        if let Some((l, dtype)) = lengths {
            self.lengths(&l, dtype)?;
        }
        let hk = self.state("h", h0.as_ref(), a.k)?;
        let hn = match gru || self.alive.is_some() {
            true => Some(self.state("old", h0.as_ref(), a.n)?),
            false => None,
        };
        let c = match lstm {
            true => Some(self.state("c", c0.as_ref(), a.n)?),
            false => None,
        };
        let next = match (c, hn) {
            (Some(c), _) => self.lstm(hk, hn, c)?,
            (None, Some(hn)) if gru && self.spec.linear_before_reset => self.gru_linear(hk, hn)?,
            (None, Some(hn)) if gru => self.gru(hk, hn)?,
            _ => self.rnn(hk, hn)?,
        };
        // Past a sequence's end the state stays and the output is 0.
        let (h, mut new_c, mut out) = (next.h, next.c, next.h);
        if let (Some(alive), true) = (self.alive, y.is_some()) {
            let mut e = Code::new(self.dtype);
            let (go, h) = (e.typed(alive, DType::Bool), e.arg(h));
            let zero = e.b.constant(0.0, self.dtype);
            let v = e.b.select(go, h, zero);
            out = self.map("y", e, v);
        }
        if let Some(y) = &y {
            self.store("y_all", y, &[a.t, a.b, Some(a.n)], out)?;
        }
        let (mut end_h, mut end_axis) = (h, a.n);
        if a.t.is_some() {
            self.turned(hk, h, a.t);
            (end_h, end_axis) = (hk, a.k);
            if let Some(hn) = hn {
                self.builder.relabel(hn, h, vec![], a.t);
            }
            if let (Some(c), Some(n)) = (c, new_c) {
                self.builder.relabel(c, n, vec![], a.t);
                new_c = Some(c);
            }
        }
        if let Some(Some(l)) = last.first() {
            self.store("y_h", l, &[a.b, Some(end_axis)], end_h)?;
        }
        if let (Some(Some(l)), Some(c)) = (last.get(1), new_c) {
            self.store("y_c", l, &[a.b, Some(a.n)], c)?;
        }
        Some(())
    }

    /// The state before the first position, along `units`.
    fn state(&mut self, name: &str, from: Option<&Located>, units: AxisId) -> Option<TileId> {
        let dims = [self.axes.b, Some(units)];
        match from {
            Some(l) => self.load(name, l, &dims),
            None => {
                let axes = self.over(&dims);
                Some(self.builder.fill(name, self.dtype, &axes, 0.0))
            }
        }
    }

    /// `new` where the sequence goes on, else `old`.
    fn while_alive(&self, e: &mut Code, new: Ref, old: Option<TileId>) -> Ref {
        match (self.alive, old) {
            (Some(alive), Some(old)) => {
                let (go, old) = (e.typed(alive, DType::Bool), e.arg(old));
                e.b.select(go, new, old)
            }
            _ => new,
        }
    }

    /// A map over positions, batch and units.
    fn map(&mut self, name: &str, code: Code, out: Ref) -> TileId {
        let axes = self.over(&[self.axes.t, self.axes.b, Some(self.axes.n)]);
        let (e, args) = code.done(out);
        self.builder.map(name, self.dtype, &axes, e, &args)
    }

    /// The product of the state with rows `from..from + n` of R, along `units`.
    fn product(&mut self, h: TileId, from: i64, n: i64, units: AxisId) -> Option<TileId> {
        let axes = self.over(&[self.axes.t, self.axes.b, Some(units)]);
        let acc = self.builder.fill("acc", self.dtype, &axes, 0.0);
        let rows = cut(&self.r, 0, from, n)?;
        let r = self.load("r", &rows, &[Some(units), Some(self.axes.k)])?;
        self.builder.contract(acc, h, r, &[self.axes.k]);
        Some(acc)
    }

    /// The input parts of rows `from..from + n`, along `units`.
    fn parts(&mut self, from: i64, n: i64, units: AxisId) -> Option<TileId> {
        let x = cut(&self.x, 2, from, n)?;
        self.load("x", &x, &[self.axes.t, self.axes.b, Some(units)])
    }

    /// Product and input parts of the first `gates` gates.
    fn gates(&mut self, h: TileId, gates: i64) -> Option<TileId> {
        let n = gates * self.spec.hidden;
        let acc = self.product(h, 0, n, self.axes.g)?;
        let x = self.parts(0, n, self.axes.g)?;
        let mut e = Code::new(self.dtype);
        let (p, q) = (e.arg(acc), e.arg(x));
        let sum = e.b.add(p, q);
        let axes = self.over(&[self.axes.t, self.axes.b, Some(self.axes.g)]);
        let (e, args) = e.done(sum);
        Some(self.builder.map("gates", self.dtype, &axes, e, &args))
    }

    /// Activation `which` of this direction, of `x` within the clip.
    fn act(&self, e: &mut Code, which: usize, mut x: Ref) -> Option<Ref> {
        if let Some(c) = self.spec.clip {
            let (lo, hi) = (e.b.constant(-c, e.d), e.b.constant(c, e.d));
            let low = e.b.binary(Binary::Max, x, lo);
            x = e.b.binary(Binary::Min, low, hi);
        }
        self.bare(e, which, x)
    }

    /// Activation `which` of this direction.
    fn bare(&self, e: &mut Code, which: usize, x: Ref) -> Option<Ref> {
        let usual = usual(self.spec.kind);
        let at = self.dir * usual.len() + which;
        let name = self.spec.activations.get(at).map_or(usual[which], |n| n);
        let of = |list: &[f64]| list.get(at).copied().unwrap_or(0.0);
        let d = e.d;
        activation(
            &mut e.b,
            name,
            (of(&self.spec.alphas), of(&self.spec.betas)),
            x,
            d,
        )
    }

    /// `x` plus peephole `which` (input, output, forget) times the cell's state.
    fn peep(&mut self, e: &mut Code, which: i64, x: Ref, c: Ref) -> Option<Ref> {
        let Some(p) = &self.peepholes else {
            return Some(x);
        };
        let p = cut(p, 0, which * self.spec.hidden, self.spec.hidden)?;
        let p = self.load("p", &p, &[Some(self.axes.n)])?;
        let p = e.arg(p);
        let by = e.b.mul(p, c);
        Some(e.b.add(x, by))
    }

    fn lstm(&mut self, h: TileId, hn: Option<TileId>, c: TileId) -> Option<Next> {
        let sums = self.gates(h, 4)?;
        // Gates lie in the order input, output, forget, cell.
        let (i, g) = (self.gate("i", sums, 0), self.gate("g", sums, 3));
        let mut e = Code::new(self.dtype);
        let (input, cell, old) = (e.arg(i), e.arg(g), e.arg(c));
        let input = self.peep(&mut e, 0, input, old)?;
        let input = self.act(&mut e, 0, input)?;
        let forget = match self.spec.input_forget {
            true => {
                let one = e.b.constant(1.0, e.d);
                e.b.sub(one, input)
            }
            false => {
                let f = self.gate("f", sums, 2);
                let f = e.arg(f);
                let f = self.peep(&mut e, 2, f, old)?;
                self.act(&mut e, 0, f)?
            }
        };
        let cell = self.act(&mut e, 1, cell)?;
        let (kept, new) = (e.b.mul(forget, old), e.b.mul(input, cell));
        let sum = e.b.add(kept, new);
        let sum = self.while_alive(&mut e, sum, Some(c));
        let new_c = self.map("c_new", e, sum);
        let o = self.gate("o", sums, 1);
        let mut e = Code::new(self.dtype);
        let (output, state) = (e.arg(o), e.arg(new_c));
        let output = self.peep(&mut e, 1, output, state)?;
        let output = self.act(&mut e, 0, output)?;
        let state = self.bare(&mut e, 2, state)?;
        let y = e.b.mul(output, state);
        let y = self.while_alive(&mut e, y, hn);
        Some(Next {
            h: self.map("h_new", e, y),
            c: Some(new_c),
        })
    }

    /// `(1 - z) * new + z * old`.
    fn mix(&self, e: &mut Code, z: Ref, new: Ref, old: Ref) -> Ref {
        let one = e.b.constant(1.0, e.d);
        let rest = e.b.sub(one, z);
        let (new, old) = (e.b.mul(rest, new), e.b.mul(z, old));
        e.b.add(new, old)
    }

    /// Gates lie in the order update, reset, hidden. The reset gate scales the state before its
    /// product.
    fn gru(&mut self, hk: TileId, hn: TileId) -> Option<Next> {
        let hidden = self.spec.hidden;
        let sums = self.gates(hk, 2)?;
        let (z, r) = (self.gate("z", sums, 0), self.gate("r_gate", sums, 1));
        let mut e = Code::new(self.dtype);
        let (reset, old) = (e.arg(r), e.arg(hn));
        let reset = self.act(&mut e, 0, reset)?;
        let scaled = e.b.mul(reset, old);
        let scaled = self.map("scaled", e, scaled);
        let axes = self.over(&[self.axes.t, self.axes.b, Some(self.axes.k)]);
        let turned = self.builder.tile("scaled_h", self.dtype, &axes);
        self.turned(turned, scaled, None);
        let acc = self.product(turned, 2 * hidden, hidden, self.axes.n)?;
        let x = self.parts(2 * hidden, hidden, self.axes.n)?;
        let mut e = Code::new(self.dtype);
        let (acc, x) = (e.arg(acc), e.arg(x));
        let new = e.b.add(acc, x);
        let new = self.act(&mut e, 1, new)?;
        let (z, old) = (e.arg(z), e.arg(hn));
        let z = self.act(&mut e, 0, z)?;
        let y = self.mix(&mut e, z, new, old);
        let y = self.while_alive(&mut e, y, Some(hn));
        Some(Next {
            h: self.map("h_new", e, y),
            c: None,
        })
    }

    /// The reset gate scales what the product made of the state, with its bias.
    fn gru_linear(&mut self, hk: TileId, hn: TileId) -> Option<Next> {
        let n = 3 * self.spec.hidden;
        let acc = self.product(hk, 0, n, self.axes.g)?;
        let x = self.parts(0, n, self.axes.g)?;
        let [hz, hr, hh] = [("hz", 0), ("hr", 1), ("hh", 2)].map(|(s, i)| self.gate(s, acc, i));
        let [xz, xr, xh] = [("xz", 0), ("xr", 1), ("xh", 2)].map(|(s, i)| self.gate(s, x, i));
        let mut e = Code::new(self.dtype);
        let both = |e: &mut Code, a: TileId, b: TileId| {
            let (a, b) = (e.arg(a), e.arg(b));
            e.b.add(a, b)
        };
        let (z, r) = (both(&mut e, hz, xz), both(&mut e, hr, xr));
        let (z, r) = (self.act(&mut e, 0, z)?, self.act(&mut e, 0, r)?);
        let mut part = e.arg(hh);
        if let Some(l) = self.bias.clone() {
            let bias = self.load("bias", &l, &[Some(self.axes.n)])?;
            let bias = e.arg(bias);
            part = e.b.add(part, bias);
        }
        let part = e.b.mul(r, part);
        let xh = e.arg(xh);
        let new = e.b.add(xh, part);
        let new = self.act(&mut e, 1, new)?;
        let old = e.arg(hn);
        let y = self.mix(&mut e, z, new, old);
        let y = self.while_alive(&mut e, y, Some(hn));
        Some(Next {
            h: self.map("h_new", e, y),
            c: None,
        })
    }

    fn rnn(&mut self, hk: TileId, hn: Option<TileId>) -> Option<Next> {
        let n = self.spec.hidden;
        let acc = self.product(hk, 0, n, self.axes.n)?;
        let x = self.parts(0, n, self.axes.n)?;
        let mut e = Code::new(self.dtype);
        let (acc, x) = (e.arg(acc), e.arg(x));
        let sum = e.b.add(acc, x);
        let y = self.act(&mut e, 0, sum)?;
        let y = self.while_alive(&mut e, y, hn);
        Some(Next {
            h: self.map("h_new", e, y),
            c: None,
        })
    }
}
