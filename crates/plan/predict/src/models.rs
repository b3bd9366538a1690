//! Whole models: the calls of a traced graph, run eagerly one after the other.
//!
//! `data/graphs.csv` holds the nodes of published traces of one layer with both ends, as sizes alone (no
//! time of theirs is read). A model repeats the layer as often as its row says, other batches scale it.
//! Dropouts stand at a model's end: they run in training alone.

use crate::Constants;
use crate::kernels::{Function, Reads};
use crate::ops::{Library, Op, Product};
use layout::DType;
use std::sync::OnceLock;

/// One node.
struct Node {
    model: String,
    /// Tokens of a sample.
    seq: u64,
    /// Samples of the trace.
    batch: u64,
    /// In the layer that is repeated.
    layer: bool,
    op: String,
    inputs: Vec<Vec<u64>>,
    output: Vec<u64>,
    /// `Linear`, `BMM`, `VECln`, ...; empty where the trace names none.
    kind: String,
    sizes: Vec<u64>,
}

fn sizes(text: &str) -> Vec<u64> {
    text.split('x').filter_map(|d| d.parse().ok()).collect()
}

fn nodes() -> &'static [Node] {
    static ALL: OnceLock<Vec<Node>> = OnceLock::new();
    ALL.get_or_init(|| {
        let text = include_str!("../data/graphs.csv");
        let one = |line: &str| {
            let f: Vec<&str> = line.split(',').collect();
            let (kind, kernel) = f.get(7)?.split_once(':').unwrap_or((f[7], ""));
            Some(Node {
                model: f[0].into(),
                seq: f[1].parse().ok()?,
                batch: f[2].parse().ok()?,
                layer: f[3] == "layer",
                op: f[4].into(),
                inputs: f[5].split('|').map(sizes).collect(),
                output: sizes(f[6]),
                kind: kind.into(),
                sizes: sizes(kernel),
            })
        };
        text.lines().skip(1).filter_map(one).collect()
    })
}

/// A run of a model.
pub struct Run<'a> {
    /// Its name in the traces.
    pub model: &'a str,
    /// Samples.
    pub batch: u64,
    /// Tokens of a sample.
    pub seq: u64,
    /// How often the layer repeats.
    pub layers: u64,
    /// Forward and backward, not forward alone.
    pub train: bool,
    /// Element-wise functions are fused into one kernel with their neighbours.
    pub fused: bool,
}

impl Node {
    /// `n` elements of a first axis for `batch` samples: masks of all samples stay as they are.
    fn scaled(&self, dims: &[u64], batch: u64) -> f64 {
        let n: f64 = dims.iter().map(|&d| d as f64).product();
        let mask = matches!(dims, [a, rest @ ..] if *a == self.seq && rest.iter().all(|d| *d == self.seq || *d == 1));
        match dims.first() {
            Some(&first) if first.is_multiple_of(self.batch) && !mask => {
                n * batch as f64 / self.batch as f64
            }
            _ => n,
        }
    }

    /// What the node calls, for `batch` samples.
    fn call(&self, batch: u64) -> Option<Op> {
        let dtype = DType::F32;
        let scale = |n: u64| (n * batch).div_ceil(self.batch);
        let product = |b: u64, m: u64, k: u64, n: u64, tb, bias| {
            Op::Product(Product {
                batch: b,
                m,
                n,
                k,
                ta: false,
                tb,
                bias,
                input: dtype,
                acc: dtype,
                output: dtype,
                units: true,
                windows: 0,
                fewer: false,
            })
        };
        Some(match (self.kind.as_str(), self.sizes.as_slice()) {
            // Modules keep their weights by rows of the output, `addmm` by columns.
            ("Linear", &[m, k, n]) => product(1, scale(m), k, n, self.op == "module", true),
            ("BMM", &[b, m, k, n]) => product(scale(b), m, k, n, false, false),
            ("VECsoftmax", &[rows, cols]) => Op::Softmax {
                rows: scale(rows),
                cols,
                dtype,
            },
            ("VECln", &[rows, cols]) => Op::LayerNorm {
                rows: scale(rows),
                cols,
                dtype,
            },
            _ => {
                let out = self.scaled(&self.output, batch);
                let second = self.inputs.get(1).map(|d| self.scaled(d, batch));
                let f = match self.op.as_str() {
                    "add" | "sub" | "max" => Function::Add,
                    "mul" => Function::Mul,
                    "truediv" => Function::Div,
                    "pow" => Function::Pow,
                    "tanh" => Function::Tanh,
                    "gelu" => Function::Gelu,
                    _ if self.kind == "VECrelu" => Function::Relu,
                    "where" | "masked_fill" | "masked_fill_" => Function::Add,
                    _ => Function::Copy,
                };
                let (second, cols) = match second {
                    Some(n) if n <= 1.0 => (Some(Reads::Scalar), 1.0),
                    Some(n) if n >= out => (Some(Reads::All), 1.0),
                    Some(n) if f != Function::Copy => (Some(Reads::Row), n),
                    _ => (None, 1.0),
                };
                Op::Elementwise {
                    f,
                    second,
                    rows: (out / cols).ceil() as u64,
                    cols: cols as u64,
                    dtype,
                }
            }
        })
    }
}

/// What a dropout of `cells` elements calls in training: drawing with scaling, and going back the scaled
/// mask as numbers, times the gradient.
fn dropout(cells: u64) -> [Op; 4] {
    let map = |second| Op::Elementwise {
        f: Function::Mul,
        second,
        rows: cells,
        cols: 1,
        dtype: DType::F32,
    };
    let one = map(Some(Reads::Scalar));
    [one, one, one, map(Some(Reads::All))]
}

/// What going back through a call calls: gradients of both factors of a product, of the input of others.
fn backward(op: Op) -> Vec<Op> {
    match op {
        Op::Product(p) => {
            // Neither has a bias to add; the second sums over rows.
            let left = Product {
                n: p.k,
                k: p.n,
                tb: !p.tb,
                bias: false,
                ..p
            };
            let right = Product {
                m: p.k,
                k: p.m,
                ta: true,
                tb: false,
                bias: false,
                ..p
            };
            vec![Op::Product(left), Op::Product(right)]
        }
        Op::Elementwise {
            f,
            second,
            rows,
            cols,
            dtype,
        } => {
            let back = |second| Op::Elementwise {
                f: Function::Mul,
                second,
                rows,
                cols,
                dtype,
            };
            match (f, second) {
                // A sum hands its gradient on.
                (Function::Add, _) => vec![],
                (_, Some(Reads::All)) => vec![back(second), back(second)],
                (Function::Copy, _) => vec![op],
                (_, Some(Reads::Scalar)) => vec![back(second)],
                _ => vec![back(Some(Reads::All))],
            }
        }
        Op::Softmax { rows, cols, dtype } => {
            let grad = Op::Elementwise {
                f: Function::Mul,
                second: Some(Reads::All),
                rows,
                cols,
                dtype,
            };
            vec![grad, op]
        }
        Op::LayerNorm { .. } => vec![op, op],
        other => vec![other],
    }
}

/// Predicted seconds of a run.
///
/// # Errors
/// Why there is no prediction.
pub fn seconds(run: &Run, library: &Library, c: &Constants) -> Result<f64, String> {
    let graph: Vec<&Node> = nodes()
        .iter()
        .filter(|n| n.model == run.model && n.seq == run.seq)
        .collect();
    if graph.is_empty() {
        return Err(format!("no graph of model {} at this length", run.model));
    }
    let mut total = 0.0;
    // The longest of the element-wise calls that are fused so far, and how often it runs.
    let mut open: Option<(f64, f64)> = None;
    let least = c.get("eager_call_us") * 1e-6;
    for node in graph {
        let times = if node.layer { run.layers as f64 } else { 1.0 };
        let one = |op: Op| {
            let s = library.seconds(op);
            s.map(|s| s.max(least))
                .ok_or_else(|| format!("op {} of this size has no program", node.op))
        };
        if node.op == "dropout" {
            let cells = node.scaled(&node.output, run.batch) as u64;
            for op in dropout(cells).into_iter().filter(|_| run.train) {
                total += one(op)? * times;
            }
            continue;
        }
        let op = node
            .call(run.batch)
            .ok_or_else(|| format!("op {} in a graph is not predicted", node.op))?;
        let forward = one(op)?;
        match (run.fused, op) {
            (true, Op::Elementwise { .. }) => {
                let longest = open.map_or(forward, |o| o.0.max(forward));
                open = Some((longest, times));
            }
            _ => {
                total += open.take().map_or(0.0, |o| o.0 * o.1) + forward * times;
            }
        }
        if run.train {
            for b in backward(op) {
                total += one(b)? * times;
            }
        }
    }
    Ok(total + open.map_or(0.0, |o| o.0 * o.1))
}
