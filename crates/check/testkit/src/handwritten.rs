//! Small graphs that tests write by hand: their nodes, their numbers, and a decoder with a cache.
use graph::{ContractSpec, GraphBuilder, Op, Origin, ValueId};
use layout::{DType, Dim};
use shopfloor::{Model, ModelOptions};
use std::sync::Arc;
use tensor::{Tensor, WeightStore};

/// Where a node comes from that no file has.
pub fn origin(name: &str) -> Origin {
    Origin {
        name: name.into(),
        op_type: String::new(),
    }
}

/// Adds a node with one output of the same name.
///
/// # Panics
/// Where the operands do not fit the operator.
pub fn node(b: &mut GraphBuilder, op: Op, of: &[ValueId], name: &str) -> ValueId {
    b.node(op, of, &[name], &origin(name)).expect(name)[0]
}

/// The product of two tensors by the labels of their axes and of the result's.
pub fn product(a: &[u8], b: &[u8], out: &[u8]) -> Op {
    Op::Contract(ContractSpec {
        a: a.to_vec(),
        b: b.to_vec(),
        out: out.to_vec(),
    })
}

/// Values in -1..1 that repeat from run to run.
///
/// # Panics
/// Where there is no memory for them.
pub fn values(d: DType, shape: &[usize], seed: u64) -> Tensor {
    let mut t = Tensor::zeros(d, shape).expect("memory");
    let mut drawn = fastrand::Rng::with_seed(seed);
    for i in 0..t.len() {
        t.set_f64(i, f64::from(2.0 * drawn.f32() - 1.0));
    }
    t
}

/// Any bytes as a tensor.
///
/// # Panics
/// Where there is no memory for them.
pub fn bytes(d: DType, shape: &[usize], seed: u64) -> Tensor {
    let mut drawn = fastrand::Rng::with_seed(seed);
    let count = d.bytes_for(shape.iter().product()).expect("memory");
    let all = (0..count).map(|_| drawn.u8(..)).collect();
    Tensor::from_bytes(d, shape, all).expect("as many bytes")
}

/// Attention without a softmax, rows of `width`, over a cache `past` of `p` rows that grows by one with
/// every request: `x` and `past` to `y` and `present`, each with the axes that `batch` gives in front.
///
/// # Panics
/// Never, for any width that fits into memory.
pub fn decoder(width: usize, batch: &[Dim]) -> Model {
    let mut weights = WeightStore::new();
    let value = |j: usize| ((j * 7) % 17) as f32 / 34.0 - 0.2;
    let matrix: Vec<f32> = (0..width * width).map(value).collect();
    let w = Tensor::from_f32(&[width, width], &matrix).expect("a matrix");
    let w = weights.add_tensor("w", w).expect("a weight");
    let mut b = GraphBuilder::new("decoder", Arc::new(weights));
    let rows = |n: Dim| [batch, &[n, Dim::from(width)]].concat();
    let x = b.input("x", DType::F32, rows(Dim::ONE));
    let past = b.input("past", DType::F32, rows(Dim::sym("p")));
    let w = b.weight(w).expect("a weight");
    // Labels of the batch come first and stay.
    let n = batch.len() as u8;
    let of = |labels: [u8; 2]| -> Vec<u8> { (0..n).chain(labels.map(|l| n + l)).collect() };
    let row = product(&of([0, 1]), &[n + 1, n + 2], &of([0, 2]));
    let row = node(&mut b, row, &[x, w], "row");
    let join = Op::Concat { axis: batch.len() };
    let present = node(&mut b, join, &[past, row], "present");
    let scores = product(&of([0, 1]), &of([2, 1]), &of([0, 2]));
    let scores = node(&mut b, scores, &[x, present], "scores");
    let y = product(&of([0, 1]), &of([1, 2]), &of([0, 2]));
    let y = node(&mut b, y, &[scores, present], "y");
    let graph = b.finish(&[y, present]);
    let options = ModelOptions {
        states: vec![("past".into(), "present".into())],
        ..ModelOptions::default()
    };
    Model::from_graph("decoder", &graph, &options).expect("a model")
}
