//! Random small graphs compute the same before and after rewriting, with any amount of fuel.
//! A failure prints its seed; `SHOPFLOOR_SEED` runs that one alone.
use expr::{Binary, ExprBuilder, Monoid, Ref, Unary};
use graph::*;
use layout::{DType, Dim};
use shopfloor_rewrite::{Options, run};
use std::sync::Arc;
use tensor::{Tensor, WeightStore};

struct Rng(fastrand::Rng);

impl Rng {
    fn new(seed: u64) -> Rng {
        Rng(fastrand::Rng::with_seed(seed))
    }
    fn below(&mut self, n: usize) -> usize {
        self.0.usize(..n)
    }
    fn chance(&mut self) -> bool {
        self.0.bool()
    }
    fn float(&mut self) -> f32 {
        // Away from 0, where a division's rounding would tell orders of operation apart.
        let x = self.0.u16(50..=1000) as f32 / 1000.0;
        if self.chance() { x } else { -x }
    }
    fn tensor(&mut self, shape: &[usize]) -> Tensor {
        let n: usize = shape.iter().product();
        let v: Vec<f32> = (0..n).map(|_| self.float()).collect();
        Tensor::from_f32(shape, &v).unwrap()
    }
}

const F: DType = DType::F32;

struct Gen {
    r: Rng,
    b: GraphBuilder,
    pool: Vec<ValueId>,
    names: u32,
}

impl Gen {
    fn new(seed: u64) -> Gen {
        let mut g = Gen {
            r: Rng::new(seed),
            b: GraphBuilder::new("random", Arc::new(WeightStore::new())),
            pool: vec![],
            names: 0,
        };
        let (n, s) = (Dim::sym("n"), Dim::sym("s"));
        let k = Dim::Known;
        for (name, shape) in [
            ("a", vec![n.clone(), k(4)]),
            ("b", vec![n.clone(), s.clone(), k(6)]),
            ("c", vec![n.clone(), k(2), k(5), k(4)]),
            ("d", vec![n, k(2), s, k(3)]),
        ] {
            let v = g.b.input(name, F, shape);
            g.pool.push(v);
        }
        g
    }

    fn shape(&self, v: ValueId) -> Vec<Dim> {
        self.b.value(v).shape.clone()
    }

    fn pick(&mut self) -> ValueId {
        // Later values more often, so that chains grow.
        let n = self.pool.len();
        let i = self.r.below(n).max(self.r.below(n));
        self.pool[i]
    }

    fn weight(&mut self, shape: &[usize]) -> ValueId {
        let t = self.r.tensor(shape);
        self.names += 1;
        let name = format!("w{}", self.names);
        self.b.constant(&name, t).unwrap()
    }

    fn node(&mut self, op: Op, inputs: &[ValueId]) -> Option<ValueId> {
        self.names += 1;
        let origin = Origin {
            name: format!("node{}", self.names),
            op_type: "Test".into(),
        };
        let name = format!("v{}", self.names);
        let v = self.b.node(op, inputs, &[&name], &origin).ok()?[0];
        Some(v)
    }

    fn map(
        &mut self,
        inputs: &[ValueId],
        f: impl FnOnce(&mut ExprBuilder, &[Ref]) -> Ref,
    ) -> ValueId {
        let mut e = ExprBuilder::new();
        let args: Vec<Ref> = inputs
            .iter()
            .enumerate()
            .map(|(i, v)| e.input(i as u32, self.b.value(*v).dtype))
            .collect();
        let r = f(&mut e, &args);
        self.node(Op::Map(e.finish(&[r])), inputs).unwrap()
    }

    fn view(&mut self, v: ValueId, view: View) -> Option<ValueId> {
        self.node(Op::View(view), &[v])
    }

    fn reshape(&mut self, v: ValueId, shape: Vec<Dim>) -> ValueId {
        self.view(v, View::Reshape(shape)).unwrap()
    }

    fn step(&mut self) -> Option<ValueId> {
        let x = self.pick();
        let s = self.shape(x);
        let rank = s.len();
        match self.r.below(15) {
            0 => self.step_unary(x),
            1 | 2 => self.step_binary(x, s),
            3 => self.step_constant(x, s),
            4 => {
                let mut perm: Vec<usize> = (0..rank).collect();
                for i in (1..rank).rev() {
                    perm.swap(i, self.r.below(i + 1));
                }
                self.view(x, View::Permute(perm))
            }
            5 => self.step_reshape(x, s),
            6 => self.step_slice(x, s),
            7 => self.step_expand(x, s),
            8 | 9 => self.step_contract(x, s),
            10 => {
                let keep = self.r.chance();
                let axis = self.r.below(rank.max(1));
                let monoid = if self.r.chance() {
                    Monoid::sum(F, F)
                } else {
                    Monoid::max(F, F)
                };
                let axes = vec![axis];
                self.node(Op::Reduce { monoid, axes, keep }, &[x])
            }
            11 => {
                let axis = self.r.below(rank.max(1));
                self.node(Op::Concat { axis }, &[x, x])
            }
            12 => {
                let axis = s.iter().position(|d| d.known().is_some_and(|n| n >= 2))?;
                let t = Tensor::from_i64(&[3], &[1, 0, -1]).unwrap();
                let i = self.b.constant("at", t).unwrap();
                self.node(Op::Gather { axis, batch: 0 }, &[x, i])
            }
            13 => self.step_shape_number(x, s),
            _ => {
                // The same node once more.
                let n = self.b.graph().nodes.len();
                if n == 0 {
                    return None;
                }
                let i = self.r.below(n);
                let node = self.b.graph().nodes[i].clone();
                if node.inputs.is_empty() {
                    return None;
                }
                self.node(node.op, &node.inputs)
            }
        }
    }

    /// A function of one value.
    fn step_unary(&mut self, x: ValueId) -> Option<ValueId> {
        let c = f64::from(self.r.float());
        let which = self.r.below(6);
        Some(self.map(&[x], |e, a| match which {
            0 => e.unary(Unary::Tanh, a[0]),
            1 => e.unary(Unary::Neg, a[0]),
            2 => a[0],
            3 => {
                let one = e.constant(1.0, F);
                e.mul(a[0], one)
            }
            4 => {
                let c = e.constant(c, F);
                e.add(a[0], c)
            }
            _ => {
                let c = e.cast(a[0], DType::F64);
                e.cast(c, F)
            }
        }))
    }

    /// A function of two values, where they broadcast.
    fn step_binary(&mut self, x: ValueId, s: Vec<Dim>) -> Option<ValueId> {
        let y = self.pick();
        let t = self.shape(y);
        let fits = s
            .iter()
            .rev()
            .zip(t.iter().rev())
            .all(|(a, b)| a == b || a.is_one() || b.is_one());
        let f = [Binary::Add, Binary::Sub, Binary::Mul, Binary::Max][self.r.below(4)];
        fits.then(|| self.map(&[x, y], |e, a| e.binary(f, a[0], a[1])))
    }

    /// A function of a value and a constant.
    fn step_constant(&mut self, x: ValueId, s: Vec<Dim>) -> Option<ValueId> {
        let scalar = self.r.chance();
        let last = s.last()?.known()? as usize;
        let shape: &[usize] = if scalar { &[] } else { &[last] };
        let w = self.weight(shape);
        let f = [Binary::Add, Binary::Mul][self.r.below(2)];
        Some(self.map(&[x, w], |e, a| e.binary(f, a[0], a[1])))
    }

    /// Another shape of the same elements.
    fn step_reshape(&mut self, x: ValueId, s: Vec<Dim>) -> Option<ValueId> {
        let rank = s.len();
        let mut to = s.clone();
        match self.r.below(3) {
            0 if rank >= 2 => {
                let i = self.r.below(rank - 1);
                let d = to.remove(i + 1);
                to[i] = to[i].clone() * d;
            }
            1 if rank < 5 => to.insert(self.r.below(rank + 1), Dim::ONE),
            _ => {
                let i = s
                    .iter()
                    .position(|d| d.known().is_some_and(|n| n % 2 == 0 && n > 0))?;
                to[i] = Dim::Known(to[i].known()? / 2);
                to.insert(i, Dim::Known(2));
            }
        }
        self.view(x, View::Reshape(to))
    }

    /// A slice, in either direction.
    fn step_slice(&mut self, x: ValueId, s: Vec<Dim>) -> Option<ValueId> {
        let rank = s.len();
        let mut starts = vec![Dim::ZERO; rank];
        let mut steps = vec![1; rank];
        let mut extents = s.clone();
        for d in 0..rank {
            let Some(n) = s[d].known().filter(|n| *n > 0) else {
                continue;
            };
            if self.r.chance() {
                let from = self.r.below(n as usize) as i64;
                let step = [1, 2, -1][self.r.below(3)];
                let most = if step > 0 {
                    (n - from + step - 1) / step
                } else {
                    from + 1
                };
                starts[d] = Dim::Known(from);
                steps[d] = step;
                extents[d] = Dim::Known(1 + self.r.below(most as usize) as i64);
            }
        }
        self.view(
            x,
            View::Slice {
                starts,
                steps,
                extents,
            },
        )
    }

    /// A broadcast.
    fn step_expand(&mut self, x: ValueId, s: Vec<Dim>) -> Option<ValueId> {
        let rank = s.len();
        let mut to = s.clone();
        for d in &mut to {
            if d.is_one() && self.r.chance() {
                *d = Dim::Known(3);
            }
        }
        if rank < 4 && self.r.chance() {
            to.insert(0, Dim::Known(2));
        }
        self.view(x, View::Expand(to))
    }

    /// A product, with what scales and shifts it or without.
    fn step_contract(&mut self, x: ValueId, s: Vec<Dim>) -> Option<ValueId> {
        let rank = s.len();
        let k = s.last()?.known()? as usize;
        let n = 1 + self.r.below(5);
        let swapped = self.r.chance();
        let w = self.weight(&if swapped { [n, k] } else { [k, n] });
        let lead: Vec<u8> = (0..rank as u8 - 1).map(|i| b'a' + i).collect();
        let spec = ContractSpec {
            a: [&lead[..], b"y"].concat(),
            b: if swapped {
                b"zy".to_vec()
            } else {
                b"yz".to_vec()
            },
            out: [&lead[..], b"z"].concat(),
        };
        let y = self.node(Op::Contract(spec), &[x, w])?;
        if self.r.chance() {
            return Some(y);
        }
        let (g, h) = (self.weight(&[n]), self.weight(&[1, n]));
        Some(self.map(&[y, g, h], |e, a| {
            let m = e.sub(a[0], a[2]);
            let m = e.mul(m, a[1]);
            e.add(m, a[2])
        }))
    }

    /// The shape as numbers that go into the data.
    fn step_shape_number(&mut self, x: ValueId, s: Vec<Dim>) -> Option<ValueId> {
        let rank = s.len();
        let at: Vec<Dim> = s.clone();
        let mut e = ExprBuilder::new();
        let i = e.index(0);
        let mut r = e.int(0, DType::I64);
        for (d, n) in at.iter().enumerate() {
            let k = e.int(d as i64, DType::I64);
            let c = e.compare(expr::Compare::Eq, i, k);
            let n = e.dim(n);
            r = e.select(c, n, r);
        }
        let origin = Origin {
            name: "shape".into(),
            op_type: "Shape".into(),
        };
        let fill = Op::Map(e.finish(&[r]));
        let v = self.b.node_with_shapes(
            fill,
            &[],
            &[("shape", DType::I64, vec![Some(Dim::from(rank))])],
            &origin,
        )[0];
        let one = Tensor::from_i64(&[1], &[0]).unwrap();
        let first = self.b.constant("first", one).unwrap();
        let n = self.node(Op::Gather { axis: 0, batch: 0 }, &[v, first])?;
        let two = self.map(&[n], |e, a| {
            let k = e.int(2, DType::I64);
            e.mul(a[0], k)
        });
        Some(self.map(&[x, two], |e, a| {
            let n = e.cast(a[1], F);
            e.div(a[0], n)
        }))
    }

    fn conv(&mut self) -> ValueId {
        let x = self.pool[2];
        let w = self.weight(&[3, 2, 3, 3]);
        let spec = ConvSpec {
            kernel: vec![3, 3],
            strides: vec![1, 2],
            dilations: vec![1, 1],
            before: vec![Dim::ONE; 2],
            after: vec![Dim::ONE; 2],
            groups: 1,
            transposed: false,
            outside: 0,
        };
        let y = self.node(Op::Conv(spec), &[x, w]).unwrap();
        let (g, h, m) = (
            self.weight(&[3, 1, 1]),
            self.weight(&[1, 3, 1, 1]),
            self.weight(&[]),
        );
        self.map(&[g, y, h, m], |e, a| {
            let d = e.sub(a[1], a[2]);
            let d = e.mul(d, a[0]);
            let d = e.div(d, a[3]);
            e.add(a[2], d)
        })
    }

    fn softmax(&mut self, x: ValueId) -> ValueId {
        let s = self.shape(x);
        let last = s.len() - 1;
        let keep = self.r.chance();
        let reduce = |g: &mut Gen, v, m| {
            let v = g
                .node(
                    Op::Reduce {
                        monoid: m,
                        axes: vec![last],
                        keep,
                    },
                    &[v],
                )
                .unwrap();
            if keep {
                return v;
            }
            let mut rows = s.clone();
            rows[last] = Dim::ONE;
            g.reshape(v, rows)
        };
        let m = reduce(self, x, Monoid::max(F, F));
        let e = if self.r.chance() {
            self.map(&[x, m], |e, a| {
                let d = e.sub(a[0], a[1]);
                e.unary(Unary::Exp, d)
            })
        } else {
            let d = self.map(&[x, m], |e, a| e.sub(a[0], a[1]));
            self.map(&[d], |e, a| e.unary(Unary::Exp, a[0]))
        };
        let t = reduce(self, e, Monoid::sum(F, F));
        if self.r.chance() {
            return self.map(&[e, t], |e, a| e.div(a[0], a[1]));
        }
        let t = self.map(&[t], |e, a| e.unary(Unary::Reciprocal, a[0]));
        self.map(&[t, e], |e, a| e.mul(a[0], a[1]))
    }

    /// Attention over input d [n, 2, s, 3], in a random spelling.
    /// Scores `y` with masks, on grouped dimensions; `flat`: their shape where they are not grouped.
    fn masked(&mut self, x: ValueId, mut y: ValueId, flat: Option<Vec<Dim>>) -> ValueId {
        let (n, s, k) = (Dim::sym("n"), Dim::sym("s"), Dim::Known);
        if flat.is_some() {
            y = self.reshape(y, vec![n.clone(), k(2), s.clone(), s.clone()]);
        }
        if self.r.chance() {
            // A padding mask computed from the data: [n, 1, 1, s].
            let slice = View::Slice {
                starts: vec![Dim::ZERO; 4],
                steps: vec![1; 4],
                extents: vec![n.clone(), k(1), s.clone(), k(1)],
            };
            let m = self.view(x, slice).unwrap();
            let m = self.reshape(m, vec![n.clone(), k(1), k(1), s.clone()]);
            y = self.map(&[y, m], |e, a| e.add(a[0], a[1]));
        }
        if self.r.chance() {
            y = self.map(&[y], |e, a| {
                let (i, j) = (e.index(2), e.index(3));
                let c = e.compare(expr::Compare::Le, j, i);
                let low = e.constant(-1e9, F);
                e.select(c, a[0], low)
            });
        }
        if let Some(own) = flat {
            y = self.reshape(y, own);
        }
        y
    }

    /// The softmax of `y`, and what stands for rows that see no key.
    fn guarded(&mut self, y: ValueId, guard: usize) -> ValueId {
        let mut p = self.softmax(y);
        if guard == 1 {
            let last = self.shape(y).len() - 1;
            let op = Op::Reduce {
                monoid: Monoid::max(F, F),
                axes: vec![last],
                keep: true,
            };
            let max = self.node(op, &[y]).unwrap();
            p = self.map(&[p, max], |e, a| {
                let (zero, low) = (e.constant(0.0, F), e.constant(f64::NEG_INFINITY, F));
                let unseen = e.compare(expr::Compare::Eq, a[1], low);
                e.select(unseen, zero, a[0])
            });
        }
        if guard == 2 {
            p = self.map(&[p], |e, a| {
                let c = e.unary(Unary::IsNan, a[0]);
                let z = e.constant(0.0, F);
                e.select(c, z, a[0])
            });
        }
        p
    }

    fn attention(&mut self) -> ValueId {
        let (n, s, k) = (Dim::sym("n"), Dim::sym("s"), Dim::Known);
        let x = self.pool[3];
        let mut q = self.map(&[x], |e, a| e.unary(Unary::Tanh, a[0]));
        let mut key = self.map(&[x], |e, a| e.unary(Unary::Sin, a[0]));
        let v = self.map(&[x], |e, a| e.unary(Unary::Cos, a[0]));
        if self.r.chance() {
            // One key head for both.
            let one = View::Slice {
                starts: vec![Dim::ZERO; 4],
                steps: vec![1; 4],
                extents: vec![n.clone(), k(1), s.clone(), k(3)],
            };
            key = self.view(key, one).unwrap();
            key = self
                .view(key, View::Expand(vec![n.clone(), k(2), s.clone(), k(3)]))
                .unwrap();
        }
        if self.r.chance() {
            q = self.map(&[q], |e, a| {
                let c = e.constant(0.7, F);
                e.mul(a[0], c)
            });
        }
        let flat = self.r.chance();
        let mut v = v;
        if flat {
            let to = vec![n.clone() * k(2), s.clone(), k(3)];
            q = self.reshape(q, to.clone());
            key = self.reshape(key, to.clone());
            v = self.reshape(v, to);
        }
        let rank = if flat { 3 } else { 4 };
        let batch: Vec<u8> = (0..rank - 2).collect();
        let transposed = self.r.chance();
        if transposed {
            let mut perm: Vec<usize> = (0..rank as usize).collect();
            perm.swap(rank as usize - 1, rank as usize - 2);
            key = self.view(key, View::Permute(perm)).unwrap();
        }
        let kl: &[u8] = if transposed { b"dt" } else { b"td" };
        let spec = ContractSpec {
            a: [&batch[..], b"qd"].concat(),
            b: [&batch[..], kl].concat(),
            out: [&batch[..], b"qt"].concat(),
        };
        let mut y = self.node(Op::Contract(spec), &[q, key]).unwrap();
        let own = self.shape(y);
        if self.r.chance() {
            // A bias per batch and head, under whichever grouping.
            let m = View::Slice {
                starts: vec![Dim::ZERO; 4],
                steps: vec![1; 4],
                extents: vec![n.clone(), k(2), s.clone(), k(1)],
            };
            let mut m = self.view(x, m).unwrap();
            if flat {
                m = self.reshape(m, vec![n.clone() * k(2), s.clone(), k(1)]);
            }
            y = self.map(&[m, y], |e, a| e.sub(a[1], a[0]));
        }
        if self.r.chance() {
            y = self.masked(x, y, flat.then_some(own));
        }
        let scale = self.weight(&[]);
        y = self.map(&[y, scale], |e, a| e.div(a[0], a[1]));
        let guard = self.r.below(3);
        if guard > 0 && !flat {
            // The first row sees no key.
            y = self.map(&[y], |e, a| {
                let (i, j) = (e.index(2), e.index(3));
                let c = e.compare(expr::Compare::Lt, j, i);
                let low = e.constant(f64::NEG_INFINITY, F);
                e.select(c, a[0], low)
            });
        }
        let p = self.guarded(y, guard);
        let spec = ContractSpec {
            a: [&batch[..], b"qt"].concat(),
            b: [&batch[..], b"te"].concat(),
            out: if self.r.chance() {
                [&b"q"[..], &batch, b"e"].concat()
            } else {
                [&batch[..], b"qe"].concat()
            },
        };
        self.node(Op::Contract(spec), &[p, v]).unwrap()
    }

    fn finish(mut self) -> Graph {
        let mut outs = vec![*self.pool.last().unwrap()];
        for _ in 0..self.r.below(3) {
            let v = self.pick();
            if !outs.contains(&v) {
                outs.push(v);
            }
        }
        self.b.finish(&outs)
    }
}

fn inputs(g: &Graph, r: &mut Rng, n: i64, s: i64) -> Vec<Tensor> {
    g.inputs
        .iter()
        .map(|&i| {
            let shape: Vec<usize> = g
                .value(i)
                .shape
                .iter()
                .map(|d| d.eval(&|x| Some(if x == "n" { n } else { s })).unwrap() as usize)
                .collect();
            r.tensor(&shape)
        })
        .collect()
}

fn compare(seed: u64, before: &Graph, after: &Graph) {
    let mut r = Rng::new(seed ^ 77);
    assert_eq!(before.inputs.len(), after.inputs.len());
    for (n, s) in [(1, 1), (2, 3), (3, 1), (1, 4)] {
        let x = inputs(before, &mut r, n, s);
        let say = |g: &Graph| format!("seed {seed}, n={n}, s={s}\n{}", g.to_text());
        let a = reference::run_graph(before, &x).unwrap_or_else(|e| panic!("{e}\n{}", say(before)));
        let b = reference::run_graph(after, &x).unwrap_or_else(|e| panic!("{e}\n{}", say(after)));
        for (o, (a, b)) in a.iter().zip(&b).enumerate() {
            let names = [before, after].map(|g| &g.value(g.outputs[o]).name);
            assert_eq!(names[0], names[1], "{}", say(after));
            assert_eq!(a.shape(), b.shape(), "output {o}, {}", say(after));
            for i in 0..a.len() {
                let (x, y) = (a.get_f64(i), b.get_f64(i));
                let near =
                    (x - y).abs() <= 1e-4 + 1e-4 * x.abs() || (x.is_nan() && y.is_nan()) || x == y;
                assert!(
                    near,
                    "output {o}[{i}]: {x} before, {y} after, {}\nwas\n{}",
                    say(after),
                    before.to_text()
                );
            }
        }
    }
}

fn seeds(n: u64) -> Vec<u64> {
    match std::env::var("SHOPFLOOR_SEED") {
        Ok(s) => vec![s.parse().unwrap()],
        Err(_) => (0..n).collect(),
    }
}

fn check(seed: u64, g: &Graph) -> Graph {
    let options = Options {
        fuel: None,
        verify: true,
    };
    let (full, changes) =
        run(g, &options).unwrap_or_else(|e| panic!("seed {seed}: {e}\n{}", g.to_text()));
    compare(seed, g, &full);
    let spent = changes.iter().filter(|c| c.done).count();
    if spent > 0 {
        let fuel = Some(Rng::new(seed).below(spent));
        let (part, done) = run(g, &Options { fuel, verify: true }).unwrap();
        assert_eq!(
            Some(done.iter().filter(|c| c.done).count()),
            fuel,
            "seed {seed}"
        );
        compare(seed, g, &part);
    }
    // Rewriting is a function, and what is finished stays.
    assert_eq!(
        run(g, &options).unwrap().0.to_text(),
        full.to_text(),
        "seed {seed}"
    );
    let (again, more) = run(&full, &options).unwrap();
    assert!(
        !more.iter().any(|c| c.done),
        "seed {seed}: {more:?}\n{}",
        again.to_text()
    );
    full
}

#[test]
fn random_graphs() {
    let mut smaller = 0;
    for seed in seeds(400) {
        let mut g = Gen::new(seed);
        let steps = 3 + g.r.below(14);
        for i in 0..steps {
            let v = match i == 2 && seed % 5 == 0 {
                true => Some(g.conv()),
                false => g.step(),
            };
            // Not too large.
            if let Some(v) = v
                && g.shape(v).len() <= 6
                && g.b.value(v).dtype == F
            {
                g.pool.push(v);
            }
        }
        let g = g.finish();
        g.verify()
            .unwrap_or_else(|e| panic!("seed {seed}: {e}\n{}", g.to_text()));
        let text = g.to_text();
        assert_eq!(
            Graph::parse_with(&text, g.weights.clone())
                .unwrap()
                .to_text(),
            text,
            "seed {seed}"
        );
        let after = check(seed, &g);
        smaller += usize::from(after.nodes.len() < g.nodes.len());
    }
    assert!(smaller > 0 || std::env::var("SHOPFLOOR_SEED").is_ok());
}

#[test]
fn attention_in_every_spelling() {
    for seed in seeds(200) {
        let mut g = Gen::new(seed);
        let v = g.attention();
        g.pool.push(v);
        let g = {
            let last = *g.pool.last().unwrap();
            g.b.finish(&[last])
        };
        let after = check(seed, &g);
        let found = after
            .nodes
            .iter()
            .filter(|n| matches!(n.op, Op::Attention(_)))
            .count();
        let rest = after
            .nodes
            .iter()
            .any(|n| matches!(n.op, Op::Reduce { .. } | Op::Contract(_)));
        assert!(
            found == 1 && !rest,
            "seed {seed}\n{}\n{:?}",
            after.to_text(),
            run(&g, &Options::default()).unwrap().1
        );
    }
}
