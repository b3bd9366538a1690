//! Products of one or few rows on GPUs, whose weights are read by teams of threads, several numbers at once.
use crate::emulated_session::Emulated;
use cuda_emulated::EmulatedGpu;
use expr::ExprBuilder;
use graph::{Graph, GraphBuilder, Op, View};
use kernel::Mapping;
use layout::{DType, Dim};
use plan::StepWork;
use reference::run_graph;
use shopfloor::{Model, ModelOptions};
use shopfloor_testkit::compare::difference;
use shopfloor_testkit::handwritten::{bytes, node, product, values};
use std::sync::Arc;
use tensor::WeightStore;
use testing::Share;

/// `x` of so many rows by weights of `columns` rows of `blocks` blocks.
#[derive(Clone, Copy, Debug)]
struct Case {
    rows: usize,
    columns: usize,
    blocks: usize,
    block: usize,
    weights: DType,
    x: DType,
    /// Blocks have a zero point of their own.
    zeros: bool,
}

impl Case {
    fn random(seed: u64) -> Case {
        let mut r = fastrand::Rng::with_seed(seed);
        let mut of = |list: &[usize]| list[r.usize(..list.len())];
        Case {
            rows: of(&[1, 1, 2, 5]),
            columns: of(&[1, 3, 32, 67, 256, 1000]),
            blocks: of(&[1, 2, 3, 8]),
            block: of(&[8, 16, 32, 128]),
            weights: [DType::U4, DType::I4, DType::I8, DType::F16, DType::F32]
                [of(&[0, 0, 1, 2, 3, 4])],
            x: [DType::F32, DType::F16][of(&[0, 0, 1])],
            zeros: of(&[0, 1]) == 1,
        }
    }

    fn graph(&self) -> Graph {
        let (n, terms) = (self.columns, self.blocks * self.block);
        let mut b = GraphBuilder::new("few rows", Arc::new(WeightStore::default()));
        let x = b.input("x", self.x, vec![Dim::from(self.rows), Dim::from(terms)]);
        let whole = [n, self.blocks, self.block];
        let weights = match self.weights.is_float() {
            true => values(self.weights, &whole, 2),
            false => bytes(self.weights, &whole, 2),
        };
        let each = [n, self.blocks, 1];
        let mut inputs = vec![
            b.constant("w", weights).unwrap(),
            b.constant("scale", values(DType::F32, &each, 3)).unwrap(),
        ];
        if self.zeros {
            inputs.push(b.constant("zero", bytes(DType::U8, &each, 4)).unwrap());
        }
        let mut e = ExprBuilder::new();
        let given = [self.weights, DType::F32, DType::U8];
        let args: Vec<_> = (0..inputs.len())
            .map(|i| e.input(i as u32, given[i]))
            .collect();
        let w = e.cast(args[0], DType::F32);
        let zero = match args.get(2) {
            Some(&z) => e.cast(z, DType::F32),
            None => e.constant(8.0, DType::F32),
        };
        let w = e.sub(w, zero);
        let w = e.mul(w, args[1]);
        let w = e.cast(w, self.x);
        let expanded = e.finish(&[w]);
        let w = node(&mut b, Op::Map(expanded), &inputs, "expanded");
        let shape = vec![Dim::from(n), Dim::from(terms)];
        let w = node(&mut b, Op::View(View::Reshape(shape)), &[w], "rows");
        let y = node(
            &mut b,
            product(&[0, 1], &[2, 1], &[0, 2]),
            &[x, w],
            "product",
        );
        b.finish(&[y])
    }
}

#[test]
fn random_products_of_few_rows_agree() {
    for seed in Share::cases(24, 6) {
        let case = Case::random(seed);
        let graph = case.graph();
        let model = Model::from_graph("few rows", &graph, &ModelOptions::default()).unwrap();
        let gpu = EmulatedGpu::named("h100").unwrap();
        let bench = Emulated::new("h100", gpu, None, model);
        let x = values(case.x, &[case.rows, case.blocks * case.block], 1);
        let got = bench.answer(&[("x", &x)]);
        let want = &run_graph(&graph, &[x]).unwrap()[0];
        // Sums in another order.
        let limit = if case.x == DType::F32 { 2e-5 } else { 4e-3 };
        let apart = difference(&got, want);
        assert!(apart <= limit, "seed {seed}, {case:?}: {apart}");
    }
}

/// Weights of 4 bits that meet one row are read eight or more at a time, in one load.
#[test]
fn weights_of_four_bits_are_read_eight_at_a_time() {
    let case = Case {
        rows: 1,
        columns: 1000,
        blocks: 8,
        block: 32,
        weights: DType::U4,
        x: DType::F32,
        zeros: false,
    };
    let model = Model::from_graph("few rows", &case.graph(), &ModelOptions::default()).unwrap();
    let bench = Emulated::new("h100", EmulatedGpu::named("h100").unwrap(), None, model);
    let session = &bench.session;
    let plan = session.plan(&session.model().dims().clone()).unwrap();
    let eight = plan.blocks().flat_map(|b| &b.steps).any(|s| match &s.work {
        StepWork::Kernel { schedule, .. } => match &schedule.mapping {
            Mapping::Gpu(m) => m.spread.iter().any(|x| x.each >= 8),
            _ => false,
        },
        StepWork::Host { .. } => false,
    });
    assert!(eight);
}

/// `silu(x) * r` of `x` by weights of `columns` columns, which lie along the sum or across it, and how `x` is rounded.
#[derive(Clone, Copy, Debug)]
struct OneRow {
    dtype: DType,
    columns: usize,
    terms: usize,
    along: bool,
}

impl OneRow {
    fn graph(&self) -> Graph {
        let (n, terms) = (self.columns, self.terms);
        let mut b = GraphBuilder::new("one row", Arc::new(WeightStore::default()));
        let x = b.input("x", self.dtype, vec![Dim::ONE, Dim::from(terms)]);
        let other = b.input("r", self.dtype, vec![Dim::ONE, Dim::from(n)]);
        let (shape, labels) = match self.along {
            true => ([n, terms], [2, 1]),
            false => ([terms, n], [1, 2]),
        };
        let w = b.constant("w", values(self.dtype, &shape, 2)).unwrap();
        let y = node(
            &mut b,
            product(&[0, 1], &labels, &[0, 2]),
            &[x, w],
            "product",
        );
        let mut e = ExprBuilder::new();
        let (v, r) = (e.input(0, self.dtype), e.input(1, self.dtype));
        let (v, r) = (e.cast(v, DType::F32), e.cast(r, DType::F32));
        let half = expr::functions::sigmoid(&mut e, v);
        let z = e.mul(v, half);
        let z = e.mul(z, r);
        let z = e.cast(z, self.dtype);
        let z = node(&mut b, Op::Map(e.finish(&[z])), &[y, other], "gated");
        b.finish(&[z])
    }
}

/// One row of 16 bits by large weights may be a product by warpgroups, whose columns it is one of, in pieces that are copied
/// ahead as weights arrive; with what follows it, and where tiles of weights are not whole. Which of these are is a matter
/// of some percents.
#[test]
fn one_row_is_multiplied_by_warpgroups() {
    if !testing::turn("one_row_is_multiplied_by_warpgroups") {
        return;
    }
    let all = [
        (DType::F16, 8192, 1024, false),
        (DType::BF16, 8192, 1024, true),
        (DType::F16, 8200, 1000, true),
        (DType::BF16, 8208, 1032, false),
    ];
    let mut groups = 0;
    for (dtype, columns, terms, along) in all {
        let case = OneRow {
            dtype,
            columns,
            terms,
            along,
        };
        let graph = case.graph();
        let model = Model::from_graph("one row", &graph, &ModelOptions::default()).unwrap();
        let gpu = EmulatedGpu::named("h100").unwrap();
        let bench = Emulated::new("h100", gpu, None, model);
        let session = &bench.session;
        let plan = session.plan(&session.model().dims().clone()).unwrap();
        let by_groups = plan.blocks().flat_map(|b| &b.steps).any(|s| match &s.work {
            StepWork::Kernel { schedule, .. } => match &schedule.mapping {
                Mapping::Gpu(m) => m.fragment.is_some_and(|f| f.warps() > 1),
                _ => false,
            },
            StepWork::Host { .. } => false,
        });
        groups += usize::from(by_groups);
        let (x, r) = (
            values(dtype, &[1, terms], 1),
            values(dtype, &[1, columns], 3),
        );
        let got = bench.answer(&[("x", &x), ("r", &r)]);
        let want = &run_graph(&graph, &[x, r]).unwrap()[0];
        let apart = difference(&got, want);
        let limit = if dtype == DType::F16 { 4e-3 } else { 3e-2 };
        assert!(apart <= limit, "{case:?}: {apart}");
    }
    assert!(groups > 0, "all are computed by threads");
}
