//! Values that are moved about at random are the same when the moves were put together.
//! A failure prints its seed; `SHOPFLOOR_SEED` runs that one alone.
use graph::{Graph, GraphBuilder, Op, Origin, ValueId, View};
use layout::{DType, Dim};
use shopfloor_rewrite::{Fuel, PASSES};
use std::sync::Arc;
use tensor::{Tensor, WeightStore};

struct Moves {
    r: fastrand::Rng,
    b: GraphBuilder,
    made: Vec<ValueId>,
    names: u32,
}

impl Moves {
    fn add(&mut self, op: Op, inputs: &[ValueId]) {
        self.names += 1;
        let name = format!("v{}", self.names);
        let origin = Origin {
            name: name.clone(),
            op_type: op.name().into(),
        };
        let v = self.b.node(op, inputs, &[&name], &origin).unwrap();
        self.made.push(v[0]);
    }

    fn shape(&self, v: ValueId) -> Vec<i64> {
        let shape = &self.b.value(v).shape;
        shape.iter().map(|d| d.known().unwrap()).collect()
    }

    fn slice(&mut self, v: ValueId, axis: usize, start: i64, step: i64, extent: i64) -> ValueId {
        let shape = self.shape(v);
        let (mut starts, mut steps) = (vec![Dim::ZERO; shape.len()], vec![1; shape.len()]);
        let mut extents: Vec<Dim> = shape.into_iter().map(Dim::Known).collect();
        (starts[axis], steps[axis], extents[axis]) = (Dim::Known(start), step, Dim::Known(extent));
        self.add(
            Op::View(View::Slice {
                starts,
                steps,
                extents,
            }),
            &[v],
        );
        self.made[self.made.len() - 1]
    }

    /// One more value of those that are there.
    fn step(&mut self) {
        let v = self.made[self.r.usize(..self.made.len())];
        let shape = self.shape(v);
        let axis = self.r.usize(..shape.len());
        let n = shape[axis];
        match self.r.u8(..6) {
            0 => {
                let mut perm: Vec<usize> = (0..shape.len()).collect();
                self.r.shuffle(&mut perm);
                self.add(Op::View(View::Permute(perm)), &[v]);
            }
            1 => {
                let by = [2, 3, 4][self.r.usize(..3)];
                let mut to: Vec<Dim> = shape.iter().copied().map(Dim::Known).collect();
                match n % by == 0 && shape.len() < 5 {
                    true => drop(to.splice(axis..=axis, [Dim::Known(n / by), Dim::Known(by)])),
                    false => to = vec![Dim::Known(shape.iter().product())],
                }
                self.add(Op::View(View::Reshape(to)), &[v]);
            }
            2 => {
                // Rolled, with something done to one side now and then.
                let at = self.r.i64(0..n);
                let mut back = self.slice(v, axis, at, 1, n - at);
                if self.r.bool() {
                    let mut b = expr::ExprBuilder::new();
                    let x = b.input(0, DType::F32);
                    let y = b.unary(expr::Unary::Neg, x);
                    self.add(Op::Map(b.finish(&[y])), &[back]);
                    back = self.made[self.made.len() - 1];
                }
                if at > 0 {
                    let front = self.slice(v, axis, 0, 1, at);
                    self.add(Op::Concat { axis }, &[back, front]);
                }
            }
            3 => {
                let step = self.r.i64(1..=2);
                let parts = (0..step).map(|s| self.slice(v, axis, s, step, n / step));
                let parts: Vec<ValueId> = parts.collect();
                let along = self.r.usize(..shape.len());
                if n / step > 0 {
                    self.add(Op::Concat { axis: along }, &parts);
                }
            }
            4 => {
                let rows: Vec<i64> = (0..self.r.i64(1..=n)).map(|_| self.r.i64(-n..n)).collect();
                let mut t = Tensor::zeros(DType::I64, &[rows.len()]).unwrap();
                rows.iter().enumerate().for_each(|(i, &x)| t.set_i64(i, x));
                self.names += 1;
                let by = self.b.constant(&format!("w{}", self.names), t).unwrap();
                self.add(Op::Gather { axis, batch: 0 }, &[v, by]);
            }
            _ => {
                let start = self.r.i64(0..n);
                let extent = self.r.i64(1..=n - start);
                self.slice(v, axis, start, 1, extent);
            }
        }
        let big = |v: ValueId| self.shape(v).iter().product::<i64>() > 20_000;
        if self
            .made
            .last()
            .is_some_and(|&v| big(v) || self.shape(v).contains(&0))
        {
            self.made.pop();
        }
    }
}

fn graph(seed: u64) -> Graph {
    let mut m = Moves {
        r: fastrand::Rng::with_seed(seed),
        b: GraphBuilder::new("moves", Arc::new(WeightStore::new())),
        made: vec![],
        names: 0,
    };
    let shapes: [&[i64]; 3] = [&[6, 4, 16], &[2, 8, 8, 12], &[5, 64]];
    let shape = shapes[m.r.usize(..3)]
        .iter()
        .copied()
        .map(Dim::Known)
        .collect();
    let x = m.b.input("x", DType::F32, shape);
    m.made.push(x);
    for _ in 0..m.r.usize(3..14) {
        m.step();
    }
    let mut b = expr::ExprBuilder::new();
    let x = b.input(0, DType::F32);
    let y = b.unary(expr::Unary::Abs, x);
    let last = m.made[m.made.len() - 1];
    m.add(Op::Map(b.finish(&[y])), &[last]);
    let out = m.made[m.made.len() - 1];
    m.b.finish(&[out])
}

#[test]
fn moves_put_together_give_the_same() {
    let one = std::env::var("SHOPFLOOR_SEED")
        .ok()
        .and_then(|s| s.parse().ok());
    let (mut gathered, seeds) = (0, one.map_or(0..600, |s: u64| s..s + 1));
    for seed in seeds {
        let g = graph(seed);
        let shape: Vec<usize> = g
            .value(g.inputs[0])
            .shape
            .iter()
            .map(|d| d.known().unwrap() as usize)
            .collect();
        let all: Vec<f32> = (0..shape.iter().product::<usize>())
            .map(|i| i as f32 - 100.0)
            .collect();
        let x = Tensor::from_f32(&shape, &all).unwrap();
        let want = reference::run_graph(&g, std::slice::from_ref(&x)).unwrap();
        let pass = PASSES.iter().find(|p| p.name == "moves").unwrap();
        let r = (pass.run)(g, &mut Fuel::new(None)).unwrap();
        r.graph
            .verify()
            .unwrap_or_else(|e| panic!("seed {seed}: {e}"));
        gathered += r.changes.iter().filter(|c| c.done).count();
        let got = reference::run_graph(&r.graph, &[x]).unwrap();
        assert_eq!(got[0].bytes(), want[0].bytes(), "seed {seed}");
    }
    assert!(
        one.is_some() || gathered > 100,
        "{gathered} moves were put together"
    );
}

#[test]
fn tables_of_places_have_a_limit() {
    let text = "graph large
input %x: f32[1099511627776, 8]
%a: f32[1099511627775, 8] = slice starts=[1, 0] steps=[1, 1] extents=[1099511627775, 8] %x
%b: f32[1, 8] = slice starts=[0, 0] steps=[1, 1] extents=[1, 8] %x
%y: f32[1099511627776, 8] = concat axis=0 %a, %b
output %y
";
    let g = Graph::parse(text).unwrap();
    let pass = PASSES.iter().find(|p| p.name == "moves").unwrap();
    let r = (pass.run)(g, &mut Fuel::new(None)).unwrap();
    assert!(!r.changes.iter().any(|c| c.done), "{:?}", r.changes);
}
