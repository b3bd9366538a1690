//! A kernel as a node of a graph: the oracle runs its text.
use graph::{GraphBuilder, KernelSpec, Op, Origin};
use layout::{DType, Dim};
use std::sync::Arc;
use tensor::{Tensor, WeightStore};

#[test]
fn a_node_with_a_kernel_is_evaluated_by_its_text() {
    let text = "
        kernel difference (map)
        space  i: n
        read   a f32 = i*(1)
        write  d f32 = i*(1)
        read   b f32 = i*(1)
        x : f32 [i] = load a
        y : f32 [i] = load b
        z : f32 [i] = x - y
        store d = z";
    let mut b = GraphBuilder::new("g", Arc::new(WeightStore::new()));
    let n = || vec![Dim::sym("n")];
    let inputs = ["a", "b"].map(|name| b.input(name, DType::F32, n()));
    let op = Op::Kernel(KernelSpec {
        operator: "my.co:Difference".into(),
        text: text.into(),
        symbols: vec!["n".into()],
        equal: vec![],
    });
    let origin = Origin {
        name: "d".into(),
        op_type: "Difference".into(),
    };
    let shape = vec![Some(Dim::sym("n"))];
    let d = b.node_with_shapes(op, &inputs, &[("d", DType::F32, shape)], &origin);
    let g = b.finish(&d);
    g.verify().unwrap();
    let a = Tensor::from_f32(&[3], &[5.0, 7.0, 9.0]).unwrap();
    let b = Tensor::from_f32(&[3], &[1.0, 2.0, 4.0]).unwrap();
    let out = shopfloor_reference::run_graph(&g, &[a, b]).unwrap();
    assert_eq!(out[0].to_f32().unwrap(), [4.0, 5.0, 5.0]);
}
