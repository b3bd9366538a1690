//! Norms and reductions of few long rows on GPUs: parts of the rows side by side, and what they come to together.
use crate::emulated_session::Emulated;
use cuda_emulated::EmulatedGpu;
use expr::{ExprBuilder, Monoid, Unary};
use graph::{Graph, GraphBuilder, Op, ValueId};
use layout::{DType, Dim, DimBox};
use reference::run_graph;
use shopfloor::{Model, ModelOptions};
use shopfloor_testkit::compare::difference;
use shopfloor_testkit::handwritten::{node, values};
use std::sync::Arc;
use tensor::{Tensor, WeightStore};
use testing::Share;

const F: DType = DType::F32;

/// What is made of each row.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Kind {
    /// Its numbers less their mean, by their standard deviation.
    Norm,
    /// Its numbers by the root of their mean square.
    Rms,
    Sum,
    Max,
    Softmax,
}

const KINDS: [Kind; 5] = [Kind::Norm, Kind::Rms, Kind::Sum, Kind::Max, Kind::Softmax];

/// A tensor of so many rows, over which something is reduced.
#[derive(Clone, Copy, Debug)]
struct Case {
    kind: Kind,
    dtype: DType,
    rows: usize,
    /// Sizes that a row goes over.
    of: [usize; 2],
    /// Rows are a symbol.
    symbol: bool,
    /// Far from 0, where squares less the square of the mean would cancel.
    far: bool,
}

struct G(GraphBuilder, u32);

impl G {
    fn node(&mut self, op: Op, of: &[ValueId]) -> ValueId {
        self.1 += 1;
        node(&mut self.0, op, of, &format!("n{}", self.1))
    }

    fn along(&mut self, x: ValueId, monoid: Monoid) -> ValueId {
        let (axes, keep) = (vec![1, 2], true);
        self.node(Op::Reduce { monoid, axes, keep }, &[x])
    }

    fn map(
        &mut self,
        of: &[ValueId],
        types: &[DType],
        f: impl Fn(&mut ExprBuilder, &[expr::Ref]) -> expr::Ref,
    ) -> ValueId {
        let mut e = ExprBuilder::new();
        let slots = (0..).zip(types);
        let args: Vec<expr::Ref> = slots.map(|(s, &d)| e.input(s, d)).collect();
        let out = f(&mut e, &args);
        let program = e.finish(&[out]);
        self.node(Op::Map(program), of)
    }
}

impl Case {
    fn graph(&self) -> Graph {
        let rows = match self.symbol {
            true => Dim::sym("rows"),
            false => Dim::from(self.rows),
        };
        let [a, b] = self.of.map(Dim::from);
        let mut g = G(
            GraphBuilder::new("rows", Arc::new(WeightStore::default())),
            0,
        );
        let x = g.0.input("x", self.dtype, vec![rows, a.clone(), b.clone()]);
        let n = a * b;
        let x = g.map(&[x], &[self.dtype], |e, a| e.cast(a[0], F));
        let y = match self.kind {
            Kind::Sum => g.along(x, Monoid::sum(F, F)),
            Kind::Max => g.along(x, Monoid::max(F, F)),
            Kind::Rms => {
                let q = g.map(&[x], &[F], |e, a| e.mul(a[0], a[0]));
                let v = g.along(q, Monoid::mean(F, F, &n));
                g.map(&[x, v], &[F; 2], by_root)
            }
            Kind::Norm => {
                let m = g.along(x, Monoid::mean(F, F, &n));
                let c = g.map(&[x, m], &[F; 2], |e, a| e.sub(a[0], a[1]));
                let q = g.map(&[c], &[F], |e, a| e.mul(a[0], a[0]));
                let v = g.along(q, Monoid::mean(F, F, &n));
                g.map(&[c, v], &[F; 2], by_root)
            }
            Kind::Softmax => {
                let m = g.along(x, Monoid::max(F, F));
                let e = g.map(&[x, m], &[F; 2], |e, a| {
                    let d = e.sub(a[0], a[1]);
                    e.unary(Unary::Exp, d)
                });
                let t = g.along(e, Monoid::sum(F, F));
                g.map(&[e, t], &[F; 2], |e, a| e.div(a[0], a[1]))
            }
        };
        g.0.finish(&[y])
    }

    fn model(&self) -> Model {
        let mut dims = DimBox::new();
        dims.insert("rows", 0, self.rows as i64);
        let options = ModelOptions {
            dims,
            ..ModelOptions::default()
        };
        Model::from_graph("rows", &self.graph(), &options).unwrap()
    }

    fn x(&self, rows: usize) -> Tensor {
        let shape = [rows, self.of[0], self.of[1]];
        let x = values(self.dtype, &shape, 1);
        if !self.far {
            return x;
        }
        let far = |v: &f32| v + 300.0;
        let list: Vec<f32> = x.to_f32().unwrap().iter().map(far).collect();
        Tensor::from_f32(&shape, &list).unwrap()
    }

    /// Compares requests with the graph's own results, and gives whether a step was cut into parts.
    fn agrees(&self, gpu: &str) -> bool {
        let own = EmulatedGpu::named(gpu).unwrap();
        let bench = Emulated::new(gpu, own, None, self.model());
        let sizes = match self.symbol {
            true => vec![self.rows, 1, 0],
            false => vec![self.rows],
        };
        for rows in sizes {
            let x = self.x(rows);
            let got = bench.answer(&[("x", &x)]);
            let want = &run_graph(&self.graph(), &[x]).unwrap()[0];
            let limit = if self.far { 2e-3 } else { 2e-5 };
            let apart = difference(&got, want);
            assert!(apart <= limit, "{self:?} on {gpu}, {rows} rows: {apart}");
        }
        let session = &bench.session;
        let plan = session.plan(&session.model().dims().clone()).unwrap();
        plan.blocks()
            .flat_map(|b| &b.steps)
            .any(|s| s.name.ends_with("in parts"))
    }
}

fn by_root(e: &mut ExprBuilder, a: &[expr::Ref]) -> expr::Ref {
    let small = e.constant(1e-5, F);
    let v = e.add(a[1], small);
    let r = e.unary(Unary::Rsqrt, v);
    e.mul(a[0], r)
}

/// A norm of few rows of an image is cut, whatever its numbers are near to.
#[test]
fn norms_of_few_rows_come_to_the_whole() {
    let norm = Case {
        kind: Kind::Norm,
        dtype: F,
        rows: 4,
        of: [64, 1024],
        symbol: false,
        far: true,
    };
    let share = Share::of_run(3);
    let cases = [
        norm,
        Case {
            symbol: true,
            far: false,
            ..norm
        },
        // What is read is widened for each of its readers.
        Case {
            dtype: DType::F16,
            far: false,
            ..norm
        },
    ];
    for (_, case) in (0..).zip(cases).filter(|(i, _)| share.picks(*i)) {
        assert!(case.agrees("h100"), "{case:?}: one step");
    }
}

/// `SHOPFLOOR_SEED` runs one.
#[test]
fn random_rows_agree() {
    if !testing::turn("random_rows_agree") {
        return;
    }
    let seeds = match std::env::var("SHOPFLOOR_SEED").map(|s| s.parse::<u64>()) {
        Ok(Ok(s)) => s..s + 1,
        _ => Share::cases(24, 4),
    };
    for seed in seeds {
        println!("SHOPFLOOR_SEED={seed}");
        let mut r = fastrand::Rng::with_seed(seed);
        let dtype = [F, F, DType::F16, DType::BF16][r.usize(..4)];
        let case = Case {
            kind: KINDS[r.usize(..KINDS.len())],
            dtype,
            rows: [1, 2, 5, 16][r.usize(..4)],
            of: [[1, 2048], [3, 4096], [64, 96], [64, 1024], [4096, 12]][r.usize(..5)],
            symbol: r.bool(),
            far: dtype == F && r.usize(..4) == 0,
        };
        let gpu = ["h100", "t4", "a100"][r.usize(..3)];
        println!("{case:?} on {gpu}: in parts {}", case.agrees(gpu));
    }
}
