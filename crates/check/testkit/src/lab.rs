//! Products that were measured on an H100: the stages of a recipe in plain PTX, and what cuBLAS took.
use crate::handwritten::{node, product};
use expr::{Binary, Compare, ExprBuilder, Monoid, Ref, Unary};
use graph::{AttentionSpec, GraphBuilder, Op, ValueId};
use kernel::{Fragment, Target};
use layout::{DType, Dim};
use shopfloor::{Error, Model, ModelOptions, Precision};
use std::sync::Arc;
use tensor::{Tensor, WeightStore};

/// Rows, columns and depth of the square products.
pub const SIZES: [i64; 4] = [1024, 2048, 4096, 8192];
/// Rows of the products with few, of [`WIDE`] columns and depth.
pub const ROWS: [i64; 5] = [1, 16, 64, 128, 512];
/// Columns and depth of the products with few rows.
pub const WIDE: i64 = 4096;

/// A stage of the recipe: what its schedules may have, and TFLOPS for bf16 products of [`SIZES`].
pub struct Stage {
    /// As the recipe calls it.
    pub name: &'static str,
    /// Rows and columns of a task.
    pub tile: (u32, u32),
    /// Pieces of the depth that are in shared memory.
    pub stages: u32,
    /// Warps of its matrix instruction.
    pub warps: u32,
    /// Warps that only copy.
    pub copiers: u32,
    /// Whether CTAs walk tasks.
    pub walking: bool,
    /// Bytes that a lane stores at once; 0: what it has.
    pub store_bytes: u32,
    /// What it reached.
    pub measured: [f64; 4],
}

/// Of `../shared/gpu/h100-lab.txt`. The stage with bulk copies by threads that multiply too is none that a schedule has.
pub const STAGES: [Stage; 4] = [
    Stage {
        name: "s1 mma.sync 128x128x64 3st",
        tile: (128, 128),
        stages: 3,
        warps: 1,
        copiers: 0,
        walking: false,
        store_bytes: 0,
        measured: [121.5, 304.9, 364.5, 356.5],
    },
    Stage {
        name: "s3a 128x128 5st",
        tile: (128, 128),
        stages: 5,
        warps: 4,
        copiers: 4,
        walking: false,
        store_bytes: 0,
        measured: [220.9, 466.0, 571.5, 598.4],
    },
    Stage {
        name: "s3b 128x256 4st",
        tile: (128, 256),
        stages: 4,
        warps: 4,
        copiers: 4,
        walking: false,
        store_bytes: 0,
        measured: [129.5, 495.7, 704.7, 760.5],
    },
    Stage {
        name: "s5 128x256 4st",
        tile: (128, 256),
        stages: 4,
        warps: 4,
        copiers: 4,
        walking: true,
        store_bytes: 16,
        measured: [172.3, 727.6, 802.1, 809.9],
    },
];

/// Seconds that cuBLAS took on an H100 for a product of `rows` by `n` by `n`, where that was measured: in bf16 and TF32, by
/// `../shared/gpu/h100-lab.txt`.
pub fn cublas(dtype: DType, precision: Precision, rows: i64, n: i64) -> Option<f64> {
    let (squares, few): ([f64; 4], [f64; 5]) = match (dtype, precision) {
        (DType::BF16, _) => ([380.5, 688.9, 803.2, 801.3], [13.8, 16.6, 14.4, 14.9, 24.7]),
        (DType::F32, Precision::Tf32) => {
            ([145.2, 347.9, 404.8, 399.7], [24.5, 29.9, 34.4, 31.7, 61.9])
        }
        _ => return None,
    };
    let at = |list: &[i64]| list.iter().position(|&x| x == rows);
    match rows == n {
        true => at(&SIZES).map(|i| 2.0 * (n as f64).powi(3) / (squares[i] * 1e12)),
        false if n == WIDE => at(&ROWS).map(|i| few[i] * 1e-6),
        false => None,
    }
}

/// An attention that was measured, and microseconds that the kernels of `../shared/gpu/lab2` took for it in f16, by
/// `../shared/gpu/h100-lab2.txt`.
pub struct Attention {
    /// Heads.
    pub heads: i64,
    /// Queries and keys.
    pub length: i64,
    /// Elements of each.
    pub depth: i64,
    /// What was measured.
    pub measured_us: f64,
}

/// Which keys queries see.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Mask {
    /// All.
    None,
    /// Those up to their own.
    Causal,
    /// The same, but the last query may see all, which are those up to its own: no loop leaves any out.
    CausalButLast,
}

/// None of them masked.
pub const ATTENTIONS: [Attention; 4] = [
    Attention::of((24, 197, 64), 4.84),
    Attention::of((6, 1500, 64), 19.02),
    Attention::of((12, 4096, 64), 130.15),
    Attention::of((32, 4096, 128), 491.19),
];

impl Attention {
    const fn of((heads, length, depth): (i64, i64, i64), measured_us: f64) -> Attention {
        Attention {
            heads,
            length,
            depth,
            measured_us,
        }
    }

    /// It of inputs `q`, `k` and `v`.
    ///
    /// # Errors
    /// It cannot be imported.
    pub fn model(&self, dtype: DType) -> Result<Model, Error> {
        self.masked(dtype, Mask::None)
    }

    /// It with a mask.
    ///
    /// # Errors
    /// It cannot be imported.
    pub fn masked(&self, dtype: DType, mask: Mask) -> Result<Model, Error> {
        let mut b = GraphBuilder::new("attention", Arc::new(WeightStore::new()));
        let shape = [self.heads, self.length, self.depth].map(Dim::Known);
        let inputs = ["q", "k", "v"].map(|name| b.input(name, dtype, shape.to_vec()));
        let mut e = ExprBuilder::new();
        let x = e.input(0, dtype);
        let scale = e.constant(1.0 / (self.depth as f64).sqrt(), dtype);
        let mut score = e.mul(x, scale);
        if mask != Mask::None {
            let (query, key) = (e.index(1), e.index(2));
            let mut seen = e.compare(Compare::Le, key, query);
            if mask == Mask::CausalButLast {
                let last = e.int(self.length - 1, DType::I64);
                let all = e.compare(Compare::Eq, query, last);
                seen = e.binary(Binary::Or, seen, all);
            }
            let none = e.constant(f64::NEG_INFINITY, dtype);
            score = e.select(seen, score, none);
        }
        let spec = AttentionSpec {
            score: e.finish(&[score]),
            undefined: Default::default(),
        };
        let y = node(&mut b, Op::Attention(spec), &inputs, "attention");
        Model::from_graph("attention", &b.finish(&[y]), &ModelOptions::default())
    }
}

/// Products and norms of rows in turns, each of what the one before made: 24 steps with weights in bf16 that no cache holds,
/// and microseconds that each took of a graph of `../shared/gpu/lab2` (section 8 of GPU.md), of plain nodes and of nodes
/// that are launched early and copy their weights before they wait.
pub struct Chain {
    /// Rows.
    pub tokens: i64,
    /// Of a plain graph.
    pub plain_us: f64,
    /// With weights before the wait.
    pub early_us: f64,
}

/// Steps of a chain.
pub const CHAIN_STEPS: usize = 24;

/// What was measured.
pub const CHAINS: [Chain; 3] = [
    Chain {
        tokens: 16,
        plain_us: 2.8866,
        early_us: 2.0827,
    },
    Chain {
        tokens: 64,
        plain_us: 3.4397,
        early_us: 2.9909,
    },
    Chain {
        tokens: 128,
        plain_us: 4.5508,
        early_us: 4.0133,
    },
];

impl Chain {
    /// It of an input `x`.
    ///
    /// # Errors
    /// It cannot be imported.
    pub fn model(&self) -> Result<Model, Error> {
        const BF16: DType = DType::BF16;
        let sides = [[768usize, 768], [768, 3072], [3072, 768]];
        let mut weights = WeightStore::new();
        let products = (0..CHAIN_STEPS / 2).map(|i| {
            let shape = sides[i % sides.len()];
            let w = Tensor::zeros(BF16, &shape).expect("memory");
            let id = weights.add_tensor(&format!("w{i}"), w);
            (id.expect("a name that is free"), shape[1])
        });
        let products: Vec<_> = products.collect();
        let mut b = GraphBuilder::new("chain", Arc::new(weights));
        let mut x = b.input("x", BF16, vec![Dim::Known(self.tokens), Dim::Known(768)]);
        for (i, (w, columns)) in products.into_iter().enumerate() {
            let w = b.weight(w).expect("a weight");
            let y = node(
                &mut b,
                product(&[0, 1], &[1, 2], &[0, 2]),
                &[x, w],
                &format!("y{i}"),
            );
            x = norm(&mut b, y, columns, i);
        }
        Model::from_graph("chain", &b.finish(&[x]), &ModelOptions::default())
    }
}

/// Rows of `y` less their mean, by the root of their variance.
fn norm(b: &mut GraphBuilder, y: ValueId, columns: usize, i: usize) -> ValueId {
    type Make<'m> = &'m dyn Fn(&mut ExprBuilder, &[Ref]) -> Ref;
    let mut number = 0;
    let mut add = |b: &mut GraphBuilder, op: Op, of: &[ValueId]| {
        number += 1;
        node(b, op, of, &format!("n{i}.{number}"))
    };
    let map = |types: &[DType], make: Make| {
        let mut e = ExprBuilder::new();
        let args: Vec<Ref> = (0..).zip(types).map(|(s, &d)| e.input(s, d)).collect();
        let out = make(&mut e, &args);
        Op::Map(e.finish(&[out]))
    };
    let mean = || Op::Reduce {
        monoid: Monoid::mean(DType::F32, DType::F32, &Dim::from(columns)),
        axes: vec![1],
        keep: true,
    };
    let f = DType::F32;
    let y = add(b, map(&[DType::BF16], &|e, a| e.cast(a[0], f)), &[y]);
    let m = add(b, mean(), &[y]);
    let c = add(b, map(&[f; 2], &|e, a| e.sub(a[0], a[1])), &[y, m]);
    let q = add(b, map(&[f], &|e, a| e.mul(a[0], a[0])), &[c]);
    let v = add(b, mean(), &[q]);
    let root = map(&[f; 2], &|e, a| {
        let small = e.constant(1e-5, f);
        let sum = e.add(a[1], small);
        let root = e.unary(Unary::Rsqrt, sum);
        let x = e.mul(a[0], root);
        e.cast(x, DType::BF16)
    });
    add(b, root, &[c, v])
}

impl Stage {
    /// `target` with the schedules of this stage alone.
    pub fn of(&self, mut target: Target) -> Target {
        let Some(gpu) = &mut target.gpu else {
            return target;
        };
        gpu.tiles = vec![self.tile];
        gpu.stages = vec![self.stages];
        gpu.depths = vec![64];
        gpu.threads = vec![256];
        gpu.copiers = vec![self.copiers];
        gpu.walking = self.walking;
        gpu.clusters = vec![];
        gpu.store_bytes = self.store_bytes;
        gpu.rasters = vec![8];
        gpu.splits = vec![];
        let own = |f: &Fragment| f.warps() == self.warps;
        gpu.fragments.retain(own);
        target
    }
}

/// A kernel that reads memory that no cache holds by loads of 16 bytes, and what it reached on an H100.
pub struct Reading {
    /// CTAs of each multiprocessor.
    pub ctas: i64,
    /// Threads of each.
    pub threads: u32,
    /// Loads of a thread that are under way at once.
    pub loads: u32,
    /// Bytes per second.
    pub measured: f64,
}

/// Of section 4 of `../shared/gpu/h100-lab.txt`, those whose numbers of threads and loads schedules have.
pub const READINGS: [Reading; 10] = [
    Reading::of((1, 256, 2), 2025e9),
    Reading::of((1, 256, 4), 2683e9),
    Reading::of((2, 128, 2), 2032e9),
    Reading::of((2, 128, 4), 2680e9),
    Reading::of((2, 256, 2), 2784e9),
    Reading::of((2, 256, 4), 3049e9),
    Reading::of((4, 128, 2), 2788e9),
    Reading::of((4, 128, 4), 2978e9),
    Reading::of((4, 256, 2), 3087e9),
    Reading::of((4, 256, 4), 3079e9),
];

impl Reading {
    const fn of((ctas, threads, loads): (i64, u32, u32), measured: f64) -> Reading {
        Reading {
            ctas,
            threads,
            loads,
            measured,
        }
    }

    /// Bytes that its model reads, on so many multiprocessors.
    pub fn bytes(&self, workers: i64) -> i64 {
        2 * Self::ROWS * self.columns(workers)
    }

    /// Rows of the matrix that is read.
    const ROWS: i64 = 32_768;

    /// Columns of it: a line of 64 for each CTA.
    fn columns(&self, workers: i64) -> i64 {
        64 * self.ctas * workers
    }

    /// A product of one row with a matrix, both inputs, whose time is that of reading the matrix.
    ///
    /// # Errors
    /// It cannot be imported.
    pub fn model(&self, workers: i64) -> Result<Model, Error> {
        let mut b = GraphBuilder::new("reading", Arc::new(WeightStore::new()));
        let (rows, columns) = (Dim::Known(Self::ROWS), self.columns(workers));
        let x = b.input("x", DType::BF16, vec![Dim::Known(1), rows.clone()]);
        let w = b.input("w", DType::BF16, vec![rows, Dim::Known(columns)]);
        let y = node(&mut b, product(&[0, 1], &[1, 2], &[0, 2]), &[x, w], "y");
        Model::from_graph("reading", &b.finish(&[y]), &ModelOptions::default())
    }

    /// `target` with its threads and loads alone.
    pub fn target(&self, mut target: Target) -> Target {
        if let Some(gpu) = &mut target.gpu {
            gpu.threads = vec![self.threads];
            gpu.unrolls = vec![self.loads];
            gpu.splits = vec![];
        }
        target
    }
}

/// A product of input `x`, of `rows` by `k`, with the constant `w`.
///
/// # Errors
/// It cannot be imported.
pub fn model(rows: i64, w: Tensor, precision: Precision) -> Result<Model, Error> {
    let (dtype, k) = (w.dtype(), w.shape()[0]);
    let mut weights = WeightStore::new();
    let w = weights.add_tensor("w", w).expect("a name that is free");
    let mut b = GraphBuilder::new("product", Arc::new(weights));
    let x = b.input("x", dtype, vec![Dim::Known(rows), Dim::from(k)]);
    let w = b.weight(w).expect("a weight");
    let y = node(&mut b, product(&[0, 1], &[1, 2], &[0, 2]), &[x, w], "y");
    let options = ModelOptions {
        precision,
        ..ModelOptions::default()
    };
    Model::from_graph("product", &b.finish(&[y]), &options)
}
