//! Attention of few queries to many keys on GPUs: the parts of the keys side by side, and what they come to together.
use crate::emulated_session::Emulated;
use cuda_emulated::EmulatedGpu;
use expr::{Binary, Compare, ExprBuilder};
use graph::{AttentionSpec, Graph, GraphBuilder, Op, Undefined};
use layout::{DType, Dim, DimBox};
use plan::Plan;
use reference::run_graph;
use shopfloor::{Launch, Model, ModelOptions};
use shopfloor_testkit::handwritten::{node, values};
use std::sync::Arc;
use tensor::{Tensor, WeightStore};

/// What an attention has besides its scores.
#[derive(Clone, Copy, Debug)]
enum Mask {
    None,
    /// An addend for each query and key.
    Added,
    /// Queries, the last of so many positions, see no later keys.
    Causal,
}

#[derive(Clone, Copy, Debug)]
struct Case {
    dtype: DType,
    heads: usize,
    queries: usize,
    depth: usize,
    /// As many at most.
    keys: usize,
    /// Keys are a symbol.
    symbol: bool,
    mask: Mask,
    undefined: Undefined,
}

impl Case {
    fn graph(&self) -> Graph {
        let d = self.dtype;
        let keys = match self.symbol {
            true => Dim::sym("t"),
            false => Dim::from(self.keys),
        };
        let [h, s, e] = [self.heads, self.queries, self.depth].map(Dim::from);
        let mut b = GraphBuilder::new("few queries", Arc::new(WeightStore::default()));
        let q = b.input("q", d, vec![h.clone(), s.clone(), e.clone()]);
        let k = b.input("k", d, vec![h.clone(), keys.clone(), e.clone()]);
        let v = b.input("v", d, vec![h, keys.clone(), e]);
        let mut inputs = vec![q, k, v];
        let mut x = ExprBuilder::new();
        let product = graph::product_type(d, d).unwrap();
        let score = x.input(0, product);
        let scale = x.constant(0.3, product);
        let score = x.binary(Binary::Mul, score, scale);
        let score = match self.mask {
            Mask::None => score,
            Mask::Added => {
                inputs.push(b.input("mask", product, vec![s, keys]));
                let mask = x.input(1, product);
                x.add(score, mask)
            }
            Mask::Causal => {
                let (query, key) = (x.index(1), x.index(2));
                let before = x.dim(&(keys - s));
                let last = x.add(query, before);
                let seen = x.compare(Compare::Le, key, last);
                let none = x.constant(f64::NEG_INFINITY, product);
                x.select(seen, score, none)
            }
        };
        let spec = AttentionSpec {
            score: x.finish(&[score]),
            undefined: self.undefined,
        };
        let y = node(&mut b, Op::Attention(spec), &inputs, "attention");
        b.finish(&[y])
    }

    fn model(&self) -> Model {
        let mut dims = DimBox::new();
        dims.insert("t", 0, self.keys as i64);
        let options = ModelOptions {
            dims,
            ..ModelOptions::default()
        };
        Model::from_graph("few queries", &self.graph(), &options).unwrap()
    }

    fn inputs(&self, keys: usize) -> Vec<(&'static str, Tensor)> {
        let (d, h, s, e) = (self.dtype, self.heads, self.queries, self.depth);
        let mut all = vec![
            ("q", values(d, &[h, s, e], 1)),
            ("k", values(d, &[h, keys, e], 2)),
            ("v", values(d, &[h, keys, e], 3)),
        ];
        if let Mask::Added = self.mask {
            let product = graph::product_type(d, d).unwrap();
            let plain = values(product, &[s, keys], 4).to_f32().unwrap();
            // The first query sees every third key of those behind the first hundred, the last one none.
            let masked = |(i, v): (usize, f32)| match (i / keys, i % keys) {
                (0, key) if key < 100 || key % 3 != 0 => f32::NEG_INFINITY,
                (query, _) if query + 1 == s && s > 1 => f32::NEG_INFINITY,
                _ => v,
            };
            let list: Vec<f32> = plain.into_iter().enumerate().map(masked).collect();
            all.push(("mask", Tensor::from_f32(&[s, keys], &list).unwrap()));
        }
        all
    }
}

impl Case {
    /// What a session gives for `inputs` is what the graph says.
    fn agrees(&self, bench: &Emulated, inputs: &[(&str, Tensor)], at: &str) {
        let given: Vec<(&str, &Tensor)> = inputs.iter().map(|(n, t)| (*n, t)).collect();
        let got = bench.session.run(&given).unwrap().into_vec().remove(0).1;
        let plain: Vec<Tensor> = inputs.iter().map(|i| i.1.clone()).collect();
        let want = &run_graph(&self.graph(), &plain).unwrap()[0];
        let limit = match self.dtype {
            DType::F32 => 2e-5,
            DType::F16 => 4e-3,
            _ => 3e-2,
        };
        for i in 0..want.len() {
            let (w, g) = (want.get_f64(i), got.get_f64(i));
            let near = (w - g).abs() <= limit || w.is_nan() && g.is_nan();
            assert!(near, "{self:?} on {at}: {g} at {i}, not {w}");
        }
    }
}

fn in_parts(plan: &Plan) -> bool {
    let mut steps = plan.blocks().flat_map(|b| &b.steps);
    steps.any(|s| s.name.ends_with("in parts"))
}

const CASES: [Case; 7] = [
    Case {
        dtype: DType::F32,
        heads: 2,
        queries: 1,
        depth: 32,
        keys: 1024,
        symbol: false,
        mask: Mask::None,
        undefined: Undefined::Nan,
    },
    Case {
        dtype: DType::F32,
        heads: 1,
        queries: 3,
        depth: 32,
        keys: 777,
        symbol: false,
        mask: Mask::Added,
        undefined: Undefined::Nan,
    },
    Case {
        dtype: DType::F32,
        heads: 2,
        queries: 4,
        depth: 16,
        keys: 600,
        symbol: true,
        mask: Mask::Causal,
        undefined: Undefined::ZeroUnseen,
    },
    Case {
        dtype: DType::F16,
        heads: 1,
        queries: 2,
        depth: 64,
        keys: 1000,
        symbol: true,
        mask: Mask::None,
        undefined: Undefined::Nan,
    },
    Case {
        dtype: DType::F32,
        heads: 3,
        queries: 2,
        depth: 24,
        keys: 513,
        symbol: true,
        mask: Mask::Added,
        undefined: Undefined::Zero,
    },
    Case {
        dtype: DType::BF16,
        heads: 2,
        queries: 1,
        depth: 32,
        keys: 640,
        symbol: false,
        mask: Mask::Causal,
        undefined: Undefined::Nan,
    },
    Case {
        dtype: DType::F32,
        heads: 1,
        queries: 1,
        depth: 128,
        keys: 2049,
        symbol: true,
        mask: Mask::None,
        undefined: Undefined::Nan,
    },
];

#[test]
fn parts_of_the_keys_come_to_the_whole() {
    let share = testing::Share::of_run(3);
    println!("{share}");
    for (at, case) in (0u64..).zip(&CASES) {
        for (way, gpu) in (0u64..).zip(["h100", "t4", "a100"]) {
            if !share.picks(at + way) {
                continue;
            }
            let launch = [Launch::Steps, Launch::Graph][usize::from(at % 2 == 1)];
            let own = EmulatedGpu::named(gpu).unwrap();
            let bench = Emulated::new(gpu, own, Some(launch), case.model());
            let session = &bench.session;
            let plan = session.plan(&session.model().dims().clone()).unwrap();
            assert!(in_parts(&plan), "{case:?} on {gpu}: {:#?}", plan.whys);
            let sizes = match case.symbol {
                true => vec![case.keys, 1, 100, case.keys - 1, 0],
                false => vec![case.keys],
            };
            for keys in sizes {
                case.agrees(&bench, &case.inputs(keys), &format!("{gpu}, {keys} keys"));
            }
        }
    }
}

/// Positions behind the last key have no scores: where all others are far below 0 they would weigh more than any.
#[test]
fn low_scores_weigh_as_others() {
    for gpu in ["h100", "t4"] {
        let case = Case {
            queries: 40,
            keys: 45,
            ..CASES[1]
        };
        let mut inputs = case.inputs(case.keys);
        let low = vec![-300.0; case.queries * case.keys];
        inputs[3].1 = Tensor::from_f32(&[case.queries, case.keys], &low).unwrap();
        let own = EmulatedGpu::named(gpu).unwrap();
        let bench = Emulated::new(gpu, own, None, case.model());
        case.agrees(&bench, &inputs, gpu);
    }
}
