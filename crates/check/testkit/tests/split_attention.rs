//! Attention of few queries to many keys on GPUs: the parts of the keys side by side, and what they come to together.
use crate::emulated_session::Emulated;
use cuda_emulated::EmulatedGpu;
use expr::{Binary, Compare, ExprBuilder};
use graph::{AttentionSpec, Graph, GraphBuilder, Op, Undefined, View};
use layout::{DType, Dim, DimBox};
use plan::Plan;
use reference::run_graph;
use shopfloor::{Launch, Model, ModelOptions, Session};
use shopfloor_testkit::handwritten::{node, product, values};
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
    /// Heads of queries for each of keys.
    group: usize,
    queries: usize,
    depth: usize,
    width: usize,
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
        let sizes = [self.heads, self.group, self.queries, self.depth, self.width];
        let [h, g, s, e, w] = sizes.map(Dim::from);
        let mut b = GraphBuilder::new("few queries", Arc::new(WeightStore::default()));
        let q = b.input("q", d, vec![h.clone(), g.clone(), s.clone(), e.clone()]);
        let mut shared = |name: &str, width: Dim| {
            let of = |heads: Dim| vec![h.clone(), heads, keys.clone(), width.clone()];
            let x = b.input(name, d, of(Dim::ONE));
            node(
                &mut b,
                Op::View(View::Expand(of(g.clone()))),
                &[x],
                "shared",
            )
        };
        let (k, v) = (shared("k", e), shared("v", w));
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
                let (query, key) = (x.index(2), x.index(3));
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
        let (d, h, s) = (self.dtype, self.heads, self.queries);
        let mut all = vec![
            ("q", values(d, &[h, self.group, s, self.depth], 1)),
            ("k", values(d, &[h, 1, keys, self.depth], 2)),
            ("v", values(d, &[h, 1, keys, self.width], 3)),
        ];
        if let Mask::Added = self.mask {
            let product = graph::product_type(d, d).unwrap();
            let mut mask = values(product, &[s, keys], 4);
            // The first query sees every third key of those behind the first hundred, the last one none.
            let masked = |(i, v): (usize, &f32)| match (i / keys, i % keys) {
                (0, key) if key < 100 || key % 3 != 0 => f32::NEG_INFINITY,
                (query, _) if query + 1 == s && s > 1 => f32::NEG_INFINITY,
                _ => *v,
            };
            if product == DType::F32 {
                let plain = mask.to_f32().unwrap();
                let list: Vec<f32> = plain.iter().enumerate().map(masked).collect();
                mask = Tensor::from_f32(&[s, keys], &list).unwrap();
            }
            all.push(("mask", mask));
        }
        all
    }
}

impl Case {
    /// What an emulated GPU gives for `inputs` is what the graph says.
    fn agrees(&self, bench: &Emulated, inputs: &[(&str, Tensor)], at: &str) {
        self.agrees_in(&bench.session, inputs, at);
    }

    fn agrees_in(&self, session: &Session, inputs: &[(&str, Tensor)], at: &str) {
        let given: Vec<(&str, &Tensor)> = inputs.iter().map(|(n, t)| (*n, t)).collect();
        let got = session.run(&given).unwrap().into_vec().remove(0).1;
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
        group: 1,
        queries: 1,
        depth: 32,
        width: 32,
        keys: 1024,
        symbol: false,
        mask: Mask::None,
        undefined: Undefined::Nan,
    },
    Case {
        dtype: DType::F32,
        heads: 1,
        group: 1,
        queries: 3,
        depth: 32,
        width: 32,
        keys: 777,
        symbol: false,
        mask: Mask::Added,
        undefined: Undefined::Nan,
    },
    Case {
        dtype: DType::F32,
        heads: 2,
        group: 1,
        queries: 4,
        depth: 16,
        width: 16,
        keys: 600,
        symbol: true,
        mask: Mask::Causal,
        undefined: Undefined::ZeroUnseen,
    },
    Case {
        dtype: DType::F16,
        heads: 1,
        group: 1,
        queries: 2,
        depth: 64,
        width: 64,
        keys: 1000,
        symbol: true,
        mask: Mask::None,
        undefined: Undefined::Nan,
    },
    Case {
        dtype: DType::F32,
        heads: 3,
        group: 1,
        queries: 2,
        depth: 24,
        width: 24,
        keys: 513,
        symbol: true,
        mask: Mask::Added,
        undefined: Undefined::Zero,
    },
    Case {
        dtype: DType::BF16,
        heads: 2,
        group: 1,
        queries: 1,
        depth: 32,
        width: 32,
        keys: 640,
        symbol: false,
        mask: Mask::Causal,
        undefined: Undefined::Nan,
    },
    Case {
        dtype: DType::F32,
        heads: 1,
        group: 1,
        queries: 1,
        depth: 128,
        width: 128,
        keys: 2049,
        symbol: true,
        mask: Mask::None,
        undefined: Undefined::Nan,
    },
];

impl Case {
    /// Requests of several sizes on `gpu`; gives whether the keys are cut into parts there.
    fn agrees_on(&self, gpu: &str, launch: Launch) -> bool {
        let own = EmulatedGpu::named(gpu).unwrap();
        let bench = Emulated::new(gpu, own, Some(launch), self.model());
        let session = &bench.session;
        let plan = session.plan(&session.model().dims().clone()).unwrap();
        let sizes = match self.symbol {
            true => vec![self.keys, 1, 100, self.keys - 1, 0],
            false => vec![self.keys],
        };
        for keys in sizes {
            self.agrees(&bench, &self.inputs(keys), &format!("{gpu}, {keys} keys"));
        }
        in_parts(&plan)
    }
}

#[test]
fn parts_of_the_keys_come_to_the_whole() {
    let share = testing::Share::of_run(7);
    println!("{share}");
    for (at, case) in (0u64..).zip(&CASES) {
        for (way, gpu) in (0u64..).zip(["h100", "t4", "a100"]) {
            // A run has three cases, one on each GPU.
            if share.picks(at + way) {
                let launch = [Launch::Steps, Launch::Graph][usize::from(at % 2 == 1)];
                assert!(case.agrees_on(gpu, launch), "{case:?} on {gpu}: one step");
            }
        }
    }
}

/// `SHOPFLOOR_SEED` runs one.
#[test]
fn random_attentions_of_few_queries_agree() {
    if !testing::turn("random_attentions_of_few_queries_agree") {
        return;
    }
    let seeds = match std::env::var("SHOPFLOOR_SEED").map(|s| s.parse::<u64>()) {
        Ok(Ok(s)) => s..s + 1,
        _ => testing::Share::cases(24, 6),
    };
    println!("seeds {seeds:?}");
    let mut cut = 0;
    for seed in seeds {
        println!("SHOPFLOOR_SEED={seed}");
        let mut r = fastrand::Rng::with_seed(seed);
        let case = Case {
            dtype: [DType::F32, DType::F32, DType::F16][r.usize(..3)],
            heads: r.usize(1..4),
            group: [1, 1, 2, 3][r.usize(..4)],
            queries: [1, 1, 2, 5, 17][r.usize(..5)],
            depth: [8, 16, 20, 32, 64][r.usize(..5)],
            width: [4, 16, 24, 32, 64][r.usize(..5)],
            keys: [129, 200, 257, 384, 640][r.usize(..5)] + r.usize(..3),
            symbol: r.bool(),
            mask: [Mask::None, Mask::Added, Mask::Causal][r.usize(..3)],
            undefined: [Undefined::Nan, Undefined::ZeroUnseen, Undefined::Zero][r.usize(..3)],
        };
        println!("{case:?}");
        cut += usize::from(case.agrees_on(["h100", "t4"][r.usize(..2)], Launch::Steps));
    }
    println!("{cut} cut");
}

/// Positions behind the last key have no scores: where all others are far below 0 they would product more than any.
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

/// Where nothing is added to scores of 16 bits they are not rounded to them, on any device.
#[test]
fn scores_may_leave_the_range_of_their_type() {
    let case = Case {
        queries: 40,
        keys: 45,
        mask: Mask::Causal,
        symbol: false,
        ..CASES[3]
    };
    let mut inputs = case.inputs(case.keys);
    for (_, t) in &mut inputs[..2] {
        for i in 0..t.len() {
            t.set_f64(i, 150.0 * t.get_f64(i));
        }
    }
    let row = |t: &Tensor, i: usize| (0..64).map(|j| t.get_f64(i * 64 + j)).collect::<Vec<_>>();
    let product = |i, j| -> f64 {
        let (q, k) = (row(&inputs[0].1, i), row(&inputs[1].1, j));
        q.iter().zip(k).map(|(x, y)| x * y).sum()
    };
    let pairs = (0..case.queries).flat_map(|i| (0..case.keys).map(move |j| (i, j)));
    let most = pairs.map(|(i, j)| product(i, j).abs()).fold(0.0, f64::max);
    assert!(most > 65_504.0, "{most}");
    for gpu in ["h100", "t4"] {
        let own = EmulatedGpu::named(gpu).unwrap();
        let bench = Emulated::new(gpu, own, None, case.model());
        case.agrees(&bench, &inputs, gpu);
    }
    let session = Session::builder().commit(case.model()).unwrap();
    case.agrees_in(&session, &inputs, "the host");
}

/// An attention as a text of a user's: `begin` fills its maximum, sum and values, `last` sums the weights and the values.
fn text(begin: [&str; 3], last: [&str; 2]) -> String {
    let [m, l, o] = begin;
    let [first, second] = last;
    format!(
        "kernel attention (Attention)
  space  q: 2  t: 1024  d: 32  e: 32
  read   q f32 = q*(32) + d*(1) of 64
  read   k f32 = t*(32) + d*(1) of 32768
  read   v f32 = t*(32) + e*(1) of 32768
  write  out f32 = q*(32) + e*(1) of 64
  q2 : f32 [q,d] = load q
  k2 : f32 [t,d] = load k
  v2 : f32 [t,e] = load v
  m : f32 [q] = {m}
  l : f32 [q] = {l}
  o : f32 [q,e] = {o}
  s : f32 [q,t] = 0
  s += contract q2 . k2 over d
  score : f32 [q,t] = s*0.3
  m = fold max of score over t, rescaling l, o by {{ %0 = input 0 f32; %1 = input 1 f32; %2 = eq %0 %1; %3 = sub %0 %1; %4 = exp %3; %5 = const 1.0 f32; %6 = select %2 %5 %4; out %6 }}
  p : f32 [q,t] = exp(score - m)
  {first}
  {second}
  y : f32 [q,e] = o/l
  store out = y
"
    )
}

/// What the parts have goes by its name, and is not counted once for each where it begins with something.
#[test]
fn texts_are_cut_where_that_changes_nothing() {
    let (sum, product) = ("l = fold sum of p over t", "o += contract p . v2 over t");
    let nothing = ["-inf", "0", "0"];
    for (begin, last, cut) in [
        (nothing, [sum, product], true),
        (nothing, [product, sum], true),
        (["0", "1", "0"], [sum, product], false),
    ] {
        let text = text(begin, last);
        let made = |text: &str| {
            let x = |n: &str, rows: i64| (n.to_string(), vec![Dim::Known(rows), Dim::Known(32)]);
            let shapes = [x("q", 2), x("k", 1024), x("v", 1024)];
            let shapes: Vec<(&str, Vec<Dim>)> = shapes
                .iter()
                .map(|(n, s)| (n.as_str(), s.clone()))
                .collect();
            Model::from_kernel(text, &shapes, &ModelOptions::default()).unwrap()
        };
        let own = EmulatedGpu::named("h100").unwrap();
        let bench = Emulated::new("h100", own, Some(Launch::Steps), made(&text));
        let plan = bench.session.plan(&DimBox::new()).unwrap();
        assert_eq!(in_parts(&plan), cut, "{begin:?} {last:?}");
        let host = shopfloor::Session::builder().commit(made(&text)).unwrap();
        let of = |rows: usize, seed: u64| values(DType::F32, &[rows, 32], seed);
        let (q, k, v) = (of(2, 1), of(1024, 2), of(1024, 3));
        let inputs = [("q", &q), ("k", &k), ("v", &v)];
        let run = |s: &shopfloor::Session| s.run(&inputs).unwrap().into_vec().remove(0).1;
        let (got, want) = (run(&bench.session), run(&host));
        for i in 0..want.len() {
            let (w, g) = (want.get_f64(i), got.get_f64(i));
            assert!(
                (w - g).abs() <= 2e-5,
                "{begin:?} {last:?}: {g} at {i}, not {w}"
            );
        }
    }
}

/// What the CTAs of a cluster add may be followed, in the same launch, by a step that would have more threads: all threads
/// of a cluster meet, so that it has no more there.
#[test]
fn what_follows_a_cluster_has_no_more_threads() {
    let (queries, keys, width) = (3, 130, 8);
    let mut weights = WeightStore::new();
    let w = values(DType::F32, &[width, 64], 5);
    let w = weights.add_tensor("w", w).unwrap();
    let mut b = GraphBuilder::new("then a product", Arc::new(weights));
    let shape = |n: usize| vec![Dim::ONE, Dim::ONE, Dim::from(n), Dim::from(width)];
    let of = [("q", queries), ("k", keys), ("v", keys)];
    let inputs = of.map(|(name, n)| b.input(name, DType::F32, shape(n)));
    let mut x = ExprBuilder::new();
    let score = x.input(0, DType::F32);
    let spec = AttentionSpec {
        score: x.finish(&[score]),
        undefined: Undefined::default(),
    };
    let y = node(&mut b, Op::Attention(spec), &inputs, "attention");
    let w = b.weight(w).unwrap();
    let y = node(
        &mut b,
        product(&[0, 1, 2, 3], &[3, 4], &[0, 1, 2, 4]),
        &[y, w],
        "product",
    );
    let graph = b.finish(&[y]);
    let tensors = of.map(|(_, n)| values(DType::F32, &[1, 1, n, width], n as u64));
    let want = run_graph(&graph, &tensors).unwrap()[0].to_f32().unwrap();
    let mut clusters = 0;
    for launch in [Launch::Steps, Launch::Graph] {
        let model = Model::from_graph("then", &graph, &ModelOptions::default()).unwrap();
        let gpu = EmulatedGpu::named("h100").unwrap();
        let bench = Emulated::new("h100", gpu, Some(launch), model);
        let plan = bench.session.plan(&DimBox::new()).unwrap();
        let all: Vec<&plan::Step> = plan.blocks().flat_map(|b| &b.steps).collect();
        for launch in all.chunk_by(|_, next| next.joined) {
            let mapping = |s: &plan::Step| match &s.work {
                plan::StepWork::Kernel { schedule, .. } => match &schedule.mapping {
                    kernel::Mapping::Gpu(g) => (schedule.gives_parts(), g.threads),
                    kernel::Mapping::Cpu(_) => (false, 0),
                },
                plan::StepWork::Host { .. } => (false, 0),
            };
            let (gives, most) = mapping(launch[0]);
            clusters += usize::from(gives);
            assert!(!gives || launch.iter().all(|s| mapping(s).1 <= most));
        }
        let pairs = of.iter().map(|o| o.0).zip(&tensors);
        let pairs: Vec<(&str, &Tensor)> = pairs.collect();
        for _ in 0..2 {
            let got = bench.answer(&pairs).to_f32().unwrap();
            let apart = got.iter().zip(&want).map(|(a, b)| (a - b).abs());
            assert!(apart.fold(0.0, f32::max) < 1e-3);
        }
    }
    assert!(clusters > 0);
}
