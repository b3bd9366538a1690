//! Products with weights of 4 bits on GPUs: threads widen them in registers, for few rows and in fragments, or read a wide
//! copy that is made at load, whichever is predicted to take less.
use crate::emulated_session::Emulated;
use cuda_emulated::EmulatedGpu;
use expr::ExprBuilder;
use graph::{Graph, GraphBuilder, Op, View};
use kernel::{Kernel, Mapping, TileId};
use layout::{DType, Dim};
use plan::{Step, StepWork};
use reference::run_graph;
use shopfloor::{Model, ModelOptions};
use shopfloor_testkit::compare::difference;
use shopfloor_testkit::handwritten::{bytes, node, product, values};
use std::sync::Arc;
use tensor::WeightStore;
use testing::Share;

/// `x` of so many rows by weights of `columns` columns in `blocks` blocks along what is summed.
#[derive(Clone, Copy, Debug)]
struct Case {
    rows: usize,
    columns: usize,
    blocks: usize,
    block: usize,
    weights: DType,
    /// Type of `x`, scales and results.
    x: DType,
    zeros: Zeros,
    /// Whether neighbours of the weights lie along the columns.
    across: bool,
    gpu: &'static str,
}

/// Zero points.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Zeros {
    None,
    Eight,
    Packed,
    Bytes,
}

impl Case {
    fn random(seed: u64) -> Case {
        let mut r = fastrand::Rng::with_seed(seed);
        let mut of = |list: &[usize]| list[r.usize(..list.len())];
        Case {
            rows: of(&[1, 2, 7, 16, 33, 70]),
            columns: of(&[3, 67, 96, 130, 260, 516]),
            blocks: of(&[2, 3, 8, 16]),
            block: of(&[8, 16, 32, 64, 128]),
            weights: [DType::U4, DType::I4][of(&[0, 0, 1])],
            x: [DType::F32, DType::F16, DType::BF16][of(&[0, 1, 1, 2])],
            zeros: [Zeros::None, Zeros::Eight, Zeros::Packed, Zeros::Bytes][of(&[0, 1, 2, 3])],
            across: of(&[0, 0, 1]) == 1,
            gpu: ["h100", "a100", "t4"][of(&[0, 0, 1, 1, 2])],
        }
    }

    /// Extents of the weights, of the scales, and the weights' labels, as they lie.
    fn shapes(&self) -> ([usize; 3], [usize; 3], [u8; 2]) {
        let (n, blocks, block) = (self.columns, self.blocks, self.block);
        match self.across {
            false => ([n, blocks, block], [n, blocks, 1], [2, 1]),
            true => ([blocks, block, n], [blocks, 1, n], [1, 2]),
        }
    }

    fn graph(&self) -> Graph {
        let (n, terms) = (self.columns, self.blocks * self.block);
        let (whole, each, labels) = self.shapes();
        let mut b = GraphBuilder::new("nibbles", Arc::new(WeightStore::default()));
        let x = b.input("x", self.x, vec![Dim::from(self.rows), Dim::from(terms)]);
        let mut inputs = vec![
            b.constant("w", bytes(self.weights, &whole, 2)).unwrap(),
            b.constant("scale", values(self.x, &each, 3)).unwrap(),
        ];
        let zero = match self.zeros {
            Zeros::Packed => Some(self.weights),
            Zeros::Bytes => Some(DType::U8),
            Zeros::None | Zeros::Eight => None,
        };
        if let Some(d) = zero {
            inputs.push(b.constant("zero", bytes(d, &each, 4)).unwrap());
        }
        let mut e = ExprBuilder::new();
        let given = [Some(self.weights), Some(self.x), zero];
        let args: Vec<_> = (0..inputs.len())
            .map(|i| e.input(i as u32, given[i].unwrap()))
            .collect();
        let mut w = e.cast(args[0], self.x);
        let zero = match args.get(2) {
            Some(&z) => Some(e.cast(z, self.x)),
            None if self.zeros == Zeros::Eight => Some(e.constant(8.0, self.x)),
            None => None,
        };
        if let Some(z) = zero {
            w = e.sub(w, z);
        }
        let w = e.mul(w, args[1]);
        let w = node(&mut b, Op::Map(e.finish(&[w])), &inputs, "expanded");
        let flat = match self.across {
            false => [n, terms],
            true => [terms, n],
        };
        let shape = flat.map(Dim::from).to_vec();
        let w = node(&mut b, Op::View(View::Reshape(shape)), &[w], "flat");
        let y = node(
            &mut b,
            product(&[0, 1], &labels, &[0, 2]),
            &[x, w],
            "product",
        );
        b.finish(&[y])
    }

    fn bench(&self) -> Emulated {
        let model = Model::from_graph("nibbles", &self.graph(), &ModelOptions::default()).unwrap();
        Emulated::new(self.gpu, EmulatedGpu::named(self.gpu).unwrap(), None, model)
    }
}

/// The steps of a case's plan.
fn steps(bench: &Emulated) -> Vec<Step> {
    let session = &bench.session;
    let plan = session.plan(&session.model().dims().clone()).unwrap();
    let all = plan.blocks().flat_map(|b| b.steps.clone());
    all.collect()
}

/// Whether a step's product widens numbers of 4 bits, and whether by fragments.
fn widens(s: &Step) -> Option<bool> {
    let StepWork::Kernel {
        kernel, schedule, ..
    } = &s.work
    else {
        return None;
    };
    let numbers = |k: &Kernel| (0..k.tiles.len() as TileId).any(|t| k.numbers_of(t).is_some());
    let Mapping::Gpu(g) = &schedule.mapping else {
        return None;
    };
    numbers(kernel).then(|| g.fragment.is_some())
}

#[test]
fn random_products_agree() {
    let mut found = [0; 3];
    for seed in Share::cases(48, 8) {
        let case = Case::random(seed);
        let bench = case.bench();
        let x = values(case.x, &[case.rows, case.blocks * case.block], 1);
        let got = bench.answer(&[("x", &x)]);
        let want = &run_graph(&case.graph(), &[x]).unwrap()[0];
        // Sums in another order.
        let limit = match case.x {
            DType::F32 => 2e-5,
            DType::F16 => 4e-3,
            _ => 3e-2,
        };
        let apart = difference(&got, want);
        let how = steps(&bench).iter().find_map(widens);
        found[how.map_or(2, usize::from)] += 1;
        assert!(apart <= limit, "seed {seed}, {case:?}, {how:?}: {apart}");
    }
    println!("{found:?} by threads, by fragments, from wide copies");
}

/// A case as large as layers of language models are.
fn layer(rows: usize, x: DType) -> Case {
    Case {
        rows,
        columns: 4096,
        blocks: 128,
        block: 32,
        weights: DType::U4,
        x,
        zeros: Zeros::Eight,
        across: false,
        gpu: "a100",
    }
}

#[test]
fn one_row_and_a_few_read_four_bits() {
    for x in [DType::F32, DType::F16] {
        for (rows, fragments) in [(1, false), (16, true)] {
            let how = steps(&layer(rows, x).bench()).iter().find_map(widens);
            assert_eq!(how, Some(fragments), "{rows} rows of {x}");
        }
    }
}
