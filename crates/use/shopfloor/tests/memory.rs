//! Memory over many requests. One test: resident memory is the whole process's.

use graph::{ContractSpec, GraphBuilder, Op, Origin};
use layout::Dim;
use shopfloor::{DType, Model, ModelOptions, Session, Tensor, inputs};
use std::sync::Arc;
use tensor::WeightStore;

/// Resident bytes of this process.
fn resident() -> u64 {
    let text = std::fs::read_to_string("/proc/self/statm").unwrap();
    let pages: u64 = text.split(' ').nth(1).unwrap().parse().unwrap();
    pages * 4096
}

/// Two products in a row over rows of any number.
fn model() -> Model {
    let mut weights = WeightStore::new();
    let matrix = vec![0.125f32; 64 * 64];
    let w = weights
        .add_tensor("w", Tensor::from_f32(&[64, 64], &matrix).unwrap())
        .unwrap();
    let mut b = GraphBuilder::new("rows", Arc::new(weights));
    let shape = vec![Dim::sym("batch"), Dim::sym("rows"), Dim::from(64usize)];
    let x = b.input("x", DType::F32, shape);
    let w = b.weight(w).unwrap();
    let origin = Origin {
        name: "product".into(),
        op_type: "MatMul".into(),
    };
    let spec = ContractSpec {
        a: vec![0, 1, 2],
        b: vec![2, 3],
        out: vec![0, 1, 3],
    };
    let y = b
        .node(Op::Contract(spec.clone()), &[x, w], &["y"], &origin)
        .unwrap()[0];
    let z = b
        .node(Op::Contract(spec), &[y, w], &["z"], &origin)
        .unwrap()[0];
    Model::from_graph("rows", &b.finish(&[z]), &ModelOptions::default()).unwrap()
}

#[test]
#[cfg(target_os = "linux")]
fn random_shapes_leave_memory_flat() {
    if !testing::turn("random_shapes_leave_memory_flat") {
        return;
    }
    let session = Session::builder().with_threads(2).commit(model()).unwrap();
    let mut state = 0x1234_5678_9ABC_DEF0u64;
    let mut random = |n: usize| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state % n as u64) as usize + 1
    };
    let request = |batch: usize, rows: usize| {
        let x = Tensor::from_f32(&[batch, rows, 64], &vec![1.0; batch * rows * 64]).unwrap();
        let out = session.run(inputs!["x" => &x]).unwrap();
        assert_eq!(out["z"].shape(), [batch, rows, 64]);
        assert_eq!(&out["z"].bytes()[..4], 64f32.to_le_bytes());
    };
    // The largest first: what follows fits into what it took.
    request(8, 200);
    for _ in 0..500 {
        request(random(8), random(200));
    }
    let before = resident();
    for _ in 0..5000 {
        request(random(8), random(200));
    }
    let after = resident();
    assert!(
        after < before + (8 << 20),
        "{} MiB became {} MiB",
        before >> 20,
        after >> 20
    );
}
