//! Products that were measured on an H100: the stages of a recipe in plain PTX, and what cuBLAS took.
use crate::handwritten::{node, product};
use expr::ExprBuilder;
use graph::{AttentionSpec, GraphBuilder, Op};
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
        let mut b = GraphBuilder::new("attention", Arc::new(WeightStore::new()));
        let shape = [self.heads, self.length, self.depth].map(Dim::Known);
        let inputs = ["q", "k", "v"].map(|name| b.input(name, dtype, shape.to_vec()));
        let mut e = ExprBuilder::new();
        let x = e.input(0, dtype);
        let scale = e.constant(1.0 / (self.depth as f64).sqrt(), dtype);
        let score = e.mul(x, scale);
        let spec = AttentionSpec {
            score: e.finish(&[score]),
            undefined: Default::default(),
        };
        let y = node(&mut b, Op::Attention(spec), &inputs, "attention");
        Model::from_graph("attention", &b.finish(&[y]), &ModelOptions::default())
    }
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
        gpu.store_bytes = self.store_bytes;
        gpu.rasters = vec![8];
        gpu.splits = vec![];
        let own = |f: &Fragment| f.warps() == self.warps;
        gpu.fragments.retain(own);
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
