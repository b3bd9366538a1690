//! LSTM, GRU and RNN as ONNX defines them.
//!
//! Weights stay the bytes they are: rows of `W` and `R` are contiguous, so every gate is a dot
//! product of a row and a vector, four rows at once with several accumulators each, which the
//! compiler turns into SIMD without a packed copy.
use crate::HostError;
use crate::data::{alloc, count};
use crate::error::{R, Why, named};
use graph::{RecurrentKind, RecurrentSpec};
use layout::DType;
use tensor::Tensor;

/// Runs the layer; `inputs` are the given ones in ONNX order (as `spec.present` tells). Gives Y,
/// Y_h and, for an LSTM, Y_c. f16 and bf16 are computed in f32.
pub fn recurrent(spec: &RecurrentSpec, inputs: &[&Tensor]) -> Result<Vec<Tensor>, HostError> {
    let name = match spec.kind {
        RecurrentKind::Lstm => "LSTM",
        RecurrentKind::Gru => "GRU",
        RecurrentKind::Rnn => "RNN",
    };
    named(name, dispatch(spec, inputs))
}

fn dispatch(spec: &RecurrentSpec, inputs: &[&Tensor]) -> R<Vec<Tensor>> {
    let mut slots: [Option<&Tensor>; 8] = [None; 8];
    let mut given = inputs.iter();
    for (slot, present) in slots.iter_mut().zip(&spec.present) {
        if *present {
            *slot = Some(*given.next().ok_or("an input is missing")?);
        }
    }
    let x = slots[0].ok_or("input X is missing")?;
    match x.dtype() {
        DType::F64 => layer::<f64>(spec, &slots),
        DType::F32 => layer::<f32>(spec, &slots),
        d if d.is_float() => {
            let wide: Vec<Option<Tensor>> = slots
                .iter()
                .enumerate()
                .map(|(i, t)| match t {
                    Some(t) if i != 4 => {
                        let v = crate::data::f32s(t);
                        Ok(Some(Tensor::from_f32(t.shape(), &v)?))
                    }
                    Some(t) => Ok(Some((*t).clone())),
                    None => Ok(None),
                })
                .collect::<R<_>>()?;
            let mut refs = [None; 8];
            for (r, t) in refs.iter_mut().zip(&wide) {
                *r = t.as_ref();
            }
            layer::<f32>(spec, &refs)?
                .iter()
                .map(|t| crate::data::from_f64s(d, t.shape(), &crate::data::f64s(t)))
                .collect()
        }
        d => Err(format!("X holds {d} elements; cast them to a float").into()),
    }
}

/// The two float types that layers compute in.
trait Real:
    Copy
    + PartialOrd
    + std::ops::Add<Output = Self>
    + std::ops::Sub<Output = Self>
    + std::ops::Mul<Output = Self>
    + std::ops::AddAssign
    + std::ops::Neg<Output = Self>
{
    const DTYPE: DType;
    const BYTES: usize;
    fn of(x: f64) -> Self;
    fn wide(self) -> f64;
    fn load(b: &[u8]) -> Self;
    fn store(self, b: &mut [u8]);
    fn sigmoid(self) -> Self;
    fn tanh(self) -> Self;
}

macro_rules! real {
    ($t:ty, $d:ident, $n:literal) => {
        impl Real for $t {
            const DTYPE: DType = DType::$d;
            const BYTES: usize = $n;
            #[inline]
            fn of(x: f64) -> $t {
                x as $t
            }
            #[inline]
            fn wide(self) -> f64 {
                self as f64
            }
            #[inline]
            fn load(b: &[u8]) -> $t {
                let mut a = [0u8; $n];
                a.copy_from_slice(&b[..$n]);
                <$t>::from_le_bytes(a)
            }
            #[inline]
            fn store(self, b: &mut [u8]) {
                b[..$n].copy_from_slice(&self.to_le_bytes());
            }
            #[inline]
            fn sigmoid(self) -> $t {
                1.0 / (1.0 + (-self).exp())
            }
            #[inline]
            fn tanh(self) -> $t {
                <$t>::tanh(self)
            }
        }
    };
}
real!(f32, F32, 4);
real!(f64, F64, 8);

const LANES: usize = 8;

/// Dot products of four weight rows (bytes) with `x`.
#[inline]
fn dot4<T: Real>(rows: [&[u8]; 4], x: &[T]) -> [T; 4] {
    let zero = T::of(0.0);
    let mut acc = [[zero; LANES]; 4];
    let whole = x.len() / LANES * LANES;
    let step = LANES * T::BYTES;
    let [r0, r1, r2, r3] = rows;
    let chunks = x
        .chunks_exact(LANES)
        .zip(r0.chunks_exact(step))
        .zip(r1.chunks_exact(step))
        .zip(r2.chunks_exact(step).zip(r3.chunks_exact(step)));
    for (((xc, a), b), (c, d)) in chunks {
        for l in 0..LANES {
            let at = l * T::BYTES;
            acc[0][l] += T::load(&a[at..at + T::BYTES]) * xc[l];
            acc[1][l] += T::load(&b[at..at + T::BYTES]) * xc[l];
            acc[2][l] += T::load(&c[at..at + T::BYTES]) * xc[l];
            acc[3][l] += T::load(&d[at..at + T::BYTES]) * xc[l];
        }
    }
    let mut out = [zero; 4];
    for ((o, lanes), row) in out.iter_mut().zip(&acc).zip(rows) {
        let mut lanes = *lanes;
        let mut n = LANES;
        while n > 1 {
            n /= 2;
            for l in 0..n {
                let upper = lanes[l + n];
                lanes[l] += upper;
            }
        }
        *o = lanes[0];
        for (i, v) in x.iter().enumerate().skip(whole) {
            *o += T::load(&row[i * T::BYTES..]) * *v;
        }
    }
    out
}

/// out[n] += rows[n] · x, for as many rows as `out` is long.
fn gemv<T: Real>(w: &[u8], x: &[T], out: &mut [T]) {
    let row = x.len() * T::BYTES;
    let at = |n: usize| &w[n * row..(n + 1) * row];
    let mut n = 0;
    while n + 4 <= out.len() {
        let d = dot4([at(n), at(n + 1), at(n + 2), at(n + 3)], x);
        for (o, v) in out[n..n + 4].iter_mut().zip(d) {
            *o += v;
        }
        n += 4;
    }
    while n < out.len() {
        out[n] += dot4([at(n); 4], x)[0];
        n += 1;
    }
}

/// An activation with its parameters.
#[derive(Clone, Copy)]
enum Act {
    Sigmoid,
    Tanh,
    Relu,
    Affine(f64, f64),
    LeakyRelu(f64),
    ThresholdedRelu(f64),
    ScaledTanh(f64, f64),
    HardSigmoid(f64, f64),
    Elu(f64),
    Softsign,
    Softplus,
}

impl Act {
    #[inline]
    fn apply<T: Real>(self, x: T) -> T {
        let v = || x.wide();
        match self {
            Act::Sigmoid => x.sigmoid(),
            Act::Tanh => x.tanh(),
            // A NaN stays.
            Act::Relu => T::of(if v() < 0.0 { 0.0 } else { v() }),
            Act::Affine(a, b) => T::of(a * v() + b),
            Act::LeakyRelu(a) => T::of(if v() < 0.0 { a * v() } else { v() }),
            Act::ThresholdedRelu(a) => T::of(if v() > a { v() } else { 0.0 }),
            Act::ScaledTanh(a, b) => T::of(a * (b * v()).tanh()),
            Act::HardSigmoid(a, b) => T::of((a * v() + b).clamp(0.0, 1.0)),
            Act::Elu(a) => T::of(if v() < 0.0 { a * v().exp_m1() } else { v() }),
            Act::Softsign => T::of(v() / (1.0 + v().abs())),
            Act::Softplus => T::of(v().max(0.0) + (-v().abs()).exp().ln_1p()),
        }
    }
}

/// The activations of all directions, each with its own alpha and beta.
fn activations(spec: &RecurrentSpec, directions: usize) -> R<Vec<Act>> {
    let usual: &[&str] = match spec.kind {
        RecurrentKind::Lstm => &["Sigmoid", "Tanh", "Tanh"],
        RecurrentKind::Gru => &["Sigmoid", "Tanh"],
        RecurrentKind::Rnn => &["Tanh"],
    };
    let mut names: Vec<String> = spec.activations.clone();
    if names.is_empty() {
        names = (0..directions)
            .flat_map(|_| usual.iter().map(|s| s.to_string()))
            .collect();
    }
    if names.len() != usual.len() * directions {
        return Err(format!(
            "{} activations are given, but {directions} directions take {}",
            names.len(),
            usual.len() * directions
        )
        .into());
    }
    names
        .iter()
        .enumerate()
        .map(|(i, n)| {
            let alpha = |d: f64| spec.alphas.get(i).copied().unwrap_or(d);
            let beta = |d: f64| spec.betas.get(i).copied().unwrap_or(d);
            Ok(match n.to_ascii_lowercase().as_str() {
                "sigmoid" => Act::Sigmoid,
                "tanh" => Act::Tanh,
                "relu" => Act::Relu,
                "affine" => Act::Affine(alpha(1.0), beta(0.0)),
                "leakyrelu" => Act::LeakyRelu(alpha(0.01)),
                "thresholdedrelu" => Act::ThresholdedRelu(alpha(1.0)),
                "scaledtanh" => Act::ScaledTanh(alpha(1.0), beta(1.0)),
                "hardsigmoid" => Act::HardSigmoid(alpha(0.2), beta(0.5)),
                "elu" => Act::Elu(alpha(1.0)),
                "softsign" => Act::Softsign,
                "softplus" => Act::Softplus,
                _ => return Err(Why(format!("activation '{n}' is not one that ONNX lists"))),
            })
        })
        .collect()
}

fn check(t: &Tensor, what: &str, d: DType, shape: &[usize]) -> R<()> {
    if t.dtype() != d || t.shape() != shape {
        return Err(format!("{what} must be {d}{shape:?}, not {t:?}").into());
    }
    Ok(())
}

fn values<T: Real>(t: &Tensor) -> Vec<T> {
    t.bytes().chunks_exact(T::BYTES).map(T::load).collect()
}

/// Steps of every sequence of a batch.
fn lengths(given: Option<&Tensor>, batch: usize, seq: usize) -> R<Vec<usize>> {
    Ok(match given {
        None => vec![seq; batch],
        Some(l) if l.len() == batch => (0..batch)
            .map(|i| {
                usize::try_from(l.get_i64(i))
                    .ok()
                    .filter(|n| *n <= seq)
                    .ok_or_else(|| {
                        Why(format!(
                            "sequence length {} is outside 0..{seq}",
                            l.get_i64(i)
                        ))
                    })
            })
            .collect::<R<_>>()?,
        Some(l) => {
            return Err(format!("sequence_lens has {} elements, not {batch}", l.len()).into());
        }
    })
}

/// What a layer's inputs and attributes make of it.
struct Extents {
    seq: usize,
    batch: usize,
    input: usize,
    directions: usize,
    reversed: [bool; 2],
    hidden: usize,
    /// Rows of all gates.
    gh: usize,
    /// X holds the gates' input parts.
    made: bool,
}

/// Reads them off, and checks that the inputs fit each other.
fn extents<T: Real>(spec: &RecurrentSpec, slots: &[Option<&Tensor>; 8]) -> R<Extents> {
    let x = slots[0].ok_or("input X is missing")?;
    let r = slots[2].ok_or("input R is missing")?;
    let [d0, d1, input] = *x.shape() else {
        return Err(format!("X has shape {:?}, not three dimensions", x.shape()).into());
    };
    let (seq, batch) = if spec.batch_first { (d1, d0) } else { (d0, d1) };
    let (directions, reversed): (usize, [bool; 2]) = match spec.direction.as_str() {
        "forward" => (1, [false; 2]),
        "reverse" => (1, [true; 2]),
        "bidirectional" => (2, [false, true]),
        d => {
            return Err(
                format!("direction '{d}' is none of forward, reverse, bidirectional").into(),
            );
        }
    };
    let gates = match spec.kind {
        RecurrentKind::Lstm => 4,
        RecurrentKind::Gru => 3,
        RecurrentKind::Rnn => 1,
    };
    let hidden = usize::try_from(spec.hidden)
        .ok()
        .filter(|h| (1..1 << 24).contains(h))
        .ok_or("hidden_size must be 1 or more")?;
    let gh = gates * hidden;
    // Without W, X holds the gates' input parts.
    let made = slots[1].is_none();
    match slots[1] {
        Some(w) => check(w, "W", T::DTYPE, &[directions, gh, input])?,
        None => check(x, "X", T::DTYPE, &[d0, d1, directions * gh])?,
    }
    check(r, "R", T::DTYPE, &[directions, gh, hidden])?;
    if let Some(b) = slots[3] {
        let per = if made { hidden } else { 2 * gh };
        check(b, "B", T::DTYPE, &[directions, per])?;
    }
    if let Some(p) = slots[7] {
        check(p, "P", T::DTYPE, &[directions, 3 * hidden])?;
    }
    Ok(Extents {
        seq,
        batch,
        input,
        directions,
        reversed,
        hidden,
        gh,
        made,
    })
}

/// The states that a layer begins with, zeros where none are given.
fn initial<T: Real>(slots: &[Option<&Tensor>; 8], state_shape: &[usize; 3]) -> R<Vec<Vec<T>>> {
    let mut states = Vec::new();
    for (i, name) in [(5, "initial_h"), (6, "initial_c")] {
        states.push(match slots[i] {
            Some(t) => {
                check(t, name, T::DTYPE, state_shape)?;
                values::<T>(t)
            }
            None => vec![T::of(0.0); count(state_shape)?],
        });
    }
    Ok(states)
}

/// A tensor of `values`.
fn tensor_of<T: Real>(values: &[T], shape: &[usize]) -> R<Tensor> {
    let mut t = alloc(T::DTYPE, shape)?;
    for (o, v) in t.bytes_mut().chunks_exact_mut(T::BYTES).zip(values) {
        v.store(o);
    }
    Ok(t)
}

/// The biases of direction `dir`: `per` are given, those before them are zeros.
fn bias<T: Real>(given: Option<&Tensor>, dir: usize, gh: usize, per: usize) -> Vec<T> {
    let Some(b) = given else {
        return vec![T::of(0.0); 2 * gh];
    };
    let mut all = vec![T::of(0.0); 2 * gh - per];
    all.extend(&values::<T>(b)[dir * per..(dir + 1) * per]);
    all
}

fn layer<T: Real>(spec: &RecurrentSpec, slots: &[Option<&Tensor>; 8]) -> R<Vec<Tensor>> {
    let x = slots[0].ok_or("input X is missing")?;
    let r = slots[2].ok_or("input R is missing")?;
    let Extents {
        seq,
        batch,
        input,
        directions,
        reversed,
        hidden,
        gh,
        made,
    } = extents::<T>(spec, slots)?;
    let lens = lengths(slots[4], batch, seq)?;
    let state_shape = if spec.batch_first {
        [batch, directions, hidden]
    } else {
        [directions, batch, hidden]
    };
    let state_at = |dir: usize, b: usize| {
        hidden
            * if spec.batch_first {
                b * directions + dir
            } else {
                dir * batch + b
            }
    };
    let mut states = initial::<T>(slots, &state_shape)?;
    let acts = activations(spec, directions)?;
    let y_shape = if spec.batch_first {
        [batch, seq, directions, hidden]
    } else {
        [seq, directions, batch, hidden]
    };
    let mut y = alloc(T::DTYPE, &y_shape)?;
    let xs = values::<T>(x);
    let per = acts.len() / directions;
    let zero = T::of(0.0);
    for dir in 0..directions {
        let cell = Cell {
            spec,
            hidden,
            acts: &acts[dir * per..(dir + 1) * per],
            r: &r.bytes()[dir * gh * hidden * T::BYTES..(dir + 1) * gh * hidden * T::BYTES],
            bias: bias(slots[3], dir, gh, if made { hidden } else { 2 * gh }),
            peephole: slots[7]
                .map(|p| values::<T>(p)[dir * 3 * hidden..(dir + 1) * 3 * hidden].to_vec()),
        };
        let wd = slots[1]
            .map(|w| &w.bytes()[dir * gh * input * T::BYTES..(dir + 1) * gh * input * T::BYTES]);
        let mut g = vec![zero; gh];
        let mut rest = vec![zero; gh];
        for (b, &len) in lens.iter().enumerate() {
            let s = state_at(dir, b);
            let (hs, cs) = states.split_at_mut(1);
            let (h, c) = (&mut hs[0][s..s + hidden], &mut cs[0][s..s + hidden]);
            for step in 0..len {
                let t = if reversed[dir] { len - 1 - step } else { step };
                let row = input
                    * if spec.batch_first {
                        b * seq + t
                    } else {
                        t * batch + b
                    };
                match wd {
                    Some(wd) => {
                        g.copy_from_slice(&cell.bias[..gh]);
                        gemv(wd, &xs[row..row + input], &mut g);
                    }
                    None => g.copy_from_slice(&xs[row + dir * gh..row + (dir + 1) * gh]),
                }
                cell.step(&mut g, &mut rest, h, c);
                let to = hidden
                    * if spec.batch_first {
                        (b * seq + t) * directions + dir
                    } else {
                        (t * directions + dir) * batch + b
                    };
                let out = &mut y.bytes_mut()[to * T::BYTES..(to + hidden) * T::BYTES];
                for (o, v) in out.chunks_exact_mut(T::BYTES).zip(&*h) {
                    v.store(o);
                }
            }
        }
    }
    let mut outputs = vec![y];
    let wanted = if spec.kind == RecurrentKind::Lstm {
        2
    } else {
        1
    };
    for s in states.iter().take(wanted) {
        outputs.push(tensor_of(s, &state_shape)?);
    }
    Ok(outputs)
}

/// One direction's recurrence.
struct Cell<'a, T> {
    spec: &'a RecurrentSpec,
    hidden: usize,
    acts: &'a [Act],
    r: &'a [u8],
    /// Input bias, then recurrence bias.
    bias: Vec<T>,
    /// Weights for input, output and forget gate.
    peephole: Option<Vec<T>>,
}

impl<T: Real> Cell<'_, T> {
    #[inline]
    fn clip(&self, x: T) -> T {
        match self.spec.clip {
            Some(c) if x > T::of(c) => T::of(c),
            Some(c) if x < T::of(-c) => T::of(-c),
            _ => x,
        }
    }

    /// One step: `g` holds the gates' input part with its bias; `h` and `c` are updated.
    fn step(&self, g: &mut [T], rest: &mut [T], h: &mut [T], c: &mut [T]) {
        let n = self.hidden;
        let rb = &self.bias[self.bias.len() / 2..];
        match self.spec.kind {
            RecurrentKind::Rnn => {
                rest.copy_from_slice(rb);
                gemv(self.r, h, rest);
                for i in 0..n {
                    h[i] = self.acts[0].apply(self.clip(g[i] + rest[i]));
                }
            }
            RecurrentKind::Lstm => {
                rest.copy_from_slice(rb);
                gemv(self.r, h, rest);
                for (a, b) in g.iter_mut().zip(&*rest) {
                    *a += *b;
                }
                let [f, act_g, act_h] = [self.acts[0], self.acts[1], self.acts[2]];
                for i in 0..n {
                    // Gates lie in the order input, output, forget, cell.
                    let p = |k: usize| self.peephole.as_ref().map_or(T::of(0.0), |p| p[k * n + i]);
                    let ig = f.apply(self.clip(g[i] + p(0) * c[i]));
                    let fg = if self.spec.input_forget {
                        T::of(1.0) - ig
                    } else {
                        f.apply(self.clip(g[2 * n + i] + p(2) * c[i]))
                    };
                    let cell = act_g.apply(self.clip(g[3 * n + i]));
                    let new = fg * c[i] + ig * cell;
                    let og = f.apply(self.clip(g[n + i] + p(1) * new));
                    c[i] = new;
                    h[i] = og * act_h.apply(new);
                }
            }
            RecurrentKind::Gru => {
                let (f, act) = (self.acts[0], self.acts[1]);
                rest.copy_from_slice(rb);
                let row = n * T::BYTES;
                let (gates, last) = self.r.split_at(2 * n * row);
                gemv(gates, h, &mut rest[..2 * n]);
                // Gates lie in the order update, reset, hidden.
                for i in 0..2 * n {
                    g[i] = f.apply(self.clip(g[i] + rest[i]));
                }
                if self.spec.linear_before_reset {
                    gemv(last, h, &mut rest[2 * n..]);
                    for i in 0..n {
                        g[2 * n + i] += g[n + i] * rest[2 * n + i];
                    }
                } else {
                    for i in 0..n {
                        rest[i] = g[n + i] * h[i];
                    }
                    let (scaled, tail) = rest.split_at_mut(2 * n);
                    gemv(last, &scaled[..n], tail);
                    for i in 0..n {
                        g[2 * n + i] += rest[2 * n + i];
                    }
                }
                for i in 0..n {
                    let new = act.apply(self.clip(g[2 * n + i]));
                    h[i] = (T::of(1.0) - g[i]) * new + g[i] * h[i];
                }
            }
        }
    }
}
