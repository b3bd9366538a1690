//! Kernels evaluated whole, without any schedule, element by element: what every schedule must give.
use expr::{CompiledExpr, EvalContext, Expr, Scalar};
use kernel::{Kernel, Role, Stmt};
use layout::DType;
use std::collections::BTreeMap;
use tensor::Tensor;

pub type Syms = BTreeMap<String, i64>;

struct Whole<'a> {
    k: &'a Kernel,
    ext: Vec<i64>,
    syms: &'a Syms,
    tiles: Vec<Vec<Scalar>>,
    tensors: Vec<Tensor>,
}

pub fn eval(d: &layout::Dim, s: &Syms) -> i64 {
    d.eval(&|n| s.get(n).copied())
        .expect("a symbol without value")
}

fn get(t: &Tensor, i: i64) -> Scalar {
    if t.dtype().is_float() {
        Scalar::Float(t.get_f64(i as usize))
    } else {
        Scalar::Int(t.get_i64(i as usize))
    }
}

/// Runs `k` on `tensors` (one per operand); written ones are changed. `Err`: an index out of range.
pub fn run(k: &Kernel, tensors: Vec<Tensor>, syms: &Syms) -> Result<Vec<Tensor>, ()> {
    let ext: Vec<i64> = k.axes.iter().map(|a| eval(&a.extent, syms)).collect();
    let size = |axes: &[u16]| axes.iter().map(|&a| ext[a as usize]).product::<i64>() as usize;
    let tiles = k
        .tiles
        .iter()
        .map(|t| vec![Scalar::Int(0); size(&t.axes)])
        .collect();
    let mut w = Whole {
        k,
        ext,
        syms,
        tiles,
        tensors,
    };
    for s in &k.body {
        w.stmt(s)?;
    }
    Ok(w.tensors)
}

impl Whole<'_> {
    fn points(&self, axes: &[u16]) -> Vec<Vec<i64>> {
        let mut out = vec![vec![0; self.ext.len()]];
        for &a in axes {
            let n = self.ext[a as usize];
            out = out
                .into_iter()
                .flat_map(|c| {
                    (0..n).map(move |i| {
                        let mut c = c.clone();
                        c[a as usize] = i;
                        c
                    })
                })
                .collect();
        }
        out
    }

    fn rank(&self, t: usize, c: &[i64]) -> usize {
        self.k.tiles[t]
            .axes
            .iter()
            .fold(0, |r, &a| r * self.ext[a as usize] + c[a as usize]) as usize
    }

    fn at(&self, t: u16, c: &[i64]) -> Scalar {
        self.tiles[t as usize][self.rank(t as usize, c)]
    }

    /// Address, or `None` outside the bounds.
    fn address(&self, o: usize, c: &[i64]) -> Result<Option<i64>, ()> {
        let a = &self.k.operands[o].access;
        let e = |d: &layout::Dim| eval(d, self.syms);
        for b in &a.bounds {
            let v = e(&b.base)
                + b.terms
                    .iter()
                    .map(|(x, d)| e(d) * c[*x as usize])
                    .sum::<i64>();
            if v < 0 || v >= e(&b.extent) {
                return Ok(None);
            }
        }
        let mut at = e(&a.offset);
        for t in &a.terms {
            let mut rank = c[t.axis as usize];
            for l in t.leaves.iter().rev() {
                let n = e(&l.extent).max(1);
                at += rank.rem_euclid(n) * e(&l.stride);
                rank = rank.div_euclid(n);
            }
        }
        for i in &a.indexed {
            let from = self.address(i.by as usize, c)?.ok_or(())?;
            let v = self.tensors[i.by as usize].get_i64(from as usize);
            let n = e(&i.extent);
            let v = if v < 0 { v + n } else { v };
            if v < 0 || v >= n {
                return Err(());
            }
            at += v * e(&i.stride);
        }
        Ok(Some(at))
    }

    fn program(&self, e: &Expr, inputs: &[Scalar], index: &[i64]) -> Vec<Scalar> {
        let c = CompiledExpr::new(e).expect("a valid program");
        let mut out = vec![Scalar::Int(0); c.output_len()];
        let symbols = |n: &str| self.syms.get(n).copied();
        c.eval_into(
            &EvalContext {
                inputs,
                index,
                symbols: &symbols,
            },
            &mut Vec::new(),
            &mut out,
        )
        .expect("a value");
        out
    }

    fn stmt(&mut self, s: &Stmt) -> Result<(), ()> {
        match s {
            Stmt::Load { dst, operand } => {
                let o = *operand as usize;
                for c in self.points(&self.k.tiles[*dst as usize].axes) {
                    let v = match self.address(o, &c)? {
                        Some(a) => get(&self.tensors[o], a),
                        None => Scalar::Float(self.k.operands[o].access.outside)
                            .of(self.k.operands[o].dtype),
                    };
                    let r = self.rank(*dst as usize, &c);
                    self.tiles[*dst as usize][r] = v;
                }
            }
            Stmt::Store { operand, src } => {
                let o = *operand as usize;
                for c in self.points(&self.k.tiles[*src as usize].axes) {
                    if let Some(a) = self.address(o, &c)? {
                        match self.at(*src, &c) {
                            Scalar::Float(v) => self.tensors[o].set_f64(a as usize, v),
                            Scalar::Int(v) => self.tensors[o].set_i64(a as usize, v),
                        }
                    }
                }
            }
            Stmt::Map { dst, expr, args } => {
                let mut out = Vec::new();
                for c in self.points(&self.k.tiles[*dst as usize].axes) {
                    let inputs: Vec<Scalar> = args.iter().map(|&t| self.at(t, &c)).collect();
                    out.push(self.program(expr, &inputs, &c)[0]);
                }
                self.tiles[*dst as usize] = out;
            }
            Stmt::Relabel {
                dst,
                src,
                labels,
                along,
            } => {
                // Whole axes know no order; layers are compared with the graph's oracle elsewhere.
                assert!(along.is_none(), "nothing is carried in these programs");
                let mut out = Vec::new();
                for c in self.points(&self.k.tiles[*dst as usize].axes) {
                    let mut from = c.clone();
                    for l in labels {
                        from[l.from as usize] = l.first.known().unwrap_or(0) + c[l.to as usize];
                    }
                    out.push(self.at(*src, &from));
                }
                self.tiles[*dst as usize] = out;
            }
            Stmt::Contract { acc, a, b, over } => {
                let d = self.k.tiles[*acc as usize].dtype;
                let (da, db) = (
                    self.k.tiles[*a as usize].dtype,
                    self.k.tiles[*b as usize].dtype,
                );
                for c in self.points(&self.k.tiles[*acc as usize].axes.clone()) {
                    let r = self.rank(*acc as usize, &c);
                    let (mut f, mut i) = (
                        self.tiles[*acc as usize][r].as_f64(),
                        self.tiles[*acc as usize][r].as_i64(),
                    );
                    for k in self.points(over) {
                        let p: Vec<i64> = c.iter().zip(&k).map(|(x, y)| x + y).collect();
                        let (x, y) = (self.at(*a, &p).cast(da, d), self.at(*b, &p).cast(db, d));
                        f += x.as_f64() * y.as_f64();
                        i = i.wrapping_add(x.as_i64().wrapping_mul(y.as_i64()));
                    }
                    self.tiles[*acc as usize][r] = if d.is_float() {
                        Scalar::Float(f).of(d)
                    } else {
                        Scalar::Int(i).of(d)
                    };
                }
            }
            Stmt::Fold {
                monoid,
                state,
                args,
                over,
                rescale,
            } => {
                for c in self.points(&self.k.tiles[state[0] as usize].axes.clone()) {
                    let old: Vec<Scalar> = state.iter().map(|&t| self.at(t, &c)).collect();
                    let mut now = old.clone();
                    for (n, k) in self.points(over).into_iter().enumerate() {
                        let p: Vec<i64> = c.iter().zip(&k).map(|(x, y)| x + y).collect();
                        let inputs: Vec<Scalar> = args.iter().map(|&t| self.at(t, &p)).collect();
                        let lifted = self.program(&monoid.lift, &inputs, &[n as i64]);
                        let both: Vec<Scalar> = now.iter().chain(&lifted).copied().collect();
                        now = self.program(&monoid.combine, &both, &[]);
                    }
                    for (&t, &v) in state.iter().zip(&now) {
                        let r = self.rank(t as usize, &c);
                        self.tiles[t as usize][r] = v;
                    }
                    if let Some(r) = rescale {
                        let both: Vec<Scalar> = old.iter().chain(&now).copied().collect();
                        let f = self.program(&r.factor, &both, &[])[0].as_f64();
                        for &t in &r.tiles {
                            let axes = &self.k.tiles[t as usize].axes;
                            let own = &self.k.tiles[state[0] as usize].axes;
                            let free: Vec<u16> =
                                axes.iter().copied().filter(|a| !own.contains(a)).collect();
                            for q in self.points(&free) {
                                let p: Vec<i64> = c.iter().zip(&q).map(|(x, y)| x + y).collect();
                                let at = self.rank(t as usize, &p);
                                let v = self.tiles[t as usize][at].as_f64() * f;
                                self.tiles[t as usize][at] = Scalar::Float(v);
                            }
                        }
                    }
                }
            }
        }
        Ok(())
    }
}

pub fn written(k: &Kernel) -> Vec<usize> {
    (0..k.operands.len())
        .filter(|&o| k.operands[o].role == Role::Write)
        .collect()
}

pub fn is_float(d: DType) -> bool {
    d.is_float()
}
