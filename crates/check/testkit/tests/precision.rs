//! Every precision on GPUs: random products, convolutions and attention, whose constants are laid out for it, within the
//! bound of what is left out of their factors.
use crate::emulated_session::Emulated;
use cuda_emulated::EmulatedGpu;
use expr::ExprBuilder;
use graph::{AttentionSpec, ConvSpec, Graph, GraphBuilder, Op};
use kernel::{Factors, Mapping};
use layout::{DType, Dim, DimBox};
use plan::StepWork;
use reference::run_graph;
use shopfloor::{Model, ModelOptions, Precision};
use shopfloor_testkit::compare::difference;
use shopfloor_testkit::handwritten::{node, product, values};
use std::sync::Arc;
use tensor::{Tensor, WeightStore};
use testing::Share;

/// What multiplies.
#[derive(Clone, Debug)]
enum Kind {
    /// Rows, depth and columns.
    Product([usize; 3]),
    /// Channels of inputs and outputs, rows and columns, and steps between windows of 3 by 3.
    Windows([usize; 4]),
    /// Heads, tokens and elements of each.
    Attention([usize; 3]),
}

/// A graph with one product of f32, whose second factor may be a constant.
#[derive(Clone, Debug)]
struct Case {
    kind: Kind,
    constant: bool,
    seed: u64,
}

fn dims(shape: &[usize]) -> Vec<Dim> {
    shape.iter().map(|&n| Dim::from(n)).collect()
}

impl Case {
    fn random(seed: u64) -> Case {
        let mut r = fastrand::Rng::with_seed(seed);
        let mut of = |list: &[usize]| list[r.usize(..list.len())];
        let kind = match seed % 4 {
            0 | 1 => Kind::Product([
                of(&[17, 64, 130, 256]),
                of(&[8, 40, 64, 96, 256]),
                of(&[16, 72, 128, 200]),
            ]),
            2 => Kind::Windows([
                of(&[16, 24, 32, 64]),
                of(&[16, 40, 64]),
                of(&[9, 12]),
                of(&[1, 2]),
            ]),
            _ => Kind::Attention([of(&[1, 2]), of(&[48, 64, 100]), of(&[32, 64])]),
        };
        Case {
            kind,
            constant: of(&[0, 1, 1]) == 1,
            seed,
        }
    }

    /// The shapes of the factors.
    fn shapes(&self) -> Vec<Vec<usize>> {
        match self.kind {
            Kind::Product([m, k, n]) => vec![vec![m, k], vec![k, n]],
            Kind::Windows([c, o, h, _]) => vec![vec![1, c, h, h], vec![o, c, 3, 3]],
            Kind::Attention([h, t, e]) => vec![vec![h, t, e]; 3],
        }
    }

    /// The graph with its inputs, `of` these values.
    fn graph(&self, of: &dyn Fn(Tensor) -> Tensor) -> (Graph, Vec<Tensor>) {
        let mut b = GraphBuilder::new("case", Arc::new(WeightStore::default()));
        let (mut args, mut inputs) = (vec![], vec![]);
        for (i, shape) in self.shapes().iter().enumerate() {
            let made = of(values(DType::F32, shape, self.seed * 8 + i as u64));
            let constant = self.constant && i == 1 && !matches!(self.kind, Kind::Attention(_));
            args.push(match constant {
                true => b.constant("w", made).unwrap(),
                false => {
                    inputs.push(made);
                    b.input(["x", "y", "z"][i], DType::F32, dims(shape))
                }
            });
        }
        let op = match self.kind {
            Kind::Product(_) => product(&[0, 1], &[1, 2], &[0, 2]),
            Kind::Windows([.., stride]) => Op::Conv(ConvSpec {
                kernel: vec![3, 3],
                strides: vec![stride as i64; 2],
                dilations: vec![1, 1],
                before: vec![Dim::ONE; 2],
                after: vec![Dim::ONE; 2],
                groups: 1,
                transposed: false,
                outside: 0,
            }),
            Kind::Attention([.., e]) => {
                let mut score = ExprBuilder::new();
                let x = score.input(0, DType::F32);
                let by = score.constant(1.0 / (e as f64).sqrt(), DType::F32);
                let scaled = score.mul(x, by);
                Op::Attention(AttentionSpec {
                    score: score.finish(&[scaled]),
                    undefined: Default::default(),
                })
            }
        };
        let y = node(&mut b, op, &args, "out");
        (b.finish(&[y]), inputs)
    }
}

/// What a product may be off, relative to the sum of its terms' magnitudes: what is left out of both factors, and sums in
/// f32.
fn bound(precision: Precision) -> f64 {
    match precision {
        Precision::Exact | Precision::F32 => 2e-6,
        Precision::Bf16x3 => 2f64.powi(-15),
        Precision::Tf32 => 2.7 * 2f64.powi(-11),
        Precision::Bf16 => 2.7 * 2f64.powi(-8),
    }
}

/// What the steps of the session's plans multiply of f32 by matrix instructions.
fn multiplied(e: &Emulated) -> Vec<Option<Factors>> {
    let plan = e.session.plan(&DimBox::new()).unwrap();
    let steps = plan.blocks().flat_map(|b| &b.steps);
    let of = |s: &plan::Step| match &s.work {
        StepWork::Kernel {
            kernel, schedule, ..
        } if kernel
            .body
            .iter()
            .any(|s| matches!(s, kernel::Stmt::Contract { .. })) =>
        {
            match &schedule.mapping {
                Mapping::Gpu(g) => Some(g.fragment.map(|f| f.factors)),
                Mapping::Cpu(_) => None,
            }
        }
        _ => None,
    };
    steps.filter_map(of).collect()
}

#[test]
fn random_products_convolutions_and_attention_stay_within_the_bounds_of_every_precision() {
    for seed in Share::cases(24, 6) {
        let case = Case::random(seed);
        let (graph, inputs) = case.graph(&|t| t);
        let magnitudes = |mut t: Tensor| {
            (0..t.len()).for_each(|i| t.set_f64(i, t.get_f64(i).abs()));
            t
        };
        let (of_terms, sizes) = case.graph(&magnitudes);
        let want = &run_graph(&graph, &inputs).unwrap()[0];
        let terms = &run_graph(&of_terms, &sizes).unwrap()[0];
        let names = ["x", "y", "z"];
        let given: Vec<_> = names.iter().copied().zip(&inputs).collect();
        let name = ["a100", "h100"][(seed / 4 % 2) as usize];
        for precision in Precision::ALL {
            let options = ModelOptions {
                precision,
                ..ModelOptions::default()
            };
            let model = Model::from_graph("case", &graph, &options).unwrap();
            let gpu = EmulatedGpu::named(name).unwrap();
            let emulated = Emulated::new(name, gpu, None, model);
            let taken = multiplied(&emulated);
            let exact = |f: &Option<Factors>| f.is_none_or(|f| precision.allows(f));
            assert!(taken.iter().all(exact), "{case:?}, {precision}: {taken:?}");
            let got = emulated.answer(&given);
            println!("{case:?} on {name}, {precision}: {taken:?}");
            if let Kind::Attention(_) = case.kind {
                // Weights are between 0 and 1, and sums of them are averages.
                let apart = difference(&got, want);
                assert!(
                    apart <= 4.0 * bound(precision),
                    "{case:?}, {precision}: {apart}"
                );
                continue;
            }
            for i in 0..want.len() {
                let (w, g, t) = (want.get_f64(i), got.get_f64(i), terms.get_f64(i));
                assert!(
                    (w - g).abs() <= bound(precision) * t + 1e-12,
                    "{case:?} on {name}, {precision} at {i}: {g} for {w} of terms {t}; {taken:?}"
                );
            }
        }
    }
}
